"""Turns versions on the command line into a series of a matrix file: images, packages, or requirement files."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.errors import UsageError, nearest

PACKAGE = re.compile(r"([A-Za-z0-9][\w.-]*)(\[[\w., -]*\])?\s*={2,3}\s*([^=\s;,]+)", re.ASCII)
BARE = re.compile(r"[A-Za-z0-9][\w.-]*(\[[\w., -]*\])?", re.ASCII)
EXAMPLES = "such as team/app:41 team/app:42, or torch==2.5.1 torch==2.6.0, or old.txt new.txt"


@dataclass(frozen=True, kw_only=True)
class DraftSeries:
    """A series of typed versions. `entry`: its keys in a matrix file. `needs_containers`: its versions are images."""

    name: str
    entry: Mapping[str, Any]
    needs_containers: bool


def series_of(words: Sequence[str], *, folder: Path, beside: Sequence[str] = ()) -> DraftSeries:
    """Return the series of these versions, oldest first. `folder`: where the files are, as the matrix file names it;
    `beside`: requirements to install with each version of a package. Raises UsageError."""
    if len(words) < 2:
        raise UsageError(f"{len(words)} version{'s' if not words else ''}: give two or more, oldest first, {EXAMPLES}")
    if repeated := [word for number, word in enumerate(words) if word in words[:number]]:
        raise UsageError(f"{repeated[0]}: appears twice; give each version once")
    kinds = [_kind(word, folder) for word in words]
    if len(set(kinds)) > 1:
        if "package" in kinds and (bare := [word for word in words if _is_bare(word, folder)]):
            raise UsageError(f"{bare[0]}: has no version; write {bare[0]}==X, where X is one of its versions")
        other = next(word for word, kind in zip(words, kinds, strict=True) if kind != kinds[0])
        raise UsageError(f"{other}: is not of the same kind as {words[0]}; give versions of one kind, {EXAMPLES}")
    if beside and kinds[0] != "package":
        raise UsageError(f"--with {beside[0]}: is for packages; images and requirement files contain what they need")
    if kinds[0] == "package":
        return _packages(words, beside)
    return _files(words, folder) if kinds[0] == "file" else _images(words)


def _kind(word: str, folder: Path) -> str:
    """Return what a version is: a package, a requirement file or an image. Raises UsageError for anything else."""
    if PACKAGE.fullmatch(word):
        return "package"
    if (folder / word).is_file():
        return "file"
    if word.endswith((".txt", ".lock")):
        raise UsageError(f"{word}: no such file in {folder.absolute()}; name a requirement file that exists")
    if package := PACKAGE.fullmatch(word.replace("=", "==")):
        raise UsageError(f"{word}: is not an image; write a version of a package as {package[0]}")
    return "image"


def _is_bare(word: str, folder: Path) -> bool:
    """Return whether a word is only the name of a package or image, without a version."""
    return bool(BARE.fullmatch(word)) and _kind(word, folder) == "image"


def _packages(words: Sequence[str], beside: Sequence[str]) -> DraftSeries:
    pins = [match for match in map(PACKAGE.fullmatch, words) if match]
    names = [f"{match[1]}{match[2] or ''}" for match in pins]
    if other := [match for match, name in zip(pins, names, strict=True) if name != names[0]]:
        name, version = names[pins.index(other[0])], other[0][3]
        if nearest(name, known=names[:1]) and not name.startswith(names[0]) and not names[0].startswith(name):
            raise UsageError(
                f"{other[0][0]}: is not a version of {names[0]}; did you mean {names[0]}=={version}? "
                "to add another package to each version, use --with"
            )
        raise UsageError(f"{name}: give versions of one package; add another one to each with --with {name}==…")
    entry = {"install": [f"{names[0]}=={{version}}", *beside], "versions": [match[3] for match in pins]}
    return DraftSeries(name=safe(pins[0][1]), entry=entry, needs_containers=False)


def _files(words: Sequence[str], folder: Path) -> DraftSeries:
    stems = [Path(word).stem for word in words]
    names = stems if len(set(stems)) == len(stems) else words
    locks = {name: str(folder / word) for name, word in zip(names, words, strict=True)}
    return DraftSeries(name="requirements", entry={"locks": locks}, needs_containers=False)


def _images(words: Sequence[str]) -> DraftSeries:
    """Return the series of these images. Images of one repository are named by their tags, which suit a report."""
    split = [word.rpartition(":") for word in words]
    repositories = {repository for repository, _, _ in split}
    if len(repositories) == 1 and all(name and "/" not in tag and "@" not in name for name, _, tag in split):
        repository = repositories.pop()
        entry: Mapping[str, Any] = {"repository": repository, "tags": [tag for _, _, tag in split]}
        return DraftSeries(name=safe(repository.rsplit("/", 1)[-1]), entry=entry, needs_containers=True)
    return DraftSeries(name="images", entry={"images": list(words)}, needs_containers=True)


def safe(text: str) -> str:
    """Return a name that a matrix file allows. A text without any allowed character gets a name from its hash."""
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", text).strip("._-")[:48].rstrip("._-")
    return name or f"it-{hashlib.sha256(text.encode(errors='replace')).hexdigest()[:6]}"
