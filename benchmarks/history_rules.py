"""Simple rules that name the version where a level rises, for comparison with the judge.

A rule takes the logs of all launches, shape (launches, versions), and returns its answers and the number of launches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from scipy.stats import ttest_ind

from benchmarks.generators import Floats

FIVE = 5
"""Launches per version, for the rules that use several."""
WELCH_ALPHA = 0.01

Answer = tuple[int, int]
"""(last version of the old level, first version of the new one), as positions in the series."""


def bisect_one_launch(launches: Floats, threshold: float) -> tuple[list[Answer], int]:
    """Bisect with one launch per version; bad means slower than the oldest version by more than the threshold."""
    return _bisect(launches[0], threshold, launches=1)


def bisect_medians(launches: Floats, threshold: float) -> tuple[list[Answer], int]:
    """Bisect with the median of five launches per version."""
    return _bisect(np.median(launches[:FIVE], axis=0), threshold, launches=FIVE)


def _bisect(figures: Floats, threshold: float, *, launches: int) -> tuple[list[Answer], int]:
    good, bad, asked = 0, len(figures) - 1, 2
    if figures[bad] - figures[good] <= threshold:
        return [], asked * launches
    while bad - good > 1:
        middle = (good + bad) // 2
        asked += 1
        good, bad = (good, middle) if figures[middle] - figures[0] > threshold else (middle, bad)
    return [(good, bad)], asked * launches


def neighbours_by_welch(launches: Floats, threshold: float) -> tuple[list[Answer], int]:
    """Launch each version five times; name those slower than the one before by the threshold, with Welch's p < .01."""
    values = launches[:FIVE]
    p_values = ttest_ind(values[:, :-1], values[:, 1:], axis=0, equal_var=False).pvalue
    steps = np.diff(values.mean(axis=0))
    found = np.flatnonzero((p_values < WELCH_ALPHA) & (steps > threshold))
    return [(int(place), int(place) + 1) for place in found], values.size


SIMPLE: Mapping[str, Callable[[Floats, float], tuple[list[Answer], int]]] = {
    "bisect, 1 launch": bisect_one_launch,
    "bisect, median of 5": bisect_medians,
    "neighbours by Welch": neighbours_by_welch,
}
