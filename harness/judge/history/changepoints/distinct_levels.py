"""Finds levels that differ from their neighbours by more than chance, whatever the rest of the series does.

Optimal partitioning finds the likeliest pieces of the whole series in one search. Pieces that a test cannot distinguish
from their neighbours are merged with them, the least distinct first. This also finds levels that come and go, whose
stretches hardly differ from the rest of the series.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from harness.judge.comparison.round_effects import Spread
from harness.judge.history.changepoints.boundary_test import Test, places_tried
from harness.judge.history.changepoints.optimal_partition import pieces, usual_penalty
from harness.model import Floats

WOBBLE = 0.1
"""Least standard deviation of a version's mean, as a share of the least change that counts: on a quiet host, versions
that differ by less are alike for the search."""


@dataclass(frozen=True, kw_only=True)
class Laid:
    """A table without round effects, shape (rounds, versions): `values` with outliers winsorized, `raw` as measured."""

    values: Floats
    raw: Floats
    spread: Spread

    @property
    def rounds(self) -> int:
        return len(self.values)

    @property
    def versions(self) -> int:
        return int(self.values.shape[1])

    def naming_spread(self) -> Spread:
        """Return the noise that is assumed when a change is located."""
        return self.spread.cautious(self.rounds) if self.rounds > 1 else self.spread

    def part(self, begin: int, end: int) -> Laid:
        """Return the versions [begin, end), with the noise of the whole table."""
        return Laid(values=self.values[:, begin:end], raw=self.raw[:, begin:end], spread=self.spread)

    def variance(self, least: float) -> float:
        """Return the variance of a version's mean: at least that of differences far below `least` (WOBBLE)."""
        return float(max(self.spread.deviation**2 / self.rounds, (WOBBLE * least) ** 2))


def distinct_levels(laid: Laid, *, least: float, alpha: float) -> dict[int, float]:
    """Return the p-value of each new level by its first version; `alpha` is the probability of a false level.

    Levels may differ by less than `least` (a log): they are kept apart here, so that they do not blur larger changes
    next to them, and are merged later (`counted_levels`).
    """
    penalty = usual_penalty(laid.versions)
    likeliest = pieces(laid.values.mean(axis=0), variance=laid.variance(least), penalty=penalty)
    bounds = [piece.begin for piece in likeliest[1:]]
    tests = _Tests(laid=laid, alpha=alpha)
    differences = {bound: tests.at(bounds, number) for number, bound in enumerate(bounds)}
    while differences:
        worst = max(differences, key=differences.__getitem__)
        if differences[worst].p < alpha:
            break
        number = bounds.index(worst)
        del bounds[number], differences[worst]
        for near in range(max(0, number - 2), min(number + 2, len(bounds))):
            differences[bounds[near]] = tests.at(bounds, near)
    return {bound: difference.p for bound, difference in differences.items()}


@dataclass(frozen=True, kw_only=True, order=True)
class _Difference:
    """Difference between the levels on both sides of a bound. In sorting order, the largest is the least distinct."""

    p: float
    minus_size: float


@dataclass(frozen=True, kw_only=True)
class _Tests:
    laid: Laid
    alpha: float

    def at(self, bounds: Sequence[int], number: int) -> _Difference:
        """Test the two levels on both sides of a bound, and the shorter level also against both of its neighbours
        together, which shows more. The longer level is not tested in that way: it may differ only from its other
        neighbour.
        """
        edges = (0, *bounds, self.laid.versions)
        begin, first, end = edges[number : number + 3]
        size = self._size(begin, first, end)
        p = self._p([(begin, first)], (first, end))
        if number > 0 and first - begin <= end - first:
            p = min(p, self._p_between(edges[number - 1], begin, first, end))
        if number + 3 < len(edges) and end - first <= first - begin:
            p = min(p, self._p_between(begin, first, end, edges[number + 3]))
        return _Difference(p=p, minus_size=-abs(size))

    def _p_between(self, begin: int, first: int, end: int, after: int) -> float:
        """Return the p-value of the level [first, end) if it is above or below both of its neighbours; else 1."""
        if self._size(begin, first, end) * self._size(first, end, after) >= 0:
            return 1.0
        return self._p([(begin, first), (end, after)], (first, end))

    def _size(self, begin: int, first: int, end: int) -> float:
        values = self.laid.values
        return float(values[:, first:end].mean() - values[:, begin:first].mean())

    def _p(self, others: Sequence[tuple[int, int]], inside: tuple[int, int]) -> float:
        laid = self.laid
        rest, level = np.concatenate([np.arange(*other) for other in others]), np.arange(*inside)
        smaller = min(len(rest), len(level))
        tried = places_tried(laid.versions, smaller)
        test = Test(spread=laid.spread, rounds=laid.rounds, smaller=smaller, tried=tried, alpha=self.alpha)
        # Winsorizing moves outliers towards other launches of their version; for few versions, raw values are tested.
        old = (laid.raw if test.by_worst and len(rest) == smaller else laid.values)[:, rest]
        new = (laid.raw if test.by_worst and len(level) == smaller else laid.values)[:, level]
        if laid.rounds > 1:
            error = laid.spread.deviation * math.sqrt(1 / len(rest) + 1 / len(level))
            return test.p_value((new.mean(axis=1) - old.mean(axis=1)) / error)
        few, many = (old, new) if len(rest) == smaller else (new, old)
        error = laid.spread.deviation * math.sqrt(1 + smaller / many.size)
        return test.p_value((few - many.mean()).ravel() / error)
