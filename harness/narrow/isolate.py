"""Says which hybrids there are, and which set of groups to take from B next, by its expected information."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from harness.model import Floats
from harness.narrow.records import BOTH_SIDES, ComponentGroup, Hybrid, Side

Groups = frozenset[str]
"""Ids of groups of components."""
GroupNeeds = frozenset[tuple[str, str]]
"""(x, y) where group x cannot be from B without group y."""
MOST_IN_WORDS = 3
"""Most groups that a reason names."""


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


# ---------------------------------------------------------------- the set to try next


MAPPED = 4.0
"""Prior weight of a group with a file that the scenario maps; that of any other group is 1."""
MOST_CUTS = 32
"""Upper limit of the places at which an arrangement of groups is cut in two."""


def best_split(
    swaps: Swaps, low: Groups, high: Groups, *, made: Iterable[Groups], refused: set[Groups]
) -> Groups | None:
    """Return the groups of `high` to add to `low` next; None if no split is usable. `made` and `refused` are the sets
    that ran and those that gave no result.

    The expected information of a set, in bits, is the entropy of whether it contains the culprit, times the probability
    that it can be made. Many more sets are considered where some are known or suspected to be impossible.
    """
    left = [group.id for group in swaps.groups if group.id in high - low]
    weights = {group.id: MAPPED if group.mapped else 1.0 for group in swaps.groups}
    likeliest = sorted(left, key=lambda name: -weights[name])
    suspicion = _suspicion(swaps, made, refused)

    def usable(sets: Iterable[Groups]) -> list[Groups]:
        return [
            added
            for added in dict.fromkeys(sets)
            if low | added not in refused and swaps.hybrid(low | added) is not None
        ]

    sets = usable(_cuts(likeliest))
    if suspicion.any() or swaps.needs or not sets:
        several = (likeliest, left, *_arrangements(left))
        single = (one for name in left for one in (frozenset({name}), frozenset(left) - {name}))
        sets = usable((*(cut for names in several for cut in _cuts(names)), *single))
    if not sets:
        return None
    total = sum(weights[name] for name in left)
    bits = np.array([_entropy(sum(weights[name] for name in added) / total) for added in sets])
    rows = np.array([_row(swaps, low | added) for added in sets])
    chance_made = np.exp(-((rows @ suspicion) * (1 - rows)).sum(axis=1))
    return sets[int(np.argmax(np.round(bits * chance_made, 9)))]


def _suspicion(swaps: Swaps, made: Iterable[Groups], refused: Iterable[Groups]) -> Floats:
    """Return how much each ordered pair of groups is suspected to be coupled: the first from B needs the second from B.

    A hybrid that could not be made cuts such a pair. Every pair that it cuts is suspected, unless a hybrid that ran has
    cut it, too.
    """
    size = len(swaps.groups)
    refuted, suspicion = np.zeros((size, size), dtype=bool), np.zeros((size, size))
    for groups in made:
        row = _row(swaps, groups).astype(bool)
        refuted |= row[:, None] & ~row[None, :]
    for groups in refused:
        row = _row(swaps, groups).astype(bool)
        suspects = row[:, None] & ~row[None, :] & ~refuted
        suspicion += suspects / max(1, int(suspects.sum()))
    return suspicion


def _row(swaps: Swaps, groups: Groups) -> Floats:
    return np.array([group.id in groups for group in swaps.groups], dtype=np.float64)


def _entropy(share: float) -> float:
    return -sum(part * math.log2(part) for part in (share, 1 - share) if part > 0)


def _cuts(arrangement: Sequence[str]) -> Iterator[Groups]:
    """Yield both parts of an arrangement, cut in two at each of at most MOST_CUTS places at regular intervals."""
    size = len(arrangement)
    for end in sorted({max(1, size * place // MOST_CUTS) for place in range(1, MOST_CUTS)} & set(range(1, size))):
        yield frozenset(arrangement[:end])
        yield frozenset(arrangement[end:])


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
