"""Versions of drivers, CUDA and compute capabilities, compared number by number."""

from __future__ import annotations

import re

Numbers = tuple[int, ...]

LEADING = re.compile(r"\s*[vVrR]?(\d{1,9}(?:\.\d{1,9})*)")


def numbers(text: str | None) -> Numbers | None:
    """Parse `535.104.05-server` into (535, 104, 5). Trailing zeros are dropped: `11.8.0` is `11.8`. None if none."""
    found = LEADING.match(text or "")
    if found is None:
        return None
    parts = [int(part) for part in found[1].split(".")]
    while parts and not parts[-1]:
        parts.pop()
    return tuple(parts)


def short(text: str) -> str:
    """Shorten a CUDA version to its usual name: `11.1.1` -> `11.1`."""
    found = LEADING.match(text)
    return ".".join(found[1].split(".")[:2]) if found else text


def sm(capability: str) -> str:
    """Return the compiler's name of a compute capability: `8.9` -> `sm_89`."""
    return f"sm_{capability.replace('.', '')}"
