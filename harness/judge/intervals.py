"""Medians and intervals over trials. A trial is the unit: steps inside one are never pooled."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.special import stdtrit

from harness.model import Interval

CONFIDENCE = 0.95
SEPARATED = 0.995
"""Confidence at which two versions are called different."""


def median(values: Sequence[float]) -> float | None:
    return float(np.median(values)) if values else None


def t_interval(values: Sequence[float]) -> Interval | None:
    """The 95 % interval of the mean over trials; None for fewer than two."""
    if len(values) < 2:
        return None
    margin = _quantile(len(values) - 1, 0.5 + CONFIDENCE / 2) * _deviation(values) / math.sqrt(len(values))
    middle = float(np.mean(values))
    return middle - margin, middle + margin


def log_t_interval(values: Sequence[float]) -> Interval | None:
    """The same for positive figures whose errors are ratios."""
    if any(value <= 0 for value in values):
        return None
    interval = t_interval([math.log(value) for value in values])
    return None if interval is None else (math.exp(interval[0]), math.exp(interval[1]))


def widest(intervals: Sequence[Interval | None]) -> Interval | None:
    known = [interval for interval in intervals if interval is not None]
    return max(known, key=lambda interval: interval[1] - interval[0]) if known else None


def smallest_visible(values: Sequence[float]) -> float | None:
    """The relative change that as many trials of another version, as noisy as these, would have to show."""
    if len(values) < 2 or any(value <= 0 for value in values):
        return None
    deviation = _deviation([math.log(value) for value in values])
    return math.expm1(_quantile(2 * len(values) - 2, SEPARATED) * deviation * math.sqrt(2 / len(values)))


def _deviation(values: Sequence[float]) -> float:
    return float(np.std(values, ddof=1))


def _quantile(freedom: int, share: float) -> float:
    return float(stdtrit(freedom, share))
