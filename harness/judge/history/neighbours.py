"""One figure of each version: how far figures differ by chance is taken from versions that are neighbours.

What drifts with time, and what each version is really like, cannot be told from noise then: a level shows only where
several versions in a row have it.
"""

from __future__ import annotations

import math

import numpy as np

from harness.judge.comparison.round_effects import NEGLIGIBLE, Spread
from harness.judge.history.changepoints.distinct_levels import Laid
from harness.model import Floats

FEWEST_ALONE = 8
"""Versions of one figure each: with fewer the noise is not known."""
FREEDOM_SHARE = 0.4
"""Degrees of freedom for each version: differences that share a figure, of which the median is taken, tell less."""
FAR_FROM_NEIGHBOURS = 3.0
"""In standard deviations from the median of a figure and its neighbours: what is further out is drawn in to there."""


def laid_by_neighbours(row: Floats) -> Laid:
    """The layout of logs, shape (1, versions), FEWEST_ALONE versions or more."""
    figures = row[0] - row[0].mean()
    spread = _spread(figures)
    ends = np.median(figures[:3]), np.median(figures[-3:])
    inside = np.median(np.lib.stride_tricks.sliding_window_view(figures, 3), axis=1)
    middle = np.concatenate([ends[:1], inside, ends[1:]])
    far = FAR_FROM_NEIGHBOURS * spread.deviation
    drawn = middle + np.clip(figures - middle, -far, far)
    return Laid(values=drawn[None, :], raw=figures[None, :], spread=spread)


def far_out(laid: Laid, *, least: float) -> list[int]:
    """The versions whose figure alone is further from its neighbours than noise is, and than `least` (a log)."""
    apart = np.abs(laid.raw - laid.values)[0]
    return [int(place) for place in np.flatnonzero(apart > max(least, FAR_FROM_NEIGHBOURS * laid.spread.deviation))]


def _spread(figures: Floats) -> Spread:
    """From the median of the differences of neighbours, which a few changes do not move.

    Where most neighbours are equal, as figures are rounded, from the smaller four fifths of the differences.
    """
    steps = np.diff(figures)
    steps = np.sort(np.abs(steps - np.median(steps)))
    smaller = steps[: math.ceil(0.8 * len(steps))]
    deviation = max(1.4826 * float(np.median(steps)), float(np.sqrt((smaller**2).mean()))) / math.sqrt(2)
    return Spread(deviation=max(deviation, NEGLIGIBLE), freedom=max(1, int(FREEDOM_SHARE * (len(figures) - 1))))
