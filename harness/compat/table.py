"""Reads the compatibility table of images that do not state their own needs: `harness/data/ngc.yaml`."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from typing import Annotated, Literal

import yaml
from pydantic import ConfigDict, StringConstraints, TypeAdapter, ValidationError

from harness.compat.versions import Numbers, numbers
from harness.errors import UsageError

Version = Annotated[str, StringConstraints(pattern=r"^\d+(\.\d+)*$")]
ReleaseName = Annotated[str, StringConstraints(pattern=r"^\d\d\.\d\d$")]

FILE = "ngc.yaml"
TAG = re.compile(r"(?:^|:)(\d\d\.\d\d?)-tf1(?:-|$)")
WHEEL = re.compile(r"\b1\.\d+(?:\.\d+)?\+nv(\d\d\.\d\d?)\b")


@dataclass(frozen=True, kw_only=True)
class Release:
    """Releases with the same needs. `cuda_newest` is set where CUDA's version is only known to lie between two."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    releases: tuple[ReleaseName, ...]
    tensorflow: Version
    python: Version
    cuda: Version
    driver: Version
    cuda_newest: Version | None = None
    confirmed: bool = True


@dataclass(frozen=True, kw_only=True)
class CompatibilityTable:
    """`capabilities` maps a compute capability to the oldest CUDA that has code for it; `dropped` maps it to the first
    that has none any more, where there is one.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")

    version: Literal[1]
    capabilities: Mapping[Version, Version]
    tensorflow1: tuple[Release, ...]
    dropped: Mapping[Version, Version] = field(default_factory=dict)

    def named(self, text: str) -> Release | None:
        """Return the release that a reference, tag or wheel version names: `…:20.12-tf1-py3`, `1.15.5+nv22.12`."""
        match = TAG.search(text) or WHEEL.search(text)
        return None if match is None else self.release(match[1])

    def release(self, name: str) -> Release | None:
        """Return the release named `20.12`; wheels also write `21.2` for `21.02`."""
        return self._by_number.get(numbers(name) or ())

    @functools.cached_property
    def _by_number(self) -> dict[Numbers, Release]:
        return {numbers(name) or (): row for row in self.tensorflow1 for name in row.releases}


def load_table(text: str) -> CompatibilityTable:
    """Parse a table in YAML. Raises UsageError with the place of the first error."""
    try:
        table = TypeAdapter(CompatibilityTable).validate_python(yaml.safe_load(text))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise UsageError(f"{FILE}: {place}: {first['msg']}") from error
    except yaml.YAMLError as error:
        raise UsageError(f"{FILE}: is not YAML: {error}") from error
    return _checked(table)


def _checked(table: CompatibilityTable) -> CompatibilityTable:
    names = [name for row in table.tensorflow1 for name in row.releases]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise UsageError(f"{FILE}: tensorflow1: releases listed twice: {', '.join(twice)}")
    if names != sorted(names):
        raise UsageError(f"{FILE}: tensorflow1: releases must stand oldest first")
    return table


@functools.cache
def shipped() -> CompatibilityTable:
    """Return the table that this version of the harness ships."""
    return load_table((resources.files("harness") / "data" / FILE).read_text(encoding="utf-8"))
