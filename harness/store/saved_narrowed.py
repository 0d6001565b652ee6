"""Keeps what `harness narrow` found beside the run that it belongs to: a file `narrow-N.json` for each narrowing."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

from pydantic import TypeAdapter

from harness.errors import UsageError
from harness.model import Narrowed
from harness.store import RunDirectory
from harness.store.json_files import read_json

PATTERN = "narrow-*.json"
MOST_FILES = 200
"""Most files of one run that are read."""
_FILE = TypeAdapter(Narrowed)


def keep(narrowed: Narrowed, directory: RunDirectory) -> Path:
    """Write a narrowing into a run's directory, in place of an earlier one of the same finding and versions. Raises
    InfrastructureError.
    """
    files = _files(directory.path)
    same = [path.name for path in files if _is_same(path, narrowed)]
    taken = {path.name for path in files}
    free = next(name for each in range(1, len(taken) + 2) if (name := f"narrow-{each}.json") not in taken)
    content = json.dumps(_FILE.dump_python(narrowed, mode="json"), indent=1)
    return directory.write(same[0] if same else free, content)


def _is_same(path: Path, narrowed: Narrowed) -> bool:
    """Return whether a file holds the same question; one that cannot be read does not."""
    with suppress(UsageError):
        known = _read(path)
        return (known.finding, known.good, known.bad) == (narrowed.finding, narrowed.good, narrowed.bad)
    return False


def _files(run: Path) -> list[Path]:
    return sorted(run.glob(PATTERN), key=lambda path: (len(path.name), path.name))


def _read(path: Path) -> Narrowed:
    remedy = "remove it to go without"
    return read_json(path, _FILE.validate_python, absent=remedy, wrong=remedy)


def read_narrowed(run: Path) -> tuple[Narrowed, ...]:
    """Return all narrowings of the run in a directory, oldest first; () if there are none. Raises UsageError."""
    return tuple(map(_read, _files(run)[:MOST_FILES]))
