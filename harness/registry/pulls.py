"""How much a pull fetches: compressed layers, those that images share counted once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from harness.registry.client import Registry
from harness.registry.errors import RegistryTrouble


@dataclass(frozen=True, kw_only=True)
class Pulls:
    """`total_bytes`: of all that are known, together. `unknown`: why others could not be told, by reference.

    What an engine has already is not taken off: that is for whoever asks the engine.
    """

    total_bytes: int
    unknown: Mapping[str, str]


def pull_bytes(registry: Registry, reference: str, *, architecture: str = "amd64") -> int:
    """What a pull of one image fetches where nothing of it is there yet. Raises RegistryTrouble."""
    return sum(
        {layer.digest: layer.size_bytes for layer in registry.layers(reference, architecture=architecture)}.values()
    )


def pull_plan(registry: Registry, references: Iterable[str], *, architecture: str = "amd64") -> Pulls:
    """What pulling all of these fetches. Asks two or three times an image; never raises RegistryTrouble."""
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
