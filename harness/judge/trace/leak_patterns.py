"""Tests one series for the five patterns of a leak.

The early window is the second quarter of the rows, the late one the second half. The patterns are growth at one rate
over both; growth that began late and has been steady since; growth that a warm-up covered at first; a rising floor
under saw-teeth; and losses that are rare, large and evenly spread. Random walks, buffers that fill, and growth that
slows down by a law match none of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
from scipy.special import stdtrit

from harness.judge.trace.jumps import Losses, find_losses
from harness.judge.trace.trends import (
    BLOCKS,
    FLOOR,
    KEEPS,
    START,
    Trend,
    Windows,
    block_levels,
    fit_trend,
    highest_walk,
)
from harness.model import Floats, Interval
from harness.reasons import GrowthReason

LARGEST_SHARE = 0.34
"""Maximum share of the late rise that one step may make: more is a jump, not a leak."""
LARGEST_SHARE_LATE = 0.20
"""The same for growth that began late, about which less is known."""
LARGEST_SHARE_TEETH = 0.5
"""The same for the floor under saw-teeth."""
KEEPS_LATE = 0.8
"""Minimum ratio of the rates of a late leak in the last and in the third quarter."""
ALPHA_WALK = 0.0025
"""Significance level against a random walk without drift. Growth must be clear even if the floors are a random walk,
because the AR(1) coefficient is biased in short series.
"""
CLEAR_OVER_ALL = 6.0
"""Minimum drift over all the rows, in standard errors, if the early window alone does not grow; 1 in 60,000 random
walks exceeds it.
"""


@dataclass(frozen=True, kw_only=True)
class LeakRate:
    """The rate of a leak in units per step, its confidence interval, and the pattern as text."""

    rate: float
    interval: Interval
    words: str


@dataclass(frozen=True, kw_only=True)
class SampledSeries:
    """One series with the quantities that the patterns test, each computed on first use.

    `values` has shape (n,), n >= 64, evenly spaced; `quantum` is the smallest amount by which it often changes,
    `grain` the smallest amount by which it can change, and `limit` the least bad growth per step.
    """

    values: Floats
    steps_per_row: float
    limit: float
    alpha: float
    quantum: float
    grain: float

    @cached_property
    def windows(self) -> Windows:
        return Windows(values=self.values, steps_per_row=self.steps_per_row, alpha=self.alpha, quantum=self.quantum)

    @cached_property
    def floor(self) -> Floor | None:
        """Return the floor under saw-teeth; None if there are none."""
        return teeth_floor(self.values[int(START * len(self.values)) :])

    @cached_property
    def teeth(self) -> Trend | None:
        """Return the trend of the floor under saw-teeth; None if there are too few of them."""
        floor = self.floor
        if floor is None or floor.troughs < FEWEST_TEETH:
            return None
        return fit_trend(floor.levels, steps_per_block=floor.rows * self.steps_per_row, alpha=self.alpha)

    @property
    def highest_floor(self) -> float:
        """Return the upper bound of the rate of the floor to which memory returns; infinite if there is none."""
        floor = self.floor or wave_floor(self.values[int(START * len(self.values)) :])
        if floor is None:
            return math.inf
        walk = highest_walk(floor.levels, steps_per_block=floor.rows * self.steps_per_row, alpha=self.alpha)
        return walk if self.teeth is None else min(walk, self.teeth.high)

    @cached_property
    def losses(self) -> Losses:
        return find_losses(self.values, grain=self.grain)

    def leak(self) -> LeakRate | None:
        """Return the rate of the leak by the first pattern that matches; None if none does."""
        if self.unmet is None:
            return self._pace(self.windows.later, GrowthReason.STEADY())
        if self._late():
            return self._pace(self.windows.last, GrowthReason.BEGAN_LATE())
        if self._settled():
            return self._pace(self.windows.last, GrowthReason.COVERED_BY_WARM_UP())
        if self.teeth is not None and self._rising_teeth(self.teeth):
            return _pace(self.teeth, GrowthReason.RISING_FLOOR(), error=self.teeth.error, alpha=self.alpha)
        if self._steady_losses():
            rate, margin = self.losses.rate / self.steps_per_row, self.losses.margin(self.alpha) / self.steps_per_row
            words = GrowthReason.STEADY_JUMPS(jumps=len(self.losses.sizes))
            return LeakRate(rate=rate, interval=(max(0.0, rate - margin), rate + margin), words=words)
        return None

    @cached_property
    def unmet(self) -> GrowthReason | None:
        """Return the first unmet condition of a steady leak; None if all are met."""
        later, earlier = self.windows.later, self.windows.earlier
        conditions: tuple[tuple[Callable[[], bool], GrowthReason], ...] = (
            (lambda: later.low > 0, GrowthReason.NO_STEADY_GROWTH),
            (lambda: later.rate >= self.limit, GrowthReason.BELOW_LIMIT),
            (lambda: not self.windows.fell, GrowthReason.FELL_BEFORE),
            (lambda: earlier.low > 0 or self._clear_over_all, GrowthReason.NOT_THROUGHOUT),
            (
                lambda: self.windows.keeps_pace and not self.losses.become_rarer(since=0.25),
                GrowthReason.SLOWING_DOWN,
            ),
            (lambda: later.rise > 2 * self.quantum, GrowthReason.FEW_ALLOCATIONS),
            (lambda: later.largest_step <= LARGEST_SHARE * later.rise, GrowthReason.ONE_JUMP),
            (lambda: _no_walk(later), GrowthReason.RANDOM_WALK),
        )
        return next((reason for holds, reason in conditions if not holds()), None)

    @property
    def detectable(self) -> float:
        """Return the minimum detectable leak rate at a power of 50 %: every second trace with this noise would show it,
        and nearly all would show twice the rate. If memory rises by distinct jumps, their number decides instead.
        """
        earlier, later = self.windows.earlier, self.windows.later
        walk = _walk_quantile(later) * later.walk_error
        smallest = 2 * self.quantum / later.span
        line = max(smallest, walk, later.rate - later.low, earlier.rate - earlier.low)
        return max(self.limit, min(line, self.losses.detectable / self.steps_per_row))

    @property
    def _clear_over_all(self) -> bool:
        """Return whether all the rows together grow more than a random walk would, although the early window is too
        short for its noise.
        """
        whole = self.windows.between(START, 1.0)
        return self.windows.earlier.rate > 0 and whole.low > 0 and whole.drift >= CLEAR_OVER_ALL

    def _late(self) -> bool:
        """Return whether a leak began after the early window: the late one grows faster, and steadily in both of its
        halves.
        """
        seen = self.windows
        return (
            self._steady_in_later(LARGEST_SHARE_LATE)
            and seen.earlier.rate <= seen.later.rate
            and seen.last.rate >= KEEPS_LATE * seen.third.rate
        )

    def _settled(self) -> bool:
        """Return whether the late window shows a leak that a warm-up covered in the early one."""
        return self._steady_in_later(LARGEST_SHARE) and self.windows.settled and not self.losses.become_rarer(since=0.5)

    def _steady_in_later(self, largest_share: float) -> bool:
        seen, later = self.windows, self.windows.later
        return (
            later.low > 0
            and _no_walk(later)
            and later.rise > 2 * self.quantum
            and min(seen.third.low, seen.last.low) > 0
            and seen.last.rate >= self.limit
            and later.largest_step <= largest_share * later.rise
            and all(half.largest_step <= LARGEST_SHARE * half.rise for half in (seen.third, seen.last))
            and not seen.fell
        )

    def _rising_teeth(self, floor: Trend) -> bool:
        """Return whether the floor under saw-teeth rises steadily and keeps its rate in the second half."""
        return (
            floor.low > 0
            and floor.rate >= self.limit
            and floor.rise > 2 * self.quantum
            and _no_walk(floor)
            and floor.largest_step <= LARGEST_SHARE_TEETH * floor.rise
            and floor.second_rise >= KEEPS * floor.first_rise
        )

    def _steady_losses(self) -> bool:
        """Return whether losses that are rare, large and evenly spread make the series grow."""
        return self.losses.steady and self.losses.rate / self.steps_per_row >= self.limit

    def _pace(self, trend: Trend, words: str) -> LeakRate:
        return _pace(trend, words, error=self.windows.error(trend), alpha=self.alpha)


def _pace(trend: Trend, words: str, *, error: float, alpha: float) -> LeakRate:
    """Return a trend's rate, with an interval that, unlike the trend's bounds, allows for a random walk of losses."""
    margin = -float(stdtrit(trend.count - 3, alpha)) * error
    low, high = min(trend.low, max(0.0, trend.rate - margin)), max(trend.high, trend.rate + margin)
    return LeakRate(rate=trend.rate, interval=(low, high), words=words)


def _no_walk(trend: Trend) -> bool:
    """Return whether a random walk with steps of this size rarely rises as much."""
    return trend.drift >= _walk_quantile(trend)


def _walk_quantile(trend: Trend) -> float:
    return -float(stdtrit(trend.count - 2, ALPHA_WALK))


# ---------------------------------------------------------------- floors under saw-teeth and waves
#
# Memory that is never freed shows only in the troughs. If teeth are wider than the blocks of a trend, the block levels
# follow the teeth, but the troughs still follow the floor.


FEWEST = 3
"""Minimum number of troughs for an upper bound of a leak's rate."""
FEWEST_TEETH = 5
"""Minimum number of troughs that prove a leak."""
DEEP = 0.5
"""Minimum depth of a fall, as a share of the deepest fall: collections of the young generation are shallower."""
PIECES = 64
"""Number of blocks in which waves are searched for."""
RECENT = 0.75
"""Share of the rows after which the last trough must lie, because it cannot show a leak that began later."""


@dataclass(frozen=True, kw_only=True)
class Floor:
    """`levels` of the floor, shape (n,), at positions `rows` apart, computed from a number of `troughs`."""

    levels: Floats
    rows: float
    troughs: int


def teeth_floor(values: Floats) -> Floor | None:
    """Return the floor under saw-teeth; None if there are none. Unlike a random walk, saw-teeth fall within one row and
    never rise as fast. The trough of a tooth is its lowest row.
    """
    changes = np.diff(values)
    depth = -float(changes.min(initial=0.0)) * DEEP
    if depth <= 0 or float(changes.max()) >= depth:
        return None
    falls = np.flatnonzero(changes <= -depth) + 1
    # Falls without a climb as high between them are one fall over several rows: the end of a program is no saw-tooth.
    climbs = np.maximum.reduceat(values, falls) - np.minimum.reduceat(values, falls)
    teeth = falls[np.append(climbs[:-1] >= depth, True)]
    return _floor(teeth, np.minimum.reduceat(values, teeth), rows=len(values))


def wave_floor(values: Floats) -> Floor | None:
    """Return the floor under waves; None if there are fewer than FEWEST. The trough of a wave is the lowest block of a
    stretch below mid-height that the series both enters and leaves.
    """
    if len(values) < PIECES:
        return None
    floors = block_levels(values, share=FLOOR, blocks=PIECES)
    below = floors < (float(floors.min()) + float(floors.max())) / 2
    edges = np.flatnonzero(np.diff(below)) + 1
    begins = edges[below[edges]]
    ends = edges[~below[edges]]
    pairs = [(begin, int(ends[ends > begin][0])) for begin in begins if (ends > begin).any()]
    places = np.array([begin + int(floors[begin:end].argmin()) for begin, end in pairs], dtype=np.intp)
    return _floor(places * (len(values) // PIECES), floors[places], rows=len(values))


def _floor(places: npt.NDArray[np.intp], troughs: Floats, *, rows: int) -> Floor | None:
    """Interpolate the floor between the troughs, at as many evenly spaced positions as troughs, but at most BLOCKS.
    Return None if the troughs are too few or none is recent.
    """
    if len(places) < FEWEST or places[-1] < RECENT * rows:
        return None
    even = np.linspace(places[0], places[-1], min(len(places), BLOCKS))
    return Floor(levels=np.interp(even, places, troughs), rows=float(even[1] - even[0]), troughs=len(places))
