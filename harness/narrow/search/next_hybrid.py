"""Chooses the groups to try next: the set with the most expected information, given how likely it can be made.

A hybrid that could not be made cuts a coupling: a group from B needs one that is still from A, or vice versa. Every
ordered pair that it cuts is suspected, unless a hybrid that ran has cut it, too; the next sets avoid suspected pairs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np

from harness.model import Floats

MAPPED = 4.0
"""Prior weight of a group with a file that the scenario maps; that of any other group is 1."""
MOST_CUTS = 32
"""Upper limit of the places at which an arrangement of groups is cut in two."""
Groups = frozenset[str]


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
