"""Finds out how an engine gives GPUs to containers: tries each way in turn, and keeps the first that works.

`request` is what `docker run --gpus` does. Engines without that driver may have the runtime `nvidia`, or support CDI.
The engine's info does not show which way works: it lists runtimes and CDI folders, not the driver of `--gpus`. Podman
supports only CDI: it ignores other requests and starts the container without a GPU.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from docker.types import DeviceRequest

from harness.run.docker.docker_client import UNKNOWN_CDI_DEVICE, is_podman

ALL = "all"
CDI_KIND = "nvidia.com/gpu"
VISIBLE = "NVIDIA_VISIBLE_DEVICES"
NO_GPU = "void"
ABSENT = re.compile(rf"could not select device driver|unknown runtime|{UNKNOWN_CDI_DEVICE}", re.IGNORECASE)

Way = Literal["request", "runtime", "cdi"]

WORDS: Mapping[Way, str] = {"request": "--gpus", "runtime": "--runtime nvidia", "cdi": "CDI"}


class GpuAccess:
    """The ways in which an engine with this `info` may give GPUs to containers. The argument `gpus` of the methods is a
    list of UUIDs or [ALL]."""

    def __init__(self, info: Mapping[str, Any]) -> None:
        ways: dict[Way, bool] = {
            "request": True,
            "runtime": "nvidia" in (info.get("Runtimes") or {}),
            "cdi": bool(info.get("CDISpecDirs")),
        }
        self._ways: list[Way] = ["cdi"] if is_podman(info) else [way for way, there in ways.items() if there]
        self._always_asked = info.get("DefaultRuntime") == "nvidia"

    @property
    def way(self) -> Way:
        return self._ways[0]

    @property
    def in_words(self) -> str:
        """Return the present way as users know it: `--gpus`, `--runtime nvidia` or CDI."""
        return WORDS[self.way]

    def refused(self, message: str) -> bool:
        """Return whether `message` shows that the engine lacks the present way and another way is left; if so, switch
        to the next way."""
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
        if self.way == "cdi":
            request = DeviceRequest(driver="cdi", device_ids=[f"{CDI_KIND}={gpu}" for gpu in gpus])
        elif list(gpus) == [ALL]:
            request = DeviceRequest(count=-1, capabilities=[["gpu"]])
        else:
            request = DeviceRequest(device_ids=list(gpus), capabilities=[["gpu"]])
        return {"device_requests": [request]}

    def environment(self, gpus: Sequence[str]) -> dict[str, str]:
        """Return the environment variables that the container needs in addition.

        The runtime `nvidia` reads only the environment. If it is the default runtime, trials without GPUs must switch
        it off, because NVIDIA's images request all GPUs in their own environment.
        """
        if gpus and self.way == "runtime":
            return {VISIBLE: ",".join(gpus)}
        return {VISIBLE: NO_GPU} if self._always_asked and not gpus else {}
