"""Compares the values that launches returned: medians, shares and ratios."""

from __future__ import annotations

import math

import numpy as np

from harness.judge.comparison.round_tables import Columns
from harness.judge.comparison.slow_versions import WARM_UP
from harness.model import Effect, Floats

HARDLY_DIFFERENT = 5e-9
"""Share below which a change of a returned value has no size: as a percentage it would read 0."""


def same_values(first: Floats, second: Floats) -> bool:
    """Return whether two launches returned the same values."""
    return first.shape == second.shape and bool(np.array_equal(first, second, equal_nan=True))


def usual_value(values: Floats) -> float:
    """Return the median of the finite values after the warm-up quarter; NaN if there are none."""
    finite = values[np.isfinite(values)]
    return float(np.median(finite[int(len(finite) * WARM_UP) :])) if len(finite) else math.nan


def relative(old: float, new: float, *, scale: float = 0.0) -> float:
    """Return the change as a share of the old value, or of `scale` if given, because old values may be near zero."""
    if old == new:
        return 0.0
    size = scale or abs(old)
    return (new - old) / size if size else math.copysign(math.inf, new - old)


def ratio(old: float, new: float) -> Effect | None:
    """Return the ratio of two different positive values, else None: for negative values, "20 % more" would mean the
    opposite, and for values that hardly differ, or differ only in other steps, "0 % more" would mean nothing.
    """
    if min(old, new) <= 0 or not math.isfinite(new / old) or abs(new / old - 1) < HARDLY_DIFFERENT:
        return None
    return Effect(value=new / old, unit="ratio")


def scale(columns: Columns) -> float:
    """Return the median size of the values, by which differences are divided; 1 if it is zero or unknown."""
    sizes = [abs(value) for column in columns.values() for value in column.values() if math.isfinite(value)]
    return float(np.median(sizes)) or 1.0 if sizes else 1.0
