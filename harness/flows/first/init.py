"""Finds the program and the versions in a folder for a first matrix file, and writes that, for `harness init`."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from harness.atomic_files import write_atomically
from harness.errors import UsageError, did_you_mean
from harness.flows.first.new_files import write_new
from harness.matrix.drafts.draft import Draft, text
from harness.matrix.drafts.first_launch import fitted
from harness.matrix.drafts.job import modules
from harness.matrix.drafts.series import PACKAGE, safe
from harness.matrix.drafts.steps import TRAINERS
from harness.matrix.read_series import RUNNING_PYTHON, requirements
from harness.model import RunResult
from harness.package_index import Index, IndexSilent, PackageIndex

MATRIX = "matrix.yaml"
USUAL = ("train.py", "main.py", "run.py")
FRAMEWORKS = ("torch", "tensorflow", "keras", "jax", "lightning", "transformers", "onnxruntime")
MOST_BYTES = 1 << 20
ENGINE_S = 10.0


def programs(folder: Path) -> list[str]:
    """Return the Python files that may be the training program, the likeliest first."""
    usual = [name for name in USUAL if (folder / name).is_file()]
    others = [path for path in sorted(folder.glob("*.py")) if path.name not in usual]
    return [*usual, *(path.name for path in others if TRAINERS.intersection(modules(path)))]


def program(name: str) -> str:
    """Return `name` if this folder has such a file. Raises UsageError if it does not."""
    if not Path(name).is_file():
        hint = did_you_mean(name, known=(path.name for path in Path().glob("*.py")))
        raise UsageError(f"{name}: is not in {Path().resolve()}{hint} name a Python program of this folder")
    return name


def histories(folder: Path, *, images: Sequence[str], index: Index, python: str) -> Iterator[tuple[str, ...]]:
    """Yield groups of versions to compare, each oldest first, and the likeliest group first: requirement files, a
    pinned framework and the release before it, two tags of one image. `images` are sorted from oldest to newest."""
    files = sorted(folder.glob("requirements*.txt"), key=lambda path: path.stat().st_mtime)
    if len(files) > 1:
        yield tuple(path.name for path in files)
    for path in files:
        for name, version in _pins(path):
            if name.lower() in FRAMEWORKS and (before := _before(name, version, index, python)) is not None:
                yield f"{name}=={before}", f"{name}=={version}"
    tags: dict[str, list[str]] = {}
    for image in images:
        tags.setdefault(image.rpartition(":")[0], []).append(image)
    yield from (tuple(of[-2:]) for of in tags.values() if len(of) > 1)


def pin(folder: Path) -> Mapping[str, str] | None:
    """Return the name, version and file of the package that a folder's requirement files pin; None unless they pin a
    single package or a single framework."""
    files = sorted(folder.glob("requirements*.txt"))
    pins = [{"name": name, "version": version, "file": path.name} for path in files for name, version in _pins(path)]
    frameworks = [one for one in pins if one["name"].lower() in FRAMEWORKS]
    return next((some[0] for some in (pins, frameworks) if len(some) == 1), None)


def suggested(folder: Path, environ: Mapping[str, str]) -> str | None:
    """Return the likeliest versions, separated by spaces; None if neither the folder nor the engine has any."""
    index = PackageIndex.from_environ(environ)
    candidates = histories(folder, images=local_images(), index=index, python=RUNNING_PYTHON)
    return next((" ".join(words) for words in candidates), None)


def needs(folder: Path, versions: Sequence[str]) -> tuple[str, ...]:
    """Return the requirements in requirements.txt except the package whose versions are compared. Raises UsageError."""
    package = PACKAGE.fullmatch(versions[0]) if versions else None
    path = folder / "requirements.txt"
    if package is None or not path.is_file():
        return ()
    try:
        wanted = [(canonicalize_name(Requirement(line).name), line) for line in requirements(path)]
    except ValueError as error:
        raise UsageError(f"{error}; or give --with") from error
    return tuple(line for name, line in wanted if name != canonicalize_name(package[1]))


def local_images() -> list[str]:
    """Return the tagged images of the local engine, oldest first; none if `docker` does not answer."""
    if shutil.which("docker") is None:
        return []
    asked = ["docker", "image", "ls", "--format", "{{.Repository}}:{{.Tag}}"]
    try:
        listing = subprocess.run(asked, capture_output=True, text=True, timeout=ENGINE_S, check=True).stdout
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return []
    return [line for line in reversed(listing.splitlines()) if "<none>" not in line and not line.startswith("harness")]


def write(draft: Draft, *, folder: Path) -> Path:
    """Write matrix.yaml into a folder, and return its path. Raises UsageError if the file exists."""
    path = folder / MATRIX
    return write_new({path: _text(draft, folder)}, otherwise=f"sweep it with: harness sweep {path}")[0]


def _text(draft: Draft, folder: Path) -> str:
    return text(draft, name=safe(folder.resolve().name))


def fit(draft: Draft, matrix: Path, result: RunResult) -> int | None:
    """Set the budget of the matrix file to the step at which the program ended by itself, and return the budget; None
    if the program did not.
    """
    shorter = fitted(draft, result)
    if shorter is None:
        return None
    write_atomically(matrix, _text(shorter, matrix.parent))
    return shorter.budget


def _pins(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the name and version of each package that a requirement file pins; nothing if the file cannot be read."""
    try:
        with path.open("rb") as stream:
            text = stream.read(MOST_BYTES).decode(errors="replace")
    except OSError:
        return
    for line in text.splitlines():
        pin = PACKAGE.fullmatch(line.partition("#")[0].partition(";")[0].strip())
        if pin:
            yield pin[1], pin[3]


def _before(name: str, version: str, index: Index, python: str) -> str | None:
    """Return the newest usable final release before a version; None if the index has none or does not answer."""
    try:
        pinned = Version(version)
        releases = index.releases(name)
    except (InvalidVersion, IndexSilent):
        return None
    older = [one.version for one in releases if one.version < pinned and one.usable_by(python) and not one.yanked]
    final = [one for one in older if not one.is_prerelease]
    return str(max(final)) if final else None
