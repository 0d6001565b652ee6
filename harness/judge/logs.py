"""Converts natural logs to ratios and relative changes, clamped to what a float can hold: any input may be extreme."""

from __future__ import annotations

import math

MOST = 700.0
"""Largest absolute log that is converted: in a float, a ratio above e^709 overflows, and one below e^-745 is zero."""


def ratio_of(log: float) -> float:
    """Return e^log, which is positive and finite."""
    return math.exp(max(-MOST, min(log, MOST)))


def share_of(log: float) -> float:
    """Return e^log - 1, which is above -1 and finite."""
    return math.expm1(max(-MOST, min(log, MOST)))
