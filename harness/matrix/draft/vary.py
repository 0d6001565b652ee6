"""Makes a series from the values of a variable, and the scenario of the command that runs with them in place."""

from __future__ import annotations

import csv
import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness.errors import UsageError
from harness.matrix.draft.copied import IN_A_SHELL, MOST_SOURCE_BYTES, check_size
from harness.matrix.draft.job import DraftJob
from harness.matrix.draft.series import DraftSeries
from harness.matrix.draft.words import checked_pattern, name_of, near_command, repeated_in, safe

VARIABLE = re.compile(r"[A-Za-z_]\w*", re.ASCII)


def varied(texts: Sequence[str]) -> tuple[DraftSeries, dict[str, Any]]:
    """Return the series of the first `NAME=a,b,c`, and for each further one the scenario's keys that make it a param.
    Raises UsageError."""
    (name, values), *others = map(_name_and_values, texts)
    if repeated := [other for other, _ in others if other == name] or repeated_in([other for other, _ in others]):
        raise UsageError(f"--vary {repeated[0]}: is given twice; write all of its values in one")
    keys: dict[str, Any] = {}
    if others:
        keys = {"params": dict(others), "environment": {other: f"{{{other}}}" for other, _ in others}}
    return DraftSeries(name=safe(name), entry={"vary": name, "versions": values}), keys


def _name_and_values(text: str) -> tuple[str, list[str]]:
    """Return the parts of `NAME=a,b,c`, which is one line of CSV: a value with a comma is in quotes. Raises
    UsageError."""
    name, equals, listed = text.partition("=")
    if not VARIABLE.fullmatch(name):
        example = "; write one such as IMAGE=app:1,app:2"
        raise UsageError(f"--vary {text}: {name!r} cannot name an environment variable{example}")
    try:
        values = next(csv.reader([listed], skipinitialspace=True, strict=True), [])
    except csv.Error as error:
        remedy = f"put a value with a comma in double quotes, as in --vary '{name}=\"-O2,-g\",-O3'"
        raise UsageError(f"--vary {text}: {error}; {remedy}") from error
    if not equals or len(values) < 2:
        raise UsageError(f"--vary {text}: needs two values or more; write {name}=a,b,c")
    if not all(values):
        raise UsageError(f"--vary {text}: has an empty value; name each value")
    if repeated := repeated_in(values):
        raise UsageError(f"--vary {text}: {repeated[0]!r} appears twice; give each value once")
    return name, values


def job_in_place(
    words: Sequence[str], *, folder: Path, files: Sequence[str], step_pattern: str | None, exit_code: bool
) -> DraftJob:
    """Return the scenario of a command that runs in `folder` itself. The files that it names are not copied, but if one
    changes, it is measured again. Raises UsageError."""
    path = folder / words[0]
    if "/" in words[0] and not path.is_file():
        raise UsageError(f"{words[0]}: no such file; name a program that exists")
    if "/" in words[0] and not os.access(path, os.X_OK):
        raise UsageError(f"{words[0]}: is not executable; run chmod +x on it, or start it with its interpreter")
    if "/" not in words[0] and shutil.which(words[0]) is None:
        near = near_command(words[0])
        meant = f"; did you mean {near!r}?" if near else ";"
        raise UsageError(f"{words[0]}: no such command on this machine{meant} a line for a shell is written: sh -c '…'")
    pieces = [*words, *(piece for word in words for piece in IN_A_SHELL.split(word))]
    named = (piece.split("=", 1)[-1] if piece.startswith("-") else piece for piece in pieces)
    paths = {name: folder / name for name in named if name and not Path(name).is_absolute() and ".." not in name}
    own = [name for name, path in paths.items() if path.is_file() and path.stat().st_size <= MOST_SOURCE_BYTES]
    carried = tuple(dict.fromkeys([*own, *files]))
    check_size(carried, folder)
    entry: dict[str, Any] = {
        "command": list(words),
        "folder": str(folder),
        **({"files": [str(folder / name) for name in carried]} if carried else {}),
        **({"step_pattern": checked_pattern(step_pattern)} if step_pattern else {}),
        **({"judge": "exit"} if exit_code else {}),
    }
    return DraftJob(name=name_of(words), entry=entry, carried=carried)
