"""Where the level of a figure changes along a series of versions measured in rounds.

The figure is a table of logs, shape (rounds, versions): a round holds one trial of every version, run close together,
so that what drifts with time is the same for all of a round and goes away with the round's mean. The search is circular
binary segmentation (Olshen and others, 2004): the stretch of versions that differs most from the rest, then the same
within the pieces. One split into "before" and "after" would miss a single bad version in the middle. How many changes
there are is decided by these tests; where they are, by `naming`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtr, stdtrit

from harness.judge.arcs import RESAMPLES, Arcs, permutation_p, welch_p
from harness.judge.distinct import Laid, distinct_levels
from harness.judge.layout import NEGLIGIBLE, Spread, by_round_alone, laid_out, spread_within, together
from harness.judge.naming import Place, place_changes
from harness.judge.numbers import CONFIDENCE
from harness.model import Floats, Interval

FEWEST_VERSIONS = 4
"""With fewer there are too few permutations."""
DISTINCT_SHARE = 0.5
"""Of the chance of a false alarm: what is added to it where distinct levels are looked for first."""
SMALLEST = 0.001
"""A permutation test that cannot go below this cannot decide."""
PIECE_SHARE = 1 / 6
"""Of the chance of a false alarm, for each of three pieces."""


@dataclass(frozen=True, kw_only=True)
class Shift:
    """A change of level: `first` is the likeliest first version of the new level.

    `before` and `after` enclose it: neighbours if the version can be named, else further apart. `size` and `interval`
    are logs of the ratio between the two levels, which are those of the versions in `stretch`.
    """

    first: int
    stretch: tuple[int, int]
    before: int
    after: int
    size: float
    interval: Interval
    p: float


@dataclass(frozen=True, kw_only=True)
class Levels:
    """The pieces of a series: `bounds` are their first versions and the end, `means` their levels, in logs."""

    bounds: tuple[int, ...]
    means: tuple[float, ...]
    shifts: tuple[Shift, ...]


def find_levels(table: Floats, *, least: float, alpha: float, seed: int, noise: Spread | None = None) -> Levels:
    """The levels of `table`, shape (rounds, versions), two of each at least. Neighbours differ by `least` (a log).

    `noise`: what equal images were seen to differ by beside it; a table of few versions says little about that itself.
    """
    values, raw = laid_out(table)
    spread = spread_within(values)
    if spread is None:
        raise ValueError(f"a table of {len(table)} x {table.shape[1]} tells no noise: two rounds of two versions do")
    spread = spread_beside(spread, noise, versions=table.shape[1])
    laid = Laid(values=values, raw=raw, spread=spread)
    search = _Search(table=table, laid=laid, least=least, rng=np.random.default_rng(seed))
    kept = search.prune(search.found(alpha=alpha), alpha=alpha)
    means = values.mean(axis=0)
    places = place_changes(means, rounds=len(values), spread=spread.cautious(len(values)), near=list(kept))
    bounds = (0, *(place.first for place in places), values.shape[1])
    return Levels(
        bounds=bounds,
        means=_levels(means, bounds),
        shifts=tuple(_shifts(values, bounds, places, list(kept.values()), spread=spread)),
    )


def spread_beside(spread: Spread, noise: Spread | None, *, versions: int) -> Spread:
    """The noise of a launch, of a table with so many versions."""
    return (together(spread, noise) or spread) if versions < FEWEST_VERSIONS else spread


# ---------------------------------------------------------------- how many


@dataclass(frozen=True, kw_only=True)
class _Search:
    """`laid` is the table without its rounds' levels and what is far out."""

    table: Floats
    laid: Laid
    least: float
    rng: np.random.Generator

    @property
    def values(self) -> Floats:
        return self.laid.values

    @property
    def spread(self) -> Spread:
        return self.laid.spread

    def found(self, *, alpha: float) -> dict[int, float]:
        """What is distinct at once, and what else there is between, with their p-values; pieces share half of `alpha`
        where something was found.
        """
        versions = self.table.shape[1]
        if versions < FEWEST_VERSIONS:
            return self.within(0, versions, alpha=alpha)
        found = distinct_levels(self.laid, least=self.least, alpha=alpha * DISTINCT_SHARE)
        share = alpha / (2 * (len(found) + 1)) if found else alpha
        for begin, end in itertools.pairwise((0, *found, versions)):
            found = found | self.within(begin, end, alpha=share)
        return found

    def within(self, begin: int, end: int, *, alpha: float) -> dict[int, float]:
        """The first version of each new level among [begin, end), with the p-value of the stretch that it bounds.

        `alpha` is the chance of finding one where there is none. What is found leaves pieces, which share half of it.
        """
        if end - begin < 2:
            return {}
        arcs = Arcs.of(end - begin, unit=self.spread.deviation**2 / len(self.table))
        score, size = arcs.compare(self.values[:, begin:end].mean(axis=0)[:, None])
        counts = np.abs(size[:, 0]) >= max(self.least, NEGLIGIBLE)
        # Most series are quiet: no test is needed where no stretch differs by enough to count.
        if not counts.any():
            return {}
        best = int(np.where(counts, score[:, 0], -np.inf).argmax())
        p = self._p_value(begin, end, arcs, best=best, size=abs(float(size[best, 0])))
        if p >= alpha:
            return {}
        first, stop = begin + int(arcs.first[best]), begin + int(arcs.end[best])
        found = {bound: p for bound in (first, stop) if begin < bound < end}
        for low, high in ((begin, first), (first, stop), (stop, end)):
            found |= self.within(low, high, alpha=alpha * PIECE_SHARE)
        return found

    def _p_value(self, begin: int, end: int, arcs: Arcs, *, best: int, size: float) -> float:
        rounds, versions = len(self.table), end - begin
        first, last = int(arcs.first[best]), int(arcs.end[best])
        tried = int(arcs.rivals[best])
        by_t_test = self._t_test_p(size * float(arcs.weight[best]), tried=tried, spread=self.spread.cautious(rounds))
        if self.table.shape[1] < FEWEST_VERSIONS:
            return min(1.0, 2 * min(by_t_test, tried * welch_p(self.table[:, begin:end], first=first, end=last)))
        smallest = len(arcs.first) / math.comb(versions, last - first) ** rounds
        if versions < FEWEST_VERSIONS or smallest >= SMALLEST:
            return by_t_test
        p = permutation_p(by_round_alone(self.table[:, begin:end]), arcs, best=best, rng=self.rng)
        # Where no permutation does as well, how rare that is stays unknown.
        return min(p, by_t_test) if p < 2 / RESAMPLES else p

    def _t_test_p(self, score: float, *, tried: int, spread: Spread) -> float:
        """Of a difference, by the noise of the whole table, where it is the largest of so many that were tried."""
        t = score * math.sqrt(len(self.values)) / spread.deviation
        return min(1.0, 2 * float(stdtr(spread.freedom, -t)) * tried)

    def prune(self, found: Mapping[int, float], *, alpha: float) -> dict[int, float]:
        """Without the bounds between levels that differ by less than `least`, or by chance: the worst one first.

        A stretch that differs has two ends, and only one of them may be a change: the last one needs no other test. The
        p-values are those of the bounds themselves where these are larger.
        """
        kept = dict(sorted(found.items()))
        while kept:
            sizes, own = self._sizes(list(kept))
            worst = max(range(len(own)), key=lambda number: (sizes[number] < self.least, own[number], -sizes[number]))
            if sizes[worst] >= self.least and len(kept) == 1:
                return kept
            if sizes[worst] >= self.least and own[worst] < alpha:
                return {bound: max(p, one) for (bound, p), one in zip(kept.items(), own, strict=True)}
            del kept[list(kept)[worst]]
        return kept

    def _sizes(self, bounds: Sequence[int]) -> tuple[list[float], list[float]]:
        """The difference of the levels at each bound, and its p-value."""
        edges = (0, *bounds, self.values.shape[1])
        levels = _levels(self.values.mean(axis=0), edges)
        sizes = [abs(new - old) for old, new in itertools.pairwise(levels)]
        counts = np.diff(edges)
        weights = np.sqrt(counts[:-1] * counts[1:] / (counts[:-1] + counts[1:]))
        places = counts[:-1] + counts[1:] - 1
        tests = zip((weights * sizes).tolist(), places.tolist(), strict=True)
        return sizes, [self._t_test_p(score, tried=tried, spread=self.spread) for score, tried in tests]


def _levels(means: Floats, bounds: Sequence[int]) -> tuple[float, ...]:
    return tuple(float(means[begin:end].mean()) for begin, end in itertools.pairwise(bounds))


# ---------------------------------------------------------------- where


def _shifts(
    values: Floats, bounds: Sequence[int], places: Sequence[Place], p_values: Sequence[float], *, spread: Spread
) -> list[Shift]:
    shifts = []
    for number, (place, p) in enumerate(zip(places, p_values, strict=True), start=1):
        begin, first, end = bounds[number - 1 : number + 2]
        size, interval = _effect(values, (begin, first, end), spread=spread)
        shifts.append(
            Shift(
                first=first,
                stretch=(begin, end),
                before=place.low - 1,
                after=place.high,
                size=size,
                interval=interval,
                p=p,
            )
        )
    return shifts


def _effect(values: Floats, bounds: tuple[int, int, int], *, spread: Spread) -> tuple[float, Interval]:
    """The difference of two neighbouring levels, with its 95 % interval."""
    begin, first, end = bounds
    size = float(values[:, first:end].mean() - values[:, begin:first].mean())
    error = spread.deviation * math.sqrt((1 / (first - begin) + 1 / (end - first)) / len(values))
    margin = float(stdtrit(spread.freedom, 0.5 + CONFIDENCE / 2)) * error
    return size, (size - margin, size + margin)
