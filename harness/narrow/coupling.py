"""Groups the components that can only be swapped together, and finds the mixtures that an installer would refuse.

A hybrid takes each component from A or from B. What the distributions' own metadata rules out is never launched. Where
neither of two components can go without the other, they are one group; where only one needs the other, both stay
groups, and the one that is needed comes first: a search that goes from the front then meets few mixtures that cannot be
made.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from harness.model import Install, Source
from harness.model.narrowed import BOTH_SIDES, Component, ComponentGroup, Hybrid, Side
from harness.narrow.components import BASE
from harness.narrow.inventory import Inventory

Key = tuple[str, str]
"""The kind and the name of a component."""
Tied = tuple[Key, Key, str]
"""Two components that are only swapped together, and why, as a clause."""
MOST_NAMED = 3
CUDNN = ("libcudnn", "nvidia-cudnn")
VERSION = re.compile(r"\d+(\.\d+)*")


@dataclass(frozen=True, kw_only=True)
class Need:
    """`name` on side `side` cannot go with `other` of the other side; `why` as a clause."""

    name: str
    side: Side
    other: str
    why: str


@dataclass(frozen=True, kw_only=True)
class Coupling:
    """The groups, in the order in which they are best swapped, and the needs between them."""

    groups: tuple[ComponentGroup, ...]
    needs: tuple[Need, ...]

    @property
    def pairs(self) -> frozenset[tuple[str, str]]:
        """Return (x, y) for each group x that cannot be from B without group y."""
        group = {each.name: one.id for one in self.groups for each in one.components if _is_installed(each)}
        found = {
            (group[need.name], group[need.other]) if need.side == "B" else (group[need.other], group[need.name])
            for need in self.needs
        }
        return frozenset(pair for pair in found if pair[0] != pair[1])

    def refused(self, hybrid: Hybrid) -> str:
        """Return why no installer would make this hybrid; "" if nothing speaks against it."""
        side = {each.name: _side(one, hybrid) for one in self.groups for each in one.components if _is_installed(each)}
        for need in self.needs:
            if side[need.name] == need.side and side[need.other] != need.side:
                return need.why
        return ""


def _is_installed(component: Component) -> bool:
    return component.kind == "distribution"


def _side(group: ComponentGroup, hybrid: Hybrid) -> Side:
    return "B" if group.id in hybrid.from_b else "A"


def couple(found: Sequence[Component], *, a: Inventory, b: Inventory, extras: Mapping[str, frozenset[str]]) -> Coupling:
    """Return the groups of components. `extras`: those that the user asked for, by distribution."""
    needs = tuple(_needs(found, a=a, b=b, extras=extras))
    follows = {_key(each): set[Key]() for each in found}
    for need in needs:
        one, other = ("distribution", need.name), ("distribution", need.other)
        first, then = (one, other) if need.side == "B" else (other, one)
        follows[first].add(then)
    pairs = (*_sharing(found, a=a, b=b), *_families(found), *_with_base(found, a=a, b=b))
    for one, other, _ in pairs:
        follows[one].add(other)
        follows[other].add(one)
    by_key = {_key(each): each for each in found}
    members = [[by_key[key] for key in one] for one in _strong(list(follows), follows)]
    why = [*(({("distribution", need.name), ("distribution", need.other)}, need.why) for need in needs),
           *(({one, other}, why) for one, other, why in pairs)]  # fmt: skip
    groups = [_group(one, _id(one, found), _together(one, why), a=a, b=b) for one in members]
    return Coupling(groups=tuple(_ordered(groups, follows)), needs=needs)


def _key(component: Component) -> Key:
    """Return the key of a component: a variable may have the name of a distribution."""
    return component.kind, component.name


# ---------------------------------------------------------------- what refuses what


def _needs(
    found: Sequence[Component], *, a: Inventory, b: Inventory, extras: Mapping[str, frozenset[str]]
) -> Iterator[Need]:
    """Yield what the metadata rules out; a requirement that its own side does not keep either rules nothing out."""
    names = {each.name for each in found if each.kind == "distribution"}
    sides: tuple[tuple[Side, Inventory, Inventory], ...] = (("A", a, b), ("B", b, a))
    for side, own, other in sides:
        asked = _extras(own, extras)
        for name in sorted(names & own.distributions.keys()):
            for requirement in own.requirements(name, asked.get(name, frozenset())):
                target = canonicalize_name(requirement.name)
                if target in names and target != name and _kept(requirement, own) and not _kept(requirement, other):
                    yield Need(name=name, side=side, other=target, why=_why(own, name, requirement, other))


def _extras(side: Inventory, asked: Mapping[str, frozenset[str]]) -> dict[str, frozenset[str]]:
    """Return the extras in use: those that the user asked for, and those that distributions ask of each other."""
    found = dict(asked)
    for name in side.distributions:
        for requirement in side.requirements(name, asked.get(name, frozenset())):
            target = canonicalize_name(requirement.name)
            found[target] = found.get(target, frozenset()) | requirement.extras
    return found


def _kept(requirement: Requirement, side: Inventory) -> bool:
    there = side.distributions.get(canonicalize_name(requirement.name))
    if there is None:
        return False
    try:
        return requirement.specifier.contains(Version(there.version), prereleases=True)
    except InvalidVersion:
        return True  # nothing can be told of such a version


def _why(own: Inventory, name: str, requirement: Requirement, other: Inventory) -> str:
    target = canonicalize_name(requirement.name)
    there = other.distributions.get(target)
    instead = f"{target} is {there.version}" if there else f"{target} is not there"
    return f"{name} {own.distributions[name].version} requires {target}{requirement.specifier}, and {instead}"


# ---------------------------------------------------------------- what goes together


def _sharing(found: Sequence[Component], *, a: Inventory, b: Inventory) -> Iterator[Tied]:
    """Yield distributions that have a file in common with other content: one would overwrite the other's."""
    names = {each.name for each in found if each.kind == "distribution"}
    owners: dict[str, dict[str, str]] = {}
    for side in (a, b):
        for name in sorted(names & side.distributions.keys()):
            for path, digest in side.distributions[name].files.items():
                known = owners.setdefault(path, {})
                for other in [each for each, theirs in known.items() if each != name and theirs != digest]:
                    yield ("distribution", name), ("distribution", other), f"{name} and {other} both have {path}"
                known[name] = digest


def _families(found: Sequence[Component]) -> Iterator[Tied]:
    """Yield libraries that are parts of one: cuDNN's check each other's versions when they are loaded."""
    parts = [_key(each) for each in found if each.kind == "library" and each.name.startswith(CUDNN)]
    yield from ((one, other, "the libraries of cuDNN check each other's versions") for one, other in pairwise(parts))


def _with_base(found: Sequence[Component], *, a: Inventory, b: Inventory) -> Iterator[Tied]:
    """Yield what cannot go without its base: a distribution is installed for one Python and one kind of C library."""
    if a.installs_for != b.installs_for:
        why = "a distribution is installed for one minor version of Python and one kind of C library"
        yield from ((("files", BASE), _key(each), why) for each in found if _is_installed(each))


def _group(members: Sequence[Component], name: str, together: str, *, a: Inventory, b: Inventory) -> ComponentGroup:
    is_base = any(each.kind == "files" for each in members)
    swaps = frozenset[Side]() if is_base else _swaps(members, a=a, b=b)
    return ComponentGroup(id=name, components=tuple(members), together=together, swaps=swaps)


def _id(members: Sequence[Component], found: Sequence[Component]) -> str:
    if any(each.kind == "files" for each in members):
        others = len(members) - 1
        return f"{BASE}, with {others} distribution{'s' if others > 1 else ''}" if others else BASE
    names = [each.name for each in found]
    told = [f"{each.kind} {each.name}" if names.count(each.name) > 1 else each.name for each in members]
    if len(told) <= MOST_NAMED + 1:
        return " + ".join(told)
    return f"{' + '.join(told[:MOST_NAMED])} + {len(told) - MOST_NAMED} more"


def _together(members: Sequence[Component], why: Sequence[tuple[set[Key], str]]) -> str:
    """Return the first reason that ties two of the members; "" for a lone one."""
    keys = {_key(each) for each in members}
    return next((reason for tied, reason in why if tied <= keys), "") if len(members) > 1 else ""


def _swaps(members: Sequence[Component], *, a: Inventory, b: Inventory) -> frozenset[Side]:
    """Return the bases that can take these members of the other side.

    A program runs with a newer cuDNN of the same major version than it was built with, and compiled code with a newer
    glibc; neither runs with an older one.
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
    found = VERSION.search(text or "")
    return tuple(map(int, found[0].split("."))) if found else ()


# ---------------------------------------------------------------- graphs


def _strong(names: Sequence[Key], follows: Mapping[Key, set[Key]]) -> list[list[Key]]:
    """Return the strongly connected components, each in the order of `names`; small graphs, so by reachability."""
    reach = {name: _reached(name, follows) for name in names}
    found: list[list[Key]] = []
    for name in names:
        same = next((group for group in found if group[0] in reach[name] and name in reach[group[0]]), None)
        if same is None:
            found.append([name])
        else:
            same.append(name)
    return found


def _reached(name: Key, follows: Mapping[Key, set[Key]]) -> set[Key]:
    found, waiting = {name}, [name]
    while waiting:
        new = follows[waiting.pop()] - found
        found |= new
        waiting += new
    return found


def _ordered(groups: Sequence[ComponentGroup], follows: Mapping[Key, set[Key]]) -> list[ComponentGroup]:
    """Return the groups so that each comes after those that it needs; mapped ones, and what they need, first."""
    own = [{_key(each) for each in group.components} for group in groups]
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
    """Return the extras that the requirements of these sources ask for, by distribution."""
    found: dict[str, frozenset[str]] = {}
    for source in sources:
        for text in source.packages if isinstance(source, Install) else ():
            try:
                requirement = Requirement(text)
            except InvalidRequirement:
                continue  # the installer has its own word on it
            name = canonicalize_name(requirement.name)
            found[name] = found.get(name, frozenset()) | requirement.extras
    return found
