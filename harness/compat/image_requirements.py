"""Reads what an image requires of a GPU from its labels and environment, else from the compatibility table."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from harness.compat.ngc_table import Release, shipped
from harness.compat.versions import numbers

TRUE = ("1", "t", "true")  # in any case, as in nvidia-container-runtime
ARCHITECTURE = re.compile(r"(\d+\.\d)[a-z]?(\+PTX)?")


@dataclass(frozen=True, kw_only=True)
class DescribedImage:
    """An image as the engine or registry describes it, with the reference to pull and its version in the series."""

    reference: str = ""
    version: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """A compute capability that code was compiled for. With `ptx`, newer GPUs compile the code when it is loaded."""

    capability: str
    ptx: bool = False


@dataclass(frozen=True, kw_only=True)
class Needs:
    """The known requirements of an image; None or empty where nothing is known.

    `cuda` is the toolkit that the image was built with; where only a span is known, it is the oldest of the span and
    `cuda_newest` the newest. `driver` is the oldest driver that the image was built for. `said_cuda` and `said_driver`
    are true if the image itself or release notes state the version, false if it is a guess. `requirements` maps a
    variable to the condition that the container runtime checks.
    """

    cuda: str | None = None
    cuda_newest: str | None = None
    driver: str | None = None
    said_cuda: bool = False
    said_driver: bool = False
    architectures: tuple[Architecture, ...] = ()
    requirements: Mapping[str, str] = field(default_factory=dict)

    @property
    def known(self) -> bool:
        return bool(self.cuda or self.driver or self.architectures or self.requirements)


def needs_of(image: DescribedImage) -> Needs:
    """Return what `image` needs. Its environment takes precedence over its labels, and both over the table."""
    release = _release(image)
    cuda = _version(image.environment.get("CUDA_VERSION")) or _version(image.labels.get("com.nvidia.cuda.version"))
    driver = _version(image.environment.get("CUDA_DRIVER_VERSION"))
    confirmed = release is not None and release.confirmed
    return Needs(
        cuda=cuda or (release.cuda if release else None),
        cuda_newest=cuda or ((release.cuda_newest or release.cuda) if release else None),
        driver=driver or (release.driver if release else None),
        said_cuda=cuda is not None or confirmed,
        said_driver=driver is not None or confirmed,
        architectures=_architectures(image),
        requirements=_requirements(image.environment),
    )


def _release(image: DescribedImage) -> Release | None:
    """Return the release that the image's environment names, else that of its reference or its version."""
    said = image.environment.get("NVIDIA_TENSORFLOW_VERSION", "")
    if said and ("tf1" in said or image.environment.get("TENSORFLOW_VERSION", "").startswith("1.")):
        return shipped().release(said)
    return shipped().named(image.reference) or shipped().named(image.version)


def _version(text: str | None) -> str | None:
    return text if numbers(text) else None


def _architectures(image: DescribedImage) -> tuple[Architecture, ...]:
    """Return the architectures that torch and its extensions are built for; () if one is a family (`Ampere`)."""
    listed = image.environment.get("TORCH_CUDA_ARCH_LIST", "") or image.labels.get("harness.cuda_architectures", "")
    matches = [ARCHITECTURE.fullmatch(word) for word in re.split(r"[\s;,]+", listed) if word]
    if None in matches:
        return ()
    return tuple(Architecture(capability=match[1], ptx=bool(match[2])) for match in matches if match)


def _requirements(environment: Mapping[str, str]) -> dict[str, str]:
    if environment.get("NVIDIA_DISABLE_REQUIRE", "").lower() in TRUE:
        return {}
    return {name: text for name, text in sorted(environment.items()) if name.startswith("NVIDIA_REQUIRE_") and text}
