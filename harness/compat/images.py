"""What an image needs of a GPU: by its own labels and environment, and where these are silent, by the table."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from harness.compat.table import CompatibilityTable, Release
from harness.compat.versions import numbers

TRUE = ("1", "t", "true")  # as nvidia-container-runtime reads it, whatever the case
ARCHITECTURE = re.compile(r"(\d+\.\d)[a-z]?(\+PTX)?")


@dataclass(frozen=True, kw_only=True)
class DescribedImage:
    """An image as the engine or the registry describes it, with what is known without either.

    `reference` is what it is pulled by, `version` its name within the series.
    """

    reference: str = ""
    version: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """A compute capability that code was compiled for; with `ptx` newer GPUs can compile it anew when it is loaded."""

    capability: str
    ptx: bool = False


@dataclass(frozen=True, kw_only=True)
class Needs:
    """What is known of an image's needs; None and empty for what is not.

    `cuda` is the toolkit that it was built with; where only a span is known, it begins there and ends at
    `cuda_newest`. `driver` is the oldest that it was built for. `said_cuda` and `said_driver`: by the image itself or
    by release notes, and not by guess. `requirements`: variable -> condition that the container runtime checks.
    """

    cuda: str | None = None
    cuda_newest: str | None = None
    driver: str | None = None
    said_cuda: bool = False
    said_driver: bool = False
    architectures: tuple[Architecture, ...] = ()
    requirements: Mapping[str, str] = field(default_factory=dict)
    release: Release | None = None

    @property
    def known(self) -> bool:
        return bool(self.cuda or self.driver or self.architectures or self.requirements)


def needs_of(image: DescribedImage, table: CompatibilityTable) -> Needs:
    """What `image` needs. Its environment wins over its labels, and both over the table."""
    release = _release(image, table)
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
        release=release,
    )


def _release(image: DescribedImage, table: CompatibilityTable) -> Release | None:
    """By what the image says of itself, else by its names."""
    said = image.environment.get("NVIDIA_TENSORFLOW_VERSION", "")
    if said and ("tf1" in said or image.environment.get("TENSORFLOW_VERSION", "").startswith("1.")):
        return table.release(said)
    return table.named(image.reference) or table.named(image.version)


def _version(text: str | None) -> str | None:
    return text if numbers(text) else None


def _architectures(image: DescribedImage) -> tuple[Architecture, ...]:
    """Of the list that torch and its extensions are built by; names of families (`Ampere`) say nothing here."""
    listed = image.environment.get("TORCH_CUDA_ARCH_LIST", "") or image.labels.get("harness.cuda_architectures", "")
    found = [ARCHITECTURE.fullmatch(word) for word in re.split(r"[\s;,]+", listed) if word]
    if None in found:
        return ()
    return tuple(Architecture(capability=word[1], ptx=bool(word[2])) for word in found if word)


def _requirements(environment: Mapping[str, str]) -> dict[str, str]:
    if environment.get("NVIDIA_DISABLE_REQUIRE", "").lower() in TRUE:
        return {}
    return {name: text for name, text in sorted(environment.items()) if name.startswith("NVIDIA_REQUIRE_") and text}
