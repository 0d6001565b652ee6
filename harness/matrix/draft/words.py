"""Reads words that a user typed: names, and lists in which each word comes once."""

from __future__ import annotations

import hashlib
import os
import re
import unicodedata
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from harness.errors import UsageError, nearest
from harness.model.forms import LETTERS


def safe(text: str) -> str:
    """Return a name that a matrix file allows. A text without any allowed character gets a name from its hash."""
    name = re.sub(rf"[^{LETTERS}_.-]+", "-", unicodedata.normalize("NFC", text)).strip("._-")[:48].rstrip("._-")
    return name or f"it-{hashlib.sha256(text.encode(errors='replace')).hexdigest()[:6]}"


def name_of(words: Sequence[str]) -> str:
    """Return the name of the scenario that runs these words."""
    telling = next((word for word in words[1:] if word.endswith((".py", ".sh"))), words[0])
    return safe(Path(telling).stem)


def near_command(name: str) -> str | None:
    """Return the command of this machine whose name is closest to this one; None if none is close."""
    known = set[str]()
    for folder in os.get_exec_path():
        with suppress(OSError):  # it does not exist, or the user may not list it
            known.update(path.name for path in Path(folder).iterdir() if path.name[:1] == name[:1])
    return nearest(name, known=sorted(known))


def repeated_in(words: Sequence[str]) -> list[str]:
    """Return the words that are not the first of their kind."""
    return [word for number, word in enumerate(words) if word in words[:number]]


def checked_pattern(pattern: str) -> str:
    """Return a regular expression that was typed. Raises UsageError if it is none."""
    try:
        re.compile(pattern)
    except re.error as error:
        raise UsageError(f"--step-pattern {pattern}: is not a regular expression: {error}") from error
    return pattern
