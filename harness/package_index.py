"""Versions of a package, from the package index that pip and uv would use.

The index is that of UV_DEFAULT_INDEX, UV_INDEX_URL or PIP_INDEX_URL, else the public one; extra indexes and local
folders of `--find-links` count too. Configuration files of pip and uv are not read. Environments are installed from the
same index (`harness.run.process.environments`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

import requests
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.tags import compatible_tags, cpython_tags
from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import Version

from harness.errors import InfrastructureError

PUBLIC_INDEX = "https://pypi.org/simple/"

TIMEOUT_S = 10.0
NEWEST_PATCH = 99  # the patch release of "3.11" is not known: the newest is the best guess


class IndexSilent(InfrastructureError):
    """The package index does not answer, so nothing is known about versions."""


@dataclass(frozen=True, kw_only=True)
class File:
    """One file of a release. `requires_python` is what the index says, or None."""

    name: str
    requires_python: str | None = None
    yanked: bool = False


@dataclass(frozen=True, kw_only=True)
class PackageRelease:
    """One version of a package, with its files."""

    version: Version
    files: tuple[File, ...]

    @property
    def yanked(self) -> bool:
        return all(file.yanked for file in self.files)

    def usable_by(self, python: str) -> bool:
        """Whether a file of the release fits CPython `python` ("3.11") on Linux, judged by names and metadata."""
        return any(_fits(file, python) for file in self.files)


class Index(Protocol):
    """A source of the releases of a package."""

    def releases(self, name: str) -> tuple[PackageRelease, ...]:
        """Return all releases, oldest first; none if there is no such package. Raises IndexSilent."""


class PackageIndex:
    """The package indexes of the environment. Each is asked once for a package, and nothing is kept on disk."""

    def __init__(self, endpoints: Sequence[str], *, folders: Sequence[Path] = (), timeout_s: float = TIMEOUT_S) -> None:
        self._endpoints = tuple(endpoints)
        self._folders = tuple(folders)
        self._timeout_s = timeout_s
        self._known: dict[str, tuple[PackageRelease, ...]] = {}
        self._silent: IndexSilent | None = None

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> PackageIndex:
        first = (environ.get(name) for name in ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL"))
        main = next((url for url in first if url), PUBLIC_INDEX)
        extra = _words(environ, "UV_INDEX", "UV_EXTRA_INDEX_URL", "PIP_EXTRA_INDEX_URL")
        links = [*environ.get("UV_FIND_LINKS", "").split(","), *_words(environ, "PIP_FIND_LINKS")]
        urls = [re.sub(r"^[\w.-]+=(?=\w+://)", "", url) for url in (main, *extra)]  # uv allows name=url
        return cls(urls, folders=[Path(link) for link in links if link and "://" not in link])

    def releases(self, name: str) -> tuple[PackageRelease, ...]:
        """Return all releases, as described in Index."""
        if self._silent:
            raise self._silent  # one timeout is enough
        key = canonicalize_name(name)
        if key not in self._known:
            self._known[key] = self._ask(key)
        return self._known[key]

    def _ask(self, name: str) -> tuple[PackageRelease, ...]:
        files = [file for endpoint in self._endpoints for file in self._files(endpoint, name)]
        local = (File(name=path.name) for folder in self._folders if folder.is_dir() for path in folder.iterdir())
        return _releases(name, [*files, *local])

    def _files(self, endpoint: str, name: str) -> list[File]:
        import pypi_simple  # noqa: PLC0415 - reads HTML by a library that takes longer to import than to look at a registry

        try:
            with pypi_simple.PyPISimple(endpoint) as client:
                page = client.get_project_page(name, timeout=self._timeout_s)
        except pypi_simple.NoSuchProjectError:
            return []
        except (requests.ConnectionError, requests.Timeout) as error:
            self._silent = IndexSilent(f"{_public(endpoint)} does not answer ({type(error).__name__})")
            raise self._silent from None
        except requests.HTTPError as error:
            raise IndexSilent(f"{_public(endpoint)} answers with HTTP {error.response.status_code}") from None
        except (
            requests.RequestException,
            pypi_simple.UnsupportedContentTypeError,
            pypi_simple.UnsupportedRepoVersionError,
            ValueError,
        ) as error:
            # The error's own text may hold the URL with its password, so only its type is reported.
            raise IndexSilent(
                f"{_public(endpoint)} does not answer as a package index ({type(error).__name__})"
            ) from None
        return [
            File(name=package.filename, requires_python=package.requires_python, yanked=bool(package.is_yanked))
            for package in page.packages
        ]


def _words(environ: Mapping[str, str], *names: str) -> list[str]:
    return [word for name in names for word in environ.get(name, "").split()]


def _public(endpoint: str) -> str:
    """Return the index's host, without user and password."""
    return urlsplit(endpoint).hostname or "the package index"


def _releases(name: str, files: Iterable[File]) -> tuple[PackageRelease, ...]:
    by_version: dict[Version, list[File]] = {}
    for file in files:
        parsed = _name_and_version(file.name)
        if parsed and parsed[0] == name:
            by_version.setdefault(parsed[1], []).append(file)
    return tuple(PackageRelease(version=version, files=tuple(by_version[version])) for version in sorted(by_version))


def _name_and_version(filename: str) -> tuple[str, Version] | None:
    """Parse a file name; None for eggs, installers and names that no current tool would install."""
    try:
        if filename.endswith(".whl"):
            return parse_wheel_filename(filename)[:2]
        return parse_sdist_filename(filename)
    except (InvalidWheelFilename, InvalidSdistFilename):
        return None


def _fits(file: File, python: str) -> bool:
    return _allows(file.requires_python, python) and (not file.name.endswith(".whl") or _wheel_fits(file.name, python))


def _allows(requires_python: str | None, python: str) -> bool:
    full = python if python.count(".") > 1 else f"{python}.{NEWEST_PATCH}"
    try:
        return SpecifierSet(requires_python or "").contains(full, prereleases=True)
    except InvalidSpecifier:  # old uploads have such; pip ignores it as well
        return True


def _wheel_fits(filename: str, python: str) -> bool:
    """Whether the tags of the file name fit. Every Linux platform counts, as the host may be a remote machine."""
    major, minor = (int(part) for part in python.split(".")[:2])
    short = f"cp{major}{minor}"
    abis = [short, f"{short}m"] if (major, minor) < (3, 8) else [short]
    linux = ["linux"]
    known = {str(tag) for tag in cpython_tags((major, minor), abis, linux)}
    known |= {str(tag) for tag in compatible_tags((major, minor), short, linux)}
    for tag in parse_wheel_filename(filename)[3]:
        platform = "linux" if "linux" in tag.platform else tag.platform
        if f"{tag.interpreter}-{tag.abi}-{platform}" in known:
            return True
    return False


def in_range(releases: Iterable[PackageRelease], specifier: SpecifierSet, *, python: str) -> list[PackageRelease]:
    """Return the releases in a range that `python` can use; pre-releases only if the range itself names one."""
    early = bool(specifier.prereleases)
    return [r for r in releases if specifier.contains(r.version, prereleases=early) and r.usable_by(python)]


def matching(releases: Iterable[PackageRelease], version: Version) -> PackageRelease | None:
    """Return the release that `==version` means; without a local part, any local part matches."""
    found = [r for r in releases if r.version == version]
    if version.local is None:
        found += [r for r in releases if r.version.local is not None and Version(r.version.public) == version]
    return found[0] if found else None


def nearest(releases: Sequence[PackageRelease], version: Version, *, count: int = 4) -> list[str]:
    """Return the versions around a version that does not exist, oldest first."""
    below = [r for r in releases if r.version < version]
    above = [r for r in releases if r.version > version]
    half = count // 2
    low = below[-max(half, count - len(above)) :]
    return [str(r.version) for r in low + above[: count - len(low)]]
