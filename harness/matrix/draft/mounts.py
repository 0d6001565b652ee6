"""Makes the mounts of a scenario from the volumes that a user typed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness.errors import UsageError


def mounts_of(volumes: Sequence[str], caches: Sequence[str], folder: Path) -> dict[str, Any]:
    """Return the scenario's key for volumes that are written HOST:AT, as for `docker run -v`, and warm caches, written
    NAME:AT. A host's path may have colons, and is relative to `folder`. Raises UsageError."""
    mounts = []
    for volume in volumes:
        source, colon, at = volume.removesuffix(":ro").rpartition(":")
        if volume.endswith((":rw", ":z", ":Z")):
            raise UsageError(f"-v {volume}: data are mounted read-only, and never relabelled; write HOST:AT")
        if not colon or not source or not at:
            raise UsageError(f"-v {volume}: is not HOST:AT; write a path of the host and its path in the launch")
        mounts.append({"from": str(folder / Path(source).expanduser()), "at": at})
    for text in caches:
        name, colon, at = text.partition(":")
        if not colon or not name or not at:
            raise UsageError(f"--cache {text}: is not NAME:AT; write a name and its path in the launch")
        mounts.append({"cache": name, "at": at})
    return {"mounts": mounts} if mounts else {}
