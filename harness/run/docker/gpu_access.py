"""Finds out how an engine gives GPUs to containers: tries each way in turn, and keeps the first that works.

`request` is what `docker run --gpus` does. Engines without that driver may have the runtime `nvidia`, or support CDI.
The engine's info does not say which of them works: it names runtimes and folders, not the driver of `--gpus`. Podman
accepts options that it does not understand, and starts the container without a GPU. It understands only CDI.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from docker.types import DeviceRequest

from harness.run.docker.client import UNKNOWN_CDI_DEVICE
from harness.run.docker.podman_version import is_podman

ALL = "all"
CDI_KIND = "nvidia.com/gpu"
VISIBLE = "NVIDIA_VISIBLE_DEVICES"
NO_GPU = "void"
ABSENT = re.compile(rf"could not select device driver|unknown runtime|{UNKNOWN_CDI_DEVICE}", re.IGNORECASE)

Way = Literal["request", "runtime", "cdi"]

WORDS: Mapping[Way, str] = {"request": "--gpus", "runtime": "--runtime nvidia", "cdi": "CDI"}


class GpuAccess:
    """The ways of an engine to give GPUs, by its `info`. The argument `gpus` holds UUIDs, or `all` alone."""

    def __init__(self, info: Mapping[str, Any]) -> None:
        self._ways = _ways(info)
        self._always_asked = info.get("DefaultRuntime") == "nvidia"

    @property
    def way(self) -> Way:
        return self._ways[0]

    @property
    def in_words(self) -> str:
        """Return the present way as a user writes it."""
        return WORDS[self.way]

    def refused(self, message: str) -> bool:
        """Return whether the engine lacks the present way and another is left; if so, switch to that one."""
        lacking = ABSENT.search(message) is not None and len(self._ways) > 1
        if lacking:
            del self._ways[0]
        return lacking

    def host_config(self, gpus: Sequence[str]) -> dict[str, Any]:
        """Return the arguments of `create_host_config` that request `gpus`; {} for none."""
        if not gpus:
            return {}
        if self.way == "runtime":
            return {"runtime": "nvidia"}
        return {"device_requests": [_request(gpus, cdi=self.way == "cdi")]}

    def environment(self, gpus: Sequence[str]) -> dict[str, str]:
        """Return the environment variables that the container needs as well.

        The runtime `nvidia` reads only the environment. If it is the default runtime, it must be switched off for
        trials without GPUs: NVIDIA's images request all GPUs by themselves.
        """
        if gpus and self.way == "runtime":
            return {VISIBLE: ",".join(gpus)}
        return {VISIBLE: NO_GPU} if self._always_asked and not gpus else {}


def _ways(info: Mapping[str, Any]) -> list[Way]:
    if is_podman(info):
        return ["cdi"]
    ways: list[Way] = ["request"]
    if "nvidia" in (info.get("Runtimes") or {}):
        ways.append("runtime")
    if info.get("CDISpecDirs"):
        ways.append("cdi")
    return ways


def _request(gpus: Sequence[str], *, cdi: bool) -> DeviceRequest:
    if cdi:
        return DeviceRequest(driver="cdi", device_ids=[f"{CDI_KIND}={gpu}" for gpu in gpus])
    if list(gpus) == [ALL]:
        return DeviceRequest(count=-1, capabilities=[["gpu"]])
    return DeviceRequest(device_ids=list(gpus), capabilities=[["gpu"]])
