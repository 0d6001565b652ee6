"""Versions of drivers, CUDA and compute capabilities: numbers with dots, compared number by number."""

from __future__ import annotations

import re

Numbers = tuple[int, ...]

LEADING = re.compile(r"\s*[vVrR]?(\d{1,9}(?:\.\d{1,9})*)")


def numbers(text: str | None) -> Numbers | None:
    """`535.104.05-server` -> (535, 104, 5); zeros at the end say nothing: `11.8.0` is `11.8`. None for no version."""
    found = LEADING.match(text or "")
    if found is None:
        return None
    parts = [int(part) for part in found[1].split(".")]
    while parts and not parts[-1]:
        parts.pop()
    return tuple(parts)


def short(text: str) -> str:
    """`11.1.1` -> `11.1`: as people name a CUDA version."""
    found = LEADING.match(text)
    return ".".join(found[1].split(".")[:2]) if found else text


def sm(capability: str) -> str:
    """`8.9` -> `sm_89`, as the compiler names it."""
    return f"sm_{capability.replace('.', '')}"
