"""Simple rules for "does this memory leak?", to compare the harness with. Each takes memory in KiB, shape (steps,)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from benchmarks.generators import Floats
from harness.model import Limits

LIMIT = Limits().leak_kib_per_step
PAIRS = np.triu_indices(64, 1)

Rule = Callable[[Floats], bool]


def grown_five_per_cent(rss_kib: Floats) -> bool:
    return bool(rss_kib[-1] > 1.05 * rss_kib[0])


def least_squares(rss_kib: Floats) -> bool:
    """Return whether the slope over all rows is above the limit, with p < .01 as if rows were independent."""
    time_ = np.arange(len(rss_kib)) - (len(rss_kib) - 1) / 2
    power = float(time_ @ time_)
    slope = float(time_ @ rss_kib) / power
    rest = rss_kib - rss_kib.mean() - slope * time_
    error = float(np.sqrt(rest @ rest / (len(rss_kib) - 2) / power))
    return slope >= LIMIT and slope > 2.33 * error


def theil_sen(rss_kib: Floats) -> bool:
    """Return whether the median slope of the second half's 64 block medians is above the limit."""
    medians, width = _second_half(rss_kib)
    first, last = PAIRS
    return bool(np.median((medians[last] - medians[first]) / (last - first)) / width >= LIMIT)


def mann_kendall(rss_kib: Floats) -> bool:
    """Return whether the second half's 64 block medians rise (p < .01) by at least the limit."""
    medians, _ = _second_half(rss_kib)
    first, last = PAIRS
    ups = float(np.sign(medians[last] - medians[first]).sum())
    return ups > 2.33 * np.sqrt(64 * 63 * 133 / 18) and theil_sen(rss_kib)


def three_after_three(rss_kib: Floats) -> bool:
    """Return whether memory grows in each of the last three of six stretches, as CPython's `regrtest -R 3:3` does."""
    ends = rss_kib[np.linspace(0, len(rss_kib) - 1, 7).astype(int)]
    return bool((np.diff(ends)[3:] > 0).all())


def ever_more(rss_kib: Floats) -> bool:
    """Return whether each of ten ever longer stretches grows by more than the one before, as psutil and psleak do."""
    ends = rss_kib[(np.cumsum(np.arange(11)) / 55 * (len(rss_kib) - 1)).astype(int)]
    grown = np.diff(ends)
    return bool((grown > 0).all() and (np.diff(grown) > 0).all())


def _second_half(rss_kib: Floats) -> tuple[Floats, int]:
    half = rss_kib[len(rss_kib) // 2 :]
    width = len(half) // 64
    return np.median(half[: 64 * width].reshape(64, width), axis=1), width


RULES: Mapping[str, Rule] = {
    "+5 %": grown_five_per_cent,
    "lsq": least_squares,
    "theil-sen": theil_sen,
    "mann-k.": mann_kendall,
    "3:3": three_after_three,
    "psleak": ever_more,
}
