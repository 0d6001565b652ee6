"""The checks of the plugin's double: whether each option is as pyxis 0.20 and enroot 3.5 require."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

from tests.slurm.doubles.common import STATE, check_image, interfaces, log, refuse
from tests.slurm.doubles.enroot import MAGIC

ALWAYS = {
    "container-readonly": "yes",
    "container-workdir": "/tmp",
    "no-container-mount-home": "yes",
    "no-container-remap-root": "yes",
}
IN_MEMORY = ["tmpfs:/tmp", "tmpfs:/.harness-data"]
MOUNT = re.compile(r'[^:\s"$`\\]+:[^:\s"$`\\]+:ro')
ENTRYPOINTS = {"container-entrypoint", "no-container-entrypoint"}
NAME = re.compile(r"(harness-trial-[\w.-]+):no_exec")
NO_ENTRYPOINT = 3
"""Exit code for a container that was once started without its entrypoint: it stays without."""
VARIABLES = ("NVIDIA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES,NVIDIA_DRIVER_CAPABILITIES")


def main(words: list[str]) -> None:
    given = dict(word.split("=", 1) for word in words)
    wrong = {name: given.pop(name, None) for name, value in ALWAYS.items() if given.get(name) != value}
    for name in ALWAYS:
        given.pop(name, None)
    mounts = given.pop("container-mounts", "").split(",")
    if mounts[:2] != IN_MEMORY or not all(map(MOUNT.fullmatch, mounts[2:])):
        refuse(f"could not add mount entry: {mounts}")
    entrypoint = ENTRYPOINTS & set(given)
    if wrong or len(entrypoint) != 1:
        refuse(f"left out, or other than was to be expected: {wrong or sorted(ENTRYPOINTS)}")
    found = NAME.fullmatch(given.get("container-name", ""))
    if found is None or given.get("container-env") not in VARIABLES or not os.environ["NVIDIA_VISIBLE_DEVICES"]:
        refuse(f"usage: {given}")
    if others := set(given) - {"container-image", "container-name", "container-env", *ENTRYPOINTS}:
        refuse(f"unknown: {others}")
    check_image(Path(given["container-image"]), MAGIC)
    container = STATE / "containers" / f"pyxis_{found[1]}"
    log(verb="start", image=given["container-image"], unpacked=not container.exists(), interfaces=interfaces(),
        environment=[f"NVIDIA_VISIBLE_DEVICES={os.environ['NVIDIA_VISIBLE_DEVICES']}"])  # fmt: skip
    container.parent.mkdir(exist_ok=True)
    container.touch()
    if (STATE / "full").exists():
        refuse("[ERROR] Write on output file failed because No space left on device")
    if "no-container-entrypoint" in given:
        container.write_text("/etc/rc.local")
    sys.exit(NO_ENTRYPOINT if container.read_text() else 0)


if __name__ == "__main__":
    main(sys.argv[1:])
