"""Keeps the inputs of a run (scenarios' files, Dockerfiles) in its directory, so that it can be shown and run again
from there alone. No path that a run names is read: its directory may have been copied from anywhere.

inputs/<sha256>     the content of a file, under its hash: each is there once, and damage is noticed
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from harness.model import Build, Scenario, Variant
from harness.run.trial.payload import pack
from harness.safe_files import read_regular
from harness.store import RunDirectory

FOLDER = "inputs"
PREFIX = "scenario/"
MOST_BYTES = 16 << 20
"""Largest file that is kept; a larger one (a model, data) is named by its hash, and stays where it is."""
MOST_DOCKERFILE_BYTES = 1 << 20
HASH = re.compile(r"[0-9a-f]{64}")


def keep_inputs(scenario: Scenario, directory: Path) -> dict[str, str]:
    """Write the script and `files:` of a scenario below `directory`; return {place beside the script: sha256}.

    Raises MatrixError for a file that cannot be read, InfrastructureError where nothing can be written.
    """
    payload = pack(Variant(scenario=scenario)).files
    files = {place[len(PREFIX) :]: data for place, data in payload.items() if place.startswith(PREFIX)}
    hashes = {place: hashlib.sha256(content).hexdigest() for place, content in files.items()}
    for place, content in files.items():
        if len(content) <= MOST_BYTES:
            _keep(content, hashes[place], directory)
    return hashes


def keep_dockerfile(source: Build, directory: Path) -> str | None:
    """Write the Dockerfile of a build below `directory`; return its sha256, or None if it cannot be read, which the
    build reports. Raises InfrastructureError where nothing can be written.
    """
    try:
        content = read_regular((source.context / "Dockerfile").resolve(), most_bytes=MOST_DOCKERFILE_BYTES)
    except OSError:
        return None
    name = hashlib.sha256(content).hexdigest()
    _keep(content, name, directory)
    return name


def _keep(content: bytes, name: str, directory: Path) -> None:
    run = RunDirectory(directory)
    if not (run.folder(FOLDER) / name).exists():
        run.write(f"{FOLDER}/{name}", content)


def read_inputs(hashes: Mapping[str, str], directory: Path) -> tuple[dict[str, bytes], tuple[str, ...]]:
    """Return the files that are there unchanged, and the places of all others.

    The directory may have been copied from anywhere: a place that leads out of a folder counts as missing.
    """
    files = {place: content for place, name in hashes.items() if (content := _read(place, name, directory)) is not None}
    return files, tuple(place for place in hashes if place not in files)


def _read(place: str, name: str, directory: Path) -> bytes | None:
    inside = not PurePosixPath(place).is_absolute() and ".." not in PurePosixPath(place).parts
    if not inside or not HASH.fullmatch(name):
        return None
    try:
        content = read_regular(directory / FOLDER / name, most_bytes=MOST_BYTES)
    except OSError:
        return None
    return content if hashlib.sha256(content).hexdigest() == name else None
