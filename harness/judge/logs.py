"""Converts logs to ratios and shares, within what a float holds: a file or an image may send any figure."""

from __future__ import annotations

import math

MOST = 700.0
"""Largest log that is converted: a float holds no ratio above e^709, and none below e^-745 but zero."""


def ratio_of(log: float) -> float:
    """Return e^log, which is positive and finite."""
    return math.exp(max(-MOST, min(log, MOST)))


def share_of(log: float) -> float:
    """Return e^log - 1, which is above -1 and finite."""
    return math.expm1(max(-MOST, min(log, MOST)))
