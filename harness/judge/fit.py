"""The straight line under a noisy series: block levels, and a trend by AR(1) feasible least squares. Pure numbers.

A series is cut into BLOCKS blocks, each block becomes one level (a low percentile or the median), and the line is
fitted to the levels. Neighbouring levels of a process's memory are not independent: they are nearly a random walk.
The fit follows Perron and Yabu (2009): estimate the AR(1) coefficient, correct its bias, take it as 1 when it is near,
and fit on quasi-differences, so that a random walk without drift is no trend.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import stdtrit

from harness.model import Floats

BLOCKS = 16
FLOOR = 0.10
"""The share of a block below its level: low, so that garbage-collector saw-teeth and spikes do not move it."""
TEETH = 4
STAIRS_ENDED = 2
"""Of the longest time between two changes that must pass without one before stairs are taken to have ended."""


@dataclass(frozen=True, kw_only=True)
class Trend:
    """A fitted line, in units of the series a step: `rate`, and the one-sided bounds `low` and `high`.

    `last_level` is the last level, `rise` what it is above the first, `largest_step` the largest difference of
    neighbouring levels, `span` the steps that the levels cover. `drift` is how many of its own standard errors the mean
    difference of neighbouring levels is above zero: what speaks for growth if the levels are a random walk.
    """

    rate: float
    low: float
    high: float
    last_level: float
    rise: float
    largest_step: float
    span: float
    drift: float


def block_levels(values: Floats, *, share: float) -> Floats:
    """The `share` quantile of each of BLOCKS equal blocks; rows that do not fill the blocks are left out at the start.

    `values` has shape (n,), n >= BLOCKS. Copies the series once.
    """
    per_block = len(values) // BLOCKS
    blocks = values[len(values) - per_block * BLOCKS :].reshape(BLOCKS, per_block)
    index = int(share * (per_block - 1))
    return np.asarray(np.partition(blocks, index, axis=1)[:, index], dtype=np.float64)


def has_saw_teeth(values: Floats) -> bool:
    """Whether the series falls at one go and never rises so: a collector's work, and not what wanders about.

    At least TEETH falls, half as deep as the deepest or more, and not one rise of that size, after the first quarter.
    """
    changes = np.diff(values[len(values) // 4 :])
    half = -float(changes.min(initial=0.0)) / 2
    return half > 0 and float(changes.max()) < half and int(np.count_nonzero(changes <= -half)) >= TEETH


def eroded(levels: Floats) -> Floats:
    """Each level lowered to its neighbours', so that teeth up to three blocks wide leave their floor."""
    padded = np.pad(levels, 1, mode="edge")
    return np.minimum(np.minimum(padded[:-2], padded[1:-1]), padded[2:])


def fit_trend(levels: Floats, *, steps_per_block: float, alpha: float) -> Trend:
    """The line through `levels`, shape (BLOCKS,), with one-sided bounds at `alpha`."""
    slope, error, freedom = _slope(levels)
    margin = -float(stdtrit(freedom, alpha)) * error
    steps = np.diff(levels)
    return Trend(
        rate=slope / steps_per_block,
        low=(slope - margin) / steps_per_block,
        high=(slope + margin) / steps_per_block,
        last_level=float(levels[-1]),
        rise=float(levels[-1] - levels[0]),
        largest_step=float(steps.max()),
        span=steps_per_block * len(levels),
        drift=_drift(steps),
    )


def _drift(differences: Floats) -> float:
    mean, deviation = float(differences.mean()), float(differences.std(ddof=1))
    if deviation == 0:
        return math.copysign(math.inf, mean) if mean else 0.0
    return mean / deviation * math.sqrt(len(differences))


def observed_quantum(values: Floats, *, least: float, most: float) -> float:
    """The smallest frequent change of the series between neighbouring samples, within [least, most].

    Frequent: a twentieth of the changes are no larger. A page is 4 KiB, a huge page 2,048. Changes in the first
    fiftieth are those of a start. A series has the least quantum if it never changes, if it changes once and by more
    than `most` (somebody allocated something), or if its stairs have ended.
    """
    changes = np.diff(values[len(values) // 50 :])
    places = np.flatnonzero(changes)
    if not len(places) or _stairs_ended(places, rows=len(changes)):
        return least
    index = len(places) // 20
    frequent = float(np.partition(np.abs(changes[places]), index)[index])
    if frequent > most and len(places) == 1:
        return least
    return min(max(frequent, least), most)


def _stairs_ended(places: npt.NDArray[np.intp], *, rows: int) -> bool:
    """Whether nothing has changed since the last of several changes for much longer than ever between two of them:
    stairs that go up at a steady pace would have had their next step.
    """
    return len(places) > 1 and rows - int(places[-1]) > STAIRS_ENDED * int(np.diff(places).max())


def _slope(levels: Floats) -> tuple[float, float, int]:
    """Slope a block, its standard error, degrees of freedom."""
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


def _residuals(levels: Floats, time: Floats) -> Floats:
    centred = time - time.mean()
    level = levels - levels.mean()
    return np.asarray(level - centred * float(centred @ level) / float(centred @ centred), dtype=np.float64)


def _memory(residuals: Floats) -> float:
    """The AR(1) coefficient, corrected for its bias in short series; 1 when it cannot be told from 1."""
    count = len(residuals)
    past = residuals[:-1]
    power = float(past @ past)
    raw = float(residuals[1:] @ past) / power if power > 0 else 0.0
    corrected = min(1.0, raw + (2 + 4 * raw) / count)
    return 1.0 if abs(corrected - 1) <= count**-0.5 else max(corrected, -0.99)


def _quasi_differenced(levels: Floats, time: Floats, memory: float) -> tuple[float, float]:
    """Least squares after removing the AR(1) part (Prais and Winsten): slope and its standard error."""
    first = math.sqrt(1 - memory * memory)
    one = np.full(len(levels), 1 - memory)
    one[0] = first
    x = np.append(first * time[0], time[1:] - memory * time[:-1])
    y = np.append(first * levels[0], levels[1:] - memory * levels[:-1])
    weight = float(one @ one)
    x = x - one * float(one @ x) / weight
    y = y - one * float(one @ y) / weight
    power = float(x @ x)
    slope = float(x @ y) / power
    rest = y - slope * x
    return slope, math.sqrt(float(rest @ rest) / (len(levels) - 2) / power)
