"""Computes medians, Student t confidence intervals and minimum detectable effects over trials.

The trial is the sampling unit: the steps of several trials are never pooled.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.special import stdtrit

from harness.judge import logs
from harness.model import Interval

CONFIDENCE = 0.95
"""Confidence level of the intervals in reports."""
SEPARATED = 0.995
"""One-sided confidence level at which two versions are called different."""


def median(values: Sequence[float]) -> float | None:
    """Return the median; None for no values."""
    return float(np.median(values)) if values else None


def t_interval(values: Sequence[float]) -> Interval | None:
    """Return the 95 % t confidence interval of the mean over trials; None for fewer than two trials."""
    if len(values) < 2:
        return None
    margin = _quantile(len(values) - 1, 0.5 + CONFIDENCE / 2) * _deviation(values) / math.sqrt(len(values))
    middle = float(np.mean(values))
    return middle - margin, middle + margin


def log_t_interval(values: Sequence[float]) -> Interval | None:
    """Return the 95 % t interval of the geometric mean; None for fewer than two values, or if one is not positive."""
    if any(value <= 0 for value in values):
        return None
    interval = t_interval([math.log(value) for value in values])
    return None if interval is None else (logs.ratio_of(interval[0]), logs.ratio_of(interval[1]))


def widest(intervals: Sequence[Interval | None]) -> Interval | None:
    """Return the widest of the known intervals; None without any."""
    known = [interval for interval in intervals if interval is not None]
    return max(known, key=lambda interval: interval[1] - interval[0]) if known else None


def smallest_visible(values: Sequence[float]) -> float | None:
    """Return the minimum detectable effect: the relative difference that is just significant in a two-sample t test at
    SEPARATED against a version with as many trials and the same variance. None for fewer than two trials.
    """
    if len(values) < 2 or any(value <= 0 for value in values):
        return None
    deviation = _deviation([math.log(value) for value in values])
    return logs.share_of(_quantile(2 * len(values) - 2, SEPARATED) * deviation * math.sqrt(2 / len(values)))


def _deviation(values: Sequence[float]) -> float:
    return float(np.std(values, ddof=1))


def _quantile(freedom: int, share: float) -> float:
    return float(stdtrit(freedom, share))
