"""Fits linear trends to a noisy series, by block levels and AR(1) feasible generalised least squares.

A series is divided into BLOCKS blocks, each block becomes one level (a low quantile or the median), and a line is
fitted to the levels. Successive levels of a process's memory are nearly a random walk. The fit follows Perron and Yabu
(2009): estimate the AR(1) coefficient, correct its bias, set it to 1 if it is close to 1, and fit on quasi-differences,
so that a random walk without drift is not a trend.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import sliding_window_view
from scipy.special import stdtrit

from harness.model import Floats

BLOCKS = 16
"""Number of levels of a series. All other constants of the fit and of the windows are tuned to it."""
FLOOR = 0.10
"""Quantile of a block that is its level. A higher one follows spikes and the saw-teeth of a garbage collector."""
START = 0.02
"""Share of the rows that belong to the start of the program and are left out."""
LARGEST_SHARE = 0.34
"""Maximum share of the rise of a leak that one step, or one jump, may make."""
ALPHA_WALK = 0.0025
"""Significance level against a random walk without drift. Growth must be clear even if the floors are a random walk,
because the AR(1) coefficient is biased in short series.
"""
TAKEN_BACK = -0.25
"""Lag-1 autocorrelation of differences halfway between a random walk (0) and white noise (-1/2)."""
BURST = 2
"""Maximum width of a burst, in blocks."""
STANDS_OUT = 5.0
"""Minimum height, in median differences of neighbouring levels, of a burst above both of its sides and of a jump. A
lower value counts noise as jumps."""
STAIRS_ENDED = 2
"""Time without a rise after which stairs have ended, as a multiple of the longest time between two rises."""


@dataclass(frozen=True, kw_only=True)
class Trend:
    """A fitted line, in units of the series per step: `rate`, its one-sided bounds `low` and `high`, and its standard
    `error` for comparisons with other trends: that of the fit, but at least that of a random walk in the levels.

    `count` is the number of levels, `last_level` the last level, `rise` its height above the first level, `first_rise`
    the part of the rise before the middle, `largest_step` the largest rise from one level to the next, and `span` the
    number of steps covered. `walk_error` is the standard error of the rate if the levels are a random walk.
    """

    rate: float
    error: float
    low: float
    high: float
    count: int
    last_level: float
    rise: float
    first_rise: float
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
    # The long-run variance (Newey and West, one lag) of a mean difference is at least that of a random walk, unless the
    # lag-1 autocorrelation is clearly negative, as in white noise.
    centred = steps - steps.mean()
    power, common = float(centred @ centred), float(centred[1:] @ centred[:-1])
    walk = math.sqrt(max(power + 2 * common, power if common > TAKEN_BACK * power else 0.0)) / len(steps)
    quantile = -float(stdtrit(freedom, alpha))
    middle = float(levels[(len(levels) - 1) // 2] + levels[len(levels) // 2]) / 2
    return Trend(
        rate=slope / steps_per_block,
        error=max(error, walk, grain / len(levels)) / steps_per_block,
        low=(slope - quantile * error) / steps_per_block,
        high=(slope + quantile * max(error, walk)) / steps_per_block,
        count=len(levels),
        last_level=float(levels[-1]),
        rise=float(levels[-1] - levels[0]),
        first_rise=middle - float(levels[0]),
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


def observed_quantum(values: Floats, *, least: float, most: float) -> float:
    """Return the smallest frequent amount by which the series rises without ever falling back, within [least, most].

    Frequent means the 5 % quantile of these rises. A page has 4 KiB, a huge page 2,048 KiB. The start is ignored. The
    quantum is `least` if there is no such rise, if the only one exceeds `most` (an allocation), or if the stairs have
    ended: steady stairs would have risen again.
    """
    kept = np.minimum.accumulate(values[: len(values) // 50 : -1])[::-1]
    rises = np.diff(kept)
    places = np.flatnonzero(rises)
    if not len(places):
        return least
    if len(places) > 1 and len(rises) - int(places[-1]) > STAIRS_ENDED * int(np.diff(places).max()):
        return least
    index = len(places) // 20
    frequent = float(np.partition(rises[places], index)[index])
    if frequent > most and len(places) == 1:
        return least
    return min(max(frequent, least), most)


def unbent(values: Floats) -> Floats:
    """Return values, evenly spaced, without their mean and trend."""
    time = np.arange(len(values), dtype=np.float64)
    centred, level = time - time.mean(), values - values.mean()
    return np.asarray(level - centred * float(centred @ level) / float(centred @ centred), dtype=np.float64)


def _slope(levels: Floats) -> tuple[float, float, int]:
    """Return the slope per block, its standard error and the degrees of freedom."""
    count, residuals = len(levels), unbent(levels)
    if float(np.abs(residuals).max()) <= 1e-12 * float(np.abs(levels).max()):
        return float(levels[-1] - levels[0]) / (count - 1), 0.0, count - 3
    # The AR(1) coefficient, corrected for its bias in short series; 1 if it is within n**-0.5 of 1.
    past = residuals[:-1]
    power = float(past @ past)
    raw = float(residuals[1:] @ past) / power if power > 0 else 0.0
    corrected = min(1.0, raw + (2 + 4 * raw) / count)
    if abs(corrected - 1) <= count**-0.5:
        differences = np.diff(levels)
        return float(differences.mean()), float(differences.std(ddof=1)) / math.sqrt(count - 1), count - 2
    # Least squares on quasi-differences (Prais and Winsten).
    memory = max(corrected, -0.99)
    time = np.arange(count, dtype=np.float64)
    first = math.sqrt(1 - memory * memory)
    constant = np.full(count, 1 - memory)
    constant[0] = first
    x = np.append(first * time[0], time[1:] - memory * time[:-1])
    y = np.append(first * levels[0], levels[1:] - memory * levels[:-1])
    weight = float(constant @ constant)
    x = x - constant * float(constant @ x) / weight
    y = y - constant * float(constant @ y) / weight
    power = float(x @ x)
    slope = float(x @ y) / power
    rest = y - slope * x
    return slope, math.sqrt(float(rest @ rest) / (count - 2) / power), count - 3


# ---------------------------------------------------------------- floors under saw-teeth and waves
#
# Memory that is never freed shows only in the troughs. If teeth are wider than the blocks of a trend, the block levels
# follow the teeth, but the troughs still follow the floor.


FEWEST_TROUGHS = 3
"""Minimum number of troughs for an upper bound of a leak's rate."""
DEEP = 0.5
"""Minimum depth of a fall, as a share of the deepest fall: collections of the young generation are shallower."""
PIECES = 64
"""Number of blocks in which waves are searched for."""
RECENT = 0.75
"""Share of the rows after which the last trough must lie, because it cannot show a leak that began later."""


Floor = tuple[Floats, float]
"""The levels of a floor, shape (n,), at positions that are so many rows apart. There are as many as troughs, but at
most BLOCKS."""


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
    """Return the floor under waves; None if there are too few. The trough of a wave is the lowest block of a stretch
    below mid-height that the series both enters and leaves.
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
    """Interpolate the floor between the troughs, at evenly spaced positions. Return None if the troughs are too few or
    none is recent.
    """
    if len(places) < FEWEST_TROUGHS or places[-1] < RECENT * rows:
        return None
    even = np.linspace(places[0], places[-1], min(len(places), BLOCKS))
    return np.interp(even, places, troughs), float(even[1] - even[0])
