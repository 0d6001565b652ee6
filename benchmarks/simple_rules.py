"""Simple rules for "does this memory leak?", to compare the harness with. Each takes memory in KiB, shape (steps,)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from benchmarks.generators import Floats
from harness.model import Limits

LIMIT = Limits().leak_kib_per_step

Rule = Callable[[Floats], bool]


def least_squares(rss_kib: Floats) -> bool:
    """Return whether the slope over all rows is above the limit, with p < .01 as if rows were independent."""
    time_ = np.arange(len(rss_kib)) - (len(rss_kib) - 1) / 2
    power = float(time_ @ time_)
    slope = float(time_ @ rss_kib) / power
    rest = rss_kib - rss_kib.mean() - slope * time_
    error = float(np.sqrt(rest @ rest / (len(rss_kib) - 2) / power))
    return slope >= LIMIT and slope > 2.33 * error


def ever_more(rss_kib: Floats) -> bool:
    """Return whether each of ten ever longer stretches grows by more than the one before, as psutil and psleak do."""
    ends = rss_kib[(np.cumsum(np.arange(11)) / 55 * (len(rss_kib) - 1)).astype(int)]
    grown = np.diff(ends)
    return bool((grown > 0).all() and (np.diff(grown) > 0).all())


RULES: Mapping[str, Rule] = {"lsq": least_squares, "psleak": ever_more}
