"""Reads what an image requires of a GPU from its labels and environment, else from `harness/data/ngc.yaml`."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from types import MappingProxyType
from typing import Annotated, Literal

import yaml
from pydantic import ConfigDict, StringConstraints, TypeAdapter

from harness.model import Image, Pull

TRUE = ("1", "t", "true")  # in any case, as in nvidia-container-runtime
NOTHING: Mapping[str, str] = MappingProxyType({})
ARCHITECTURE = re.compile(r"(\d+\.\d)[a-z]?(\+PTX)?")


@dataclass(frozen=True, kw_only=True)
class Needs:
    """The known requirements of an image; None or empty where nothing is known.

    `cuda` is the toolkit that the image was built with; where only a span is known, it is the oldest of the span and
    `cuda_newest` the newest. `driver` is the oldest driver that the image was built for. `said_cuda` and `said_driver`
    are true if the image itself or release notes state the version, false if it is a guess. `architectures` are the
    compute capabilities that code was compiled for, each with whether it has PTX, which newer GPUs compile when it is
    loaded. `requirements` maps a variable to the condition that the container runtime checks.
    """

    cuda: str | None = None
    cuda_newest: str | None = None
    driver: str | None = None
    said_cuda: bool = False
    said_driver: bool = False
    architectures: tuple[tuple[str, bool], ...] = ()
    requirements: Mapping[str, str] = field(default_factory=dict)

    @property
    def known(self) -> bool:
        return bool(self.cuda or self.driver or self.architectures or self.requirements)


def needs_of(image: Image, environment: Mapping[str, str] = NOTHING, labels: Mapping[str, str] = NOTHING) -> Needs:
    """Return what `image` needs. Its environment takes precedence over its labels, and both over the table, which knows
    its name; only this is known at first.
    """
    reference, table = image.source.reference if isinstance(image.source, Pull) else "", shipped()
    framework = environment.get("NVIDIA_TENSORFLOW_VERSION", "")
    if framework and ("tf1" in framework or environment.get("TENSORFLOW_VERSION", "").startswith("1.")):
        release = table.release(framework)
    else:
        release = table.named(reference) or table.named(image.version)
    said = (environment.get("CUDA_VERSION"), labels.get("com.nvidia.cuda.version"))
    cuda = next((text for text in said if numbers(text)), None)
    driver = environment.get("CUDA_DRIVER_VERSION") if numbers(environment.get("CUDA_DRIVER_VERSION")) else None
    # What torch and its extensions are built for; nothing is known if one is a family (`Ampere`).
    listed = environment.get("TORCH_CUDA_ARCH_LIST", "") or labels.get("harness.cuda_architectures", "")
    built = [ARCHITECTURE.fullmatch(word) for word in re.split(r"[\s;,]+", listed) if word]
    known = [] if None in built else [match for match in built if match]
    is_required = environment.get("NVIDIA_DISABLE_REQUIRE", "").lower() not in TRUE
    confirmed = release is not None and release.confirmed
    return Needs(
        cuda=cuda or (release.cuda if release else None),
        cuda_newest=cuda or ((release.cuda_newest or release.cuda) if release else None),
        driver=driver or (release.driver if release else None),
        said_cuda=cuda is not None or confirmed,
        said_driver=driver is not None or confirmed,
        architectures=tuple((match[1], bool(match[2])) for match in known),
        requirements={
            name: text
            for name, text in sorted(environment.items())
            if is_required and name.startswith("NVIDIA_REQUIRE_") and text
        },
    )


# ---------------------------------------------------------------- versions


Numbers = tuple[int, ...]

LEADING = re.compile(r"\s*[vVrR]?(\d{1,9}(?:\.\d{1,9})*)")


def numbers(text: str | None) -> Numbers | None:
    """Parse `535.104.05-server` into (535, 104, 5); `11.8.0` is (11, 8). None if the text begins with no number."""
    match = LEADING.match(text or "")
    if match is None:
        return None
    parts = [int(part) for part in match[1].split(".")]
    while parts and not parts[-1]:
        parts.pop()
    return tuple(parts)


def major_minor(text: str) -> str:
    """Shorten a CUDA version to its usual name: `11.1.1` -> `11.1`."""
    match = LEADING.match(text)
    return ".".join(match[1].split(".")[:2]) if match else text


def sm(capability: str) -> str:
    """Return the compiler's name of a compute capability: `8.9` -> `sm_89`."""
    return f"sm_{capability.replace('.', '')}"


# ---------------------------------------------------------------- the table of NGC images


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
    """The content of `data/ngc.yaml`. `capabilities` maps a compute capability to the oldest CUDA that has code for it;
    `dropped` maps it to the first CUDA that no longer has any.
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
