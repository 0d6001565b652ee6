"""A CDI spec of the lab's doubles, like the specs that `nvidia-ctk cdi generate` writes: by index, by UUID, and `all`.

A real spec mounts the driver's files and devices. In this one, the lab's hook installs the doubles: an engine may be
asked for several devices, and each device's part of the spec can only add to what the hook finds in the environment.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.lab.hook import CDI


def spec(data: Mapping[str, Any], *, hook: Path) -> dict[str, Any]:
    """Return the spec. `data` is as in `hook.py`; `hook` is the program that an engine uses as NVIDIA's hook."""
    variables = [f"{CDI}{index}={gpu['uuid']}" for index, gpu in enumerate(data["gpus"])]
    uuids = [str(gpu["uuid"]) for gpu in data["gpus"]]
    named = [(name, [variable]) for index, variable in enumerate(variables) for name in (str(index), uuids[index])]
    prestart = {"hookName": "prestart", "path": str(hook), "args": [hook.name, "prestart"]}
    return {
        "cdiVersion": "0.5.0",
        "kind": "nvidia.com/gpu",
        "containerEdits": {"env": ["NVIDIA_VISIBLE_DEVICES=void"], "hooks": [prestart]},
        "devices": [{"name": name, "containerEdits": {"env": told}} for name, told in (*named, ("all", variables))],
    }
