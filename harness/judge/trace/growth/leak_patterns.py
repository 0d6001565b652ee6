"""The five ways in which a leak shows in one series, each a test of its own.

Growth at one pace over A, the second quarter of the rows, and B, the second half; growth that began late and is steady
since; growth that a warm-up had covered; a floor under saw-teeth that rises; and losses that are rare, large and evenly
spread. None of them is met by memory that wanders about, fills up, or slows down by a law.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from scipy.special import stdtrit

from harness.judge.trace.growth.jumps import Losses, find_losses
from harness.judge.trace.growth.sawtooth import FEWEST_TEETH, Floor, teeth_floor, wave_floor
from harness.judge.trace.growth.trend_fit import Trend, fit_trend, highest_walk
from harness.judge.trace.growth.window_rates import KEEPS, START, Windows
from harness.model import Floats, Interval

LARGEST_SHARE = 0.34
"""Of the rise in B that one step may be: more is a jump, not a leak."""
LARGEST_SHARE_LATE = 0.20
"""The same when the growth began late: less time has shown that it is steady."""
LARGEST_SHARE_TEETH = 0.5
KEEPS_LATE = 0.8
"""Of its pace in the third quarter that a late leak has in the last."""
ALPHA_WALK = 0.0025
"""Of a walk's rising as much: growth must be clear even if the floors are a random walk, as the estimate of how far
they are one is biased in short series.
"""

CLEAR_OVER_ALL = 6.0
"""Standard errors of a walk by which all the rows grow, where A alone does not show it: of walks one in 60,000 does."""


@dataclass(frozen=True, kw_only=True)
class LeakRate:
    """How fast a leak grows, in units a step, and how that shows, in words."""

    rate: float
    interval: Interval
    words: str


@dataclass(frozen=True, kw_only=True)
class SampledSeries:
    """One series with all that its signs look at, each computed when it is first asked for.

    `values` has shape (n,), n >= 64, at even distances; `quantum` is the smallest amount in which it often changes,
    `grain` the smallest in which it can.
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
        """The floor under saw-teeth; None if there are none."""
        return teeth_floor(self.values[int(START * len(self.values)) :])

    @cached_property
    def teeth(self) -> Trend | None:
        """Its trend; None if it is read from too few teeth."""
        floor = self.floor
        if floor is None or floor.troughs < FEWEST_TEETH:
            return None
        return fit_trend(floor.levels, steps_per_block=floor.rows * self.steps_per_row, alpha=self.alpha)

    @property
    def highest_floor(self) -> float:
        """The upper bound of the pace at which a floor rises to which memory comes back; infinite if there is none."""
        floor = self.floor or wave_floor(self.values[int(START * len(self.values)) :])
        if floor is None:
            return math.inf
        walk = highest_walk(floor.levels, steps_per_block=floor.rows * self.steps_per_row, alpha=self.alpha)
        return walk if self.teeth is None else min(walk, self.teeth.high)

    @cached_property
    def losses(self) -> Losses:
        return find_losses(self.values, grain=self.grain)

    def leak(self) -> LeakRate | None:
        """How fast it leaks, by the first sign that is met; None if none is."""
        if self.unmet is None:
            return self._pace(self.windows.later, "at the same pace all the time")
        if self._late():
            return self._pace(self.windows.last, "at the same pace since it began")
        if self._settled():
            return self._pace(self.windows.last, "at the same pace since the warm-up")
        if self.teeth is not None and self._rising_teeth(self.teeth):
            return _pace(self.teeth, "at the floor under its saw-teeth", error=self.teeth.error, alpha=self.alpha)
        if self._steady_losses(self.losses):
            return self._loss_pace(self.losses)
        return None

    @cached_property
    def unmet(self) -> str | None:
        """The first condition of a steady leak that does not hold, in words; None if all hold."""
        later, earlier = self.windows.later, self.windows.earlier
        conditions: tuple[tuple[Callable[[], bool], str], ...] = (
            (lambda: later.low > 0, "no steady growth in the second half"),
            (lambda: later.rate >= self.limit, "the growth is slower than the limit"),
            (lambda: not self.windows.fell, "memory fell before it grew"),
            (lambda: earlier.low > 0 or self._clear_over_all, "the growth is not steady over the whole trace"),
            (
                lambda: self.windows.keeps_pace and not self.losses.become_rarer(since=0.25),
                "the growth is slowing down",
            ),
            (lambda: later.rise > 2 * self.quantum, "it grew by no more than two allocations of its smallest size"),
            (lambda: later.largest_step <= LARGEST_SHARE * later.rise, "one jump makes most of the growth"),
            (lambda: _no_walk(later), "memory that wanders about can grow as much"),
        )
        return next((words for holds, words in conditions if not holds()), None)

    @property
    def detectable(self) -> float:
        """The slowest steady pace that would have been called a leak in every second trace as noisy as this; of twice
        the pace nearly all are. Where memory rises by jumps that can be told one by one, it takes so many of them.
        """
        earlier, later = self.windows.earlier, self.windows.later
        walk = _walk_quantile(later) * later.walk_error
        smallest = 2 * self.quantum / later.span
        line = max(smallest, walk, later.rate - later.low, earlier.rate - earlier.low)
        return max(self.limit, min(line, self.losses.detectable / self.steps_per_row))

    @property
    def _clear_over_all(self) -> bool:
        """Whether all the rows together make up for an A too short for its noise: they grow as no walk would."""
        whole = self.windows.between(START, 1.0)
        return self.windows.earlier.rate > 0 and whole.low > 0 and whole.drift >= CLEAR_OVER_ALL

    def _late(self) -> bool:
        """Whether a leak began after A: faster than A, steady in each half of B."""
        seen = self.windows
        return (
            self._steady_in_later(LARGEST_SHARE_LATE)
            and seen.earlier.rate <= seen.later.rate
            and seen.last.rate >= KEEPS_LATE * seen.third.rate
        )

    def _settled(self) -> bool:
        """Whether a leak shows in B that a warm-up covered in A."""
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
        """Whether the floor under the teeth rises steadily, and in its second half as fast as in its first."""
        return (
            floor.low > 0
            and floor.rate >= self.limit
            and floor.rise > 2 * self.quantum
            and _no_walk(floor)
            and floor.largest_step <= LARGEST_SHARE_TEETH * floor.rise
            and floor.second_rise >= KEEPS * floor.first_rise
        )

    def _steady_losses(self, losses: Losses) -> bool:
        return losses.steady and losses.rate / self.steps_per_row >= self.limit

    def _pace(self, trend: Trend, words: str) -> LeakRate:
        return _pace(trend, words, error=self.windows.error(trend), alpha=self.alpha)

    def _loss_pace(self, losses: Losses) -> LeakRate:
        rate, margin = losses.rate / self.steps_per_row, losses.margin(self.alpha) / self.steps_per_row
        words = f"by {len(losses.sizes)} jumps at a steady pace"
        return LeakRate(rate=rate, interval=(max(0.0, rate - margin), rate + margin), words=words)


def _pace(trend: Trend, words: str, *, error: float, alpha: float) -> LeakRate:
    """Its interval allows for a walk, as what is lost at random is one; the trend's bounds, a test, need not."""
    margin = -float(stdtrit(trend.count - 3, alpha)) * error
    low, high = min(trend.low, max(0.0, trend.rate - margin)), max(trend.high, trend.rate + margin)
    return LeakRate(rate=trend.rate, interval=(low, high), words=words)


def _no_walk(trend: Trend) -> bool:
    """Whether a random walk with steps of the same size would rarely rise as much."""
    return trend.drift >= _walk_quantile(trend)


def _walk_quantile(trend: Trend) -> float:
    return -float(stdtrit(trend.count - 2, ALPHA_WALK))
