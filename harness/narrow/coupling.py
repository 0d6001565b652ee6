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
from harness.narrow.inventory import BASE, Inventory, parsed_requirement
from harness.narrow.records import BOTH_SIDES, Component, ComponentGroup, Side

Key = tuple[str, str]
"""The kind and the name of a component."""
Tied = tuple[Key, Key, str]
"""Two components, and why the first is only swapped with the second, as a clause."""
MOST_NAMED = 3
CUDNN = ("libcudnn", "nvidia-cudnn")
ALONE = re.compile(r"nvidia-nccl-cu\d+$")
"""Distributions whose pins are not kept: any NCCL 2 takes the place of another, which is what its makers ask for."""
VERSION = re.compile(r"\d+(\.\d+)*")


@dataclass(frozen=True, kw_only=True)
class Coupling:
    """The groups, in the best order for swapping them. `needs`: (x, y) for each distribution x that an installer
    refuses from B unless y is from B, too.
    """

    groups: tuple[ComponentGroup, ...]
    needs: frozenset[tuple[str, str]]

    @property
    def pairs(self) -> frozenset[tuple[str, str]]:
        """Return (x, y) for each group x that cannot be from B without group y."""
        ids = {each.name: group.id for group in self.groups for each in group.components if each.kind == "distribution"}
        return frozenset((ids[first], ids[second]) for first, second in self.needs if ids[first] != ids[second])


def couple(
    differing: Sequence[Component], *, a: Inventory, b: Inventory, extras: Mapping[str, frozenset[str]]
) -> Coupling:
    """Return the groups of the components that differ. `extras`: those that the user requested, by distribution."""
    needed = list(_needs(differing, a=a, b=b, extras=extras))
    tied = list(_tied(differing, a=a, b=b))
    by_key = {_key(component): component for component in differing}
    follows = {key: set[Key]() for key in by_key}
    for first, second, _ in [*needed, *tied, *((second, first, why) for first, second, why in tied)]:
        follows[first].add(second)
    reach = {key: _reached(key, follows) for key in follows}
    strong: dict[Key, list[Key]] = {}
    for key in follows:  # those that reach each other are one group
        strong.setdefault(
            next((first for first in strong if first in reach[key] and key in reach[first]), key), []
        ).append(key)
    groups = []
    for keys in strong.values():
        members = tuple(by_key[key] for key in keys)
        is_base = any(each.kind == "files" for each in members)
        together = (why for first, second, why in [*needed, *tied] if first in keys and second in keys)
        groups.append(
            ComponentGroup(
                id=_id(members, differing),
                components=members,
                together=next(together, "") if len(members) > 1 else "",
                swaps=frozenset[Side]() if is_base else _swaps(members, a=a, b=b),
            )
        )
    needs = frozenset((first[1], second[1]) for first, second, _ in needed)
    return Coupling(groups=tuple(_ordered(groups, reach)), needs=needs)


def _key(component: Component) -> Key:
    """Return the key of a component, because a variable and a distribution may have the same name."""
    return component.kind, component.name


def _distribution(name: str) -> Key:
    return "distribution", name


# ---------------------------------------------------------------- mixtures that an installer refuses


def _needs(
    differing: Sequence[Component], *, a: Inventory, b: Inventory, extras: Mapping[str, frozenset[str]]
) -> Iterator[Tied]:
    """Yield (x, y, why) where the metadata states that x cannot be from B unless y is, too. Requirements that are not
    met on their own side either say nothing.
    """
    names = _distributions(differing)
    sides: tuple[tuple[Side, Inventory, Inventory], ...] = (("A", a, b), ("B", b, a))
    for side, own, other in sides:
        # The extras in use are those that the user requested, and those that other distributions require.
        required = (
            each for name in own.distributions for each in own.requirements(name, extras.get(name, frozenset()))
        )
        used = _with_extras(extras, required)
        for name in sorted(names & own.distributions.keys()):
            for requirement in own.requirements(name, used.get(name, frozenset())):
                target = canonicalize_name(requirement.name)
                if target in names and target != name and _kept(requirement, own) and not _kept(requirement, other):
                    first, second = (name, target) if side == "B" else (target, name)
                    yield _distribution(first), _distribution(second), _why(own, name, requirement, other)


def _with_extras(asked: Mapping[str, frozenset[str]], requirements: Iterable[Requirement]) -> dict[str, frozenset[str]]:
    """Return the extras by distribution: `asked`, and those that the requirements name."""
    extras = dict(asked)
    for requirement in requirements:
        name = canonicalize_name(requirement.name)
        extras[name] = extras.get(name, frozenset()) | requirement.extras
    return extras


def _kept(requirement: Requirement, side: Inventory) -> bool:
    distribution = side.distributions.get(canonicalize_name(requirement.name))
    if distribution is None or ALONE.match(distribution.name):
        return distribution is not None
    try:
        return requirement.specifier.contains(Version(distribution.version), prereleases=True)
    except InvalidVersion:
        return True  # such a version cannot be compared


def _why(own: Inventory, name: str, requirement: Requirement, other: Inventory) -> str:
    target, version = canonicalize_name(requirement.name), own.distributions[name].version
    required, unfit = f"{target}{requirement.specifier}", other.distributions.get(target)
    if unfit is None:
        return f"{name} {version} requires {required}, and {target} is not installed"
    return f"{name} {version} requires {required}, and {target} is {unfit.version}"


# ---------------------------------------------------------------- components that belong together


def _distributions(components: Sequence[Component]) -> set[str]:
    return {component.name for component in components if component.kind == "distribution"}


def _tied(differing: Sequence[Component], *, a: Inventory, b: Inventory) -> Iterator[Tied]:
    """Yield pairs of components that are only swapped together."""
    names = sorted(_distributions(differing))
    digests: dict[str, dict[str, str]] = {}
    for side in (a, b):
        for name in [name for name in names if name in side.distributions]:
            for path, digest in side.distributions[name].files.items():
                by_owner = digests.setdefault(path, {})
                for other in [owner for owner, theirs in by_owner.items() if owner != name and theirs != digest]:
                    # Each would overwrite the other's file.
                    why = f"{name} and {other} both have {path}"
                    yield _distribution(name), _distribution(other), why
                by_owner[name] = digest
    # The libraries of cuDNN check each other's versions when they are loaded.
    parts = [_key(each) for each in differing if each.kind == "library" and each.name.startswith(CUDNN)]
    why = "the libraries of cuDNN check each other's versions"
    yield from ((part, following, why) for part, following in pairwise(parts))
    if a.installs_for != b.installs_for:  # each distribution is installed for one Python and one kind of C library
        why = "a distribution is installed for one minor version of Python and one kind of C library"
        yield from ((("files", BASE), _distribution(name), why) for name in names)


def _id(members: Sequence[Component], differing: Sequence[Component]) -> str:
    if any(each.kind == "files" for each in members):
        others = len(members) - 1
        return f"{BASE}, with {others} distribution{'s' if others > 1 else ''}" if others else BASE
    names = [component.name for component in differing]
    unique = [f"{each.kind} {each.name}" if names.count(each.name) > 1 else each.name for each in members]
    if len(unique) <= MOST_NAMED + 1:
        return " + ".join(unique)
    return f"{' + '.join(unique[:MOST_NAMED])} + {len(unique) - MOST_NAMED} more"


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
    found = [[VERSION.search(text or "") for text in texts] for texts in (in_a, in_b)]
    old, new = ([tuple(map(int, match[0].split("."))) if match else () for match in matches] for matches in found)
    if old == new or not all((*old, *new)):
        return BOTH_SIDES
    return frozenset({"A"}) if old < new else frozenset({"B"})


# ---------------------------------------------------------------- graphs


def _reached(key: Key, follows: Mapping[Key, set[Key]]) -> set[Key]:
    reached, waiting = {key}, [key]
    while waiting:
        new = follows[waiting.pop()] - reached
        reached |= new
        waiting += new
    return reached


def _ordered(groups: Sequence[ComponentGroup], reach: Mapping[Key, set[Key]]) -> Iterator[ComponentGroup]:
    """Yield the groups so that each comes after those that it needs; mapped groups and their needs come first."""
    own = [{_key(component) for component in group.components} for group in groups]
    needs = [set[Key]().union(*(reach[key] for key in keys)) for keys in own]
    needed = set[Key]().union(*(keys for group, keys in zip(groups, needs, strict=True) if group.mapped))
    left, done = list(range(len(groups))), set[Key]()
    while left:
        free = [n for n in left if needs[n] - own[n] <= done]
        chosen = min(free, key=lambda n: (not own[n] & needed, n))
        left.remove(chosen)
        done |= own[chosen]
        yield groups[chosen]


def asked_extras(*sources: Source) -> dict[str, frozenset[str]]:
    """Return the extras that the requirements of these sources request, by distribution."""
    texts = [text for source in sources if isinstance(source, Install) for text in source.packages]
    parsed = (parsed_requirement(text) for text in texts)
    return _with_extras({}, (requirement for requirement in parsed if requirement is not None))
