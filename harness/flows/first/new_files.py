"""Writes files for a user to start from: all of them or none. Nothing is overwritten."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from harness.errors import UsageError


def write_new(files: Mapping[Path, str], *, otherwise: str) -> list[Path]:
    """Write files that do not exist yet, and return their paths. Raises UsageError, which ends with the remedy
    `otherwise`, if a file exists or cannot be written.
    """
    made: list[Path] = []
    try:
        if taken := [str(path) for path in files if path.exists()]:
            raise UsageError(f"{', '.join(taken)}: exists already; {otherwise}")
        for path, text in files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("x", encoding="utf-8") as out:
                made.append(path)
                out.write(text)
    except OSError as error:
        for path in made:
            path.unlink(missing_ok=True)
        place = error.filename or next(iter(files)).parent
        raise UsageError(f"{place}: cannot write: {error.strerror}; {otherwise}") from error
    return list(files)
