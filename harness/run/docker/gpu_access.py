"""How an engine gives GPUs to containers: one way after the other is tried, and the first that works is kept.

`request` is what `docker run --gpus` does. Engines without that driver may have the runtime `nvidia`, or know CDI.
Which is there cannot be asked: the engine's info names runtimes and folders, not the driver of `--gpus`. Podman is
another matter: it takes what it does not understand, and starts the container without a GPU. It understands CDI alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from docker.types import DeviceRequest

from harness.run.docker.client import UNKNOWN_CDI_DEVICE, is_podman

ALL = "all"
CDI_KIND = "nvidia.com/gpu"
VISIBLE = "NVIDIA_VISIBLE_DEVICES"
NO_GPU = "void"
ABSENT = re.compile(rf"could not select device driver|unknown runtime|{UNKNOWN_CDI_DEVICE}", re.IGNORECASE)

Way = Literal["request", "runtime", "cdi"]

WORDS: Mapping[Way, str] = {"request": "--gpus", "runtime": "--runtime nvidia", "cdi": "CDI"}


class GpuAccess:
    """The ways that an engine may have, by its `info`. `GPUs` are UUIDs, or `all` alone."""

    def __init__(self, info: Mapping[str, Any]) -> None:
        self._ways = _ways(info)
        self._always_asked = info.get("DefaultRuntime") == "nvidia"

    @property
    def way(self) -> Way:
        return self._ways[0]

    @property
    def in_words(self) -> str:
        return WORDS[self.way]

    def refused(self, message: str) -> bool:
        """Whether the engine lacks the present way, and another is left: then that is the present one."""
        lacking = ABSENT.search(message) is not None and len(self._ways) > 1
        if lacking:
            del self._ways[0]
        return lacking

    def host_config(self, gpus: Sequence[str]) -> dict[str, Any]:
        """The arguments of `create_host_config` that ask for `gpus`; nothing for none."""
        if not gpus:
            return {}
        if self.way == "runtime":
            return {"runtime": "nvidia"}
        return {"device_requests": [_request(gpus, cdi=self.way == "cdi")]}

    def environment(self, gpus: Sequence[str]) -> dict[str, str]:
        """What the container's environment must say beside it.

        The runtime `nvidia` goes by the environment alone. Where it is the default, NVIDIA's images (which ask for all
        GPUs by themselves) would get them unasked.
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
