"""Defines records of the versions under test (images, their sources, series), and of places in a matrix file."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

Scalar = str | int | float | bool | None


def written(value: Scalar) -> str:
    """Return a param's value as the matrix file writes it: `true`, not `True`."""
    return json.dumps(value) if value is None or isinstance(value, bool) else str(value)


@dataclass(frozen=True, kw_only=True)
class Where:
    """A place in a matrix file, or a whole file if `key` is "". `str()` begins every message about it:
    `matrix.yaml:14: hosts.new.gpus`."""

    file: str
    line: int
    key: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.key}" if self.key else self.file


@dataclass(frozen=True, kw_only=True)
class Pull:
    """An image of a registry, or one that is already on the engine: `repository:tag` or `repository@sha256:…`."""

    reference: str


@dataclass(frozen=True, kw_only=True)
class Graft(Pull):
    """An image made from two images of one engine, both named by their ids: `reference` with parts of `other`.

    `remove` are files and folders that are removed first. `copy` are the files and folders that are then copied, as
    (place in `other`, place in the new image). `libraries` are files of `other` that are copied into LIBRARIES, with
    all links to them in their folders. `environment` is the whole environment of the new image.
    """

    other: str
    remove: tuple[str, ...] = ()
    copy: tuple[tuple[str, str], ...] = ()
    libraries: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()


LIBRARIES = "/.harness-libraries"
"""The folder of a Graft's libraries; LD_LIBRARY_PATH of its environment begins with it if there are any."""


@dataclass(frozen=True, kw_only=True)
class Build:
    """An image built from `context/Dockerfile` with build args."""

    context: Path
    args: tuple[tuple[str, str], ...]


@dataclass(frozen=True, kw_only=True)
class Install:
    """Packages installed on top of `base` (container engines) or in a virtual environment of `python` (process engine).

    `packages` are requirement strings with the version filled in; `python` is a version such as "3.7" or None
    for the interpreter that runs the harness. `exact`: only these are installed, without what they require. `hashes`
    maps a requirement to the accepted hashes of its file (`sha256:...`). Either all requirements have an entry or none:
    once one requirement has hashes, pip demands them for all.
    """

    base: str
    python: str | None
    packages: tuple[str, ...]
    exact: bool = False
    hashes: tuple[tuple[str, tuple[str, ...]], ...] = ()

    @property
    def lines(self) -> tuple[str, ...]:
        """Return the packages as lines of a requirement file, each with its hashes."""
        hashes = dict(self.hashes)
        return tuple(
            " ".join((package, *(f"--hash={value}" for value in hashes.get(package, ())))) for package in self.packages
        )


Source = Pull | Build | Install


@dataclass(frozen=True, kw_only=True)
class Image:
    """One version under test. `version` is its name within the series; its identity is the digest, determined later."""

    series: str
    version: str
    source: Source
    where: Where
    keep_entrypoint: bool = True
    yanked: bool = False
    environment: tuple[tuple[str, str], ...] = ()

    @property
    def place(self) -> str:
        """Return the place and the name that begin a message about this image."""
        return f"{self.where}: {self.series} {self.version}"


@dataclass(frozen=True, kw_only=True)
class Series:
    """Images of one history, oldest first."""

    name: str
    images: tuple[Image, ...]
    where: Where
    baseline: str | None = None
