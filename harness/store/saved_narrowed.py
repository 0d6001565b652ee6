"""Keeps each result of `harness narrow` in the directory of the run that it belongs to, in a file `narrow-N.json`."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

from pydantic import TypeAdapter

from harness.errors import UsageError
from harness.model import Narrowed
from harness.store import RunDirectory
from harness.store.json_files import read_extra

PATTERN = "narrow-*.json"
MOST_FILES = 200
"""Largest number of these files that are read from one run."""
_FILE = TypeAdapter(Narrowed)


def keep_narrowed(narrowed: Narrowed, directory: RunDirectory) -> Path:
    """Write the result of a narrowing into a run's directory; it replaces an earlier result for the same finding and
    versions. Raises InfrastructureError.
    """
    files = _files(directory.path)
    same = [path.name for path in files if _is_same(path, narrowed)]
    taken = {path.name for path in files}
    free = next(name for number in range(1, len(taken) + 2) if (name := f"narrow-{number}.json") not in taken)
    content = json.dumps(_FILE.dump_python(narrowed, mode="json"), indent=1)
    return directory.write(same[0] if same else free, content)


def _is_same(path: Path, narrowed: Narrowed) -> bool:
    """Return whether a file is about the same finding and versions; False if it cannot be read."""
    with suppress(UsageError):
        other = _read(path)
        return (other.finding, other.good, other.bad) == (narrowed.finding, narrowed.good, narrowed.bad)
    return False


def _files(run: Path) -> list[Path]:
    return sorted(run.glob(PATTERN), key=lambda path: (len(path.name), path.name))


def _read(path: Path) -> Narrowed:
    return read_extra(path, _FILE.validate_python)


def read_narrowed(run: Path) -> tuple[Narrowed, ...]:
    """Return the results of all narrowings of a run, in the order of the numbers in their files' names;
    () if there are none. Raises UsageError if a file cannot be read."""
    return tuple(map(_read, _files(run)[:MOST_FILES]))
