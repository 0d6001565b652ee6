"""Looks up the versions of a package in the package index that pip and uv would use.

The index is that of the first variable set of UV_DEFAULT_INDEX, UV_INDEX_URL and PIP_INDEX_URL, else PyPI; extra
indexes and the local folders of `--find-links` are searched, too. Configuration files of pip and uv are not read.
Environments are installed from the same index (`harness.run.process.environments`).
"""

from __future__ import annotations

import base64
import html
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated
from urllib.parse import unquote, urlsplit

import requests
from packaging.specifiers import SpecifierSet
from packaging.tags import compatible_tags, cpython_tags
from packaging.utils import canonicalize_name, parse_sdist_filename, parse_wheel_filename
from packaging.version import Version
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from harness.errors import InfrastructureError
from harness.registry.bounded_http import Exchange, Question, RegistrySilent, RegistryTrouble, Response, host_of

PUBLIC_INDEX = "https://pypi.org/simple/"

ATTEMPTS = 1
MOST_BYTES = 32 << 20  # the largest page of PyPI (ddtrace) has 21 MB
MOST_FILES = 100_000
MOST_CHARACTERS = 255
"""Most characters of a file name (the limit of file systems) and of `requires-python`; longer ones are not parsed."""
JSON_TYPE = "application/vnd.pypi.simple.v1+json"
HTML_TYPES = ("application/vnd.pypi.simple.v1+html", "text/html")
ACCEPT = f"{JSON_TYPE}, {HTML_TYPES[0]};q=0.2, {HTML_TYPES[1]};q=0.01"
QUOTED = r"""(?:"[^"]*"|'[^']*')"""
LINK = re.compile(rf"""\s(?P<attributes>(?:{QUOTED}|[^"'>])*)>(?P<text>[^<]*)""")
ATTRIBUTE = re.compile(rf"""(?<!\S)(data-[a-z-]+)(?:\s*=\s*({QUOTED}|[^\s"'>]+))?""", re.IGNORECASE)
PYTHONS = [f"3.{minor}" for minor in range(6, 16)]
NEWEST_PATCH = 99  # "3.11" does not name the installed patch release; the newest one is the best guess


class IndexSilent(InfrastructureError):
    """The package index does not answer, so nothing is known about versions."""


class File(BaseModel):
    """One file of a release, also as a JSON page has it (PEP 691), where `yanked` may be the reason. `requires_python`
    is the index's version specifier, None if there is none."""

    model_config = ConfigDict(frozen=True, populate_by_name=True)

    name: str = Field(validation_alias="filename")
    requires_python: str | None = Field(default=None, validation_alias="requires-python")
    yanked: Annotated[bool, BeforeValidator(lambda said: isinstance(said, str) or said)] = False


@dataclass(frozen=True, kw_only=True)
class PackageRelease:
    """One version of a package, with its files."""

    version: Version
    files: tuple[File, ...]

    @property
    def yanked(self) -> bool:
        return all(file.yanked for file in self.files)

    def usable_by(self, python: str) -> bool:
        """Return whether a file of the release fits CPython `python` ("3.11") on Linux, judged by names and
        metadata.
        """
        return any(
            _allows(file.requires_python, python) and (not file.name.endswith(".whl") or _wheel_fits(file.name, python))
            for file in self.files
        )

    def pythons(self) -> list[str]:
        """Return the versions of Python from 3.6 to 3.15, which the agent supports, that can use the release."""
        return [python for python in PYTHONS if self.usable_by(python)]

    def has_wheel_for(self, python: str) -> bool:
        """Return whether the name of a wheel fits CPython `python`; uv heeds no upper bound of `requires_python`."""
        return any(file.name.endswith(".whl") and _wheel_fits(file.name, python) for file in self.files)


class _JsonPage(BaseModel):
    files: list[File]


class PackageIndex:
    """The package indexes of the environment. Each is asked once for each package; answers are kept in memory only."""

    def __init__(
        self, endpoints: Sequence[str], *, folders: Sequence[Path] = (), exchange: Exchange | None = None
    ) -> None:
        self._endpoints = tuple(endpoints)
        self._folders = tuple(folders)
        self._exchange = exchange or Exchange(attempts=ATTEMPTS)
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
        """Return all releases, oldest first; () if there is no such package. Raises IndexSilent."""
        if self._silent:
            raise self._silent  # one timeout is enough
        key = canonicalize_name(name)
        if key not in self._known:
            files = [file for endpoint in self._endpoints for file in self._files(endpoint, key)]
            local = (File(name=path.name) for folder in self._folders if folder.is_dir() for path in folder.iterdir())
            self._known[key] = _releases(key, [*files, *local])
        return self._known[key]

    def _files(self, endpoint: str, name: str) -> list[File]:
        # As in pip and uv, the login is that of the URL, else that of ~/.netrc.
        parts = urlsplit(endpoint)
        url = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
        login = (unquote(parts.username or ""), unquote(parts.password or "")) if "@" in parts.netloc else None
        login = login or requests.utils.get_netrc_auth(url)
        question = Question(
            url=f"{url.rstrip('/')}/{name}/",
            headers={"Accept": ACCEPT},
            authorization=f"Basic {base64.b64encode(':'.join(login).encode()).decode()}" if login else None,
            most_bytes=MOST_BYTES,
        )
        try:
            answer = self._exchange.ask(question)
        except RegistryTrouble as error:
            trouble = IndexSilent(error.problem)
            self._silent = trouble if isinstance(error, RegistrySilent) else None
            raise trouble from None
        if answer.status == 404:
            return []
        if answer.status != 200:
            raise IndexSilent(f"{host_of(url)}: answers with HTTP {answer.status}")
        files = _page(answer, place=host_of(url))
        if len(files) > MOST_FILES:
            raise IndexSilent(f"{host_of(url)}: lists more than {MOST_FILES} files of one package")
        return files


def _page(answer: Response, *, place: str) -> list[File]:
    """Return the files of a project's page. Raises IndexSilent."""
    kind = answer.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if kind in HTML_TYPES:
        return list(_links(answer.body.decode(errors="replace")))
    try:
        return _JsonPage.model_validate_json(answer.body if kind == JSON_TYPE else "").files
    except ValidationError as error:
        raise IndexSilent(f"{place}: does not respond like a package index") from error


def _links(page: str) -> Iterator[File]:
    """Yield the file of each link of an HTML page (PEP 503), in one pass even if the page is malicious."""
    for piece in re.split(r"<a(?=\s)", page, flags=re.IGNORECASE)[1:]:
        if link := LINK.match(piece):
            attributes = {found[1].lower(): found[2] or "" for found in ATTRIBUTE.finditer(link["attributes"])}
            asked = html.unescape(attributes.get("data-requires-python", "").strip("\"'"))
            yanked = "data-yanked" in attributes
            yield File(name=html.unescape(link["text"]).strip(), requires_python=asked or None, yanked=yanked)


def _words(environ: Mapping[str, str], *names: str) -> list[str]:
    return [word for name in names for word in environ.get(name, "").split()]


def _releases(name: str, files: Iterable[File]) -> tuple[PackageRelease, ...]:
    """Return the releases of a package, oldest first. Eggs, installers and other names that no current tool would
    install are left out.
    """
    by_version: dict[Version, list[File]] = {}
    for file in files:
        if len(file.name) <= MOST_CHARACTERS:
            with suppress(ValueError):
                parse = parse_wheel_filename if file.name.endswith(".whl") else parse_sdist_filename
                project, version = parse(file.name)[:2]
                if project == name:
                    by_version.setdefault(version, []).append(file)
    return tuple(PackageRelease(version=version, files=tuple(by_version[version])) for version in sorted(by_version))


def _allows(requires_python: str | None, python: str) -> bool:
    full = python if python.count(".") > 1 else f"{python}.{NEWEST_PATCH}"
    if requires_python is None or len(requires_python) > MOST_CHARACTERS:
        return True
    try:
        return SpecifierSet(requires_python).contains(full, prereleases=True)
    except ValueError:  # old uploads have such values; pip ignores them as well
        return True


def _wheel_fits(filename: str, python: str) -> bool:
    """Return whether the tags of the file name fit. Any Linux platform fits, since the host may be remote."""
    major, minor = (int(part) for part in python.split(".")[:2])
    short = f"cp{major}{minor}"
    abis = [short, f"{short}m"] if (major, minor) < (3, 8) else [short]
    linux = ["linux"]
    tags = {str(tag) for tag in cpython_tags((major, minor), abis, linux)}
    tags |= {str(tag) for tag in compatible_tags((major, minor), short, linux)}
    for tag in parse_wheel_filename(filename)[3]:
        platform = "linux" if "linux" in tag.platform else tag.platform
        if f"{tag.interpreter}-{tag.abi}-{platform}" in tags:
            return True
    return False


def in_range(releases: Iterable[PackageRelease], specifier: SpecifierSet, *, python: str) -> list[PackageRelease]:
    """Return the releases in a range that `python` can use; pre-releases only if the range names one."""
    early = bool(specifier.prereleases)
    return [r for r in releases if specifier.contains(r.version, prereleases=early) and r.usable_by(python)]


def matching(releases: Iterable[PackageRelease], version: Version) -> PackageRelease | None:
    """Return the release that `==version` means; without a local part, any local part matches."""
    fitting = [r for r in releases if r.version == version]
    if version.local is None:
        fitting += [r for r in releases if r.version.local is not None and Version(r.version.public) == version]
    return fitting[0] if fitting else None


def versions_around(releases: Sequence[PackageRelease], version: Version) -> list[str]:
    """Return up to four versions around one that does not exist, oldest first. Pre-releases count only if `version` is
    one, or if there are no final releases.
    """
    final = [] if version.is_prerelease else [r for r in releases if not r.version.is_prerelease]
    below = [r for r in final or releases if r.version < version]
    above = [r for r in final or releases if r.version > version]
    low = below[-max(2, 4 - len(above)) :]
    return [str(r.version) for r in low + above[: 4 - len(low)]]
