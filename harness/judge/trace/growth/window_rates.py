"""Fits trends in the windows of a series, and tests whether growth keeps its rate from one window to the next.

Window A is the second quarter of the rows, B the second half; the first quarter is warm-up. A steady rate must be
distinguished from a buffer that fills up, from a logarithm (B has half the rate of A), and from growth by a power of
time, which slows down indefinitely by the same law. Earlier windows show that law: once the rate of a leak has fallen,
it stays constant; under a power law, it keeps falling.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from harness.judge.trace.growth.trend_fit import (
    BLOCKS,
    FLOOR,
    TAKEN_BACK,
    Trend,
    block_levels,
    fit_trend,
    highest_walk,
    unbent,
    without_bursts,
)
from harness.model import Floats

START = 0.02
"""Share of the rows that belong to the start of the program and are left out."""
WIDE_BLOCKS = 6
"""Number of blocks from which `highest_wide` is computed."""
KEEPS = 0.78
"""Minimum ratio of a leak's rate in B, and in the last quarter, to its rate in A, whatever the noise."""
KEEPS_CLEARLY = 0.93
"""The same for B, if the difference is significant. Growth by the power 0.9 of time has this ratio."""
KEEPS_CLEARLY_AT_LAST = 0.9
"""The same for the last quarter, in which growth by such a law is slower still."""
KEEPS_FIRST = 0.75
"""Ratio of B's rate to that of the first quarter below which a power law must be ruled out."""
KEEPS_BEYOND = 0.85
"""KEEPS for a series that grows clearly faster in the first quarter than in B, so that it may follow a power law."""
KEEPS_AT_LAST = 0.75
"""Minimum ratio of the rate in the last quarter to the rate over all the rows, for growth by rough jumps."""
KEEPS_SETTLED = 0.9
"""Minimum ratio of the rates in the last two quarters, for a leak that a warm-up covered."""
KEEPS_SETTLED_LATE = 0.95
"""The same for the last two eighths."""
CLEAR = 2.33
"""Minimum difference of two rates, in standard errors: the 99 % quantile of the normal distribution."""
CLEAR_SETTLED = 3.09
"""Minimum excess of a rate over the power law, in standard errors: the 99.9 % quantile of the normal distribution."""
FELL = 0.1
"""Steady fall before B, as a share of the rise in B, above which the rise is doubtful."""


@dataclass(frozen=True, kw_only=True)
class Windows:
    """The trends of a series between fractions of its rows, each fitted on first use."""

    values: Floats
    steps_per_row: float
    alpha: float
    quantum: float

    def between(self, begin: float, end: float) -> Trend:
        """Return the trend between two fractions of the rows, over at least BLOCKS rows."""
        until = int(end * len(self.values))
        piece = self.values[min(int(begin * len(self.values)), until - BLOCKS) : until]
        floors = without_bursts(block_levels(piece, share=FLOOR))
        return fit_trend(
            floors, steps_per_block=len(piece) // BLOCKS * self.steps_per_row, alpha=self.alpha, grain=self.quantum
        )

    @cached_property
    def first(self) -> Trend:
        return self.between(START, 0.25)

    @cached_property
    def earlier(self) -> Trend:
        """Return the trend of window A."""
        return self.between(0.25, 0.5)

    @cached_property
    def third(self) -> Trend:
        return self.between(0.5, 0.75)

    @cached_property
    def last(self) -> Trend:
        return self.between(0.75, 1.0)

    @cached_property
    def later(self) -> Trend:
        """Return the trend of window B."""
        return self.between(0.5, 1.0)

    @cached_property
    def highest_wide(self) -> float:
        """Return the upper bound of the rate over A and B from WIDE_BLOCKS blocks, robust to bursts and waves."""
        piece = self.values[len(self.values) // 4 :]
        floors = block_levels(piece, share=FLOOR, blocks=WIDE_BLOCKS)
        return highest_walk(floors, steps_per_block=len(piece) // WIDE_BLOCKS * self.steps_per_row, alpha=self.alpha)

    @property
    def fell(self) -> bool:
        """Return whether memory fell steadily in a quarter of the first half, by more than FELL of the rise in B."""
        before = (self.between(0.0, 0.25), self.earlier)
        return any(quarter.high < 0 and -quarter.rise > FELL * self.later.rise for quarter in before)

    @property
    def keeps_pace(self) -> bool:
        """Return whether growth keeps the rate of A in B and in the last quarter, and is not explained by a power law
        that slows down.
        """
        earlier, later, last = self.earlier, self.later, self.last
        if later.rate >= KEEPS_FIRST * self.first.rate or not self._slower(self.first, later):
            in_later = self._keeps(later, clearly=KEEPS_CLEARLY)
            return (in_later and self._keeps(last, clearly=KEEPS_CLEARLY_AT_LAST)) or self._keeps_roughly
        kept = min(later.rate, last.rate) >= KEEPS_BEYOND * earlier.rate
        return kept and _beyond_power_law(self.first, earlier, later, ratio=2.0, before=3.0)

    def error(self, window: Trend) -> float:
        """Return the standard error of a window's rate: at least that of the random walk in A and B together."""
        return max(window.error, math.sqrt(self._walk / window.span))

    @cached_property
    def _walk(self) -> float:
        """Return the variance per step of the random walk in the floors of A and B together, because one window has too
        few floors; 0 if the differences of floors are as negatively correlated as those of noise.
        """
        piece = self.values[len(self.values) // 4 :]
        blocks = 3 * BLOCKS
        steps = unbent(np.diff(without_bursts(block_levels(piece, share=FLOOR, blocks=blocks))))
        if float(steps[1:] @ steps[:-1]) <= TAKEN_BACK * float(steps @ steps):
            return 0.0
        return float(steps.var(ddof=2)) / (len(piece) // blocks * self.steps_per_row)

    def _keeps(self, window: Trend, *, clearly: float) -> bool:
        """Return whether a window keeps the rate of A."""
        kept = window.rate >= KEEPS * self.earlier.rate
        return kept and not (window.rate < clearly * self.earlier.rate and self._slower(self.earlier, window))

    def _slower(self, earlier: Trend, later: Trend) -> bool:
        """Return whether `later` is slower than `earlier` by CLEAR standard errors."""
        return earlier.rate - later.rate > CLEAR * math.hypot(self.error(earlier), self.error(later))

    @property
    def _keeps_roughly(self) -> bool:
        """Return whether growth by rough jumps, of which A has too few, keeps the rate over all the rows."""
        overall = self.between(START, 1.0).rate
        return (
            self.later.rate >= KEEPS * overall
            and self.last.rate >= KEEPS_AT_LAST * overall
            and not any(self._slower(self.earlier, window) for window in (self.later, self.last))
        )

    @property
    def settled(self) -> bool:
        """Return whether the growth slowed down and then kept its rate: a leak that a warm-up covered at first."""
        if min(self.third.low, self.last.low) <= 0:
            return False
        if self.last.rate >= KEEPS_SETTLED * self.third.rate:
            return _beyond_power_law(self.earlier, self.third, self.last, ratio=1.4, before=5 / 3)
        seventh, eighth = self.between(0.75, 0.875), self.between(0.875, 1.0)
        return eighth.rate >= KEEPS_SETTLED_LATE * seventh.rate and _beyond_power_law(
            self.third, seventh, eighth, ratio=15 / 13, before=1.3
        )


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
