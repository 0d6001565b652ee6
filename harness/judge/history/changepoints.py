"""Finds the versions at which the level of a figure changes: the one rule for every history of figures.

The figure is a table of logs, shape (rounds, versions). A round holds one trial of every version, run close together,
so that drift over time is the same for the whole round and is removed with the round's mean.

1. An exact search splits the versions into the likeliest levels: it minimises the sum of squares plus a penalty for
   each level (optimal partitioning; Jackson and others, 2005). Unlike successive splits, it does not miss levels that
   come and go, which hide each other from any single split.
2. Levels that rise one after the other, and that a ramp fits better, are one ramp: no version is its changepoint. Ramps
   are subtracted, and the search is repeated on the rest.
3. Levels that a test against the pooled noise cannot distinguish are merged, the least distinct first.
4. The posterior probability (`place_change`) decides which versions may be the first of each level.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
from scipy.special import chdtri, fdtrc, ndtri, stdtr, stdtrit

from harness.judge.comparison.noise import (
    NEGLIGIBLE,
    Bools,
    cautious,
    interval_of,
    pooled_spread,
    spread_within,
    without_rounds,
)
from harness.model import Floats, Interval, Spread

FEW_VERSIONS = 4
"""Fewest versions that show their noise well enough themselves."""
WOBBLE = 0.05
"""Least standard deviation of a version's mean, as a share of the least change that counts: on a quiet host, versions
that differ by less are alike for the search."""
NOISIER = 0.02
"""Significance level at which the noise of some versions counts as higher than that of the others. From four rounds on,
the farthest launch of each version does not count in this test: it may be an outlier."""
MAYBE_NOISIER = 0.5
"""Significance level in place of `NOISIER` while another round can be launched, as few launches seldom show a noise of
their own. All launches count in this test: another round tells whether one was an outlier."""
NEAR = 100
"""Largest distance, in versions, of the place of a change from the first estimate of it."""


@dataclass(frozen=True, kw_only=True)
class Changepoint:
    """A change of level: `first` is the likeliest first version of the new level.

    `before` and `after` enclose it: they are neighbours if the version can be named, and further apart otherwise.
    `size` and `interval` are logs of the ratio between the two levels, which are those of the versions in `stretch`.
    With `drift`, the level changes from version to version, from `before` to `after`: the first and last of `stretch`.
    """

    first: int
    stretch: tuple[int, int]
    before: int
    after: int
    size: float
    interval: Interval
    p: float
    drift: bool = False


@dataclass(frozen=True, kw_only=True)
class Levels:
    """The pieces of a series: `height` is the first level, in logs, and `shifts` are the changes between pieces, oldest
    first. The first version after a drift is in its middle; its versions belong to no level.
    """

    height: float = 0.0
    shifts: tuple[Changepoint, ...]

    @property
    def means(self) -> tuple[float, ...]:
        """Return the level of each piece."""
        return tuple(itertools.accumulate((shift.size for shift in self.shifts), initial=self.height))

    def pieces(self, versions: int) -> list[range]:
        """Return the versions of each piece."""
        edges = [0, *(shift.first for shift in self.shifts), versions]
        return [range(begin, end) for begin, end in itertools.pairwise(edges)]

    def mean_at(self, place: int) -> float:
        """Return the level of a version."""
        return self.means[sum(shift.first <= place for shift in self.shifts)]


@dataclass(frozen=True, kw_only=True)
class Laid:
    """A table without round effects and gaps, shape (rounds, versions): `values` with outliers winsorized, `raw` as
    measured. `known`: which figures were measured. `doubted`: another round can be launched, so that versions of a
    level may count as noisier than the others at MAYBE_NOISIER."""

    values: Floats
    raw: Floats
    known: Bools
    spread: Spread
    doubted: bool = False

    @property
    def rounds(self) -> int:
        """Return how many figures the usual version has."""
        return int(np.median(self.known.sum(axis=0)))

    @cached_property
    def covariance(self) -> Floats:
        """Return the covariance of the versions' levels around their mean, in variances of a launch, shape (versions,
        versions), by least squares: fewer figures, and rounds that hardly connect versions, make it larger."""
        known = self.known.astype(np.float64)
        equations = np.diag(known.sum(axis=0)) - known.T @ (known / known.sum(axis=1, keepdims=True))
        return np.asarray(np.linalg.inv(equations + 1 / self.versions) - 1 / self.versions)

    @cached_property
    def shares(self) -> Floats:
        """Return the variance of the noise in the level of each version, in variances of a launch."""
        if self.known.all():
            return np.full(self.versions, 1 / self.rounds)
        return np.asarray(np.diag(self.covariance) * self.versions / (self.versions - 1))

    def error(self, one: npt.NDArray[np.intp], other: npt.NDArray[np.intp]) -> float:
        """Return the standard error of the difference between the mean levels of two groups of versions."""
        if self.known.all():
            return self.spread.deviation * math.sqrt((1 / len(one) + 1 / len(other)) / self.rounds)
        contrast = np.zeros(self.versions)
        contrast[one], contrast[other] = 1 / len(one), -1 / len(other)
        return self.spread.deviation * math.sqrt(float(contrast @ self.covariance @ contrast))

    @property
    def versions(self) -> int:
        return int(self.values.shape[1])

    def likeliest_bounds(self, least: float) -> list[int]:
        """Return the first version of each likely level but the first."""
        penalty = usual_penalty(self.versions)
        return likeliest_bounds(self.values.mean(axis=0), variance=self.variance(least), penalty=penalty)

    def variance(self, least: float) -> float:
        """Return the variance of a version's mean: at least that of differences far below `least` (WOBBLE)."""
        return float(max(self.spread.deviation**2 / self.rounds, (WOBBLE * least) ** 2))


def lay_out(table: Floats, noise: Spread | None = None) -> Laid:
    """Return a table, shape (rounds, versions), at least two of each, with the noise of a launch.

    If there are few versions, their noise is pooled with `noise`, the A/A noise of the lane. If that is unknown, the
    spread between a version's launches may tell more, as it has more degrees of freedom; it includes the effects of the
    rounds.
    """
    known, (values, raw) = np.isfinite(table), without_rounds(table)
    spread = spread_within(values, known)
    versions = table.shape[1]
    if versions < FEW_VERSIONS and noise is not None:
        spread = pooled_spread([spread, noise])
    elif versions < FEW_VERSIONS:
        deviation = max(math.sqrt(float(np.nanvar(table, axis=0, ddof=1).mean())), NEGLIGIBLE)
        plain = Spread(deviation=deviation, freedom=int(known.sum()) - versions)
        spread = min(spread, plain, key=lambda each: each.deviation * float(stdtrit(each.freedom, 0.999)))
    return Laid(values=values, raw=raw, known=known, spread=spread)


def find_levels(table: Laid, *, least: float, alpha: float) -> Levels:
    """Return the levels of a table. Neighbours are distinct, but may differ by less than `least`, the least change that
    counts, a log. `alpha` is the probability of a false change."""
    ramps = _ramps_of(table, least=least, alpha=alpha / 2)
    shape = sum((shape for _, shape in ramps), np.zeros(table.versions))
    laid = replace(table, values=table.values - shape, raw=table.raw - shape)
    shifts = [ramp for ramp, _ in ramps]
    stretches = [ramp.stretch for ramp in shifts]
    distinct = {
        bound: p
        for bound, p in _distinct(laid, least=least, alpha=alpha).items()
        if not any(begin < bound < end for begin, end in stretches)
    }
    means = laid.values.mean(axis=0)
    edges = (0, *distinct, laid.versions)
    heights = [float(means[begin:end].mean()) for begin, end in itertools.pairwise(edges)]
    for number, first in enumerate(distinct):
        low, high = edges[number], edges[number + 2]
        nearest = max([low + 1, first - NEAR, *(end for _, end in stretches if end <= first)])
        farthest = min([high - 1, first + NEAR, *(begin for begin, _ in stretches if begin >= first)])
        likeliest, earliest, latest = place_change(
            means[low:high],
            range(nearest - low, farthest - low + 1),
            rounds=int(laid.known[:, low:high].sum(axis=0).min()),
            spread=cautious(laid.spread, laid.rounds) if laid.rounds > 1 else laid.spread,
        )
        size = heights[number + 1] - heights[number]
        error = laid.error(np.arange(low, first), np.arange(first, high))
        shifts.append(
            Changepoint(
                first=low + likeliest,
                stretch=(low, high),
                before=low + earliest - 1,
                after=low + latest,
                size=size,
                interval=interval_of(laid.spread, size, error),
                p=distinct[first],
            )
        )
    return _in_turn(shifts, height=heights[0])


def exact_levels(row: Floats) -> Levels:
    """Return the levels of figures that are the same in all launches of a version, shape (versions,): each difference
    is real, and each level has a first version.
    """
    edges = [0, *(np.flatnonzero(np.diff(row)) + 1).tolist(), len(row)]
    shifts = [
        Changepoint(
            first=first, stretch=(begin, end), before=first - 1, after=first, size=size, interval=(size, size), p=0.0
        )
        for begin, first, end in zip(edges, edges[1:], edges[2:], strict=False)
        for size in [float(row[first] - row[begin])]
    ]
    return _in_turn(shifts, height=float(row[0]))


def _in_turn(shifts: list[Changepoint], *, height: float) -> Levels:
    """Return the levels between the shifts. The ranges of two neighbouring shifts may overlap, but their ends and first
    versions are in order."""
    shifts.sort(key=lambda shift: shift.first)
    for number in range(1, len(shifts)):
        before = max(shifts[number].before, shifts[number - 1].before + 1)
        shifts[number] = replace(shifts[number], before=before)
    later = first = math.inf
    for number, shift in reversed(list(enumerate(shifts))):
        later = max(min(shift.after, later - 1), shift.before + 1)
        first = max(min(shift.first, later, first - 1), shift.before + 1)
        shifts[number] = replace(shift, first=int(first), after=int(later))
    return Levels(height=height, shifts=tuple(shifts))


# ---------------------------------------------------------------- the likeliest pieces


def usual_penalty(versions: int) -> float:
    """Return the penalty of one more level, which seldom gains as much by chance. The tests are stricter."""
    return 4 + 2 * math.log(versions)


def likeliest_bounds(means: Floats, *, variance: float, penalty: float) -> list[int]:
    """Return the first version of each level but the first: the exact minimum of the sum of squares around the levels,
    in units of `variance`, plus `penalty` for each level.
    """
    centred = means - means.mean()
    sums, squares = (np.concatenate([[0.0], np.cumsum(column)]) for column in (centred, centred**2))
    costs, starts = np.zeros(len(means) + 1), [0]
    for end in range(1, len(means) + 1):
        rest = squares[end] - squares[:end] - (sums[end] - sums[:end]) ** 2 / (end - np.arange(end))
        costs_of = costs[:end] + np.maximum(rest, 0) / variance + penalty
        starts.append(int(costs_of.argmin()))
        costs[end] = costs_of[starts[-1]]
    bounds: list[int] = []
    end = len(means)
    while starts[end]:
        end = starts[end]
        bounds.append(end)
    return bounds[::-1]


# ---------------------------------------------------------------- levels that a test can distinguish


def _distinct(laid: Laid, *, least: float, alpha: float) -> dict[int, float]:
    """Return the p-value of each new level by its first version; `alpha` is the probability of a false level.

    Levels may differ by less than `least` (a log): they are kept apart here, so that they do not blur larger changes
    next to them.
    """
    bounds = laid.likeliest_bounds(least)
    while bounds:
        found = [_tested(laid, bounds, number, alpha=alpha) for number in range(len(bounds))]
        worst = max(range(len(bounds)), key=found.__getitem__)
        if found[worst][0] < alpha:
            return {bound: p for bound, (p, _) in zip(bounds, found, strict=True)}
        del bounds[worst]
    return {}


def _tested(laid: Laid, bounds: Sequence[int], number: int, *, alpha: float) -> tuple[float, float]:
    """Test the two levels on both sides of a bound, and the shorter level, if it is above or below both of its
    neighbours, also against both together, which shows more. The longer level is not tested in that way: it may differ
    only from its other neighbour. Return the p-value and the size times -1; the largest pair is the least distinct.
    """
    edges = (0, *bounds, laid.versions)
    levels = [float(laid.values[:, begin:end].mean()) for begin, end in itertools.pairwise(edges)]
    begin, first, end = edges[number : number + 3]
    p = _p(laid, [(begin, first)], (first, end), alone=len(bounds) == 1, alpha=alpha)
    shorter = [number] * (first - begin <= end - first) + [number + 1] * (end - first <= first - begin)
    for place in shorter:
        if 0 < place < len(levels) - 1:
            before, own, after = levels[place - 1 : place + 2]
            if (own - before) * (after - own) < 0:
                others = [(edges[place - 1], edges[place]), (edges[place + 1], edges[place + 2])]
                p = min(p, _p(laid, others, (edges[place], edges[place + 1]), alpha=alpha))
    return p, -abs(levels[number + 1] - levels[number])


def _p(
    laid: Laid, others: Sequence[tuple[int, int]], inside: tuple[int, int], *, alpha: float, alone: bool = False
) -> float:
    """Return the p-value of the versions `inside` against the versions of `others`."""
    rest, level = np.concatenate([np.arange(*other) for other in others]), np.arange(*inside)
    smaller = min(len(rest), len(level))
    tried = places_tried(laid.versions, smaller, alone=alone)
    both = laid.known[:, rest].any(axis=1) & laid.known[:, level].any(axis=1)  # rounds with figures of both sides
    test = Test(spread=laid.spread, rounds=int(both.sum()), smaller=smaller, tried=tried, alpha=alpha)
    # Winsorizing moves outliers towards other launches of their version; for few versions, raw values are tested.
    old = (laid.raw if test.by_worst and len(rest) == smaller else laid.values)[both][:, rest]
    new = (laid.raw if test.by_worst and len(level) == smaller else laid.values)[both][:, level]
    if laid.rounds > 1:
        if test.rounds < 2:
            return 1.0
        error = laid.error(rest, level) * math.sqrt(test.rounds)
        p = test.p_value((new.mean(axis=1) - old.mean(axis=1)) / error)
        return max([p, *(_p_if_noisier(laid, rest, level, own, tried=tried) for own in (rest, level))])
    few, many = (old, new) if len(rest) == smaller else (new, old)
    error = laid.spread.deviation * math.sqrt(1 + smaller / many.size)
    return test.p_value((few - many.mean()).ravel() / error)


ROUNDS_FOR_OWN = 3
"""Fewest rounds that show the noise of one or two versions; more versions need one more."""


def own_noise(laid: Laid, own: npt.NDArray[np.intp]) -> tuple[Spread, Spread] | None:
    """Return the noise of the launches of the versions `own` and that of all others if the former is higher at the
    significance level NOISIER or MAYBE_NOISIER; else, or with fewer than two others, None. Only rounds with figures of
    all `own` count.
    """
    raw = laid.raw[laid.known[:, own].all(axis=1)]
    rounds, versions = raw.shape
    others = np.setdiff1d(np.arange(versions), own)
    if rounds < ROUNDS_FOR_OWN + (len(own) > 2) or len(others) < 2:
        return None
    share = 1 / len(others)  # of the others' noise: their mean takes it up, and adds it to the figures of `own`
    figures = raw - raw[:, others].mean(axis=1, keepdims=True)  # the rounds without the noise of `own`
    kept = rounds if laid.doubted else max(rounds - 1, ROUNDS_FOR_OWN)
    near = np.sort(np.abs(figures - np.median(figures, axis=0)), axis=0)[:kept]
    own_2, others_2 = (float((near[:, side] ** 2).mean()) for side in (own, others))
    ratio = own_2 / max(others_2 / (1 - share), NEGLIGIBLE**2)
    free, free_others = len(own) * (len(near) - 1), (len(others) - 1) * (len(near) - 1)
    if fdtrc(free, free_others, ratio / (1 + share)) > (MAYBE_NOISIER if laid.doubted else NOISIER):
        return None
    plain_2, plain_others_2 = (float(figures[:, side].var(axis=0, ddof=1).mean()) for side in (own, others))
    variance = max(plain_others_2 / (1 - share), NEGLIGIBLE**2)
    own_2 = max(min(ratio * variance, plain_2) - share * variance, variance)  # without what may be an outlier
    return Spread(deviation=math.sqrt(own_2), freedom=free), Spread(deviation=math.sqrt(variance), freedom=free_others)


def _p_if_noisier(
    laid: Laid, rest: npt.NDArray[np.intp], level: npt.NDArray[np.intp], own: npt.NDArray[np.intp], *, tried: float
) -> float:
    """Return the p-value of Welch's test of `level` against `rest` if the launches of the versions `own`, which are one
    of both, differ by more than those of all others; 0 if they do not.
    """
    noises = own_noise(laid, own)
    if noises is None:
        return 0.0
    launches = [int(laid.known[:, side].sum()) for side in (own, np.setdiff1d([*rest, *level], own))]
    parts = [noise.deviation**2 / number for noise, number in zip(noises, launches, strict=True)]
    freedom = sum(parts) ** 2 / sum(part**2 / noise.freedom for part, noise in zip(parts, noises, strict=True))
    difference = laid.raw[:, level].mean() - laid.raw[:, rest].mean()
    return min(1.0, 2 * tried * float(stdtr(freedom, -abs(difference) / math.sqrt(sum(parts)))))


def places_tried(versions: int, smaller: int, *, alone: bool = False) -> float:
    """Return the number of pairs of levels to correct for, the shorter of which has `smaller` versions.

    If the bound is the only one (`alone`), these are the versions - 1 splits of the series; otherwise, the number grows
    with the length, which keeps the sum over all lengths finite. Both cases share the probability of a false alarm.
    """
    return 2.0 * (versions - 1) * (1 if alone else smaller**3)


TAIL = 3.0
"""Degrees of freedom of the Student errors that are assumed where every round's difference is tested."""
TAIL_SCALE = 1.3
"""Ratio of the standard deviation of such errors, winsorized, to their scale: 1.37 by simulation, less a margin."""
FREEDOM_FOR_SCALE = 12
"""The scale factor is at most the degrees of freedom divided by this: few degrees of freedom estimate the scale poorly
(found by simulation, down to FEWEST_FREEDOM)."""
FEWEST_FREEDOM = 4


@dataclass(frozen=True, kw_only=True)
class Test:
    """A test of two neighbouring levels, the shorter of which has `smaller` versions, corrected for `tried` such pairs.

    With many launches, it is a t-test of the mean difference. With few launches, outliers may all be on one side, and a
    t-test that allows for that detects hardly anything. The round with the smallest difference then decides: all rounds
    must show more than heavy-tailed errors would. With a single round, each version counts as a round. `alpha` is the
    probability of a false alarm.
    """

    spread: Spread
    rounds: int
    smaller: int
    tried: float
    alpha: float

    @property
    def seen(self) -> int:
        """Return the number of times that the difference was measured."""
        return self.rounds if self.rounds > 1 else self.smaller

    @property
    def least(self) -> float:
        """Return the difference detected with a power of 50 %, in standard deviations of one measured difference."""
        return min(self._least_by_mean, self._least_by_worst)

    @property
    def by_worst(self) -> bool:
        """Return whether the round with the smallest difference decides."""
        return self._least_by_worst < self._least_by_mean

    def p_value(self, differences: Floats) -> float:
        """Return the p-value of the differences, shape (seen,), in standard deviations of one of them."""
        if self.by_worst:
            sign = 1 if differences.mean() > 0 else -1
            p = float(stdtr(TAIL, -self._scale * float((sign * differences).min()))) ** self.seen
        elif self._freedom < 1:
            return 1.0
        else:
            p = float(stdtr(self._freedom, -abs(float(differences.mean())) * math.sqrt(self.seen)))
        return min(1.0, 2 * self.tried * p)

    @property
    def _share(self) -> float:
        return min(0.5, self.alpha / (2 * self.tried))

    @property
    def _freedom(self) -> int:
        """Return the degrees of freedom, limited by the number of launches (found by simulation with Student errors of
        three degrees of freedom).
        """
        launches = self.rounds * self.smaller
        return max(cautious(self.spread, self.rounds).freedom, min(self.spread.freedom, (launches - 1) ** 2))

    @property
    def _scale(self) -> float:
        return min(TAIL_SCALE, self.spread.freedom / FREEDOM_FOR_SCALE)

    @property
    def _least_by_mean(self) -> float:
        if self._freedom < 1:
            return math.inf
        return -float(stdtrit(self._freedom, self._share)) / math.sqrt(self.seen)

    @property
    def _least_by_worst(self) -> float:
        if self.seen < 2 or self.spread.freedom < FEWEST_FREEDOM:
            return math.inf
        every = self._share ** (1 / self.seen)
        return -float(stdtrit(TAIL, every)) / self._scale + float(ndtri(0.5 ** (1 / self.seen)))


def least_found(spread: Spread, *, rounds: int, versions: int, alpha: float, lasting: int = 1) -> float:
    """Return the minimum detectable effect, a log, of a level that `lasting` versions have: the newest, or
    any single one.

    The power is 50 %, and 95 % for twice this effect. It does not fall as versions are added, because more of them are
    searched. `spread` is the noise of a launch, `alpha` as for `find_levels`.
    """
    tried = places_tried(versions, lasting, alone=True)
    test = Test(spread=spread, rounds=rounds, smaller=lasting, tried=tried, alpha=alpha)
    shared = 1 if rounds == 1 else lasting  # with a single round each version counts as one
    return spread.deviation * test.least * math.sqrt(versions / (versions - lasting) / shared)


# ---------------------------------------------------------------- ramps

FEWEST_ON_A_RAMP = 8
"""Fewest versions of a ramp; fewer versions that rise one after the other are reported as steps."""
ENDS = 40
"""Most places that are tried for each end of a ramp: more make a long series slow."""
MISFIT = 3.0
"""Largest mean square residual of a ramp, in variances of a version's mean: short but clear stairs leave more."""
MARGIN = 6.0
"""Penalty of a ramp beyond that of two levels, in twice the log likelihood; a smaller one turns steps into ramps."""


def _ramps_of(laid: Laid, *, least: float, alpha: float) -> list[tuple[Changepoint, Floats]]:
    """Return the ramps that change by at least `least` (a log), oldest first, each with its shape over the versions: 0
    before it and its size after it. `alpha` is the chance of a false one.

    A ramp is a stretch of levels, of which each is above (or each below) the one before, that fits better.
    """
    edges = [0, *laid.likeliest_bounds(least), laid.versions]
    means, variance = laid.values.mean(axis=0), laid.variance(least)
    levels = [float(means[begin:end].mean()) for begin, end in itertools.pairwise(edges)]
    ramps: list[tuple[Changepoint, Floats]] = []
    for begin in range(len(levels) - 2):
        for end in range(len(levels), begin + 2, -1):
            signs = np.sign(np.diff(levels[begin:end]))
            if abs(signs.sum()) < len(signs) or (ramps and edges[begin] < ramps[-1][0].stretch[1]):
                continue
            steps = np.repeat(levels[begin:end], np.diff(edges[begin : end + 1]))
            ramp = _ramp(laid, edges[begin], edges[end], steps=steps, count=end - begin, variance=variance)
            if ramp is not None and abs(ramp[0].size) >= least and ramp[0].p < alpha:
                ramps.append(ramp)
    return ramps


def _ramp(
    laid: Laid, start: int, stop: int, *, steps: Floats, count: int, variance: float
) -> tuple[Changepoint, Floats] | None:
    """Return the ramp, between two levels or none, that fits the versions [start, stop) best; None if the `count`
    levels with the heights `steps` fit as well.
    """
    means = laid.values[:, start:stop].mean(axis=0)
    penalty, last = usual_penalty(laid.versions), stop - start - 1
    ends = np.unique(np.linspace(0, last, ENDS + 1).round().astype(int))
    pairs = np.array([(a, b) for a, b in itertools.combinations(ends, 2) if b - a >= FEWEST_ON_A_RAMP - 1])
    if not len(pairs):
        return None
    first, end = pairs.T[:, :, None]
    shapes = np.clip((np.arange(last + 1) - first) / (end - first), 0, 1)
    centred = shapes - shapes.mean(axis=1, keepdims=True)
    products = centred @ means
    squares = (centred**2).sum(axis=1)
    rest = ((means - means.mean()) ** 2).sum() - products**2 / squares
    costs = rest / variance + penalty * (2 + (pairs[:, 0] > 0) + (pairs[:, 1] < last)) + MARGIN
    best = int(costs.argmin())
    of_steps = float(((means - steps) ** 2).sum()) / variance + penalty * count
    if costs[best] >= of_steps or rest[best] > MISFIT * variance * len(means):
        return None
    size, error = float(products[best] / squares[best]), max(laid.spread.deviation, NEGLIGIBLE)
    error /= math.sqrt(float(squares[best]) * laid.rounds)
    shape = np.zeros(laid.versions)
    shape[start:stop], shape[stop:] = size * shapes[best], size
    begin, until = (start + int(place) for place in pairs[best])
    ramp = Changepoint(
        first=(begin + until + 1) // 2,
        stretch=(begin, until + 1),
        before=begin,
        after=until,
        size=size,
        interval=interval_of(laid.spread, size, error),
        p=float(min(1.0, laid.versions**2 * float(stdtr(laid.spread.freedom, -abs(size) / error)))),
        drift=True,
    )
    return ramp, shape


# ---------------------------------------------------------------- which versions may be the first of a level
#
# The posterior covers every place of the change between the neighbouring changes. The levels and the noise are
# integrated out: places have a uniform prior, levels a flat prior over the observed range, and the noise is that of
# launches within their round and version (scaled inverse chi-squared).

NAMED = 0.97
"""Posterior probability from which a single version is named."""
HOLDS = 0.998
"""Posterior probability of the range of versions that is reported if no single version can be named."""
NOISES = 9
"""Number of quantiles that represent the distribution of the noise."""


def place_change(means: Floats, candidates: range, *, rounds: int, spread: Spread) -> tuple[int, int, int]:
    """Return the likeliest first version of the new level after the only change in `means` (the versions' means over
    `rounds`, logs), which is one of `candidates`, and the versions from and up to which it is with probability HOLDS:
    all are the same if the version can be named. `spread` is the noise of one launch.
    """
    places = np.array(candidates)
    chances = place_chances(means, places, rounds=rounds, spread=spread)
    first, (earliest, latest) = int(places[chances.argmax()]), named(chances)
    return first, min(int(places[earliest]), first), max(int(places[latest]), first)


def named(chances: Floats) -> tuple[int, int]:
    """Return the first and the last of the places among which something is, by the probability of each: a single one
    with NAMED, else the fewest in a row with HOLDS together, and of these the most probable."""
    best = int(chances.argmax())
    if chances[best] >= NAMED:
        return best, best
    sums = np.concatenate([[0.0], np.cumsum(chances)])
    held = sums[None, 1:] - sums[:-1, None]
    low, high = np.nonzero(np.triu(held >= min(HOLDS, held[0, -1])))
    shortest = int(np.lexsort((-held[low, high], high - low))[0])
    return int(low[shortest]), int(high[shortest])


def place_chances(means: Floats, places: npt.NDArray[np.intp], *, rounds: int, spread: Spread) -> Floats:
    """Return the probability that the change is at each of the places."""
    quantiles = chdtri(spread.freedom, (np.arange(NOISES) + 0.5) / NOISES)
    likely = []
    for variance in map(float, spread.deviation**2 * spread.freedom / quantiles / rounds):
        logs = level_evidence(means, np.array([0, *places, len(means)]), variance=variance)
        likely.append(logs[0, 1:-1] + logs[1:-1, -1])
    summed = np.logaddexp.reduce(likely)
    return np.asarray(np.exp(summed - np.logaddexp.reduce(summed)))


def level_evidence(means: Floats, edges: npt.NDArray[np.intp], *, variance: float) -> Floats:
    """Return the log evidence for one level from edge i up to edge j; minus infinity where j <= i."""
    sums = np.concatenate([[0.0], np.cumsum(means)])[edges]
    squares = np.concatenate([[0.0], np.cumsum(means**2)])[edges]
    count = edges[None, :] - edges[:, None]
    versions = np.maximum(count, 1)
    scatter = squares[None, :] - squares[:, None] - (sums[None, :] - sums[:, None]) ** 2 / versions
    evidence = -np.maximum(scatter, 0) / (2 * variance) - 0.5 * np.log(versions)
    evidence -= 0.5 * (versions - 1) * math.log(2 * math.pi * variance)
    return np.where(count > 0, evidence, -np.inf)
