"""Where the level of a figure changes along a series of versions measured in rounds.

The figure is a table of logs, shape (rounds, versions): a round holds one trial of every version, run close together,
so that what drifts with time is the same for all of a round and goes away with the round's mean. What rises or falls
from version to version is looked for first (`ramps`). How many levels there are beside that is decided by tests
(`segments`); where they begin, by `naming`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import stdtr, stdtrit

from harness.judge.comparison.round_effects import Spread, laid_out, spread_within, together
from harness.judge.history.changepoints.distinct_levels import Laid
from harness.judge.history.changepoints.posterior import ChangepointPlace, place_changes
from harness.judge.history.changepoints.ramps import Ramp, ramps_of
from harness.judge.history.changepoints.segment_search import DISTINCT_SHARE, FEWEST_VERSIONS, Search, levels_of
from harness.judge.intervals import CONFIDENCE
from harness.model import Floats, Interval

NEAR_EDGE = 4
"""So many versions tell the level at the edge of a ramp."""


@dataclass(frozen=True, kw_only=True)
class Changepoint:
    """A change of level: `first` is the likeliest first version of the new level.

    `before` and `after` enclose it: neighbours if the version can be named, else further apart. `size` and `interval`
    are logs of the ratio between the two levels, which are those of the versions in `stretch`. `drift`: the level
    changes from version to version, from `before` to `after`, which are the first and the last of `stretch`.
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

    Between two of them is a shift. One that is a drift has its bound halfway, and no piece's level counts its versions.
    """

    bounds: tuple[int, ...]
    means: tuple[float, ...]
    shifts: tuple[Changepoint, ...]


def find_levels(table: Floats, *, least: float, alpha: float, seed: int, noise: Spread | None = None) -> Levels:
    """The levels of `table`, shape (rounds, versions), two of each at least. Neighbours differ by `least` (a log).

    `alpha` is the chance of a change where there is none. `noise`: what equal images were seen to differ by beside it;
    a table of few versions says little about that itself. Raises ValueError if there is nothing to tell noise by.
    """
    values, raw = laid_out(table)
    spread = spread_within(values)
    if spread is None:
        raise ValueError(f"{len(table)} x {table.shape[1]} launches tell no noise: two rounds of two versions would")
    spread = spread_beside(spread, noise, versions=table.shape[1])
    return levels_of_laid(table, Laid(values=values, raw=raw, spread=spread), least=least, alpha=alpha, seed=seed)


def spread_beside(spread: Spread, noise: Spread | None, *, versions: int) -> Spread:
    """The noise of a launch, of a table with so many versions."""
    return (together(spread, noise) or spread) if versions < FEWEST_VERSIONS else spread


def levels_of_laid(table: Floats, laid: Laid, *, least: float, alpha: float, seed: int) -> Levels:
    """The same of a table that is laid out already, with its noise."""
    ramps = ramps_of(laid, least=least, alpha=alpha * DISTINCT_SHARE)
    finder = _Finder(table=table, laid=laid, least=least, rng=np.random.default_rng(seed))
    outside = itertools.pairwise((0, *(edge for ramp in ramps for edge in (ramp.begin, ramp.end)), laid.versions))
    sections = [section for number, section in enumerate(outside) if number % 2 == 0]
    levels = [finder.levels(begin, end, alpha=alpha / len(sections)) for begin, end in sections]
    return _joined(ramps, levels, _Jumps(laid=laid, least=least, alpha=alpha))


@dataclass(frozen=True, kw_only=True)
class _Finder:
    table: Floats
    laid: Laid
    least: float
    rng: np.random.Generator

    def levels(self, begin: int, end: int, *, alpha: float) -> Levels | None:
        """Those of the versions [begin, end), by their places in the whole table; None if there is no version."""
        if begin == end:
            return None
        laid = self.laid.part(begin, end)
        search = Search(table=self.table[:, begin:end], laid=laid, least=self.least, rng=self.rng)
        kept = search.prune(search.found(alpha=alpha), alpha=alpha)
        means, spread = laid.values.mean(axis=0), laid.spread
        places = place_changes(means, rounds=laid.rounds, spread=laid.naming_spread(), near=list(kept))
        bounds = (0, *(place.first for place in places), laid.versions)
        shifts = _shifts(laid.values, bounds, places, list(kept.values()), spread=spread)
        return Levels(
            bounds=tuple(begin + bound for bound in bounds),
            means=levels_of(means, bounds),
            shifts=tuple(_moved(shift, begin) for shift in shifts),
        )


def _joined(ramps: Sequence[Ramp], sections: Sequence[Levels | None], jumps: _Jumps) -> Levels:
    """The levels of the sections with the ramps between them. Where a ramp begins or ends far from the level beside it,
    its own is a level, too; so it is where there is none.
    """
    bounds: list[int] = [0]
    means: list[float] = []
    shifts: list[Changepoint] = []
    for ramp, section in zip([None, *ramps], sections, strict=True):
        if ramp is not None:
            jump = jumps.between(means[-1], ramp.first, place=ramp.begin, beside=shifts) if means else None
            if jump is not None:
                bounds.append(ramp.begin)
                shifts.append(jump)
            if jump is not None or not means:
                means.append(ramp.first)
            bounds.append(ramp.middle)
            shifts.append(_drift(ramp))
            level = section.means[0] if section else None
            after = None if level is None else jumps.between(ramp.last, level, place=ramp.end, beside=shifts)
            if after is not None:
                bounds.append(ramp.end)
                shifts.append(_before_the_next(after, section))
            if after is not None or section is None:
                means.append(ramp.last)
        if section is not None:
            bounds += section.bounds[1:-1]
            means += section.means
            shifts += section.shifts
    return Levels(bounds=(*bounds, jumps.laid.versions), means=tuple(means), shifts=tuple(shifts))


def _before_the_next(jump: Changepoint, section: Levels | None) -> Changepoint:
    """A jump, so that it does not reach the first change of the section that it leads to."""
    if section is None or not section.shifts:
        return jump
    return replace(jump, after=min(jump.after, section.shifts[0].before))


@dataclass(frozen=True, kw_only=True)
class _Jumps:
    """Of the level where a ramp begins or ends; `alpha` as for all changes."""

    laid: Laid
    least: float
    alpha: float

    def between(self, old: float, new: float, *, place: int, beside: Sequence[Changepoint]) -> Changepoint | None:
        """The jump from one level to another at a ramp's edge `place`, whose exact version is not sure; or None.

        `beside` are the changes before it, which it does not reach.
        """
        laid, size = self.laid, new - old
        begin, end = max(0, place - NEAR_EDGE), min(laid.versions, place + NEAR_EDGE)
        launches = laid.rounds * min(place - begin, end - place)
        error = laid.spread.deviation * math.sqrt(5 / launches)  # of the end of a line by so many and the level beside
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


def _moved(shift: Changepoint, by: int) -> Changepoint:
    begin, end = shift.stretch
    return replace(
        shift, first=shift.first + by, stretch=(begin + by, end + by), before=shift.before + by, after=shift.after + by
    )


def _shifts(
    values: Floats,
    bounds: Sequence[int],
    places: Sequence[ChangepointPlace],
    p_values: Sequence[float],
    *,
    spread: Spread,
) -> list[Changepoint]:
    shifts = []
    for number, (place, p) in enumerate(zip(places, p_values, strict=True), start=1):
        begin, first, end = bounds[number - 1 : number + 2]
        size, interval = _effect(values, (begin, first, end), spread=spread)
        shifts.append(
            Changepoint(
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
