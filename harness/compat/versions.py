"""Parses versions of drivers, CUDA and compute capabilities into comparable tuples of numbers."""

from __future__ import annotations

import re

Numbers = tuple[int, ...]

LEADING = re.compile(r"\s*[vVrR]?(\d{1,9}(?:\.\d{1,9})*)")


def numbers(text: str | None) -> Numbers | None:
    """Parse `535.104.05-server` into (535, 104, 5), without trailing zeros: `11.8.0` is (11, 8). None if the text does
    not begin with a number.
    """
    match = LEADING.match(text or "")
    if match is None:
        return None
    parts = [int(part) for part in match[1].split(".")]
    while parts and not parts[-1]:
        parts.pop()
    return tuple(parts)


def major_minor(text: str) -> str:
    """Shorten a CUDA version to its usual name: `11.1.1` -> `11.1`."""
    match = LEADING.match(text)
    return ".".join(match[1].split(".")[:2]) if match else text


def sm(capability: str) -> str:
    """Return the compiler's name of a compute capability: `8.9` -> `sm_89`."""
    return f"sm_{capability.replace('.', '')}"
