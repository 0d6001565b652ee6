"""Simple rules that name the version where a level rises, to compare the judge with: launches of each version in, as
logs, shape (launches, versions); answers and the number of launches used out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from scipy.stats import ttest_ind

from benchmarks.generators import Floats

FIVE = 5
"""Launches of a version, for the rules that take several."""
WELCH_ALPHA = 0.01

Answer = tuple[int, int]
"""(last of the old level, first of the new one): positions in the series."""


def bisect_one_launch(launches: Floats, threshold: float) -> tuple[list[Answer], int]:
    """Halve; bad is slower than the oldest version by more than the threshold, in one launch each."""
    return _bisect(launches[0], threshold, launches=1)


def bisect_medians(launches: Floats, threshold: float) -> tuple[list[Answer], int]:
    """The same with the median of five launches."""
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
    """Five launches of all; every neighbour that is slower by more than the threshold, p < .01 by Welch's test."""
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
