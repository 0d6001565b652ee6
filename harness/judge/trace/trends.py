"""Fits linear trends to a noisy series and to windows of it, by block levels and AR(1) feasible generalised least
squares, and tests whether growth keeps its rate from one window to the next.

A series is divided into BLOCKS blocks, each block becomes one level (a low quantile or the median), and a line is
fitted to the levels. Successive levels of a process's memory are nearly a random walk. The fit follows Perron and Yabu
(2009): estimate the AR(1) coefficient, correct its bias, set it to 1 if it is close to 1, and fit on quasi-differences,
so that a random walk without drift is not a trend.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import sliding_window_view
from scipy.special import stdtrit

from harness.model import Floats

BLOCKS = 16
"""Number of levels of a series. All other constants of the fit and of the windows are tuned to it."""
FLOOR = 0.10
"""Quantile of a block that is its level. A higher one follows spikes and the saw-teeth of a garbage collector."""
TAKEN_BACK = -0.25
"""Lag-1 autocorrelation of differences halfway between a random walk (0) and white noise (-1/2)."""
BURST = 2
"""Maximum width of a burst, in blocks."""
STANDS_OUT = 5.0
"""Minimum height of a burst above both of its sides, in median differences of neighbouring levels."""
STAIRS_ENDED = 2
"""Time without a rise after which stairs have ended, as a multiple of the longest time between two rises."""


@dataclass(frozen=True, kw_only=True)
class Trend:
    """A fitted line, in units of the series per step: `rate`, its one-sided bounds `low` and `high`, and its standard
    `error` for comparisons with other trends: that of the fit, but at least that of a random walk in the levels.

    `count` is the number of levels, `last_level` the last level, `rise` its height above the first level, `first_rise`
    and `second_rise` the parts of the rise before and after the middle, `largest_step` the largest rise from one level
    to the next, and `span` the number of steps covered. `walk_error` is the standard error of the rate if the levels
    are a random walk.
    """

    rate: float
    error: float
    low: float
    high: float
    count: int
    last_level: float
    rise: float
    first_rise: float
    second_rise: float
    largest_step: float
    span: float
    walk_error: float

    @property
    def drift(self) -> float:
        """Return the t statistic of growth if the levels are a random walk: the mean step in standard errors."""
        pace = self.rise / (self.count - 1) * self.count / self.span
        if self.walk_error == 0:
            return math.copysign(math.inf, pace) if pace else 0.0
        return pace / self.walk_error


def block_levels(values: Floats, *, share: float, blocks: int = BLOCKS) -> Floats:
    """Return the `share` quantile of each of `blocks` equal blocks, shape (blocks,). Surplus rows at the start are left
    out. `values` has shape (n,), n >= blocks, and is copied once.
    """
    per_block = len(values) // blocks
    rows = values[len(values) - per_block * blocks :].reshape(blocks, per_block)
    index = int(share * (per_block - 1))
    return np.asarray(np.partition(rows, index, axis=1)[:, index], dtype=np.float64)


def without_bursts(levels: Floats) -> Floats:
    """Return the levels without prominent peaks of up to BURST blocks, by a morphological opening: the memory of a
    burst of work is not growth. A series that only rises is unchanged.
    """
    padded = np.pad(levels, BURST, mode="edge")
    lowest = sliding_window_view(padded, BURST + 1).min(axis=1)
    opened = sliding_window_view(lowest, BURST + 1).max(axis=1)
    stands_out = levels - opened > STANDS_OUT * float(np.median(np.abs(np.diff(levels))))
    return np.where(stands_out, opened, levels)


def fit_trend(levels: Floats, *, steps_per_block: float, alpha: float, grain: float = 0.0) -> Trend:
    """Fit a line to `levels`, shape (n,), n >= 4, with one-sided bounds at `alpha`. `grain` is the amount in which the
    series changes: the error is at least one grain over the whole length.
    """
    slope, error, freedom = _slope(levels)
    steps = np.diff(levels)
    quantile = -float(stdtrit(freedom, alpha))
    margin, high = quantile * error, quantile * max(error, _walk_error(steps))
    middle = float(levels[(len(levels) - 1) // 2] + levels[len(levels) // 2]) / 2
    return Trend(
        rate=slope / steps_per_block,
        error=max(error, _walk_error(steps), grain / len(levels)) / steps_per_block,
        low=(slope - margin) / steps_per_block,
        high=(slope + high) / steps_per_block,
        count=len(levels),
        last_level=float(levels[-1]),
        rise=float(levels[-1] - levels[0]),
        first_rise=middle - float(levels[0]),
        second_rise=float(levels[-1]) - middle,
        largest_step=float(steps.max()),
        span=steps_per_block * len(levels),
        walk_error=float(steps.std(ddof=1)) / math.sqrt(len(steps)) / steps_per_block,
    )


def highest_walk(levels: Floats, *, steps_per_block: float, alpha: float) -> float:
    """Return the upper confidence bound, at `alpha`, of the rate of `levels`, shape (n,), n >= 3, as that of a random
    walk with drift.
    """
    steps = np.diff(levels)
    count = len(steps)
    margin = -float(stdtrit(count - 1, alpha)) * float(steps.std(ddof=1)) / math.sqrt(count)
    return (float(steps.mean()) + margin) / steps_per_block


def _walk_error(differences: Floats) -> float:
    """Return the standard error of the mean difference by the long-run variance (Newey and West, one lag). Unless the
    lag-1 autocorrelation is clearly negative, as in white noise, it is at least that of a random walk.
    """
    centred = differences - differences.mean()
    power, common = float(centred @ centred), float(centred[1:] @ centred[:-1])
    lasting = power + 2 * common
    return math.sqrt(max(lasting, power if common > TAKEN_BACK * power else 0.0)) / len(differences)


def observed_quantum(values: Floats, *, least: float, most: float) -> float:
    """Return the smallest frequent amount by which the series rises without ever falling back, within [least, most].

    Frequent means the 5 % quantile of these rises. A page has 4 KiB, a huge page 2,048 KiB. The first 2 % of the rows
    are ignored as the start. The quantum is `least` if there is no such rise, if the only one exceeds `most` (an
    allocation), or if the stairs have ended.
    """
    kept = np.minimum.accumulate(values[: len(values) // 50 : -1])[::-1]
    rises = np.diff(kept)
    places = np.flatnonzero(rises)
    if not len(places) or _stairs_ended(places, rows=len(rises)):
        return least
    index = len(places) // 20
    frequent = float(np.partition(rises[places], index)[index])
    if frequent > most and len(places) == 1:
        return least
    return min(max(frequent, least), most)


def _stairs_ended(places: npt.NDArray[np.intp], *, rows: int) -> bool:
    """Return whether the time since the last rise exceeds STAIRS_ENDED times the longest time between two rises: steady
    stairs would have risen again.
    """
    return len(places) > 1 and rows - int(places[-1]) > STAIRS_ENDED * int(np.diff(places).max())


def _slope(levels: Floats) -> tuple[float, float, int]:
    """Return the slope per block, its standard error and the degrees of freedom."""
    count = len(levels)
    time = np.arange(count, dtype=np.float64)
    residuals = _residuals(levels, time)
    scale = float(np.abs(levels).max())
    if float(np.abs(residuals).max()) <= 1e-12 * scale:
        return float(levels[-1] - levels[0]) / (count - 1), 0.0, count - 3
    memory = _memory(residuals)
    if memory == 1.0:
        differences = np.diff(levels)
        return float(differences.mean()), float(differences.std(ddof=1)) / math.sqrt(count - 1), count - 2
    return (*_quasi_differenced(levels, time, memory), count - 3)


def unbent(differences: Floats) -> Floats:
    """Return differences of neighbouring levels without their mean and trend: a smooth curve almost vanishes."""
    return _residuals(differences, np.arange(len(differences), dtype=np.float64))


def _residuals(levels: Floats, time: Floats) -> Floats:
    centred = time - time.mean()
    level = levels - levels.mean()
    return np.asarray(level - centred * float(centred @ level) / float(centred @ centred), dtype=np.float64)


def _memory(residuals: Floats) -> float:
    """Return the AR(1) coefficient, corrected for its bias in short series; 1 if it is within n**-0.5 of 1."""
    count = len(residuals)
    past = residuals[:-1]
    power = float(past @ past)
    raw = float(residuals[1:] @ past) / power if power > 0 else 0.0
    corrected = min(1.0, raw + (2 + 4 * raw) / count)
    return 1.0 if abs(corrected - 1) <= count**-0.5 else max(corrected, -0.99)


def _quasi_differenced(levels: Floats, time: Floats, memory: float) -> tuple[float, float]:
    """Fit by least squares on quasi-differences (Prais and Winsten); return the slope and its standard error."""
    first = math.sqrt(1 - memory * memory)
    constant = np.full(len(levels), 1 - memory)
    constant[0] = first
    x = np.append(first * time[0], time[1:] - memory * time[:-1])
    y = np.append(first * levels[0], levels[1:] - memory * levels[:-1])
    weight = float(constant @ constant)
    x = x - constant * float(constant @ x) / weight
    y = y - constant * float(constant @ y) / weight
    power = float(x @ x)
    slope = float(x @ y) / power
    rest = y - slope * x
    return slope, math.sqrt(float(rest @ rest) / (len(levels) - 2) / power)


# ---------------------------------------------------------------- windows
#
# The early window is the second quarter of the rows, the late one the second half; the first quarter is warm-up. A
# steady rate must be distinguished from a buffer that fills up, from a logarithm (half the early rate), and from growth
# by a power of time, which slows down indefinitely by the same law. Earlier windows show that law: once the rate of a
# leak has fallen, it stays constant; under a power law, it keeps falling.


START = 0.02
"""Share of the rows that belong to the start of the program and are left out."""
WIDE_BLOCKS = 6
"""Number of blocks from which `highest_wide` is computed."""
KEEPS = 0.78
"""Minimum ratio of a leak's rate in the late window, and in the last quarter, to its early rate, whatever the noise."""
KEEPS_CLEARLY = 0.93
"""The same for the late window, if the difference is significant. Growth by the power 0.9 of time has this ratio."""
KEEPS_CLEARLY_AT_LAST = 0.9
"""The same for the last quarter, in which growth by such a law is slower still."""
KEEPS_FIRST = 0.75
"""Ratio of the late rate to that of the first quarter below which a power law must be ruled out."""
KEEPS_BEYOND = 0.85
"""KEEPS for a series that grows clearly faster in the first quarter than late, so that it may follow a power law."""
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
"""Steady fall before the late window, as a share of its rise, above which the rise is doubtful."""


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
        """Return the trend of the early window."""
        return self.between(0.25, 0.5)

    @cached_property
    def third(self) -> Trend:
        return self.between(0.5, 0.75)

    @cached_property
    def last(self) -> Trend:
        return self.between(0.75, 1.0)

    @cached_property
    def later(self) -> Trend:
        """Return the trend of the late window."""
        return self.between(0.5, 1.0)

    @cached_property
    def highest_wide(self) -> float:
        """Return the upper bound of the rate over both windows from WIDE_BLOCKS blocks, robust to bursts and waves."""
        piece = self.values[len(self.values) // 4 :]
        floors = block_levels(piece, share=FLOOR, blocks=WIDE_BLOCKS)
        return highest_walk(floors, steps_per_block=len(piece) // WIDE_BLOCKS * self.steps_per_row, alpha=self.alpha)

    @property
    def fell(self) -> bool:
        """Return whether memory fell steadily in a quarter of the first half, by more than FELL of the late rise."""
        before = (self.between(0.0, 0.25), self.earlier)
        return any(quarter.high < 0 and -quarter.rise > FELL * self.later.rise for quarter in before)

    @property
    def keeps_pace(self) -> bool:
        """Return whether growth keeps its early rate in the late window and in the last quarter, and is not explained
        by a power law that slows down.
        """
        earlier, later, last = self.earlier, self.later, self.last
        if later.rate >= KEEPS_FIRST * self.first.rate or not self._slower(self.first, later):
            in_later = self._keeps(later, clearly=KEEPS_CLEARLY)
            return (in_later and self._keeps(last, clearly=KEEPS_CLEARLY_AT_LAST)) or self._keeps_roughly
        kept = min(later.rate, last.rate) >= KEEPS_BEYOND * earlier.rate
        return kept and _beyond_power_law(self.first, earlier, later, ratio=2.0, before=3.0)

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
        steps = unbent(np.diff(without_bursts(block_levels(piece, share=FLOOR, blocks=blocks))))
        if float(steps[1:] @ steps[:-1]) <= TAKEN_BACK * float(steps @ steps):
            return 0.0
        return float(steps.var(ddof=2)) / (len(piece) // blocks * self.steps_per_row)

    def _keeps(self, window: Trend, *, clearly: float) -> bool:
        """Return whether a window keeps the early rate."""
        kept = window.rate >= KEEPS * self.earlier.rate
        return kept and not (window.rate < clearly * self.earlier.rate and self._slower(self.earlier, window))

    def _slower(self, earlier: Trend, later: Trend) -> bool:
        """Return whether `later` is slower than `earlier` by CLEAR standard errors."""
        return earlier.rate - later.rate > CLEAR * math.hypot(self.error(earlier), self.error(later))

    @property
    def _keeps_roughly(self) -> bool:
        """Return whether growth by rough jumps, of which the early window has too few, keeps the rate over all the
        rows.
        """
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
