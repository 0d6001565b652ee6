"""Recognises Podman, which implements Docker's API, and refuses versions that are too old."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from harness.errors import EngineUnreachable

LEAST_PODMAN = (5, 4)  # the first whose API can change a restart policy (needed by the lease) and has device requests


def is_podman(info: Mapping[str, Any]) -> bool:
    """Return whether an engine's `info` is Podman's, which has Docker's fields and additional ones."""
    return "BuildahVersion" in info


def check_podman(info: Mapping[str, Any], *, place: object) -> None:
    """Raise EngineUnreachable for a Podman that would lose its lease and silently start trials without GPUs."""
    version = re.match(r"(\d+)\.(\d+)", str(info.get("ServerVersion")))
    if is_podman(info) and (version is None or (int(version[1]), int(version[2])) < LEAST_PODMAN):
        needed = ".".join(map(str, LEAST_PODMAN))
        raise EngineUnreachable(
            f"Podman {info.get('ServerVersion')} is too old; {needed} or later is needed", place=place
        )
