"""Hybrids as images: what to install so that some groups are as in B and all others as in A."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from posixpath import normpath

from harness.model import LIBRARIES, Graft, Image, Install
from harness.model.narrowed import ComponentGroup, ComponentKind, Hybrid, Side
from harness.narrow.components import libraries
from harness.narrow.inventory import Distribution, Inventory

MOST_NAMED = 3


@dataclass(frozen=True, kw_only=True)
class Sides:
    """A and B as images, what the engine launches for them (`references`), what they consist of, and the groups in
    which they differ.
    """

    images: Mapping[Side, Image]
    references: Mapping[Side, str]
    inventories: Mapping[Side, Inventory]
    groups: tuple[ComponentGroup, ...]

    def label(self, hybrid: Hybrid) -> str:
        """Return the name of a hybrid, which no other one has: `1.0 with numpy`, `2.0 without numpy, scipy`, `1.0 with
        its own numpy put in again`.
        """
        version = self.images[hybrid.base].version
        if self.is_end(hybrid):
            return version
        swapped = [one.id for one in self.groups if (one.id in hybrid.from_b) == (hybrid.base == "A")]
        several = sorted(hybrid.sham) or swapped
        told = ", ".join(several)
        if len(several) > MOST_NAMED:
            mark = hashlib.sha256("\n".join(several).encode()).hexdigest()[:6]
            told = f"{len(several)} of {len(self.groups)} groups ({mark})"
        if len(hybrid.sham) == len(self.groups) > 1:
            return f"{version} put together again from its own parts"
        if hybrid.sham:
            return f"{version} with its own {told} put in again"
        return f"{version} {'with' if hybrid.base == 'A' else 'without'} {told}"

    def is_end(self, hybrid: Hybrid) -> bool:
        """Return whether it is A or B itself, with nothing swapped."""
        own = frozenset() if hybrid.base == "A" else frozenset(one.id for one in self.groups)
        return hybrid.from_b == own and not hybrid.sham

    def _side_of(self, kind: str, name: str, hybrid: Hybrid) -> Side | None:
        """Return the side that a component is taken from; None for what does not differ."""
        for group in self.groups:
            if any((each.kind, each.name) == (kind, name) for each in group.components):
                return "B" if group.id in hybrid.from_b else "A"
        return None

    def variables(self, hybrid: Hybrid) -> dict[str, str]:
        """Return the environment that the images of a hybrid's sides give a launch."""
        sides = {name: self._side_of("variable", name, hybrid) or hybrid.base for name in self._names("variables")}
        found = {name: self.inventories[side].variables.get(name) for name, side in sides.items()}
        return {name: value for name, value in found.items() if value is not None}

    def pins(self, hybrid: Hybrid) -> tuple[str, ...]:
        """Return a requirement for each distribution of the hybrid, which names exactly that version."""
        sides = {
            name: self._side_of("distribution", name, hybrid) or hybrid.base for name in self._names("distributions")
        }
        found = (self.inventories[side].distributions.get(name) for name, side in sorted(sides.items()))
        return tuple(each.pin for each in found if each is not None)

    def swapped(self, hybrid: Hybrid, kind: ComponentKind) -> tuple[str, ...]:
        """Return the components of a kind that are put into the base of a hybrid: the other side's, or its own."""
        foreign = {group.id for group in self.groups if (group.id in hybrid.from_b) == (hybrid.base == "A")}
        wanted = foreign | hybrid.sham
        return tuple(
            each.name for group in self.groups if group.id in wanted for each in group.components if each.kind == kind
        )

    def _names(self, what: str) -> set[str]:
        return {name for each in self.inventories.values() for name in getattr(each, what)}


def installed(sides: Sides, hybrid: Hybrid) -> Image:
    """Return the hybrid as an environment that holds exactly its distributions; A and B are their own images."""
    image = sides.images[hybrid.base]
    if sides.is_end(hybrid):
        return image
    assert isinstance(image.source, Install), "a process host has no other images"
    source = replace(image.source, packages=sides.pins(hybrid), exact=True, hashes=())
    environment = tuple(sides.variables(hybrid).items())
    return replace(image, version=sides.label(hybrid), source=source, environment=environment)


def grafted(sides: Sides, hybrid: Hybrid) -> Image:
    """Return the hybrid as its base's image with files of the other side's in it; A and B are their own images."""
    image = sides.images[hybrid.base]
    if sides.is_end(hybrid):
        return image
    giver: Side = hybrid.base if hybrid.sham else "B" if hybrid.base == "A" else "A"
    own, others = sides.inventories[hybrid.base], sides.inventories[giver]
    names = sides.swapped(hybrid, "distribution")
    gone = [each for name in names if (each := own.distributions.get(name)) is not None]
    new = [each for name in names if (each := others.distributions.get(name)) is not None]
    found, there = libraries(others), libraries(own)
    wanted = [(found[name], there[name]) for name in sides.swapped(hybrid, "library")]
    in_place = [pair for pair in wanted if _interface(pair[0]) == _interface(pair[1])]
    mapped = tuple(pair[0] for pair in wanted if pair not in in_place)
    source = Graft(
        reference=sides.references[hybrid.base],
        other=sides.references[giver],
        remove=tuple(path for each in gone for path, _ in _places(each, each.place)),
        copy=(*(pair for each in new for pair in _places(each, _place(own, each))), *in_place),
        libraries=mapped,
        environment=tuple(_environment(sides.variables(hybrid), with_libraries=bool(mapped)).items()),
    )
    return replace(image, version=sides.label(hybrid), source=source, environment=())


def _interface(path: str) -> str:
    """Return the number of a library's interface (of its SONAME): what was linked with one loads no other."""
    return path.rpartition(".so")[2].lstrip(".").partition(".")[0]


def _place(base: Inventory, each: Distribution) -> str:
    """Return the site-packages of the base into which a distribution goes: that of its own version there, if any."""
    there = base.distributions.get(each.name)
    if there is not None:
        return there.place
    places = [one.place for one in base.distributions.values()]
    return each.place if each.place in places or not places else max(set(places), key=places.count)


def _places(each: Distribution, place: str) -> Iterator[tuple[str, str]]:
    """Yield where each file of a distribution is, and where it goes; its folder of metadata as a whole."""
    for path in (*each.files, each.folder):
        if not path.startswith(f"{each.folder}/"):
            yield normpath(f"{each.place}/{path}"), normpath(f"{place}/{path}")


def _environment(variables: Mapping[str, str], *, with_libraries: bool) -> dict[str, str]:
    """Return the variables; the folder of swapped libraries comes first on the loader's path."""
    if not with_libraries:
        return dict(variables)
    rest = variables.get("LD_LIBRARY_PATH")
    return {**variables, "LD_LIBRARY_PATH": f"{LIBRARIES}:{rest}" if rest else LIBRARIES}


def not_loaded(sides: Sides, hybrid: Hybrid, seen: Inventory) -> str:
    """Return which library a hybrid mapped instead of the one that was asked for; "" if it mapped what was asked."""
    wrong = []
    there = libraries(seen)
    for group in sides.groups:
        for each in group.components:
            side: Side = "B" if group.id in hybrid.from_b else "A"
            wanted = each.new_hash if side == "B" else each.old_hash
            if each.kind == "library" and seen.mapped.get(there.get(each.name, "")) != wanted:
                loaded = there.get(each.name, "none")
                wrong.append(f"{each.name} of {sides.images[side].version} was asked for, and {loaded} was mapped")
    return "; ".join(wrong)
