"""A CDI spec of the lab's doubles, as `nvidia-ctk cdi generate` writes one of real GPUs: by index, by UUID, and `all`.

A real one mounts the driver's files and devices. This one has the lab's hook put the doubles in: an engine may be asked
for several devices, and each device's part of the spec can only add to what the hook finds in the environment.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.lab.hook import CDI


def spec(data: Mapping[str, Any], *, hook: Path) -> dict[str, Any]:
    """`data` as in `hook.py`, `hook` the program that an engine finds as NVIDIA's."""
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
