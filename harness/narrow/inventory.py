"""Reads the contents of one side, as the probe `components` lists them (`harness/agent/inside/components.py`)."""

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

    @cached_property
    def mapped_distributions(self) -> frozenset[str]:
        """Return the names of the distributions with a library that the scenario maps."""
        return frozenset(name for path in self.mapped if (name := self.owner(path)) is not None)

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
