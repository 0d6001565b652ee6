"""Reads the compatibility table of images that do not state their own needs: `harness/data/ngc.yaml`."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from typing import Annotated, Literal

import yaml
from pydantic import ConfigDict, StringConstraints, TypeAdapter

from harness.compat.versions import Numbers, numbers

Version = Annotated[str, StringConstraints(pattern=r"^\d+(\.\d+)*$")]
ReleaseName = Annotated[str, StringConstraints(pattern=r"^\d\d\.\d\d$")]

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
    CUDA that no longer has any.
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


@functools.cache
def shipped() -> CompatibilityTable:
    """Return the table that this version of the harness ships."""
    text = (resources.files("harness") / "data" / "ngc.yaml").read_text(encoding="utf-8")
    return TypeAdapter(CompatibilityTable).validate_python(yaml.safe_load(text))
