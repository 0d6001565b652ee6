"""Isolates a difference by delta debugging from both sides with three outcomes, the algorithm `dd` of Zeller and
Hildebrandt, "Simplifying and isolating failure-inducing input" (2002), with sets chosen by their expected information;
then proves it.

A good set of groups and a bad set that contains it come closer until their difference cannot be split further.
Generators yield a question (`Ask`) and receive its result; how hybrids are made and launched is decided elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from harness.model import Floats
from harness.model.narrowed import (
    BOTH_SIDES,
    ComponentGroup,
    CulpritKind,
    Hybrid,
    HybridResult,
    HybridState,
    ProofCell,
    ProofRole,
    Side,
)
from harness.reasons import NarrowReason

Groups = frozenset[str]
"""Ids of groups of components."""
NextKind = Literal["ends", "isolate", "partner", "prove", "sham", "done"]
REFUSALS = 12
"""Consecutive sets without a result after which the rest is not separated."""
MOST_IN_WORDS = 3
"""Most groups that a reason names."""


@dataclass(frozen=True, kw_only=True)
class Ask:
    """A question: is `hybrid` good or bad? `sure`: with the certainty that a proof needs."""

    hybrid: Hybrid | None
    kind: NextKind
    reason: str
    sure: bool = False


GroupNeeds = frozenset[tuple[str, str]]
"""(x, y) where group x cannot be from B without group y."""
Bounds = tuple[Groups, Groups]
"""A good set of groups from B, and a bad one that contains it."""


class Swaps:
    """The sets of groups that can be taken from B, and the hybrids that have them."""

    def __init__(self, groups: tuple[ComponentGroup, ...], needs: GroupNeeds = frozenset()) -> None:
        self.groups, self.needs = groups, needs
        self.all = frozenset(group.id for group in groups)
        self._swappable = {base: frozenset(group.id for group in groups if base in group.swaps) for base in BOTH_SIDES}
        self._order = tuple(group.id for group in sorted(groups, key=lambda group: not group.mapped))

    def hybrid(self, from_b: Groups) -> Hybrid | None:
        """Return the hybrid with the fewest swaps; None if no base can take all swaps, or if a group from B is known to
        need one that is not from B.
        """
        if self.raised(from_b) != from_b:
            return None
        swaps: dict[Side, Groups] = {"A": from_b, "B": self.all - from_b}
        bases = [base for base, swapped in swaps.items() if swapped <= self._swappable[base]]
        if not bases:
            return None
        return Hybrid(base=min(bases, key=lambda base: len(swaps[base])), from_b=from_b)

    def sham(self, base: Side, groups: Groups) -> Hybrid | None:
        """Return a base with its own `groups` put in again, as far as it can take them; None if it can take none."""
        sham = groups & self._swappable[base]
        return Hybrid(base=base, from_b=frozenset() if base == "A" else self.all, sham=sham) if sham else None

    def raised(self, from_b: Groups) -> Groups:
        """Return the set with all groups that it needs from B."""
        more = {needed for name, needed in self.needs if name in from_b} - from_b
        return self.raised(from_b | more) if more else from_b

    def lowered(self, from_b: Groups) -> Groups:
        """Return the set without the groups that need something outside it."""
        less = {name for name, needed in self.needs if needed not in from_b} & from_b
        return self.lowered(from_b - less) if less else from_b

    def listed(self, groups: Groups) -> tuple[str, ...]:
        """Return the groups in order; those with a file that the scenario maps come first."""
        return tuple(name for name in self._order if name in groups)

    def in_words(self, groups: Groups) -> str:
        """Return a set of groups as text, with at most MOST_IN_WORDS + 1 names."""
        names = self.listed(groups)
        more = len(names) - MOST_IN_WORDS
        return ", ".join(names) if more <= 1 else f"{', '.join(names[:MOST_IN_WORDS])} and {more} more"


@dataclass(kw_only=True)
class Isolation:
    """The sets that were tried while differences are narrowed: `made` ran, `refused` gave no result."""

    swaps: Swaps
    cache: dict[object, Groups | None]
    made: set[Groups] = field(default_factory=set)
    refused: set[Groups] = field(default_factory=set)

    def isolate(self, low: Groups, high: Groups, *, kind: NextKind) -> Generator[Ask, HybridResult, Bounds]:
        """Narrow the difference between `low` (good) and `high` (bad)."""
        in_a_row = 0
        while len(high - low) > 1 and in_a_row < REFUSALS:
            added = self._next(low, high)
            if added is None:
                break
            both = low | added
            suspects, tried = self.swaps.in_words(high - low), self.swaps.in_words(added)
            reason = NarrowReason.CAUSE_AMONG(suspects=suspects, groups=tried)
            result = yield Ask(hybrid=self.swaps.hybrid(both), kind=kind, reason=reason)
            if result.state == "unresolved":
                in_a_row += 1
                self.refused.add(both)
                continue
            in_a_row = 0
            self.made.add(both)
            low, high = (low, both) if result.state == "bad" else (both, high)
        return low, high

    def _next(self, low: Groups, high: Groups) -> Groups | None:
        """Return the groups to add to `low`. The choice is cached: each decision replays the whole search."""
        key = low, high, frozenset(self.made), frozenset(self.refused)
        if key not in self.cache:
            groups = self.swaps.groups
            self.cache[key] = best_split(
                [group.id for group in groups if group.id in high - low],
                usable=lambda added: low | added not in self.refused and self.swaps.hybrid(low | added) is not None,
                low=low,
                weights={group.id: MAPPED if group.mapped else 1.0 for group in groups},
                thorough=bool(self.swaps.needs),
                couplings=Couplings([group.id for group in groups], made=self.made, refused=self.refused),
            )
        return self.cache[key]


# ---------------------------------------------------------------- the set to try next
#
# A hybrid that could not be made cuts a coupling: a group from B needs one that is still from A, or vice versa. Every
# ordered pair that it cuts is suspected, unless a hybrid that ran has cut it, too; the next sets avoid suspected pairs.


MAPPED = 4.0
"""Prior weight of a group with a file that the scenario maps; that of any other group is 1."""
MOST_CUTS = 32
"""Upper limit of the places at which an arrangement of groups is cut in two."""


class Couplings:
    """Pairs of groups that seem coupled, judging by the hybrids that were made and refused. `order`: all groups."""

    def __init__(self, order: Sequence[str], *, made: Iterable[Groups], refused: Iterable[Groups]) -> None:
        self._places = {name: place for place, name in enumerate(order)}
        refuted = np.zeros((len(order), len(order)), dtype=bool)
        for groups in made:
            refuted |= self._cut(groups)
        self._suspicion: Floats = np.zeros((len(order), len(order)))
        for groups in refused:
            suspects = self._cut(groups) & ~refuted
            self._suspicion += suspects / max(1, int(suspects.sum()))

    @property
    def suspected(self) -> bool:
        return bool(self._suspicion.any())

    def chance_made(self, several: Sequence[Groups]) -> Floats:
        """Return the probability that each set can be made, relative to one that cuts no suspected pair; shape (n,)."""
        rows = np.array([self._row(groups) for groups in several], dtype=np.float64)
        return np.asarray(np.exp(-(((rows @ self._suspicion) * (1 - rows)).sum(axis=1))))

    def _row(self, groups: Groups) -> Floats:
        row = np.zeros(len(self._places))
        row[[self._places[name] for name in groups]] = 1.0
        return row

    def _cut(self, groups: Groups) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
        row = self._row(groups).astype(bool)
        return np.asarray(row[:, None] & ~row[None, :])


def best_split(
    left: Sequence[str],
    *,
    low: Groups,
    weights: Mapping[str, float],
    couplings: Couplings,
    usable: Callable[[Groups], bool],
    thorough: bool = False,
) -> Groups | None:
    """Return the groups of `left` to add to `low` next; None if no split is usable. `thorough`: consider all splits
    from the start, because many are known to be impossible.

    The expected information of a set, in bits, is the entropy of whether it contains the culprit, times the probability
    that it can be made.
    """
    sets = [groups for groups in dict.fromkeys(_cuts(_likeliest(left, weights))) if usable(groups)]
    if couplings.suspected or thorough or not sets:
        sets = [groups for groups in dict.fromkeys(_splits(left, weights)) if usable(groups)]
    if not sets:
        return None
    total = sum(weights[name] for name in left)
    shares = [sum(weights[name] for name in groups) / total for groups in sets]
    bits = np.array([_entropy(share) for share in shares])
    expected = bits * couplings.chance_made([low | groups for groups in sets])
    return sets[int(np.argmax(np.round(expected, 9)))]


def _entropy(share: float) -> float:
    return -sum(part * math.log2(part) for part in (share, 1 - share) if part > 0)


def _likeliest(left: Sequence[str], weights: Mapping[str, float]) -> list[str]:
    return sorted(left, key=lambda name: -weights[name])


def _splits(left: Sequence[str], weights: Mapping[str, float]) -> Iterator[Groups]:
    """Yield sets of groups: first parts of the likeliest arrangement, then of others, then one group or all but one."""
    for arrangement in (_likeliest(left, weights), list(left), *_arrangements(list(left))):
        yield from _cuts(arrangement)
    for name in left:
        yield frozenset({name})
        yield frozenset(left) - {name}


def _cuts(arrangement: Sequence[str]) -> Iterator[Groups]:
    """Yield both parts of an arrangement, cut in two at each of its places."""
    for end in _ends(len(arrangement)):
        yield frozenset(arrangement[:end])
        yield frozenset(arrangement[end:])


def _ends(size: int) -> list[int]:
    """Return the places at which an arrangement is cut: all if it is short, else MOST_CUTS at regular intervals."""
    return sorted({max(1, size * place // MOST_CUTS) for place in range(1, MOST_CUTS)} & set(range(1, size)))


def _arrangements(left: list[str]) -> Iterator[list[str]]:
    """Yield the groups rotated by quarters, and dealt like cards to 2, 4, ... hands; their halves share few pairs."""
    size = len(left)
    for quarter in (1, 2, 3):
        cut = size * quarter // 4
        yield left[cut:] + left[:cut]
    hands = 2
    while hands < size:
        yield [each for hand in range(hands) for each in left[hand::hands]]
        hands *= 2


# ---------------------------------------------------------------- the proof
#
# | A + c | B - c | c is |
# |---|---|---|
# | bad | good | the culprit |
# | good | good | needed but not enough: the search looks for its partner |
# | bad | bad | enough, but there is another cause: the search goes on without it |
# | good | bad | innocent here |


@dataclass(frozen=True, kw_only=True)
class Tested:
    """One side of a proof. `beside`: the groups that had to be swapped, too."""

    cell: ProofCell
    beside: Groups = frozenset()

    @property
    def state(self) -> HybridState:
        return self.cell.result.state


Testing = Generator[Ask, HybridResult, Tested]


@dataclass(frozen=True, kw_only=True)
class Prover:
    """Tests the suspected groups, called c, in both versions."""

    swaps: Swaps

    def with_it(self, suspects: Groups, *, others: Groups) -> Testing:
        """Test A + c. `others`: groups that are bad together with c, and good without it."""
        return self._test(
            "A + c", suspects, others, expected="bad", put=lambda beside: self.swaps.raised(suspects | beside)
        )

    def without_it(self, suspects: Groups, *, upper: Groups, others: Groups) -> Testing:
        """Test B - c, or `upper` - c. `others`: `upper` without them is bad, and good if c is left out as well."""
        return self._test(
            "B - c", suspects, others, expected="good", put=lambda beside: self.swaps.lowered(upper - suspects - beside)
        )

    def _test(
        self,
        role: ProofRole,
        suspects: Groups,
        others: Groups,
        *,
        expected: HybridState,
        put: Callable[[Groups], Groups],
    ) -> Testing:
        """Test c alone. If that gives no result, test c together with each of two disjoint sets of other groups: if
        both give the expected result, c causes it, not the other groups. If one does not, the other groups matter, too.
        """
        cell = yield from self._cell(role, suspects, put(frozenset()), beside=self._forced(role, suspects))
        alone = Tested(cell=cell)
        if alone.state != "unresolved":
            return alone
        agreeing: list[Tested] = []
        for beside in self._besides(others):
            if any(beside & each.beside for each in agreeing):
                continue
            cell = yield from self._cell(role, suspects, put(beside), beside=beside)
            tested = Tested(cell=cell, beside=beside)
            if tested.state not in ("unresolved", expected):
                return tested
            agreeing += [tested] if tested.state == expected else []
            if len(agreeing) == 2:
                return agreeing[0]
        return alone

    def _cell(
        self, role: ProofRole, suspects: Groups, from_b: Groups, *, beside: Groups
    ) -> Generator[Ask, HybridResult, ProofCell]:
        names = self.swaps.in_words(suspects)
        reason = (NarrowReason.PROOF_WITH if role == "A + c" else NarrowReason.PROOF_WITHOUT)(suspects=names)
        result = yield Ask(hybrid=self.swaps.hybrid(from_b), kind="prove", reason=reason, sure=True)
        listed = self.swaps.listed
        return ProofCell(role=role, groups=listed(suspects), result=result, beside=listed(beside))

    def _forced(self, role: ProofRole, suspects: Groups) -> Groups:
        """Return the groups that must be swapped along with c: those that it needs from B, or that need it."""
        whole = self.swaps.all
        swapped = self.swaps.raised(suspects) if role == "A + c" else whole - self.swaps.lowered(whole - suspects)
        return swapped - suspects

    def _besides(self, others: Groups) -> list[Groups]:
        """Return the halves, then the quarters of the other groups."""
        names = self.swaps.listed(others)
        parts = [names[hand::hands] for hands in (2, 4) for hand in range(hands)]
        return list(dict.fromkeys(frozenset(part) for part in parts if part and len(part) < len(names)))


def kind_of(with_it: HybridState, without: list[HybridState]) -> CulpritKind:
    """Return the kind of a culprit, given the states of A with all its parts and of B without each of them."""
    needed = all(state == "good" for state in without)
    if with_it == "bad":
        return "enough" if not needed else "culprit" if len(without) == 1 else "together"
    return "needed" if needed else "switch"
