"""A scenario's own files, kept in the run's directory: what was run can be shown and run again from there alone.

inputs/<sha256>     the content of a file, under its hash: each is there once, and a damaged one is found
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from harness.model import Scenario, Variant
from harness.run.trial.payload import pack
from harness.store import RunDirectory, write_atomically

FOLDER = "inputs"
PREFIX = "scenario/"
MOST_BYTES = 16 << 20
"""Of one file; a larger one (a model, data) is named by its hash, and stays where it is."""
HASH = re.compile(r"[0-9a-f]{64}")


def keep(scenario: Scenario, directory: Path) -> dict[str, str]:
    """Write the script and `files:` of a scenario below `directory`; place beside the script -> sha256.

    Raises MatrixError for a file that cannot be read, InfrastructureError where nothing can be written.
    """
    payload = pack(Variant(scenario=scenario)).files
    files = {place[len(PREFIX) :]: data for place, data in payload.items() if place.startswith(PREFIX)}
    hashes = {place: hashlib.sha256(content).hexdigest() for place, content in files.items()}
    folder = RunDirectory(directory).folder(FOLDER)
    for place, content in files.items():
        target = folder / hashes[place]
        if len(content) <= MOST_BYTES and not target.exists():
            write_atomically(target, content)
    return hashes


def read(hashes: Mapping[str, str], directory: Path) -> tuple[dict[str, bytes], tuple[str, ...]]:
    """The files that are there and are what was run, and the places of those that are not.

    The directory may have been copied from anywhere: a place that leads out of a folder is not there.
    """
    found = {place: content for place, name in hashes.items() if (content := _read(place, name, directory)) is not None}
    return found, tuple(place for place in hashes if place not in found)


def _read(place: str, name: str, directory: Path) -> bytes | None:
    inside = not PurePosixPath(place).is_absolute() and ".." not in PurePosixPath(place).parts
    path = directory / FOLDER / name
    if not inside or not HASH.fullmatch(name) or not path.is_file() or path.stat().st_size > MOST_BYTES:
        return None
    content = path.read_bytes()
    return content if hashlib.sha256(content).hexdigest() == name else None
