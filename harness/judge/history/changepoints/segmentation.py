"""Segments a series that is measured in rounds: finds the versions at which the level of a figure changes.

The figure is a table of logs, shape (rounds, versions). A round holds one trial of every version, run close together,
so that drift over time is the same for the whole round and is removed with the round's mean. Ramps are found first
(`ramps`), then tests determine the number of levels outside them (`segment_search`), and a posterior distribution
locates where these levels begin (`posterior`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import stdtr, stdtrit

from harness.judge.comparison.round_effects import Spread, laid_out, pooled_spread, spread_within
from harness.judge.history.changepoints.counted_levels import counted_levels
from harness.judge.history.changepoints.distinct_levels import Laid
from harness.judge.history.changepoints.posterior import ChangepointPlace, place_changes
from harness.judge.history.changepoints.ramps import Ramp, ramps_of
from harness.judge.history.changepoints.segment_search import DISTINCT_SHARE, FEWEST_VERSIONS, Search, levels_of
from harness.judge.intervals import CONFIDENCE
from harness.model import Floats, Interval

NEAR_EDGE = 4
"""Number of versions that determine the level at the edge of a ramp."""


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
    """The pieces of a series: `bounds` are their first versions and the end, `means` their levels, in logs.

    `shifts` are the changes between pieces. The bound of a drift is in its middle; its versions belong to no level.
    """

    bounds: tuple[int, ...]
    means: tuple[float, ...]
    shifts: tuple[Changepoint, ...]


def find_levels(table: Floats, *, least: float, alpha: float, seed: int, noise: Spread | None = None) -> Levels:
    """Return the levels of `table`, shape (rounds, versions), at least two of each; neighbours differ by `least` (a
    log).

    `alpha` is the probability of a false change. `noise` is the A/A noise of the lane, which supplements the noise of a
    table with few versions. Raises ValueError if the table is too small to estimate noise.
    """
    values, raw = laid_out(table)
    spread = spread_within(values)
    if spread is None:
        raise ValueError(f"{len(table)} x {table.shape[1]} launches show no noise: at least 2 x 2 are needed")
    spread = spread_beside(spread, noise, versions=table.shape[1])
    return levels_of_laid(table, Laid(values=values, raw=raw, spread=spread), least=least, alpha=alpha, seed=seed)


def spread_beside(spread: Spread, noise: Spread | None, *, versions: int) -> Spread:
    """Return the noise of a launch: that of the table, pooled with the lane's if there are few versions."""
    return (pooled_spread(spread, noise) or spread) if versions < FEWEST_VERSIONS else spread


def levels_of_laid(table: Floats, laid: Laid, *, least: float, alpha: float, seed: int) -> Levels:
    """Return the levels of a table whose layout and noise are known."""
    ramps = ramps_of(laid, least=least, alpha=alpha * DISTINCT_SHARE)
    finder = _Finder(table=table, laid=laid, least=least, alpha=alpha, rng=np.random.default_rng(seed))
    outside = itertools.pairwise((0, *(edge for ramp in ramps for edge in (ramp.begin, ramp.end)), laid.versions))
    sections = list(outside)[::2]
    return _joined(ramps, [finder.levels(begin, end, alpha=alpha / len(sections)) for begin, end in sections], finder)


@dataclass(frozen=True, kw_only=True)
class _Finder:
    """Finds the levels between ramps, and the jumps at the edges of ramps; `alpha` is the chance of a false change."""

    table: Floats
    laid: Laid
    least: float
    alpha: float
    rng: np.random.Generator

    def levels(self, begin: int, end: int, *, alpha: float) -> Levels | None:
        """Return the levels of the versions [begin, end), by position in the whole table; None if there are none."""
        if begin == end:
            return None
        part = self.laid.part(begin, end)
        search = Search(table=self.table[:, begin:end], laid=part, least=self.least, rng=self.rng)
        distinct = search.prune(search.bounds(alpha=alpha), alpha=alpha)
        laid, counted = counted_levels(part, list(distinct), least=self.least)
        means = laid.values.mean(axis=0)
        places = place_changes(means, rounds=laid.rounds, spread=laid.naming_spread(), near=counted)
        bounds = (0, *(place.first for place in places), laid.versions)
        return Levels(
            bounds=tuple(begin + bound for bound in bounds),
            means=levels_of(means, bounds),
            shifts=tuple(
                _changepoint(laid, bounds[number : number + 3], place, p=distinct[bound], offset=begin)
                for number, (place, bound) in enumerate(zip(places, counted, strict=True))
            ),
        )

    def jump(self, old: float, new: float, *, place: int, beside: Sequence[Changepoint]) -> Changepoint | None:
        """Return the jump between two levels near the edge `place` of a ramp, where its exact version is uncertain;
        None if there is no jump. It does not overlap with `beside`, the changes before it.
        """
        laid, size = self.laid, new - old
        begin, end = max(0, place - NEAR_EDGE), min(laid.versions, place + NEAR_EDGE)
        launches = laid.rounds * min(place - begin, end - place)
        error = laid.spread.deviation * math.sqrt(5 / launches)  # of a line's end minus the adjacent level
        freedom = laid.spread.cautious(launches).freedom
        p = min(1.0, 2 * laid.versions * float(stdtr(freedom, -abs(size) / error))) if freedom else 1.0
        if abs(size) < self.least or p >= self.alpha:
            return None
        margin = float(stdtrit(freedom, 0.5 + CONFIDENCE / 2)) * error
        drifts = bool(beside) and beside[-1].drift and beside[-1].after == place - 1
        return Changepoint(
            first=place,
            stretch=(begin, end),
            before=place - 1 if drifts else max(place - 2, beside[-1].after if beside else 0),
            after=min(place + 1, laid.versions - 1) if drifts else place,
            size=size,
            interval=(size - margin, size + margin),
            p=p,
        )


def _joined(ramps: Sequence[Ramp], sections: Sequence[Levels | None], finder: _Finder) -> Levels:
    """Join the levels of the sections with the ramps between them. An end of a ramp is a separate level if it differs
    clearly from the adjacent level, or if there is none.
    """
    bounds: list[int] = [0]
    means: list[float] = []
    shifts: list[Changepoint] = []
    for ramp, section in zip([None, *ramps], sections, strict=True):
        if ramp is not None:
            jump = finder.jump(means[-1], ramp.first, place=ramp.begin, beside=shifts) if means else None
            if jump is not None:
                bounds.append(ramp.begin)
                shifts.append(jump)
            if jump is not None or not means:
                means.append(ramp.first)
            bounds.append(ramp.middle)
            shifts.append(_drift(ramp))
            level = section.means[0] if section else None
            after = None if level is None else finder.jump(ramp.last, level, place=ramp.end, beside=shifts)
            if after is not None:
                bounds.append(ramp.end)
                shifts.append(_before_the_next(after, section))
            if after is not None or section is None:
                means.append(ramp.last)
        if section is not None:
            bounds += section.bounds[1:-1]
            means += section.means
            shifts += section.shifts
    return Levels(bounds=(*bounds, finder.laid.versions), means=tuple(means), shifts=tuple(shifts))


def _before_the_next(jump: Changepoint, section: Levels | None) -> Changepoint:
    """Return the jump, limited so that it does not overlap with the first change of the next section."""
    if section is None or not section.shifts:
        return jump
    return replace(jump, after=min(jump.after, section.shifts[0].before))


def _drift(ramp: Ramp) -> Changepoint:
    return Changepoint(
        first=ramp.middle,
        stretch=(ramp.begin, ramp.end),
        before=ramp.begin,
        after=ramp.end - 1,
        size=ramp.last - ramp.first,
        interval=ramp.interval,
        p=ramp.p,
        drift=True,
    )


def _changepoint(laid: Laid, bounds: Sequence[int], place: ChangepointPlace, *, p: float, offset: int) -> Changepoint:
    """Return the change between two neighbouring levels, with the 95 % interval of its size. `bounds` are the first
    versions of both levels and the end; `offset` is the position of the first version of `laid` in the series.
    """
    begin, first, end = bounds
    size = float(laid.values[:, first:end].mean() - laid.values[:, begin:first].mean())
    error = laid.spread.deviation * math.sqrt((1 / (first - begin) + 1 / (end - first)) / laid.rounds)
    margin = float(stdtrit(laid.spread.freedom, 0.5 + CONFIDENCE / 2)) * error
    return Changepoint(
        first=offset + first,
        stretch=(offset + begin, offset + end),
        before=offset + place.low - 1,
        after=offset + place.high,
        size=size,
        interval=(size - margin, size + margin),
        p=p,
    )
