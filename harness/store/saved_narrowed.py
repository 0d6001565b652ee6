"""What `harness narrow` found, kept beside the run that it belongs to: a file `narrow-N.json` for each narrowing."""

from __future__ import annotations

import json
from pathlib import Path

from pydantic import TypeAdapter

from harness.model import Narrowed
from harness.store import RunDirectory
from harness.store.json_files import read_json

PATTERN = "narrow-*.json"
MOST_FILES = 200
"""Of one run: what is beyond is not read."""
_FILE = TypeAdapter(Narrowed)


def keep(narrowed: Narrowed, directory: RunDirectory) -> Path:
    """Write a narrowing into a run's directory, beside those before it. Raises InfrastructureError."""
    taken = {path.name for path in directory.path.glob(PATTERN)}
    number = next(each for each in range(1, len(taken) + 2) if f"narrow-{each}.json" not in taken)
    return directory.write(f"narrow-{number}.json", json.dumps(_FILE.dump_python(narrowed, mode="json"), indent=1))


def read_narrowed(run: Path) -> tuple[Narrowed, ...]:
    """All narrowings of the run in a directory, oldest first; () if there are none. Raises UsageError."""
    found = sorted(run.glob(PATTERN), key=lambda path: (len(path.name), path.name))[:MOST_FILES]
    remedy = "remove it to go without"
    return tuple(read_json(path, _FILE.validate_python, absent=remedy, wrong=remedy) for path in found)
