"""Keeps the inputs of a run (scenarios' files, Dockerfiles) in its directory, so that the run can be shown and repeated
from its directory alone. A path that a run names is never opened, because its directory may come from anywhere.

inputs/<sha256>     the content of one file. The hash as the name avoids duplicates and reveals damage
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import tokenize
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path, PurePosixPath

from harness.atomic_files import write_below
from harness.model import Build, Scenario
from harness.safe_files import read_regular
from harness.store import RunDirectory

FOLDER = "inputs"
PREFIX = "scenario/"
MOST_BYTES = 16 << 20
"""Largest file that is kept, in bytes. For a larger one (a model, data) only the hash is recorded."""
MOST_DOCKERFILE_BYTES = 1 << 20
COOKIE = re.compile(r"\A((?:[^\n]*\n)?[ \t\f]*#.*?coding[:=][ \t]*)[-\w.]+")
HASH = re.compile(r"[0-9a-f]{64}")


def keep_dockerfile(source: Build, directory: Path) -> str | None:
    """Write the Dockerfile of a build below `directory`. Return its sha256, or None if it cannot be read: the build
    reports that. Raises InfrastructureError if it cannot be written.
    """
    try:
        content = read_regular(Path(os.path.realpath(source.context / "Dockerfile")), most_bytes=MOST_DOCKERFILE_BYTES)
    except OSError:
        return None
    name = hashlib.sha256(content).hexdigest()
    keep(content, name, directory)
    return name


def keep(content: bytes, name: str, directory: Path) -> None:
    """Write the content of a file with this hash. Raises InfrastructureError."""
    if not (RunDirectory(directory).folder(FOLDER) / name).exists():
        write_below(directory, f"{FOLDER}/{name}", content, exact=True)  # its name is its hash


def read_inputs(hashes: Mapping[str, str], directory: Path) -> tuple[dict[str, bytes], tuple[str, ...]]:
    """Return the content of each unchanged file by its path, and the paths of the files that are missing or changed.

    The directory is not trusted: a path that leads out of the scenario's folder counts as missing.
    """
    files = {place: content for place, name in hashes.items() if (content := _read(place, name, directory)) is not None}
    return files, tuple(place for place in hashes if place not in files)


def restored(
    scenario: Scenario, files: Mapping[str, Mapping[str, str]], directory: Path, *, into: Path
) -> tuple[Scenario, tuple[str, ...]]:
    """Write the script or program of a scenario and its files into the folder `into`, as the run in `directory` kept
    them. Return the scenario with these paths, and the files that are missing; if any is, none is written.
    """
    contents, missing = read_inputs(files.get(scenario.name, {}), directory)
    own = [path for path in (scenario.file, scenario.client_script, scenario.requests) if path is not None]
    lacking = missing or tuple(str(path) for path in own if str(scenario.place_of(path)) not in contents)
    if lacking:
        return scenario, lacking
    paths = {place: into / PREFIX / place for place in contents}
    for place, content in contents.items():
        target = into / PREFIX / place
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
    started = None if scenario.file is None else paths.pop(scenario.file_place)
    home = into / PREFIX if scenario.folder else None
    script, lines = (
        path and paths.pop(str(scenario.place_of(path))) for path in (scenario.client_script, scenario.requests)
    )
    restored = replace(scenario, client=script or scenario.client, requests=lines)
    restored = replace(restored, files=tuple(paths.values()), folder=home)
    if scenario.is_program:
        return replace(restored, program=started), ()
    return replace(restored, script=started), ()


def script_text(script: bytes) -> str:
    """Return a script's text as Python reads it, to be written as UTF-8."""
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(script).readline)
        return COOKIE.sub(r"\1utf-8", script.decode(encoding, "replace"))
    except (SyntaxError, LookupError, UnicodeError):  # Python lacks the encoding, so the script never ran either
        return script.decode(errors="replace")


def _read(place: str, name: str, directory: Path) -> bytes | None:
    inside = not PurePosixPath(place).is_absolute() and ".." not in PurePosixPath(place).parts
    if not inside or not HASH.fullmatch(name):
        return None
    try:
        content = read_regular(directory / FOLDER / name, most_bytes=MOST_BYTES)
    except OSError:
        return None
    return content if hashlib.sha256(content).hexdigest() == name else None
