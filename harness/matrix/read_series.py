"""Reads the file's series into the model's series, with an image for every version."""

from __future__ import annotations

import os
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
from harness.matrix.context import Context, KeyPath, listed, unknown_name
from harness.matrix.shape import Built, Installed, Listed, Locks, MatrixFile, Repository, SeriesEntry, TagRange, Varies
from harness.model.forms import shown
from harness.registry.bounded_http import RegistryDenied, RegistryTrouble
from harness.registry.image_references import VERSION_KEY, in_range
from harness.registry.registry_client import Tags
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
    """Reads `series:`, with the package index and the registry. Problems are added to the context."""

    context: Context
    index: package_index.PackageIndex
    tags: Tags

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
            Installed: self._installed, Locks: self._locks, Varies: self._varied,
        }  # fmt: skip
        versions = readers[type(entry)](entry, key)
        names = [version.version for version in versions]
        for place, each in enumerate(versions):
            first = names.index(each.version)
            if first < place:
                line = self.context.where(*versions[first].key).line
                self.context.add(each.key, f"{shown(each.version)} appears twice, first on line {line}; keep one")
        is_sorted = isinstance(entry, Repository) and isinstance(entry.tags, TagRange)
        if not is_sorted and not isinstance(entry, Varies):
            self._check_order(versions)
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
                environment=(
                    *(((entry.vary, each.version),) if isinstance(entry, Varies) else ()),
                    *((variable, text.replace(VERSION_KEY, each.version)) for variable, text in entry.environment),
                ),
            )
            for each in versions
        )
        return model.Series(name=name, images=images, where=self.context.where(*key), baseline=baseline)

    def _check_order(self, versions: Sequence[Entry]) -> None:
        """Check the order of versions: in a wrong order, "first bad" would name a wrong version."""
        try:
            parsed = [Version(entry.version) for entry in versions]
        except ValueError:
            return  # the user's own names, or numbers too long to parse: only the user knows their order
        for (older, newer), (before, entry) in zip(pairwise(parsed), pairwise(versions), strict=True):
            pair = f"{before.version} before {entry.version}"
            if older > newer:
                self.context.add(entry.key, f"versions are not oldest first: {pair}; put the older one first")
            elif older == newer and before.version != entry.version and isinstance(entry.source, model.Install):
                text = f"{before.version} and {entry.version} are the same version; keep one"
                self.context.add(entry.key, text)

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
            all_tags = self.tags(repository)
        except RegistryDenied as error:
            self.context.add(key, str(error))
            return []
        except RegistryTrouble as error:
            error.place = str(self.context.where(*key))
            raise
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
        pairs = entry.images.items() if isinstance(entry.images, dict) else enumerate(entry.images)
        return [
            Entry(
                version=step if isinstance(step, str) else reference,
                key=(*key, "images", step),
                source=model.Pull(reference=reference),
            )
            for step, reference in pairs
        ]

    def _built(self, entry: Built, key: KeyPath) -> list[Entry]:
        path = self.context.existing((*key, "build"), below="/Dockerfile")
        text = None if path is None else self.context.content(path, (*key, "build"))
        if text is not None and not re.search(rf"^\s*ARG\s.*\b{re.escape(entry.arg)}\b".encode(), text, re.I | re.M):
            problem = f"{entry.build}/Dockerfile has no 'ARG {entry.arg}': all versions would be the same image"
            self.context.add((*key, "arg"), problem)
        if entry.arg in entry.args:
            self.context.add((*key, "args", entry.arg), "is the arg that takes the version; remove it here")
        folder, fixed = self.context.folder / entry.build, tuple(entry.args.items())
        return [
            Entry(
                version=version,
                key=(*key, "versions", position),
                source=model.Build(context=folder, args=((entry.arg, version), *fixed)),
            )
            for position, version in enumerate(entry.versions)
        ]

    def _varied(self, entry: Varies, key: KeyPath) -> list[Entry]:
        if entry.vary in dict(entry.environment):
            self.context.add((*key, "environment", entry.vary), "is the variable that is varied; remove it here")
        source = model.Varied(variable=entry.vary)
        return [
            Entry(version=version, key=(*key, "versions", position), source=source)
            for position, version in enumerate(entry.versions)
        ]

    # ------------------------------------------------------------ packages

    def _locks(self, entry: Locks, key: KeyPath) -> list[Entry]:
        result = []
        for name in entry.locks:
            place = (*key, "locks", name)
            path = self.context.existing(place)
            try:
                if path is not None:
                    source = install_of(path, python=entry.python, base=entry.base or self.context.default_base)
                    result.append(Entry(version=name, key=place, source=source))
            except ValueError as error:
                self.context.add(place, str(error))
        return result

    def _installed(self, entry: Installed, key: KeyPath) -> list[Entry]:
        pins = {match[1]: place for place, text in enumerate(entry.install) if (match := PIN.fullmatch(text))}
        place: KeyPath = (*key, "versions")
        if isinstance(entry.versions, str):
            releases = self._range(entry.versions, entry, pins=pins, key=place)
            found = [(str(release.version), place, release.yanked) for release in releases]
        else:
            has_own = entry.python is None and (entry.base or self.context.default_base)  # the base's own Python
            python = "" if has_own else entry.python or RUNNING_PYTHON
            yanked = self._check_listed(entry.versions, pins, key, python=python)
            found = [(text, (*place, position), text in yanked) for position, text in enumerate(entry.versions)]
        base = base_image(entry.base or self.context.default_base, python=entry.python)
        return [
            Entry(
                version=version,
                key=where,
                source=model.Install(
                    base=base,
                    python=entry.python,
                    packages=tuple(item.replace(VERSION_KEY, version) for item in entry.install),
                ),
                yanked=is_yanked,
            )
            for version, where, is_yanked in found
        ]

    def _range(
        self, text: str, entry: Installed, *, pins: Mapping[str, int], key: KeyPath
    ) -> Sequence[package_index.PackageRelease]:
        """Return the releases of the first pinned package in a range, oldest first."""
        try:
            specifier = SpecifierSet(_parsable(text))
        except InvalidSpecifier:
            problem = f'{shown(text)} is neither a list nor a range; write ["2.0.0", "2.0.1"] or ">=2.0,<2.3"'
            self.context.add(key, problem)
            return []
        if not pins:
            problem = f"a range needs a requirement of the form name=={VERSION_KEY}; list the versions instead"
            self.context.add(key, problem)
            return []
        try:
            releases = self.index.releases(package := next(iter(pins)))
        except package_index.IndexSilent as error:
            self.context.add(key, f"{error}; list the versions instead, or try again")
            return []
        python = entry.python or RUNNING_PYTHON
        chosen = package_index.in_range(releases, specifier, python=python)
        if not chosen:
            usable = [str(release.version) for release in releases if release.usable_by(python)]
            problem = f"no release of {package} for Python {python} is in {shown(text)}; newest: {listed(usable[-4:])}"
            self.context.add(key, problem)
        return chosen

    def _check_listed(self, versions: Sequence[str], pins: Mapping[str, int], key: KeyPath, *, python: str) -> set[str]:
        """Check that the listed versions are valid and in the index, for `python` unless that is ""; return those that
        are yanked. `pins`: the packages that have them, with their places in `install`; without any, the versions are
        the user's own names.
        """
        parsed: dict[int, Version] = {}
        for position, text in enumerate(versions if pins else ()):
            try:
                parsed[position] = Version(_parsable(text))
            except InvalidVersion:
                problem = f"{shown(text)} is not a version of a Python package, such as 1.26.4 or 2.0.0rc1"
                self.context.add((*key, "versions", position), problem)
        yanked: set[str] = set()
        for name, place in pins.items():
            try:
                releases = self.index.releases(name)
            except package_index.IndexSilent:
                return yanked  # if that matters, the installation will fail with a message
            if not releases:
                self.context.add((*key, "install", place), f"the package index has no package {shown(name)}")
                continue
            for position, version in parsed.items():
                release = package_index.matching(releases, version)
                if release is None:
                    near = listed(package_index.versions_around(releases, version))
                    problem = f"the package index has no {name} {version}; nearest: {near}"
                    self.context.add((*key, "versions", position), problem)
                elif python and (why := _not_for(release, python)):
                    self.context.add((*key, "versions", position), f"{name} {version} is {why}")
                elif release.yanked:
                    yanked.add(versions[position])
        return yanked


def base_image(base: str | None, *, python: str | None) -> str:
    """Return the image to install on top of; without `base`, the slim image of the interpreter's version."""
    return base or f"python:{python or RUNNING_PYTHON}-slim-bookworm"


def _not_for(release: package_index.PackageRelease, python: str) -> str:
    """Return why a release cannot be installed in a Python but in others, with the remedy; "" if it may be."""
    if release.usable_by(python) or release.has_wheel_for(python) or not (others := release.pythons()):
        return ""
    only = others[0] if len(others) == 1 else f"{others[0]} to {others[-1]}"
    return f'not for Python {python}, only for {only}; name one with `python: "{others[-1]}"` or --python {others[-1]}'


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
        text = "has no --hash, but other requirements have one; pip needs hashes for all or none"
        raise ValueError(f"{places[bare[0]]}: {shown(bare[0])} {text}")
    return model.Install(
        base=base_image(base, python=python),
        python=python,
        packages=tuple(hashes),
        hashes=tuple((requirement, own) for requirement, own in hashes.items() if own),
    )


def _requirements(path: Path) -> Iterator[tuple[str, tuple[str, ...], str]]:
    """Yield each requirement with its hashes and its place. Raises ValueError; its text begins with the place."""
    try:
        text = read_regular(Path(os.path.realpath(path)), most_bytes=MOST_LOCK_BYTES).decode()
    except OSError as error:
        reason = error.strerror or error
        raise ValueError(f"{path}: cannot be read: {reason}; give a requirement or lock file") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: is not text; {HELP}") from error
    begun, whole = 0, ""
    for number, part in enumerate([*text.splitlines(), ""], start=1):
        begun, whole = begun or number, whole + part.removesuffix("\\")
        if part.endswith("\\"):
            continue  # the line goes on in the next
        place, line = f"{path}:{begun}", COMMENT.sub("", whole)
        begun, whole = 0, ""
        hashes, words = tuple(HASH.findall(line)), HASH.sub("", line).strip()
        if (not words and not hashes) or words.startswith(PASSED_OVER):
            continue
        if not words:
            raise ValueError(f"{place}: a hash without a requirement; end the line above with a backslash")
        if words.startswith("-"):
            remedy = "give one complete list, as `pip freeze` writes it, and the index in UV_INDEX_URL or PIP_INDEX_URL"
            raise ValueError(f"{place}: {shown(words)} is an option; {remedy}")
        if wrong := [each for each in hashes if not DIGEST.fullmatch(each)]:
            raise ValueError(f"{place}: {shown(wrong[0])} is not a hash; write one such as --hash=sha256:0f1e…")
        try:
            yield str(Requirement(words)), hashes, place
        except InvalidRequirement:
            raise ValueError(f"{place}: {shown(words)} is not a requirement; write one such as numpy==1.26.4") from None
