"""Groups the components that can only be swapped together, and finds the mixtures that an installer would refuse.

A hybrid takes each component from A or from B. A mixture that the distributions' own metadata rules out is never
launched. Two components that need each other form one group. If only one needs the other, they are in two groups, and
the needed one comes first, so that a search from the front meets few mixtures that cannot be made.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from harness.model import Install, Source
from harness.model.narrowed import BOTH_SIDES, Component, ComponentGroup, Hybrid, Side
from harness.narrow.inventory import BASE, Inventory, parsed_requirement
from harness.reasons import NarrowName, NarrowReason

Key = tuple[str, str]
"""The kind and the name of a component."""
Tied = tuple[Key, Key, str]
"""Two components, and why the first is only swapped with the second, as a clause."""
MOST_NAMED = 3
CUDNN = ("libcudnn", "nvidia-cudnn")
VERSION = re.compile(r"\d+(\.\d+)*")


@dataclass(frozen=True, kw_only=True)
class Need:
    """The distribution `name` of side `side` does not work with `other` of the other side; `why` is a clause."""

    name: str
    side: Side
    other: str
    why: str

    @property
    def from_b(self) -> tuple[str, str]:
        """Return (x, y), two distributions of which x cannot be from B unless y is, too."""
        return (self.name, self.other) if self.side == "B" else (self.other, self.name)


@dataclass(frozen=True, kw_only=True)
class Coupling:
    """The groups, in the best order for swapping them, and the needs between their distributions."""

    groups: tuple[ComponentGroup, ...]
    needs: tuple[Need, ...]

    @property
    def pairs(self) -> frozenset[tuple[str, str]]:
        """Return (x, y) for each group x that cannot be from B without group y."""
        ids = {name: group.id for name, group in self._groups_of_distributions().items()}
        pairs = {(ids[first], ids[second]) for first, second in (need.from_b for need in self.needs)}
        return frozenset(pair for pair in pairs if pair[0] != pair[1])

    def refused(self, hybrid: Hybrid) -> str:
        """Return why an installer would refuse this hybrid; "" if none would."""
        side = {name: hybrid.side_of(group) for name, group in self._groups_of_distributions().items()}
        for need in self.needs:
            if side[need.name] == need.side and side[need.other] != need.side:
                return need.why
        return ""

    def _groups_of_distributions(self) -> dict[str, ComponentGroup]:
        return {each.name: group for group in self.groups for each in group.components if each.kind == "distribution"}


def couple(
    differing: Sequence[Component], *, a: Inventory, b: Inventory, extras: Mapping[str, frozenset[str]]
) -> Coupling:
    """Return the groups of the components that differ. `extras`: those that the user requested, by distribution."""
    needs = tuple(_needs(differing, a=a, b=b, extras=extras))
    needed = [(_distribution(need.from_b[0]), _distribution(need.from_b[1]), need.why) for need in needs]
    tied = [*_sharing(differing, a=a, b=b), *_families(differing), *_with_base(differing, a=a, b=b)]
    follows = {_key(component): set[Key]() for component in differing}
    for first, second, _ in [*needed, *tied, *((second, first, why) for first, second, why in tied)]:
        follows[first].add(second)
    by_key = {_key(component): component for component in differing}
    members = [[by_key[key] for key in keys] for keys in _strong(follows)]
    groups = [_group(each, _id(each, differing), _together(each, [*needed, *tied]), a=a, b=b) for each in members]
    return Coupling(groups=tuple(_ordered(groups, follows)), needs=needs)


def _key(component: Component) -> Key:
    """Return the key of a component, because a variable and a distribution may have the same name."""
    return component.kind, component.name


def _distribution(name: str) -> Key:
    return "distribution", name


# ---------------------------------------------------------------- mixtures that an installer refuses


def _needs(
    differing: Sequence[Component], *, a: Inventory, b: Inventory, extras: Mapping[str, frozenset[str]]
) -> Iterator[Need]:
    """Yield the needs that the metadata states, except requirements that are not met on their own side either."""
    names = _distributions(differing)
    sides: tuple[tuple[Side, Inventory, Inventory], ...] = (("A", a, b), ("B", b, a))
    for side, own, other in sides:
        asked = _extras(own, extras)
        for name in sorted(names & own.distributions.keys()):
            for requirement in own.requirements(name, asked.get(name, frozenset())):
                target = canonicalize_name(requirement.name)
                if target in names and target != name and _kept(requirement, own) and not _kept(requirement, other):
                    yield Need(name=name, side=side, other=target, why=_why(own, name, requirement, other))


def _extras(side: Inventory, asked: Mapping[str, frozenset[str]]) -> dict[str, frozenset[str]]:
    """Return the extras in use, by distribution: requested by the user, or required by other distributions."""
    required = (
        requirement
        for name in side.distributions
        for requirement in side.requirements(name, asked.get(name, frozenset()))
    )
    return _with_extras(asked, required)


def _with_extras(asked: Mapping[str, frozenset[str]], requirements: Iterable[Requirement]) -> dict[str, frozenset[str]]:
    """Return the extras by distribution: `asked`, and those that the requirements name."""
    extras = dict(asked)
    for requirement in requirements:
        name = canonicalize_name(requirement.name)
        extras[name] = extras.get(name, frozenset()) | requirement.extras
    return extras


def _kept(requirement: Requirement, side: Inventory) -> bool:
    distribution = side.distributions.get(canonicalize_name(requirement.name))
    if distribution is None:
        return False
    try:
        return requirement.specifier.contains(Version(distribution.version), prereleases=True)
    except InvalidVersion:
        return True  # such a version cannot be compared


def _why(own: Inventory, name: str, requirement: Requirement, other: Inventory) -> str:
    target, version = canonicalize_name(requirement.name), own.distributions[name].version
    required, unfit = f"{target}{requirement.specifier}", other.distributions.get(target)
    if unfit is None:
        return NarrowReason.MISSING_REQUIRED(name=name, version=version, requirement=required, other=target)
    return NarrowReason.OTHER_REQUIRED(
        name=name, version=version, requirement=required, other=target, installed=unfit.version
    )


# ---------------------------------------------------------------- components that belong together


def _distributions(components: Sequence[Component]) -> set[str]:
    return {component.name for component in components if component.kind == "distribution"}


def _sharing(differing: Sequence[Component], *, a: Inventory, b: Inventory) -> Iterator[Tied]:
    """Yield pairs of distributions that share a file with different content: one would overwrite the other's."""
    digests: dict[str, dict[str, str]] = {}
    for side in (a, b):
        for name in sorted(_distributions(differing) & side.distributions.keys()):
            for path, digest in side.distributions[name].files.items():
                by_owner = digests.setdefault(path, {})
                for other in [owner for owner, theirs in by_owner.items() if owner != name and theirs != digest]:
                    why = NarrowReason.FILE_SHARED(name=name, other=other, path=path)
                    yield _distribution(name), _distribution(other), why
                by_owner[name] = digest


def _families(differing: Sequence[Component]) -> Iterator[Tied]:
    """Yield pairs of libraries that belong to one product: cuDNN's check each other's versions when loaded."""
    parts = [_key(each) for each in differing if each.kind == "library" and each.name.startswith(CUDNN)]
    yield from ((part, following, NarrowReason.ONE_CUDNN()) for part, following in pairwise(parts))


def _with_base(differing: Sequence[Component], *, a: Inventory, b: Inventory) -> Iterator[Tied]:
    """Yield the distributions tied to the base: each is installed for one Python and one kind of C library."""
    if a.installs_for != b.installs_for:
        why = NarrowReason.ONE_PYTHON()
        yield from ((("files", BASE), _distribution(name), why) for name in sorted(_distributions(differing)))


def _group(members: Sequence[Component], name: str, together: str, *, a: Inventory, b: Inventory) -> ComponentGroup:
    is_base = any(each.kind == "files" for each in members)
    swaps = frozenset[Side]() if is_base else _swaps(members, a=a, b=b)
    return ComponentGroup(id=name, components=tuple(members), together=together, swaps=swaps)


def _id(members: Sequence[Component], differing: Sequence[Component]) -> str:
    if any(each.kind == "files" for each in members):
        others = len(members) - 1
        return NarrowName.BASE_WITH(base=BASE, count=others, s="s" if others > 1 else "") if others else BASE
    names = [component.name for component in differing]
    unique = [f"{each.kind} {each.name}" if names.count(each.name) > 1 else each.name for each in members]
    if len(unique) <= MOST_NAMED + 1:
        return " + ".join(unique)
    return f"{' + '.join(unique[:MOST_NAMED])} + {len(unique) - MOST_NAMED} more"


def _together(members: Sequence[Component], tied: Sequence[Tied]) -> str:
    """Return the first reason that ties two of the members; "" for a single one."""
    keys = {_key(component) for component in members}
    return next((why for first, second, why in tied if {first, second} <= keys), "") if len(members) > 1 else ""


def _swaps(members: Sequence[Component], *, a: Inventory, b: Inventory) -> frozenset[Side]:
    """Return the bases that can take these members from the other side.

    A program runs with a newer cuDNN than it was built with, if the major version is the same, and compiled code runs
    with a newer glibc; neither runs with an older one.
    """
    sides = BOTH_SIDES
    if all(each.name.startswith(CUDNN) for each in members):
        sides &= _older([each.old for each in members], [each.new for each in members])
    if any(each.kind == "distribution" and (a.compiled(each.name) or b.compiled(each.name)) for each in members):
        sides &= _older([b.libc], [a.libc])
    return sides


def _older(in_a: Sequence[str | None], in_b: Sequence[str | None]) -> frozenset[Side]:
    """Return the side with the lower versions; both where they are equal or unknown."""
    old, new = ([_numbers(text) for text in texts] for texts in (in_a, in_b))
    if old == new or not all((*old, *new)):
        return BOTH_SIDES
    return frozenset({"A"}) if old < new else frozenset({"B"})


def _numbers(text: str | None) -> tuple[int, ...]:
    match = VERSION.search(text or "")
    return tuple(map(int, match[0].split("."))) if match else ()


# ---------------------------------------------------------------- graphs


def _strong(follows: Mapping[Key, set[Key]]) -> list[list[Key]]:
    """Return the strongly connected components, in the order of the keys; by reachability, because graphs are small."""
    reach = {key: _reached(key, follows) for key in follows}
    strong: list[list[Key]] = []
    for key in follows:
        same = next((keys for keys in strong if keys[0] in reach[key] and key in reach[keys[0]]), None)
        if same is None:
            strong.append([key])
        else:
            same.append(key)
    return strong


def _reached(key: Key, follows: Mapping[Key, set[Key]]) -> set[Key]:
    reached, waiting = {key}, [key]
    while waiting:
        new = follows[waiting.pop()] - reached
        reached |= new
        waiting += new
    return reached


def _ordered(groups: Sequence[ComponentGroup], follows: Mapping[Key, set[Key]]) -> list[ComponentGroup]:
    """Return the groups so that each comes after those that it needs; mapped groups and their needs come first."""
    own = [{_key(component) for component in group.components} for group in groups]
    reach = [set[Key]().union(*(_reached(key, follows) for key in keys)) for keys in own]
    needed = set[Key]().union(*(keys for group, keys in zip(groups, reach, strict=True) if group.mapped))
    urgent = [bool(keys & needed) for keys in own]
    left, done, order = list(range(len(groups))), set[Key](), list[ComponentGroup]()
    while left:
        free = [n for n in left if reach[n] - own[n] <= done]
        chosen = min(free, key=lambda n: (not urgent[n], n))
        left.remove(chosen)
        done |= own[chosen]
        order.append(groups[chosen])
    return order


def asked_extras(*sources: Source) -> dict[str, frozenset[str]]:
    """Return the extras that the requirements of these sources request, by distribution."""
    texts = [text for source in sources if isinstance(source, Install) for text in source.packages]
    parsed = (parsed_requirement(text) for text in texts)
    return _with_extras({}, (requirement for requirement in parsed if requirement is not None))
