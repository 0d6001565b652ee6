"""Turns hybrids into images: determines what to install so that some groups are as in B and all others as in A."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from posixpath import normpath
from typing import TypeVar

from harness.model import LIBRARIES, Graft, Image, Install
from harness.narrow.inventory import Distribution, Inventory, libraries
from harness.narrow.records import ComponentGroup, ComponentKind, Hybrid, Side

MOST_NAMED = 3
Part = TypeVar("Part")
"""A distribution, or the value of a variable."""


@dataclass(frozen=True, kw_only=True)
class Sides:
    """A and B: their images, the references that the engine launches, their contents, and the groups that differ."""

    images: Mapping[Side, Image]
    references: Mapping[Side, str]
    inventories: Mapping[Side, Inventory]
    groups: tuple[ComponentGroup, ...]

    def label(self, hybrid: Hybrid) -> str:
        """Return the unique name of a hybrid, such as `1.0 with numpy` or `2.0 without numpy, scipy`."""
        version = self.images[hybrid.base].version
        if self.is_end(hybrid):
            return version
        if len(hybrid.sham) == len(self.groups) > 1:
            return f"{version} reassembled from its own parts"
        swapped = sorted(hybrid.sham) or [group.id for group in self.groups if self._is_foreign(group, hybrid)]
        names = ", ".join(swapped)
        if len(swapped) > MOST_NAMED:
            mark = hashlib.sha256("\n".join(swapped).encode()).hexdigest()[:6]
            names = f"{len(swapped)} of {len(self.groups)} groups ({mark})"
        if hybrid.sham:
            return f"{version} with its own {names} put in again"
        return f"{version} {'with' if hybrid.base == 'A' else 'without'} {names}"

    def is_end(self, hybrid: Hybrid) -> bool:
        """Return whether a hybrid is A or B itself, with nothing swapped."""
        return not hybrid.sham and not any(self._is_foreign(group, hybrid) for group in self.groups)

    def _is_foreign(self, group: ComponentGroup, hybrid: Hybrid) -> bool:
        """Return whether a hybrid takes the group from the side that is not its base."""
        return hybrid.side_of(group) != hybrid.base

    def variables(self, hybrid: Hybrid) -> dict[str, str]:
        """Return the environment variables of a hybrid's launches, each from its group's side."""
        return self._mixed({side: each.variables for side, each in self.inventories.items()}, "variable", hybrid)

    def pins(self, hybrid: Hybrid) -> tuple[str, ...]:
        """Return a requirement for exactly the version of each distribution of the hybrid."""
        installed = {side: each.distributions for side, each in self.inventories.items()}
        return tuple(each.pin for _, each in sorted(self._mixed(installed, "distribution", hybrid).items()))

    def _mixed(self, parts: Mapping[Side, Mapping[str, Part]], kind: ComponentKind, hybrid: Hybrid) -> dict[str, Part]:
        """Return the parts of a hybrid by name: those of its base, with each group's taken from the group's side."""
        mixed = dict(parts[hybrid.base])
        for group in self.groups:
            theirs = parts[hybrid.side_of(group)]
            for name in [each.name for each in group.components if each.kind == kind]:
                mixed.pop(name, None)
                mixed |= {name: theirs[name]} if name in theirs else {}
        return mixed

    def swapped(self, hybrid: Hybrid, kind: ComponentKind) -> tuple[str, ...]:
        """Return the components of a kind that are put into a hybrid's base: the other side's, or its own (sham)."""
        groups = [group for group in self.groups if group.id in hybrid.sham or self._is_foreign(group, hybrid)]
        return tuple(each.name for group in groups for each in group.components if each.kind == kind)


def installed_hybrid(sides: Sides, hybrid: Hybrid) -> Image:
    """Return the hybrid as an environment with exactly its distributions; for A and B themselves, their images."""
    image = sides.images[hybrid.base]
    if sides.is_end(hybrid):
        return image
    assert isinstance(image.source, Install), "a process host has no other images"
    source = replace(image.source, packages=sides.pins(hybrid), exact=True, hashes=())
    environment = tuple(sides.variables(hybrid).items())
    return replace(image, version=sides.label(hybrid), source=source, environment=environment)


def grafted_hybrid(sides: Sides, hybrid: Hybrid) -> Image:
    """Return the hybrid as its base's image with files from the other side; for A and B themselves, their images."""
    image = sides.images[hybrid.base]
    if sides.is_end(hybrid):
        return image
    giver: Side = hybrid.base if hybrid.sham else "B" if hybrid.base == "A" else "A"
    own, others = sides.inventories[hybrid.base], sides.inventories[giver]
    names = sides.swapped(hybrid, "distribution")
    removed = [own.distributions[name] for name in names if name in own.distributions]
    added = [others.distributions[name] for name in names if name in others.distributions]
    theirs, ours = libraries(others), libraries(own)
    pairs = [(theirs[name], ours[name]) for name in sides.swapped(hybrid, "library")]
    # A program that was linked with one number in a library's SONAME loads no other.
    in_place = [
        pair for pair in pairs if len({path.rpartition(".so")[2].lstrip(".").partition(".")[0] for path in pair}) == 1
    ]
    mapped = tuple(pair[0] for pair in pairs if pair not in in_place)
    variables = sides.variables(hybrid)
    if mapped:  # the folder of swapped libraries comes first on the loader's path
        rest = variables.get("LD_LIBRARY_PATH")
        variables["LD_LIBRARY_PATH"] = f"{LIBRARIES}:{rest}" if rest else LIBRARIES
    source = Graft(
        reference=sides.references[hybrid.base],
        other=sides.references[giver],
        remove=tuple(path for each in removed for path, _ in _places(each, each.place)),
        copy=(*(pair for each in added for pair in _places(each, _place(own, each))), *in_place),
        libraries=mapped,
        environment=tuple(variables.items()),
    )
    return replace(image, version=sides.label(hybrid), source=source, environment=())


def _place(base: Inventory, added: Distribution) -> str:
    """Return the site-packages of the base for a distribution: that of the version it replaces, if any."""
    replaced = base.distributions.get(added.name)
    if replaced is not None:
        return replaced.place
    places = [distribution.place for distribution in base.distributions.values()]
    return added.place if added.place in places or not places else max(set(places), key=places.count)


def _places(distribution: Distribution, place: str) -> Iterator[tuple[str, str]]:
    """Yield the source and the target of each file of a distribution; its metadata folder counts as one file."""
    for path in (*distribution.files, distribution.folder):
        if not path.startswith(f"{distribution.folder}/"):
            yield normpath(f"{distribution.place}/{path}"), normpath(f"{place}/{path}")


def not_loaded(sides: Sides, hybrid: Hybrid, seen: Inventory) -> str:
    """Return the libraries that a hybrid mapped instead of the requested ones, as text; "" if all are right."""
    wrong = []
    mapped = libraries(seen)
    for group in sides.groups:
        side = hybrid.side_of(group)
        for library in [each for each in group.components if each.kind == "library"]:
            wanted = library.new_hash if side == "B" else library.old_hash
            if seen.mapped.get(mapped.get(library.name, "")) != wanted:
                version, loaded = sides.images[side].version, mapped.get(library.name, "none")
                wrong.append(f"{library.name} of {version} was requested, but {loaded} was mapped")
    return "; ".join(wrong)
