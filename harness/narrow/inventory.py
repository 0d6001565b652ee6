"""Reads the contents of one side, as the probe `components` lists them (`harness/agent/inside/components.py`).

Lists what differs between two sides: distributions, libraries, variables, and everything else (the base).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import PurePosixPath

from packaging.markers import InvalidMarker, UndefinedComparison, UndefinedEnvironmentName
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from pydantic import BaseModel, ValidationError

from harness.errors import InfrastructureError
from harness.narrow.records import Component

FILE = "components.json"
LIBRARY = re.compile(r"\.so(\.[^/]*)?$")


@dataclass(frozen=True, kw_only=True)
class Distribution:
    """An installed distribution. `place` is its site-packages; `files` maps paths below it to hashes, as in RECORD.

    `origin`: the URL that it was installed from; "" if it came from a package index.
    """

    name: str
    version: str
    place: str
    folder: str
    requires: tuple[str, ...] = ()
    origin: str = ""
    files: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def content(self) -> str:
        """Return a hash over the hashes of all files except scripts, which contain their environment's path."""
        lines = sorted(f"{path},{digest}" for path, digest in self.files.items() if not path.startswith(("../", "/")))
        return hashlib.sha256("\n".join([self.name, self.version, *lines]).encode()).hexdigest()

    @property
    def pin(self) -> str:
        """Return the requirement that installs exactly this distribution."""
        return f"{self.name} @ {self.origin}" if self.origin else f"{self.name}=={self.version}"

    def holds(self, path: str) -> bool:
        """Return whether the file at an absolute path belongs to this distribution."""
        absolute = PurePosixPath(path)
        return absolute.is_relative_to(self.place) and str(absolute.relative_to(self.place)) in self.files


@dataclass(frozen=True, kw_only=True)
class Inventory:
    """The contents of one side. `distributions` are by normalised name. `mapped` holds the SHA-256 of each library that
    the scenario maps, by path. `variables` is the environment that the image and the series set for a launch.
    """

    python: str
    implementation: str
    libc: str
    machine: str
    distributions: Mapping[str, Distribution]
    mapped: Mapping[str, str]
    variables: Mapping[str, str] = field(default_factory=dict)

    @property
    def markers(self) -> dict[str, str]:
        """Return the environment in which the markers of requirements are evaluated (PEP 508)."""
        return {
            "implementation_name": self.implementation.lower(),
            "implementation_version": self.python,
            "os_name": "posix",
            "platform_machine": self.machine,
            "platform_python_implementation": self.implementation,
            "platform_system": "Linux",
            "python_full_version": self.python,
            "python_version": ".".join(self.python.split(".")[:2]),
            "sys_platform": "linux",
        }

    @property
    def installs_for(self) -> tuple[str, str, str]:
        """Return the target of all distributions: Python's implementation, its minor version, the kind of C library."""
        return self.implementation, self.markers["python_version"], self.libc.partition(" ")[0]

    def compiled(self, name: str) -> bool:
        """Return whether a distribution is installed and contains compiled code."""
        distribution = self.distributions.get(name)
        return distribution is not None and any(LIBRARY.search(path) for path in distribution.files)

    def owner(self, path: str) -> str | None:
        """Return the name of the distribution that a file belongs to; None if it belongs to none."""
        owners = (name for name, distribution in self.distributions.items() if distribution.holds(path))
        return next(owners, None)

    def requirements(self, name: str, extras: frozenset[str]) -> tuple[Requirement, ...]:
        """Return a distribution's requirements that apply here with these extras; unparsable ones are left out."""
        parsed = (parsed_requirement(text) for text in self.distributions[name].requires)
        return tuple(each for each in parsed if each is not None and self._applies(each, extras))

    def _applies(self, requirement: Requirement, extras: frozenset[str]) -> bool:
        marker = requirement.marker
        try:
            return marker is None or any(
                marker.evaluate({**self.markers, "extra": extra}) for extra in ("", *sorted(extras))
            )
        except (UndefinedComparison, UndefinedEnvironmentName, InvalidMarker):
            return False


def parsed_requirement(text: str) -> Requirement | None:
    try:
        return Requirement(text)
    except InvalidRequirement:
        return None


class _InventoryFile(BaseModel):
    format: int
    python: str
    implementation: str
    libc: str
    machine: str
    distributions: list[Distribution]
    mapped: dict[str, str]


def read_inventory(text: str, *, variables: Mapping[str, str]) -> Inventory:
    """Return the inventory that the agent sent. Raises InfrastructureError if an image sent anything else."""
    try:
        sent = _InventoryFile.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise InfrastructureError(f"{FILE}: {place}: {first['msg']}; the image sent no component list") from error
    distributions = (replace(each, name=canonicalize_name(each.name)) for each in sent.distributions)
    return Inventory(
        python=sent.python,
        implementation=sent.implementation,
        libc=sent.libc,
        machine=sent.machine,
        distributions={distribution.name: distribution for distribution in distributions},
        mapped={path: digest for path, digest in sent.mapped.items() if digest},
        variables=dict(variables),
    )


# ---------------------------------------------------------------- what differs


BASE = "operating system, Python and C library"
MOST_NAMED = 6
OF_THE_BASE = re.compile(
    r"^(ld-linux|ld-musl|lib(c|m|dl|rt|util|pthread|resolv|nss_\w+|python[\d.]*|stdc\+\+|gcc_s)[-.])|lib-dynload/"
)
"""Libraries that belong to the C library or the interpreter: swapping one of them alone proves nothing."""
SONAME = re.compile(r"^(lib.+?)(?:-[\d.]+)?\.so(?:\..*)?$")


def components(a: Inventory, b: Inventory) -> tuple[Component, ...]:
    """Return the components that differ between two sides; those that the scenario maps come first.

    Libraries outside distributions differ if both sides map them, with different content.
    """
    mapped = {side.owner(path) for side in (a, b) for path in side.mapped}
    found: list[Component] = []
    for name in a.distributions.keys() | b.distributions.keys():
        old, new = a.distributions.get(name), b.distributions.get(name)
        if old is None or new is None or old.content != new.content:
            found.append(
                Component(
                    kind="distribution",
                    name=name,
                    old=old.version if old else None,
                    new=new.version if new else None,
                    old_hash=old.content if old else "",
                    new_hash=new.content if new else "",
                    mapped=name in mapped,
                )
            )
    of_a, of_b = libraries(a), libraries(b)
    for name in of_a.keys() & of_b.keys():
        paths, hashes = (of_a[name], of_b[name]), (a.mapped[of_a[name]], b.mapped[of_b[name]])
        if hashes[0] != hashes[1]:
            files = [path.rpartition("/")[2] for path in paths]
            found.append(
                Component(
                    kind="library", name=name, old=files[0], new=files[1], old_hash=hashes[0], new_hash=hashes[1],
                    mapped=True,
                )
            )  # fmt: skip
    for name in a.variables.keys() | b.variables.keys():
        before, after = a.variables.get(name), b.variables.get(name)
        if before != after:
            found.append(Component(kind="variable", name=name, old=before, new=after))
    base = [f"{side.implementation} {side.python}, {side.libc}" for side in (a, b)]
    if base[0] != base[1]:
        found.append(Component(kind="files", name=BASE, old=base[0], new=base[1]))
    return tuple(sorted(found, key=lambda component: (not component.mapped, component.kind, component.name)))


def changed_copy(own: Inventory, copy: Inventory) -> str:
    """Return in what a version and its copy, which was made from the version's own parts, differ."""
    names = [each.name for each in components(own, copy)]
    if not names:
        return (
            "no distribution, mapped library or variable differs between the version and its copy; other files "
            "are not compared"
        )
    left = len(names) - MOST_NAMED
    more = f" and {left} more" if left > 0 else ""
    return f"the version and its copy differ in {', '.join(names[:MOST_NAMED])}{more}"


def libraries(side: Inventory) -> Mapping[str, str]:
    """Return the path of each library that can be swapped on its own, by its name without the version."""
    paths: dict[str, str] = {}
    for path in sorted(side.mapped):
        file = path.rpartition("/")[2]
        if (match := SONAME.match(file)) and not OF_THE_BASE.search(file) and side.owner(path) is None:
            paths.setdefault(f"{match[1]}.so", path)
    return paths
