"""Noise of a series with one figure of each version, from the differences between neighbouring versions.

Drift over time and the versions' own differences cannot be separated from noise then: a level shows only if several
versions in a row have it.
"""

from __future__ import annotations

import math

import numpy as np

from harness.judge.comparison.round_effects import NEGLIGIBLE, Spread
from harness.judge.history.changepoints.distinct_levels import Laid
from harness.model import Floats

FEWEST_ALONE = 8
"""Fewest versions of one figure each from which the noise can be estimated."""
FREEDOM_SHARE = 0.4
"""Degrees of freedom for each version, below one because the median uses differences that share figures."""
FAR_FROM_NEIGHBOURS = 3.0
"""Standard deviations from the median of a figure and its neighbours beyond which the figure is drawn in."""


def laid_by_neighbours(row: Floats) -> Laid:
    """Return the layout of logs, shape (1, versions), for at least FEWEST_ALONE versions."""
    figures = row[0] - row[0].mean()
    spread = _spread(figures)
    ends = np.median(figures[:3]), np.median(figures[-3:])
    inside = np.median(np.lib.stride_tricks.sliding_window_view(figures, 3), axis=1)
    middle = np.concatenate([ends[:1], inside, ends[1:]])
    far = FAR_FROM_NEIGHBOURS * spread.deviation
    drawn = middle + np.clip(figures - middle, -far, far)
    return Laid(values=drawn[None, :], raw=figures[None, :], spread=spread)


def far_out(laid: Laid, *, least: float) -> list[int]:
    """Return the versions whose figure differs from its neighbours by more than the noise and `least` (a log)."""
    apart = np.abs(laid.raw - laid.values)[0]
    return [int(place) for place in np.flatnonzero(apart > max(least, FAR_FROM_NEIGHBOURS * laid.spread.deviation))]


def _spread(figures: Floats) -> Spread:
    """Estimate the noise from the median difference of neighbours (MAD), which a few changes do not move.

    If figures are rounded and most neighbours are equal, the smaller four fifths of the differences decide.
    """
    steps = np.diff(figures)
    steps = np.sort(np.abs(steps - np.median(steps)))
    smaller = steps[: math.ceil(0.8 * len(steps))]
    deviation = max(1.4826 * float(np.median(steps)), float(np.sqrt((smaller**2).mean()))) / math.sqrt(2)
    return Spread(deviation=max(deviation, NEGLIGIBLE), freedom=max(1, int(FREEDOM_SHARE * (len(figures) - 1))))
