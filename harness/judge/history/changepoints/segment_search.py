"""Searches a table for changes of level: how many it has, and roughly where they are.

Distinct levels are found first. Between them, circular binary segmentation (Olshen and others, 2004) finds the stretch
of versions that differs most from the rest, then does the same within the pieces. A single split into "before" and
"after" would miss a single bad version in the middle.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtr

from harness.judge.comparison.round_effects import NEGLIGIBLE, Spread, by_round_alone
from harness.judge.history.changepoints.arc_statistics import RESAMPLES, Arcs, permutation_p, welch_p
from harness.judge.history.changepoints.distinct_levels import Laid, distinct_levels
from harness.model import Floats

FEWEST_VERSIONS = 4
"""Fewest versions for a permutation test; fewer have too few permutations."""
DISTINCT_SHARE = 0.5
"""Share of `alpha`, the probability of a false alarm, that the search for distinct levels may use."""
SMALLEST = 0.001
"""p-value that a permutation test must be able to reach; otherwise the t-test decides alone."""
PIECE_SHARE = 1 / 6
"""Share of `alpha` for each of the three pieces that a found stretch makes."""


@dataclass(frozen=True, kw_only=True)
class Search:
    """The search of one table. `laid` is the same table without round effects and with outliers winsorized."""

    table: Floats
    laid: Laid
    least: float
    rng: np.random.Generator

    def bounds(self, *, alpha: float) -> dict[int, float]:
        """Return the p-value by the first version of each distinct level, and of each level found between these. If
        there are distinct levels, the pieces between them share half of `alpha`.
        """
        versions = self.table.shape[1]
        if versions < FEWEST_VERSIONS:
            return self.within(0, versions, alpha=alpha)
        bounds = distinct_levels(self.laid, least=self.least, alpha=alpha * DISTINCT_SHARE)
        share = alpha / (2 * (len(bounds) + 1)) if bounds else alpha
        for begin, end in itertools.pairwise((0, *bounds, versions)):
            bounds = bounds | self.within(begin, end, alpha=share)
        return bounds

    def within(self, begin: int, end: int, *, alpha: float) -> dict[int, float]:
        """Return, by the first version of each new level in [begin, end), the p-value of the stretch that it bounds.

        `alpha` is the probability of a false level. The pieces before, within and after a found stretch share half of
        it.
        """
        if end - begin < 2:
            return {}
        arcs = Arcs.of(end - begin, unit=self.laid.spread.deviation**2 / len(self.table))
        score, size = arcs.compare(self.laid.values[:, begin:end].mean(axis=0)[:, None])
        counts = np.abs(size[:, 0]) >= max(self.least, NEGLIGIBLE)
        # Most series are quiet and need no test: no stretch differs by enough to count.
        if not counts.any():
            return {}
        best = int(np.where(counts, score[:, 0], -np.inf).argmax())
        p = self._p_value(begin, end, arcs, best=best, size=abs(float(size[best, 0])))
        if p >= alpha:
            return {}
        first, stop = begin + int(arcs.first[best]), begin + int(arcs.end[best])
        bounds = {bound: p for bound in (first, stop) if begin < bound < end}
        for low, high in ((begin, first), (first, stop), (stop, end)):
            bounds |= self.within(low, high, alpha=alpha * PIECE_SHARE)
        return bounds

    def _p_value(self, begin: int, end: int, arcs: Arcs, *, best: int, size: float) -> float:
        rounds, versions = len(self.table), end - begin
        first, last = int(arcs.first[best]), int(arcs.end[best])
        tried = int(arcs.rivals[best])
        cautious = self.laid.spread.cautious(rounds)
        # With one launch of each version there is no cautious t-test; only a permutation test can decide.
        score = size * float(arcs.weight[best])
        by_t_test = self._t_test_p(score, tried=tried, spread=cautious) if cautious.freedom else 1.0
        if self.table.shape[1] < FEWEST_VERSIONS:
            return min(1.0, 2 * min(by_t_test, tried * welch_p(self.table[:, begin:end], first=first, end=last)))
        smallest = len(arcs.first) / math.comb(versions, last - first) ** rounds
        if versions < FEWEST_VERSIONS or smallest >= SMALLEST:
            return by_t_test
        p = permutation_p(by_round_alone(self.table[:, begin:end]), arcs, best=best, rng=self.rng)
        # If no permutation scores as high, the p-value is only known to be small.
        return min(p, by_t_test) if p < 2 / RESAMPLES else p

    def _t_test_p(self, score: float, *, tried: int, spread: Spread) -> float:
        """Return the two-sided p-value of the largest of `tried` differences, by the noise of the whole table."""
        t = score * math.sqrt(len(self.laid.values)) / spread.deviation
        return min(1.0, 2 * float(stdtr(spread.freedom, -t)) * tried)

    def prune(self, bounds: Mapping[int, float], *, alpha: float) -> dict[int, float]:
        """Drop the bounds between levels that may differ by chance, the least significant first.

        A stretch that differs has two ends, of which only one may be a change. The last remaining bound needs no
        further test. Each p-value is the larger of the stretch's and the bound's own.
        """
        kept = dict(sorted(bounds.items()))
        while len(kept) > 1:
            sizes, own = self._sizes(list(kept))
            worst = max(range(len(own)), key=lambda number: (own[number], -sizes[number]))
            if own[worst] < alpha:
                return {bound: max(p, own_p) for (bound, p), own_p in zip(kept.items(), own, strict=True)}
            del kept[list(kept)[worst]]
        return kept

    def _sizes(self, bounds: Sequence[int]) -> tuple[list[float], list[float]]:
        """Return the difference of the levels at each bound, and its p-value."""
        edges = (0, *bounds, self.laid.values.shape[1])
        levels = levels_of(self.laid.values.mean(axis=0), edges)
        sizes = [abs(new - old) for old, new in itertools.pairwise(levels)]
        counts = np.diff(edges)
        weights = np.sqrt(counts[:-1] * counts[1:] / (counts[:-1] + counts[1:]))
        places = counts[:-1] + counts[1:] - 1
        tests = zip((weights * sizes).tolist(), places.tolist(), strict=True)
        return sizes, [self._t_test_p(score, tried=tried, spread=self.laid.spread) for score, tried in tests]


def levels_of(means: Floats, bounds: Sequence[int]) -> tuple[float, ...]:
    """Return the mean of `means` between each bound and the next."""
    return tuple(float(means[begin:end].mean()) for begin, end in itertools.pairwise(bounds))
