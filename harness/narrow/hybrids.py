"""Hybrids as images: what to install so that some groups are as in B and all others as in A."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace

from harness.model import Image, Install
from harness.model.narrowed import ComponentGroup, Hybrid, Side
from harness.narrow.inventory import Inventory

MOST_NAMED = 3


@dataclass(frozen=True, kw_only=True)
class Sides:
    """A and B as images, what they consist of, and the groups in which they differ."""

    images: Mapping[Side, Image]
    inventories: Mapping[Side, Inventory]
    groups: tuple[ComponentGroup, ...]

    def label(self, hybrid: Hybrid) -> str:
        """Return the name of a hybrid, which no other one has: `A + numpy`, `B - numpy - scipy`."""
        if self.is_end(hybrid):
            return self.images[hybrid.base].version
        swapped = [one.id for one in self.groups if (one.id in hybrid.from_b) == (hybrid.base == "A")]
        sign = " + " if hybrid.base == "A" else " - "
        sham = [f"own {name}" for name in sorted(hybrid.sham)]
        told = [*swapped, *sham]
        if len(told) > MOST_NAMED:
            mark = hashlib.sha256("\n".join(told).encode()).hexdigest()[:6]
            told = [f"{len(swapped)} of {len(self.groups)} ({mark})"]
        return sign.join([hybrid.base, *told])

    def is_end(self, hybrid: Hybrid) -> bool:
        """Whether it is A or B itself, with nothing swapped."""
        own = frozenset() if hybrid.base == "A" else frozenset(one.id for one in self.groups)
        return hybrid.from_b == own and not hybrid.sham

    def side_of(self, kind: str, name: str, hybrid: Hybrid) -> Side | None:
        """Return the side that a component is taken from; None for what does not differ."""
        for group in self.groups:
            if any((each.kind, each.name) == (kind, name) for each in group.components):
                return "B" if group.id in hybrid.from_b else "A"
        return None

    def variables(self, hybrid: Hybrid) -> dict[str, str]:
        """Return the environment that the images of a hybrid's sides give a launch."""
        sides = {name: self.side_of("variable", name, hybrid) or hybrid.base for name in self._names("variables")}
        found = {name: self.inventories[side].variables.get(name) for name, side in sides.items()}
        return {name: value for name, value in found.items() if value is not None}

    def pins(self, hybrid: Hybrid) -> tuple[str, ...]:
        """Return a requirement for each distribution of the hybrid, which names exactly that version."""
        sides = {
            name: self.side_of("distribution", name, hybrid) or hybrid.base for name in self._names("distributions")
        }
        found = (self.inventories[side].distributions.get(name) for name, side in sorted(sides.items()))
        return tuple(each.pin for each in found if each is not None)

    def _names(self, what: str) -> set[str]:
        return {name for each in self.inventories.values() for name in getattr(each, what)}


def installed(sides: Sides, hybrid: Hybrid) -> Image:
    """Return the hybrid as an environment that holds exactly its distributions; A and B are their own images."""
    image = sides.images[hybrid.base]
    if sides.is_end(hybrid):
        return image
    assert isinstance(image.source, Install), "a process host has no other images"
    source = replace(image.source, packages=sides.pins(hybrid), exact=True)
    environment = tuple(sides.variables(hybrid).items())
    return replace(image, version=sides.label(hybrid), source=source, environment=environment)
