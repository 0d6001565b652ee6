"""The versions under test: images, what they are made from, and series of them; places and values of a matrix file."""

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
    """An image of the engine (`reference`, its id) with parts of `other`, which is another one of it.

    `remove`: files and folders that go before. `copy`: (place in `other`, place in the new image) of files and folders.
    `libraries`: files of `other` that are copied into LIBRARIES under each name that they have beside them there;
    `environment` is that of the new image, whole.
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
    """Packages laid over `base` (container engines) or into a virtual environment of `python` (process engine).

    `packages` are requirement strings with the version filled in; `python` is a version such as "3.7" or None
    for the interpreter that runs the harness. `exact`: nothing but these is installed, whatever they require. `hashes`:
    a requirement -> the hashes (`sha256:...`) of which its file must have one. All requirements have an entry, or none:
    pip demands a hash of each as soon as one has it.
    """

    base: str
    python: str | None
    packages: tuple[str, ...]
    exact: bool = False
    hashes: tuple[tuple[str, tuple[str, ...]], ...] = ()

    @property
    def lines(self) -> tuple[str, ...]:
        """Return the packages as lines of a requirement file, each with its hashes."""
        known = dict(self.hashes)
        return tuple(" ".join((one, *(f"--hash={each}" for each in known.get(one, ())))) for one in self.packages)


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


@dataclass(frozen=True, kw_only=True)
class Series:
    """Images of one history, oldest first."""

    name: str
    images: tuple[Image, ...]
    where: Where
    baseline: str | None = None
