"""Reads the file's series into the model's series, with an image for every version."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from harness import model, package_index
from harness.matrix.problems import Context, KeyPath, listed, shown, unknown_name
from harness.matrix.shape import VERSION, Built, Installed, Listed, Locks, MatrixFile, Repository, SeriesEntry, TagRange
from harness.registry.bounded_http import RegistryDenied, RegistryTrouble
from harness.registry.image_references import in_range
from harness.registry.registry_client import TagSource
from harness.safe_files import read_regular

PIN = re.compile(
    r"\s*([A-Za-z0-9](?:[\w.-]*[A-Za-z0-9])?)\s*(?:\[[^\]]*\])?\s*={2,3}\s*\{version\}\s*(?:;.*)?", re.ASCII
)
TOO_LONG = re.compile(r"\d{100}")
RUNNING_PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
MOST_LOCK_BYTES = 4 << 20
HASH = re.compile(r"\s--hash[= ](\S+)")
DIGEST = re.compile(r"[a-z0-9]+:[0-9a-fA-F]+")
PASSED_OVER = ("--only-binary", "--no-binary", "--prefer-binary")
"""Options that tools write at the top of a lock file, and that are ignored."""
COMMENT = re.compile(r"(^|\s)#.*")
HELP = "give a requirement or lock file, such as `pip freeze` or `uv pip compile` writes"


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One version of a series as written, its place in the file, and the source of its image."""

    version: str
    key: KeyPath
    source: model.Source
    yanked: bool = False


@dataclass(frozen=True, kw_only=True)
class SeriesReader:
    """Reads `series:`. Versions are checked with the package index and the registry. Problems are added to the
    context."""

    context: Context
    index: package_index.Index
    tags: TagSource

    def read(self, file: MatrixFile) -> tuple[model.Series, ...]:
        """Return all series, with an image for every version. Raises RegistryTrouble as `_tag_range` does."""
        for name in file.baseline:
            if name not in file.series:
                self.context.add(("baseline", name), unknown_name(name, file.series, what="series"))
        return tuple(self._series(name, entry, file.baseline.get(name)) for name, entry in file.series.items())

    def _series(self, name: str, entry: SeriesEntry, baseline: str | None) -> model.Series:
        key: KeyPath = ("series", name)
        readers: Mapping[type, Callable[[Any, KeyPath], list[Entry]]] = {
            Repository: self._repository, Listed: self._listed, Built: self._built,
            Installed: self._installed, Locks: self._locks,
        }  # fmt: skip
        versions = readers[type(entry)](entry, key)
        _check_unique(versions, self.context)
        if not (isinstance(entry, Repository) and isinstance(entry.tags, TagRange)):
            _check_order(versions, self.context)
        names = [version.version for version in versions]
        if baseline is not None and names and baseline not in names:
            text = f"series {name} has no version {shown(baseline)}; it has: {listed(names)}"
            self.context.add(("baseline", name), text)
        images = tuple(
            model.Image(
                series=name,
                version=each.version,
                source=each.source,
                where=self.context.where(*each.key),
                keep_entrypoint=entry.entrypoint,
                yanked=each.yanked,
                environment=tuple(
                    (variable, text.replace(VERSION, each.version)) for variable, text in entry.environment.items()
                ),
            )
            for each in versions
        )
        return model.Series(name=name, images=images, where=self.context.where(*key), baseline=baseline)

    # ------------------------------------------------------------ images

    def _repository(self, entry: Repository, key: KeyPath) -> list[Entry]:
        if isinstance(entry.tags, TagRange):
            return self._tag_range(entry.repository, entry.tags, (*key, "tags"))
        result = []
        for position, tag in enumerate(entry.tags):
            source = model.Pull(reference=f"{entry.repository}{'@' if tag.startswith('sha256:') else ':'}{tag}")
            result.append(Entry(version=tag, key=(*key, "tags", position), source=source))
        return result

    def _tag_range(self, repository: str, wanted: TagRange, key: KeyPath) -> list[Entry]:
        """Return the tags that the registry has now, oldest first. Raises RegistryTrouble, with the place, if it does
        not answer, since that is not an error in the file."""
        try:
            all_tags = self.tags.tags(repository)
        except RegistryDenied as error:
            self.context.add(key, str(error))
            return []
        except RegistryTrouble as error:
            raise RegistryTrouble(f"{self.context.where(*key)}: {error}") from error
        tags = in_range(all_tags, match=wanted.match, first=wanted.from_, last=wanted.to)
        if not tags:
            alike = in_range(all_tags, match=wanted.match)
            some = f"it has {len(all_tags)} tags: {listed(all_tags, most=4)}"
            there = f"newest of them: {listed(alike[-4:])}" if alike else some
            bounds = [f" {name} {bound}" for name, bound in (("from", wanted.from_), ("to", wanted.to)) if bound]
            asked = f"{shown(wanted.match)}{''.join(bounds)}"
            self.context.add(key, f"no tag of {repository} matches {asked}; {there}")
        return [Entry(version=tag, key=key, source=model.Pull(reference=f"{repository}:{tag}")) for tag in tags]

    def _listed(self, entry: Listed, key: KeyPath) -> list[Entry]:
        named: list[tuple[str | int, str]] = list(
            entry.images.items() if isinstance(entry.images, dict) else enumerate(entry.images)
        )
        return [
            Entry(
                version=step if isinstance(step, str) else reference,
                key=(*key, "images", step),
                source=model.Pull(reference=reference),
            )
            for step, reference in named
        ]

    def _built(self, entry: Built, key: KeyPath) -> list[Entry]:
        text = self.context.text_of(f"{entry.build}/Dockerfile", (*key, "build"))
        if text is not None and not re.search(rf"^\s*ARG\s.*\b{re.escape(entry.arg)}\b".encode(), text, re.I | re.M):
            problem = f"{entry.build}/Dockerfile has no 'ARG {entry.arg}': all versions would be the same image"
            self.context.add((*key, "arg"), problem)
        if entry.arg in entry.args:
            self.context.add((*key, "args", entry.arg), "is the arg that takes the version; remove it here")
        context, fixed = self.context.folder / entry.build, tuple(entry.args.items())
        sources = [model.Build(context=context, args=((entry.arg, version), *fixed)) for version in entry.versions]
        return [
            Entry(version=version, key=(*key, "versions", position), source=source)
            for position, (version, source) in enumerate(zip(entry.versions, sources, strict=True))
        ]

    # ------------------------------------------------------------ packages

    def _locks(self, entry: Locks, key: KeyPath) -> list[Entry]:
        result = []
        for name, text in entry.locks.items():
            place = (*key, "locks", name)
            path = self.context.existing(text, place)
            try:
                if path is not None:
                    source = install_of(path, python=entry.python, base=entry.base or self.context.default_base)
                    result.append(Entry(version=name, key=place, source=source))
            except ValueError as error:
                self.context.add(place, str(error))
        return result

    def _installed(self, entry: Installed, key: KeyPath) -> list[Entry]:
        pins = [match[1] for match in map(PIN.fullmatch, entry.install) if match]
        if isinstance(entry.versions, str):
            place = (*key, "versions")
            releases = self._range(entry.versions, entry, pins=pins, key=place)
            return [self._entry(entry, str(each.version), place, yanked=each.yanked) for each in releases]
        yanked = self._check_listed(entry, pins, key)
        return [
            self._entry(entry, version, (*key, "versions", position), yanked=version in yanked)
            for position, version in enumerate(entry.versions)
        ]

    def _range(
        self, text: str, entry: Installed, *, pins: Sequence[str], key: KeyPath
    ) -> Sequence[package_index.PackageRelease]:
        try:
            specifier = SpecifierSet(_parsable(text))
        except InvalidSpecifier:
            problem = f'{shown(text)} is neither a list nor a range; write ["2.0.0", "2.0.1"] or ">=2.0,<2.3"'
            self.context.add(key, problem)
            return []
        if not pins:
            problem = f"a range needs a requirement of the form name=={VERSION}; list the versions instead"
            self.context.add(key, problem)
            return []
        try:
            releases = self.index.releases(pins[0])
        except package_index.IndexSilent as error:
            self.context.add(key, f"{error}; list the versions instead, or try again")
            return []
        python = entry.python or RUNNING_PYTHON
        chosen = package_index.in_range(releases, specifier, python=python)
        if not chosen:
            usable = [str(release.version) for release in releases if release.usable_by(python)]
            problem = f"no release of {pins[0]} for Python {python} is in {shown(text)}; newest: {listed(usable[-4:])}"
            self.context.add(key, problem)
        return chosen

    def _check_listed(self, entry: Installed, pins: Sequence[str], key: KeyPath) -> set[str]:
        """Check that the index has the listed versions; return those that are yanked."""
        parsed = self._parsed(entry, pins, key)
        yanked: set[str] = set()
        for name in pins:
            try:
                releases = self.index.releases(name)
            except package_index.IndexSilent:
                return yanked  # if that matters, the installation will fail with a message
            if not releases:
                self.context.add((*key, "install"), f"the package index has no package {shown(name)}")
                continue
            for position, version in parsed.items():
                release = package_index.matching(releases, version)
                if release is None:
                    near = listed(package_index.versions_around(releases, version))
                    problem = f"the package index has no {name} {version}; nearest: {near}"
                    self.context.add((*key, "versions", position), problem)
                elif release.yanked:
                    yanked.add(entry.versions[position])
        return yanked

    def _parsed(self, entry: Installed, pins: Sequence[str], key: KeyPath) -> dict[int, Version]:
        """Return the listed versions by position. With a pin they must be valid versions of Python packages."""
        parsed = {}
        for position, text in enumerate(entry.versions if pins else []):
            try:
                parsed[position] = Version(_parsable(text))
            except InvalidVersion:
                problem = f"{shown(text)} is not a version of a Python package, such as 1.26.4 or 2.0.0rc1"
                self.context.add((*key, "versions", position), problem)
        return parsed

    def _entry(self, entry: Installed, version: str, key: KeyPath, *, yanked: bool) -> Entry:
        source = model.Install(
            base=base_image(entry.base or self.context.default_base, python=entry.python),
            python=entry.python,
            packages=tuple(item.replace(VERSION, version) for item in entry.install),
        )
        return Entry(version=version, key=key, source=source, yanked=yanked)


# ---------------------------------------------------------------- checks on a whole history


def _check_unique(versions: list[Entry], context: Context) -> None:
    first: dict[str, Entry] = {}
    for entry in versions:
        earlier = first.setdefault(entry.version, entry)
        if earlier is not entry:
            line = context.where(*earlier.key).line
            context.add(entry.key, f"{shown(entry.version)} appears twice, first on line {line}; keep one")


def _check_order(versions: list[Entry], context: Context) -> None:
    """Check the order of versions: in a wrong order, "first bad" would name a wrong version."""
    try:
        parsed = [Version(entry.version) for entry in versions]
    except ValueError:
        return  # the user's own names, or numbers too long to parse: only the user knows their order
    for (older, newer), (before, entry) in zip(pairwise(parsed), pairwise(versions), strict=True):
        if older > newer:
            text = f"versions are not oldest first: {before.version} before {entry.version}; put the older one first"
            context.add(entry.key, text)
        elif older == newer and before.version != entry.version and isinstance(entry.source, model.Install):
            context.add(entry.key, f"{before.version} and {entry.version} are the same version; keep one")


def base_image(base: str | None, *, python: str | None) -> str:
    """Return the image to install on top of; without `base`, the slim image of the interpreter's version."""
    return base or f"python:{python or RUNNING_PYTHON}-slim-bookworm"


def _parsable(text: str) -> str:
    """Return the text; "?", which is neither a version nor a range, if it has a number too long for Python."""
    return "?" if TOO_LONG.search(text) else text


# ---------------------------------------------------------------- requirement files


def install_of(path: Path, *, python: str | None, base: str | None) -> model.Install:
    """Return what a requirement or lock file installs. Raises ValueError with the file and the line."""
    hashes: dict[str, tuple[str, ...]] = {}
    places: dict[str, str] = {}
    for requirement, own, place in _requirements(path):
        hashes[requirement] = (*hashes.get(requirement, ()), *own)
        places.setdefault(requirement, place)
    if not hashes:
        raise ValueError(f"{path}: contains no requirement; {HELP}")
    bare = [requirement for requirement, own in hashes.items() if not own]
    if bare and len(bare) < len(hashes):
        raise ValueError(
            f"{places[bare[0]]}: {shown(bare[0])} has no --hash, but other requirements have one; pip needs hashes for "
            "all or none"
        )
    return model.Install(
        base=base_image(base, python=python),
        python=python,
        packages=tuple(hashes),
        hashes=tuple((requirement, own) for requirement, own in hashes.items() if own),
    )


def _requirements(path: Path) -> Iterator[tuple[str, tuple[str, ...], str]]:
    """Yield each requirement with its hashes and its place. Raises ValueError; its text begins with the place."""
    try:
        text = read_regular(path.resolve(), most_bytes=MOST_LOCK_BYTES).decode()
    except OSError as error:
        raise ValueError(
            f"{path}: cannot be read: {error.strerror or error}; give a requirement or lock file"
        ) from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: is not text; {HELP}") from error
    for number, whole in _lines(text):
        line, place = COMMENT.sub("", whole), f"{path}:{number}"
        hashes, words = tuple(HASH.findall(line)), HASH.sub("", line).strip()
        if (not words and not hashes) or words.startswith(PASSED_OVER):
            continue
        if not words:
            raise ValueError(f"{place}: a hash without a requirement; end the line above with a backslash")
        if words.startswith("-"):
            raise ValueError(
                f"{place}: {shown(words)} is an option; give one complete list, as `pip freeze` "
                "writes it, and the index in UV_INDEX_URL or PIP_INDEX_URL"
            )
        if wrong := [each for each in hashes if not DIGEST.fullmatch(each)]:
            raise ValueError(f"{place}: {shown(wrong[0])} is not a hash; write one such as --hash=sha256:0f1e…")
        yield _requirement(words, place), hashes, place


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield each line with its number; a line that ends with a backslash is joined with the next."""
    begun, whole = 0, ""
    for number, line in enumerate(text.splitlines(), start=1):
        begun = begun or number
        whole += line.removesuffix("\\")
        if not line.endswith("\\"):
            yield begun, whole
            begun, whole = 0, ""
    if whole:
        yield begun, whole


def _requirement(words: str, place: str) -> str:
    try:
        return str(Requirement(words))
    except InvalidRequirement:
        raise ValueError(f"{place}: {shown(words)} is not a requirement; write one such as numpy==1.26.4") from None
