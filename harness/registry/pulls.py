"""Download size of pulls: compressed layers, with layers that images share counted once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from harness.registry.client import Registry
from harness.registry.errors import RegistryTrouble


@dataclass(frozen=True, kw_only=True)
class Pulls:
    """Sizes of several pulls. `total_bytes` is that of all known ones together; `unknown` gives the reason for the
    others, by reference. Layers that an engine has already are not subtracted; only the engine knows them.
    """

    total_bytes: int
    unknown: Mapping[str, str]


def pull_bytes(registry: Registry, reference: str, *, architecture: str = "amd64") -> int:
    """Return the bytes that a pull of one image fetches if none of it is there yet. Raises RegistryTrouble."""
    return sum(
        {layer.digest: layer.size_bytes for layer in registry.layers(reference, architecture=architecture)}.values()
    )


def pull_plan(registry: Registry, references: Iterable[str], *, architecture: str = "amd64") -> Pulls:
    """Return what pulling all of these fetches, with two or three requests an image. Never raises RegistryTrouble."""
    layers: dict[str, int] = {}
    unknown: dict[str, str] = {}
    for reference in dict.fromkeys(references):
        try:
            found = {each.digest: each.size_bytes for each in registry.layers(reference, architecture=architecture)}
        except RegistryTrouble as error:
            unknown[reference] = str(error)
            continue
        layers.update(found)
    return Pulls(total_bytes=sum(layers.values()), unknown=unknown)
