"""Chooses the groups to try next: the set that is expected to tell most, and that can probably be made.

A hybrid that could not be made cuts a coupling: something from B needs something that is still A's, or the other way
round. Each ordered pair that it cuts, and that no hybrid that ran has cut, is suspected; the next sets avoid suspects.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np

from harness.model import Floats

MAPPED = 4.0
"""How much likelier a group is to be the culprit if the scenario maps a file of it."""
MOST_CUTS = 32
"""Places at which an arrangement of groups is cut into two."""
Groups = frozenset[str]


def likelihoods(mapped: Mapping[str, bool]) -> dict[str, float]:
    """Return the prior weight of each group, by whether the scenario maps a file of it."""
    return {name: MAPPED if each else 1.0 for name, each in mapped.items()}


class Couplings:
    """What hybrids that could and could not be made say of pairs of groups. `order` are all groups."""

    def __init__(self, order: Sequence[str], *, made: Iterable[Groups], refused: Iterable[Groups]) -> None:
        self._places = {name: place for place, name in enumerate(order)}
        refuted = np.zeros((len(order), len(order)), dtype=bool)
        for each in made:
            refuted |= self._cut(each)
        self._suspicion: Floats = np.zeros((len(order), len(order)))
        for each in refused:
            suspects = self._cut(each) & ~refuted
            self._suspicion += suspects / max(1, int(suspects.sum()))

    @property
    def suspected(self) -> bool:
        return bool(self._suspicion.any())

    def chance_made(self, several: Sequence[Groups]) -> Floats:
        """Return how likely each set can be made, relative to one that cuts no suspect."""
        rows = np.array([self._row(each) for each in several], dtype=np.float64)
        return np.asarray(np.exp(-(((rows @ self._suspicion) * (1 - rows)).sum(axis=1))))

    def _row(self, groups: Groups) -> Floats:
        row = np.zeros(len(self._places))
        row[[self._places[each] for each in groups]] = 1.0
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
    """Return the groups of `left` to add to `low` next; None if no split is usable. `thorough`: look at all splits at
    once, because it is known that many cannot be made.

    What a set tells, in bits, is the entropy of whether it holds the culprit, times the chance that it can be made.
    """
    several = [each for each in dict.fromkeys(_cuts(_likeliest(left, weights))) if usable(each)]
    if couplings.suspected or thorough or not several:
        several = [each for each in dict.fromkeys(_splits(left, weights)) if usable(each)]
    if not several:
        return None
    total = sum(weights[each] for each in left)
    shares = [sum(weights[each] for each in one) / total for one in several]
    bits = np.array([_entropy(share) for share in shares])
    told = bits * couplings.chance_made([low | each for each in several])
    return several[int(np.argmax(np.round(told, 9)))]


def _entropy(share: float) -> float:
    return -sum(each * math.log2(each) for each in (share, 1 - share) if each > 0)


def _likeliest(left: Sequence[str], weights: Mapping[str, float]) -> list[str]:
    return sorted(left, key=lambda each: -weights[each])


def _splits(left: Sequence[str], weights: Mapping[str, float]) -> Iterator[Groups]:
    """Yield sets of groups: likeliest halves first, then parts in other arrangements, single ones and all but one."""
    for arrangement in (_likeliest(left, weights), list(left), *_arrangements(list(left))):
        yield from _cuts(arrangement)
    for each in left:
        yield frozenset({each})
        yield frozenset(left) - {each}


def _cuts(arrangement: Sequence[str]) -> Iterator[Groups]:
    """Yield both parts of an arrangement that is cut in two."""
    for end in _ends(len(arrangement)):
        yield frozenset(arrangement[:end])
        yield frozenset(arrangement[end:])


def _ends(size: int) -> list[int]:
    """Return where an arrangement is cut: anywhere if it is short, else in as many places."""
    return sorted({max(1, size * place // MOST_CUTS) for place in range(1, MOST_CUTS)} & set(range(1, size)))


def _arrangements(left: list[str]) -> Iterator[list[str]]:
    """Return the groups turned by quarters, and dealt out to 2, 4, ... hands, so that halves of them share few
    pairs.
    """
    size = len(left)
    for quarter in (1, 2, 3):
        cut = size * quarter // 4
        yield left[cut:] + left[:cut]
    hands = 2
    while hands < size:
        yield [each for hand in range(hands) for each in left[hand::hands]]
        hands *= 2
