"""Decides whether one series of a trace grows without limit: memory, or any other quantity that should not grow.

A leak shows in one of five patterns: growth at one rate over the early and the late window; growth that began late and
has been steady since; growth that a warm-up covered at first; a rising floor under saw-teeth; and losses that are rare,
large and evenly spread. Random walks, buffers that fill, and growth that slows down by a law match none of them. A
series without a leak is flat if the upper confidence bound of its growth is below the limit, and otherwise undecided.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.special import stdtrit

from harness.amounts import general
from harness.judge.trace.jumps import Losses, find_losses
from harness.judge.trace.memory_layer import gpu_layer_of
from harness.judge.trace.trends import (
    ALPHA_WALK,
    BLOCKS,
    FLOOR,
    LARGEST_SHARE,
    PIECES,
    START,
    TAKEN_BACK,
    Floor,
    Trend,
    block_levels,
    fit_trend,
    highest_walk,
    observed_quantum,
    teeth_floor,
    unbent,
    wave_floor,
    without_bursts,
)
from harness.model import UNSURE, Floats, Growth, Interval, Trace, VerdictName

LEAST_ROWS = 4 * BLOCKS
"""Shortest series that is judged: four rows in each block of the whole series."""
STILL_GROWS = 0.05
"""Maximum share of the whole rise that may be late if memory has reached a plateau."""


@dataclass(frozen=True, kw_only=True)
class GrowingColumn:
    """A column, as the rule of growth sees it. Its unit is KiB unless it is a scenario's own number.

    `words` is its name in reasons. `quanta` are the smallest and the largest amount by which it may usually change, and
    a rise of `plateau` makes flat memory a plateau. `before` is the column that a look reads before it calls
    gc.collect. `layer` names what holds the leaked memory.
    """

    words: str
    quanta: Interval = (4.0, 2048.0)  # a page, and a huge page
    plateau: float = 1024.0
    before: str = ""
    layer: Callable[[Trace], str | None] = gpu_layer_of


def grows(name: str, rate: float, interval: Interval, unit: str) -> str:
    """Return how fast the memory of this name grows, as text."""
    low, high = interval
    return f"{name} grows {general(rate, 4)} {unit} ({general(low, 4)} to {general(high, 4)})"


def _figure(value: float) -> str:
    """Return a value with two significant digits, without an exponent for large values."""
    return f"{value:.0f}" if value >= 100 else f"{value:.2g}"


# ---------------------------------------------------------------- the patterns of a leak
#
# The early window is the second quarter of the rows, the late one the second half; the first quarter is warm-up. A
# steady rate must be distinguished from a buffer that fills up, from a logarithm (half the early rate), and from growth
# by a power of time, which slows down indefinitely by the same law. Earlier windows show that law: once the rate of a
# leak has fallen, it stays constant; under a power law, it keeps falling.


KEEPS = 0.78
"""Minimum ratio of a leak's rate in the late window, and in the last quarter, to its early rate, whatever the noise."""
KEEPS_ROUGHLY = 0.75
"""Ratio of the late rate to that of the first quarter below which a power law must be ruled out, and minimum ratio of
the rate in the last quarter to the rate over all the rows, for growth by rough jumps."""
KEEPS_CLEARLY = 0.93
"""KEEPS for the late window, if the difference is significant, and for the last two eighths of a leak that a warm-up
covered. Growth by the power 0.9 of time has this ratio."""
KEEPS_CLEARLY_AT_LAST = 0.9
"""The same for the last quarter, in which growth by such a law is slower still."""
CLEAR = 2.33
"""Minimum difference of two rates, in standard errors: the 99 % quantile of the normal distribution."""
CLEAR_SETTLED = 3.09
"""Minimum excess of a rate over the power law, in standard errors: the 99.9 % quantile of the normal distribution."""
FELL = 0.1
"""Steady fall before the late window, as a share of its rise, above which the rise is doubtful."""
WIDE_BLOCKS = 6
"""Number of blocks from which `highest_wide` is computed."""
FEWEST_TEETH = 5
"""Minimum number of troughs that prove a leak."""
CLEAR_OVER_ALL = 6.0
"""Minimum drift over all the rows, in standard errors, if the early window alone does not grow; 1 in 60,000 random
walks exceeds it.
"""


def _window(begin: float, end: float) -> cached_property[Trend]:
    """Make a property of a series: its trend between two fractions of the rows."""
    return cached_property(lambda series: series.between(begin, end))


@dataclass(frozen=True, kw_only=True)
class SampledSeries:
    """One series with the quantities that the patterns test, each computed on first use.

    `values` are the rows of `column`, shape (n,), evenly spaced, none missing; `limit` is the least bad growth per
    step, `alpha` the significance level of a leak, and `unit` that of the rates. Growth up to the rate `hidden` is not
    ruled out, because other memory shows it.
    """

    values: Floats
    steps_per_row: float
    limit: float
    alpha: float
    column: GrowingColumn
    unit: str
    hidden: float = 0.0

    def judged(self) -> Growth:
        """Return whether it grows without limit."""
        if len(self.values) < LEAST_ROWS:
            why = f"too few samples to judge: {len(self.values)} of at least {LEAST_ROWS}"
            return Growth(verdict="inconclusive", why=why)
        return replace(self.leak() or self._no_leak(), rise=self.rise, detectable=self.detectable)

    @cached_property
    def quantum(self) -> float:
        """Return the smallest amount by which it often changes."""
        least, most = self.column.quanta
        return observed_quantum(self.values, least=least, most=most)

    @cached_property
    def rise(self) -> float:
        start = block_levels(self.values[: max(1, len(self.values) // 50)], share=FLOOR, blocks=1)
        return self.later.last_level - float(start[0])

    def leak(self) -> Growth | None:
        """Return the leak by the first pattern that matches; None if none does."""
        if self.unmet is None:
            return self._trend(self.later, "at the same rate throughout")
        if self._late():
            return self._trend(self.last, "at the same rate since it began")
        if self._settled():
            return self._trend(self.last, "at the same rate since the warm-up")
        if self.teeth is not None and self._rising_teeth(self.teeth):
            return self._trend(self.teeth, "in the floor under its saw-teeth", error=self.teeth.error)
        if self._steady_losses():
            rate, margin = self.losses.rate / self.steps_per_row, self.losses.margin(self.alpha) / self.steps_per_row
            how = f"by {len(self.losses.sizes)} jumps at a steady rate"
            return self._leak(rate, (max(0.0, rate - margin), rate + margin), how)
        return None

    def _no_leak(self) -> Growth:
        """Judge a series without a leak: flat, plateau, or undecided."""
        later, name, unit = self.later, self.column.words, self.unit
        rate, interval = later.rate, (later.low, later.high)
        due = self.quantum / later.span  # the late rate of one more allocation, which may be due
        most_losses = self.losses.highest / self.steps_per_row
        highest = min(later.high, self.highest_wide, self.highest_ceiling, self.highest_floor)
        if self.losses.possible:
            highest = max(highest, most_losses)
        if self.at_end is not None:
            highest = max(highest, self.at_end.high)
        excluded = max(highest, 0.0) + due
        verdict: VerdictName = "flat"
        found = f"{name} is flat"
        if self.rise > self.column.plateau:
            verdict, found = "plateau", f"{name} rose {self.rise / 1024:.1f} MiB and then stopped rising"
        if excluded >= self.limit:
            verdict, found = "inconclusive", f"{name} is too noisy to tell"
            if later.low > 0:
                verdict, found = "suspect", f"{grows(name, rate, interval, unit)}, but {self.unmet or ''}"
            elif self.at_end is not None and self.at_end.rate >= self.limit:
                rate, interval = self.at_end.rate, (self.at_end.low, self.at_end.high)
                share = self.at_end.span / self.steps_per_row / len(self.values)
                at_end = f"but only in the last {100 * share:.2g} % of the steps; more would tell"
                verdict, found = "suspect", f"{grows(name, rate, interval, unit)}, {at_end}"
            elif excluded - due < self.limit:
                found = f"{name} rises by {general(self.quantum, 4)} KiB at a time, and the next rise may be due"
            # The series may continue at the highest rate that any window allows.
            excluded = max(
                excluded, self.first.high, self.earlier.high, later.high, self.highest_wide, most_losses, self.hidden
            )
        elif later.rate > excluded:
            # The late trend is that of a wave whose floor does not rise: this is not growth.
            rate, interval, excluded = 0.0, (0.0, excluded), max(excluded, self.hidden)
        else:
            excluded = max(excluded, self.hidden)
            if later.low > 0 and later.rise > max(2 * self.quantum, STILL_GROWS * self.rise):
                slow = (
                    f"{name} still grows {general(rate, 2)} {unit}, below the limit of {general(self.limit, 6)}: "
                    f"a leak of more than {general(excluded, 2)} {unit} is ruled out"
                )
                return Growth(verdict="flat", rate=rate, interval=interval, excluded=excluded, why=slow, slow=True)
        why = f"{found}: a leak of more than {_figure(excluded)} {unit} is ruled out"
        if verdict in UNSURE and self.detectable >= excluded:
            why = f"{why}, and a steady one of {_figure(self.detectable)} would have been seen"
        return Growth(verdict=verdict, rate=rate, interval=interval, excluded=excluded, why=why)

    def _trend(self, trend: Trend, how: str, *, error: float | None = None) -> Growth:
        """Return a leak at a trend's rate. Its interval, unlike the trend's bounds, allows for a random walk."""
        margin = -float(stdtrit(trend.count - 3, self.alpha)) * (self.error(trend) if error is None else error)
        low, high = min(trend.low, max(0.0, trend.rate - margin)), max(trend.high, trend.rate + margin)
        return self._leak(trend.rate, (low, high), how)

    def _leak(self, rate: float, interval: Interval, how: str) -> Growth:
        why = f"{grows(self.column.words, rate, interval, self.unit)}, {how}"
        return Growth(verdict="leak", rate=rate, interval=interval, why=why)

    @cached_property
    def unmet(self) -> str | None:
        """Return the first unmet condition of a steady leak; None if all are met."""
        return next((reason for is_met, reason in self._conditions() if not is_met), None)

    def _conditions(self) -> Iterator[tuple[bool, str]]:
        earlier, later = self.earlier, self.later
        yield later.low > 0, "no steady growth in the second half"
        yield later.rate >= self.limit, "the growth is slower than the limit"
        yield not self.fell, "memory fell before it grew"
        # All rows together may show a growth for whose noise the early window is too short.
        clear_over_all = earlier.rate > 0 and self.whole.low > 0 and self.whole.drift >= CLEAR_OVER_ALL
        yield earlier.low > 0 or clear_over_all, "the growth is not steady over the whole trace"
        yield self.keeps_pace and not self.losses.become_rarer(since=0.25), "the growth is slowing down"
        yield later.rise > 2 * self.quantum, "it grew by no more than two of its smallest allocations"
        yield later.largest_step <= LARGEST_SHARE * later.rise, "one jump accounts for most of the growth"
        yield _no_walk(later), "memory that rises and falls at random may grow as much"

    def _late(self) -> bool:
        """Return whether a leak began after the early window: the late one grows faster, and steadily in both of its
        halves.
        """
        return (
            self._steady_in_later and self.earlier.rate <= self.later.rate and self.last.rate >= KEEPS * self.third.rate
        )

    def _settled(self) -> bool:
        """Return whether the late window shows a leak that a warm-up covered in the early one: the growth slowed down
        and then kept its rate.
        """
        if not self._steady_in_later or self.losses.become_rarer(since=0.5):
            return False
        if self.last.rate >= KEEPS_CLEARLY_AT_LAST * self.third.rate:
            return _beyond_power_law(self.earlier, self.third, self.last, ratio=1.4, before=5 / 3)
        seventh, eighth = self.between(0.75, 0.875), self.between(0.875, 1.0)
        return eighth.rate >= KEEPS_CLEARLY * seventh.rate and _beyond_power_law(
            self.third, seventh, eighth, ratio=15 / 13, before=1.3
        )

    @property
    def _steady_in_later(self) -> bool:
        return (
            self._rises(self.later)
            and min(self.third.low, self.last.low) > 0
            and self.last.rate >= self.limit
            and all(part.largest_step <= LARGEST_SHARE * part.rise for part in (self.third, self.last))
            and not self.fell
        )

    def _rising_teeth(self, floor: Trend) -> bool:
        """Return whether the floor under saw-teeth rises steadily and keeps its rate in the second half."""
        keeps = floor.rise - floor.first_rise >= KEEPS * floor.first_rise
        return self._rises(floor) and floor.rate >= self.limit and keeps

    def _rises(self, trend: Trend) -> bool:
        """Return whether it rises steadily: by more than two allocations and more than a walk or one jump may."""
        is_jump = trend.largest_step > LARGEST_SHARE * trend.rise
        return trend.low > 0 and trend.rise > 2 * self.quantum and _no_walk(trend) and not is_jump

    def _steady_losses(self) -> bool:
        """Return whether losses that are rare, large and evenly spread make the series grow."""
        return self.losses.steady and self.losses.rate / self.steps_per_row >= self.limit

    @property
    def detectable(self) -> float:
        """Return the minimum detectable leak rate at a power of 50 %: every second trace with this noise would show it,
        and nearly all would show twice the rate. If memory rises by distinct jumps, their number decides instead.
        """
        later, earlier = self.later, self.earlier
        walk = _walk_quantile(later) * later.walk_error
        line = max(2 * self.quantum / later.span, walk, later.rate - later.low, earlier.rate - earlier.low)
        return max(self.limit, min(line, self.losses.detectable / self.steps_per_row))

    # ------------------------------------------------------------ windows

    whole = _window(START, 1.0)
    first = _window(START, 0.25)
    earlier = _window(0.25, 0.5)
    later = _window(0.5, 1.0)
    third = _window(0.5, 0.75)
    last = _window(0.75, 1.0)

    def between(self, begin: float, end: float) -> Trend:
        """Return the trend between two fractions of the rows, over at least BLOCKS rows."""
        until = int(end * len(self.values))
        piece = self.values[min(int(begin * len(self.values)), until - BLOCKS) : until]
        floors = without_bursts(block_levels(piece, share=FLOOR))
        return fit_trend(
            floors, steps_per_block=len(piece) // BLOCKS * self.steps_per_row, alpha=self.alpha, grain=self.quantum
        )

    @cached_property
    def highest_wide(self) -> float:
        """Return the upper bound of the rate over both windows from WIDE_BLOCKS blocks, robust to bursts and waves."""
        return self._highest_wide(FLOOR)

    @property
    def highest_ceiling(self) -> float:
        """Return the same bound of the rate of the ceilings, robust to memory that is given back now and then; infinite
        if the floors rise, because a collector may keep the ceiling where it is."""
        return math.inf if self.later.low > 0 else self._highest_wide(1.0)

    def _highest_wide(self, share: float) -> float:
        piece = self.values[len(self.values) // 4 :]
        levels = block_levels(piece, share=share, blocks=WIDE_BLOCKS)
        steps = len(piece) // WIDE_BLOCKS * self.steps_per_row
        return highest_walk(levels, steps_per_block=steps, alpha=self.alpha)

    @cached_property
    def at_end(self) -> Trend | None:
        """Return the trend of the last rows if they rise steadily above all earlier floors, by more than memory fell
        before, and began to in the last of the WIDE_BLOCKS, whose floor does not show it; else None."""
        piece = self.values[len(self.values) // 4 :]
        floors = block_levels(piece, share=FLOOR, blocks=min(WIDE_BLOCKS * BLOCKS, len(piece)))
        before = floors[: -(len(floors) // WIDE_BLOCKS)]
        since = int(np.flatnonzero(floors <= before.max())[-1]) + 1
        rows = (len(floors) - since) * (len(piece) // len(floors))
        if rows < max(BLOCKS, len(self.values) // PIECES):
            return None
        trend = self.between(1 - rows / len(self.values), 1.0)
        fall = float((np.maximum.accumulate(before) - before).max())
        return trend if self._rises(trend) and trend.rise > fall else None

    @cached_property
    def floor(self) -> Floor | None:
        """Return the floor under saw-teeth; None if there are none."""
        return teeth_floor(self.values[int(START * len(self.values)) :])

    @cached_property
    def teeth(self) -> Trend | None:
        """Return the trend of the floor under saw-teeth; None if there are too few of them."""
        levels, rows = self.floor or (np.empty(0), 0.0)
        if len(levels) < FEWEST_TEETH:
            return None
        return fit_trend(levels, steps_per_block=rows * self.steps_per_row, alpha=self.alpha)

    @property
    def highest_floor(self) -> float:
        """Return the upper bound of the rate of the floor to which memory returns; infinite if there is none."""
        floor = self.floor or wave_floor(self.values[int(START * len(self.values)) :])
        if floor is None:
            return math.inf
        levels, rows = floor
        walk = highest_walk(levels, steps_per_block=rows * self.steps_per_row, alpha=self.alpha)
        return walk if self.teeth is None else min(walk, self.teeth.high)

    @cached_property
    def losses(self) -> Losses:
        return find_losses(self.values, grain=self.column.quanta[0])

    @property
    def fell(self) -> bool:
        """Return whether memory fell steadily in a quarter of the first half, by more than FELL of the late rise."""
        before = (self.between(0.0, 0.25), self.earlier)
        return any(quarter.high < 0 and -quarter.rise > FELL * self.later.rise for quarter in before)

    # ------------------------------------------------------------ whether growth keeps its rate

    @property
    def keeps_pace(self) -> bool:
        """Return whether growth keeps its early rate in the late window and in the last quarter, and is not explained
        by a power law that slows down.
        """
        earlier, later, last = self.earlier, self.later, self.last
        if later.rate < KEEPS_ROUGHLY * self.first.rate and self._slower(self.first, later):
            kept = min(later.rate, last.rate) >= KEEPS * earlier.rate
            return kept and _beyond_power_law(self.first, earlier, later, ratio=2.0, before=3.0)
        slows = [self._slower(earlier, window) for window in (later, last)]
        kept_clearly = all(
            window.rate >= KEEPS * earlier.rate and not (window.rate < clearly * earlier.rate and is_slower)
            for window, clearly, is_slower in zip(
                (later, last), (KEEPS_CLEARLY, KEEPS_CLEARLY_AT_LAST), slows, strict=True
            )
        )
        # Growth by rough jumps, of which the early window has too few, keeps the rate over all the rows.
        overall = self.whole.rate
        kept_roughly = later.rate >= KEEPS * overall and last.rate >= KEEPS_ROUGHLY * overall and not any(slows)
        return kept_clearly or kept_roughly

    def _slower(self, earlier: Trend, later: Trend) -> bool:
        """Return whether `later` is slower than `earlier` by CLEAR standard errors."""
        return earlier.rate - later.rate > CLEAR * math.hypot(self.error(earlier), self.error(later))

    def error(self, window: Trend) -> float:
        """Return the standard error of a window's rate: at least that of the random walk in both windows together."""
        return max(window.error, math.sqrt(self._walk / window.span))

    @cached_property
    def _walk(self) -> float:
        """Return the variance per step of the random walk in the floors of both windows together, because one window
        has too few floors; 0 if the differences of floors are as negatively correlated as those of noise.
        """
        piece = self.values[len(self.values) // 4 :]
        blocks = 3 * BLOCKS
        # Without their trend: a smooth curve almost vanishes.
        steps = unbent(np.diff(without_bursts(block_levels(piece, share=FLOOR, blocks=blocks))))
        if float(steps[1:] @ steps[:-1]) <= TAKEN_BACK * float(steps @ steps):
            return 0.0
        return float(steps.var(ddof=2)) / (len(piece) // blocks * self.steps_per_row)


def _no_walk(trend: Trend) -> bool:
    """Return whether a random walk with steps of this size rarely rises as much."""
    return trend.drift >= _walk_quantile(trend)


def _walk_quantile(trend: Trend) -> float:
    return -float(stdtrit(trend.count - 2, ALPHA_WALK))


def _beyond_power_law(earlier: Trend, middle: Trend, later: Trend, *, ratio: float, before: float) -> bool:
    """Return whether `later` is clearly faster than the power law through `earlier` and `middle` predicts.

    Under a power law, the rate is proportional to a power of time. `before` is the ratio of the centre times of
    `middle` and `earlier`, `ratio` that of `later` and `middle`.
    """
    if earlier.rate <= 0 or middle.rate <= 0:
        return False
    power = math.log(ratio) / math.log(before)
    expected = middle.rate * math.pow(middle.rate / earlier.rate, power)
    slope = (1 + power) * expected / middle.rate
    clear = CLEAR_SETTLED * math.hypot(later.error, slope * middle.error)
    return later.rate - expected > max(clear, (middle.rate - expected) / 2)
