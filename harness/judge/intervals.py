"""Computes medians and Student t confidence intervals over trials, and converts logs to ratios.

The trial is the sampling unit: the steps of several trials are never pooled.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.special import stdtrit

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
    quantile = float(stdtrit(len(values) - 1, 0.5 + CONFIDENCE / 2))
    margin = quantile * float(np.std(values, ddof=1)) / math.sqrt(len(values))
    middle = float(np.mean(values))
    return middle - margin, middle + margin


def log_t_interval(values: Sequence[float]) -> Interval | None:
    """Return the 95 % t interval of the geometric mean; None for fewer than two values, or if one is not positive."""
    if any(value <= 0 for value in values):
        return None
    interval = t_interval([math.log(value) for value in values])
    return None if interval is None else (ratio_of(interval[0]), ratio_of(interval[1]))


def widest(intervals: Sequence[Interval | None]) -> Interval | None:
    """Return the widest of the known intervals; None if none is known."""
    known = [interval for interval in intervals if interval is not None]
    return max(known, key=lambda interval: interval[1] - interval[0]) if known else None


# ---------------------------------------------------------------- logs, clamped to what a float can hold


MOST = 700.0
"""Largest absolute log that is converted: in a float, a ratio above e^709 overflows, and one below e^-745 is zero."""


def ratio_of(log: float) -> float:
    """Return e^log, which is positive and finite."""
    return math.exp(max(-MOST, min(log, MOST)))


def share_of(log: float) -> float:
    """Return e^log - 1, which is above -1 and finite."""
    return math.expm1(max(-MOST, min(log, MOST)))
