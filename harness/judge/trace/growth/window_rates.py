"""Does growth keep its pace? Trends of a series' windows, and tests that compare them.

The windows are A, the second quarter of the rows, and B, the second half; the first quarter is warm-up. What must be
told from a steady pace: a buffer that fills and ends, a logarithm (B has half of A's pace), and growth by a power of
time, which slows down for ever by the same law. That law shows in what came before: from one window to the next of a
leak the pace stays the same although it fell before; of a power of time it goes on falling as it fell.
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
"""Of the rows, which are those of a start."""
WIDE_BLOCKS = 6
KEEPS = 0.78
"""Of its pace in A that a leak has in B at least, and in the last quarter, however noisy it is."""
KEEPS_CLEARLY = 0.93
"""The same in B where the difference is clear: growth by the power .9 of time keeps as much."""
KEEPS_CLEARLY_AT_LAST = 0.9
"""The same in the last quarter: a law that slows down has slowed down further by then."""
KEEPS_FIRST = 0.75
"""Of the first quarter's pace below which B's must be shown to be more than a slower and slower growth."""
KEEPS_BEYOND = 0.85
"""Of its pace in A where the first quarter was faster still, so that it may be slowing down by a law."""
KEEPS_AT_LAST = 0.75
"""Of the pace of all the rows that rough jumps have in the last quarter."""
KEEPS_SETTLED = 0.9
"""Of its pace in the window before that a leak has which was covered by a warm-up."""
KEEPS_SETTLED_LATE = 0.95
"""The same in the last eighth of the rows, of the eighth before."""
CLEAR = 2.33
"""Standard errors between two paces that differ; one normal variable in a hundred is larger."""
CLEAR_SETTLED = 3.09
"""The same for one in a thousand, by which a pace must be beyond a law of slowing down."""
FELL = 0.1
"""Of the rise in B by which a steady fall before it makes the rise doubtful."""


@dataclass(frozen=True, kw_only=True)
class Windows:
    """The trends of a series between fractions of its rows, each fitted when it is first asked for."""

    values: Floats
    steps_per_row: float
    alpha: float
    quantum: float

    def between(self, begin: float, end: float) -> Trend:
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
        """A."""
        return self.between(0.25, 0.5)

    @cached_property
    def third(self) -> Trend:
        return self.between(0.5, 0.75)

    @cached_property
    def last(self) -> Trend:
        return self.between(0.75, 1.0)

    @cached_property
    def later(self) -> Trend:
        """B."""
        return self.between(0.5, 1.0)

    @cached_property
    def highest_wide(self) -> float:
        """The upper bound of the pace in A and B by a few wide blocks, which bursts and narrow waves do not move."""
        piece = self.values[len(self.values) // 4 :]
        floors = block_levels(piece, share=FLOOR, blocks=WIDE_BLOCKS)
        return highest_walk(floors, steps_per_block=len(piece) // WIDE_BLOCKS * self.steps_per_row, alpha=self.alpha)

    @property
    def fell(self) -> bool:
        """Whether memory fell steadily in a quarter of the first half, by enough to doubt the rise in B."""
        before = (self.between(0.0, 0.25), self.earlier)
        return any(quarter.high < 0 and -quarter.rise > FELL * self.later.rise for quarter in before)

    @property
    def keeps_pace(self) -> bool:
        """Whether the growth goes on in B, up to its end, as it was in A, and does not only slow down gently."""
        earlier, later, last = self.earlier, self.later, self.last
        if later.rate >= KEEPS_FIRST * self.first.rate or not self._slower(self.first, later):
            in_later = self._keeps(later, clearly=KEEPS_CLEARLY)
            return (in_later and self._keeps(last, clearly=KEEPS_CLEARLY_AT_LAST)) or self._keeps_roughly
        kept = min(later.rate, last.rate) >= KEEPS_BEYOND * earlier.rate
        return kept and _beyond_power_law(self.first, earlier, later, ratio=2.0, before=3.0)

    def error(self, window: Trend) -> float:
        """The standard error of a window's pace, no less than the walk in A and B together makes it."""
        return max(window.error, math.sqrt(self._walk / window.span))

    @cached_property
    def _walk(self) -> float:
        """The variance a step of the walk in the floors of A and B together, of which those of one window tell little;
        0 if their differences take each other back, as noise does.
        """
        piece = self.values[len(self.values) // 4 :]
        blocks = 3 * BLOCKS
        steps = unbent(np.diff(without_bursts(block_levels(piece, share=FLOOR, blocks=blocks))))
        if float(steps[1:] @ steps[:-1]) <= TAKEN_BACK * float(steps @ steps):
            return 0.0
        return float(steps.var(ddof=2)) / (len(piece) // blocks * self.steps_per_row)

    def _keeps(self, window: Trend, *, clearly: float) -> bool:
        """Whether a window keeps A's pace."""
        kept = window.rate >= KEEPS * self.earlier.rate
        return kept and not (window.rate < clearly * self.earlier.rate and self._slower(self.earlier, window))

    def _slower(self, earlier: Trend, later: Trend) -> bool:
        """Whether `later` is clearly slower."""
        return earlier.rate - later.rate > CLEAR * math.hypot(self.error(earlier), self.error(later))

    @property
    def _keeps_roughly(self) -> bool:
        """The same of growth by rough jumps, of which A shows too few: by the pace of all the rows."""
        overall = self.between(START, 1.0).rate
        return (
            self.later.rate >= KEEPS * overall
            and self.last.rate >= KEEPS_AT_LAST * overall
            and not any(self._slower(self.earlier, window) for window in (self.later, self.last))
        )

    @property
    def settled(self) -> bool:
        """Whether the growth slowed down and then did no more: a leak that a warm-up had covered."""
        if min(self.third.low, self.last.low) <= 0:
            return False
        if self.last.rate >= KEEPS_SETTLED * self.third.rate:
            return _beyond_power_law(self.earlier, self.third, self.last, ratio=1.4, before=5 / 3)
        seventh, eighth = self.between(0.75, 0.875), self.between(0.875, 1.0)
        return eighth.rate >= KEEPS_SETTLED_LATE * seventh.rate and _beyond_power_law(
            self.third, seventh, eighth, ratio=15 / 13, before=1.3
        )


def _beyond_power_law(earlier: Trend, middle: Trend, later: Trend, *, ratio: float, before: float) -> bool:
    """Whether `later` is clearly faster than by the power of time that leads from `earlier` to `middle`.

    By such a law a pace is proportional to a power of time: `before` is how many times later the middle of `middle` is
    than that of `earlier`, `ratio` the same from `middle` to `later`.
    """
    if earlier.rate <= 0 or middle.rate <= 0:
        return False
    power = math.log(ratio) / math.log(before)
    expected = middle.rate * math.pow(middle.rate / earlier.rate, power)
    slope = (1 + power) * expected / middle.rate
    clear = CLEAR_SETTLED * math.hypot(later.error, slope * middle.error)
    return later.rate - expected > max(clear, (middle.rate - expected) / 2)
