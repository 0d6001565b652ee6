"""Reads `install:` series: the packages of each version, checked with the package index."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from harness import model, package_index
from harness.matrix.keys import series_keys as keys
from harness.matrix.problems import Context, KeyPath, listed, shown

VERSION = "{version}"
PYTHON = re.compile(r"3\.[0-9]{1,2}(?:\.[0-9]{1,2})?")
PIN = re.compile(
    r"\s*([A-Za-z0-9](?:[\w.-]*[A-Za-z0-9])?)\s*(?:\[[^\]]*\])?\s*={2,3}\s*\{version\}\s*(?:;.*)?", re.ASCII
)
TOO_LONG = re.compile(r"\d{100}")
RUNNING_PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One version of a series as written, its place in the file, and the source of its image."""

    version: str
    key: KeyPath
    source: model.Source
    yanked: bool = False


def check_python(version: str | None) -> str:
    """Return what is wrong with an interpreter's version; "" if nothing is."""
    if version is None or PYTHON.fullmatch(version):
        return ""
    return f"{shown(version)} is not a version of Python 3, such as 3.11"


def base_image(base: str | None, *, python: str | None) -> str:
    """Return the image to install on top of; without `base`, the slim image of the interpreter's version."""
    return base or f"python:{python or RUNNING_PYTHON}-slim-bookworm"


@dataclass(frozen=True, kw_only=True)
class PackageReader:
    """Reads `install:` series and checks their versions with the index."""

    context: Context
    index: package_index.Index

    def read(self, entry: keys.Installed, key: KeyPath) -> list[Entry]:
        """Return the packages of one series, oldest first as written; problems are added to the context."""
        if not self._sound(entry, key):
            return []
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

    def _sound(self, entry: keys.Installed, key: KeyPath) -> bool:
        """Return whether the requirements and `python` are valid."""
        problems = []
        if problem := check_python(entry.python):
            problems.append(((*key, "python"), problem))
        for position, item in enumerate(entry.install):
            try:
                Requirement(item.replace(VERSION, "1.0"))
            except InvalidRequirement:
                text = f"{shown(item)} is not a requirement; write one such as numpy=={VERSION} or numpy==1.26.4"
                problems.append(((*key, "install", position), text))
        if not any(VERSION in item for item in entry.install):
            text = f"no requirement has {VERSION}: all versions would be the same; write one such as numpy=={VERSION}"
            problems.append(((*key, "install"), text))
        for place, text in problems:
            self.context.add(place, text)
        return not problems

    def _range(
        self, text: str, entry: keys.Installed, *, pins: Sequence[str], key: KeyPath
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

    def _check_listed(self, entry: keys.Installed, pins: Sequence[str], key: KeyPath) -> set[str]:
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

    def _parsed(self, entry: keys.Installed, pins: Sequence[str], key: KeyPath) -> dict[int, Version]:
        """Return the listed versions by position. With a pin they must be valid versions of Python packages."""
        parsed = {}
        for position, text in enumerate(entry.versions if pins else []):
            try:
                parsed[position] = Version(_parsable(text))
            except InvalidVersion:
                problem = f"{shown(text)} is not a version of a Python package, such as 1.26.4 or 2.0.0rc1"
                self.context.add((*key, "versions", position), problem)
        return parsed

    def _entry(self, entry: keys.Installed, version: str, key: KeyPath, *, yanked: bool) -> Entry:
        source = model.Install(
            base=base_image(entry.base or self.context.default_base, python=entry.python),
            python=entry.python,
            packages=tuple(item.replace(VERSION, version) for item in entry.install),
        )
        return Entry(version=version, key=key, source=source, yanked=yanked)


def _parsable(text: str) -> str:
    """Return the text; "?", which is neither a version nor a range, if it has a number too long for Python."""
    return "?" if TOO_LONG.search(text) else text
