"""Decides whether one series of a trace grows without limit: memory, or any other quantity that should not grow.

A series that matches one of the patterns of `leak_patterns` is a leak. Any other series is flat if the upper confidence
bound of its growth is below the limit, and otherwise undecided.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from harness.judge.trace.leak_patterns import SampledSeries
from harness.judge.trace.trends import BLOCKS, FLOOR, observed_quantum
from harness.model import Floats, Interval, Look, VerdictName
from harness.reasons import GrowthReason

PAGE_KIB = 4.0
HUGE_PAGE_KIB = 2048.0
LEAST_ROWS = 4 * BLOCKS
"""Shortest series that is judged: four rows in each block of the whole series."""
STILL_GROWS = 0.05
"""Maximum share of the whole rise that may be late if memory has reached a plateau."""
GIVEN_BACK = 0.5
"""Minimum share of the growth between two looks that gc.collect must free if reference cycles cause it."""
ALPHA_COUNT = 0.005
"""Significance level of the upper confidence bound of the number of losses."""


@dataclass(frozen=True, kw_only=True)
class Growth:
    """The growth of one series. `how` is the pattern of the leak as text, `unmet` the first condition of a leak that is
    not met.

    `rate` and `interval` are those of the leak, else of the late window; None if there are too few rows. `excluded` is
    the rate above which growth is ruled out. `rise` is the rise of the floor since the first 2 % of the rows. `cycles`:
    gc.collect frees the growth. `below` is the limit if the series still grows steadily, but more slowly than that.
    `due` is the size of a rise if only a possible next rise keeps the series from being flat. `detectable` is the
    minimum detectable leak rate at this noise. All rates are in units per step.
    """

    verdict: VerdictName
    rate: float | None = None
    interval: Interval | None = None
    excluded: float | None = None
    detectable: float | None = None
    rise: float = 0.0
    unmet: str = ""
    how: str = ""
    cycles: bool = False
    below: float | None = None
    due: float | None = None


def judge_growth(
    values: Floats,
    *,
    steps_per_row: float,
    limit: float,
    alpha: float,
    plateau: float,
    quanta: Interval,
    looks: Sequence[Look] = (),
) -> Growth:
    """Judge the growth of `values`, shape (n,), evenly spaced, none missing; `limit` is the least bad growth per step,
    `alpha` the significance level of a leak.

    `plateau` is the rise above which "flat" becomes "plateau", and `quanta` are the bounds of the quantum, all in the
    unit of `values`. If gc.collect at the `looks` frees the growth of a leak, it is a plateau.
    """
    if len(values) < LEAST_ROWS:
        return Growth(verdict="inconclusive", unmet=GrowthReason.TOO_FEW_ROWS(rows=len(values), least=LEAST_ROWS))
    quantum = observed_quantum(values, least=quanta[0], most=quanta[1])
    series = SampledSeries(
        values=values, steps_per_row=steps_per_row, limit=limit, alpha=alpha, quantum=quantum, grain=quanta[0]
    )
    rise = series.windows.later.last_level - _start(values)
    leak = series.leak()
    if leak is None:
        growth = _no_leak(series, rise=rise, plateau=plateau)
    else:
        cycles = _given_back(looks, limit=limit)
        verdict: VerdictName = "plateau" if cycles else "leak"
        growth = Growth(
            verdict=verdict, rate=leak.rate, interval=leak.interval, rise=rise, how=leak.words, cycles=cycles
        )
    return replace(growth, detectable=series.detectable)


def _no_leak(series: SampledSeries, *, rise: float, plateau: float) -> Growth:
    """Judge a series without a leak: flat, plateau, or undecided."""
    later = series.windows.later
    flat = Growth(verdict="flat", rate=later.rate, interval=(later.low, later.high), rise=rise)
    excluded = _excluded(series)
    if excluded >= series.limit:
        verdict: VerdictName = "suspect" if later.low > 0 else "inconclusive"
        due = series.quantum if excluded - _due(series) < series.limit else None
        fastest = max(excluded, _fastest(series))
        unmet = "" if series.unmet is None else series.unmet()
        return replace(flat, verdict=verdict, excluded=fastest, unmet=unmet, due=due)
    if later.rate > excluded:
        # The late trend is that of a wave whose floor does not rise: this is not growth.
        flat = replace(flat, rate=0.0, interval=(0.0, excluded))
    elif later.low > 0 and later.rise > max(2 * series.quantum, STILL_GROWS * rise):
        return replace(flat, excluded=excluded, below=series.limit)
    return replace(flat, verdict="plateau" if rise > plateau else "flat", excluded=excluded)


def _excluded(series: SampledSeries) -> float:
    """Return the rate above which growth is ruled out: the bound by trend and losses, plus one allocation that may be
    due.
    """
    later = series.windows.later
    highest = min(later.high, series.windows.highest_wide, series.highest_floor)
    if series.losses.possible:
        highest = max(highest, series.losses.highest(alpha=ALPHA_COUNT) / series.steps_per_row)
    return max(highest, 0.0) + _due(series)


def _due(series: SampledSeries) -> float:
    """Return the late rate of one more allocation, which may be due."""
    return series.quantum / series.windows.later.span


def _fastest(series: SampledSeries) -> float:
    """Return the highest rate that any window of an undecided series allows: the series may continue at that rate."""
    seen = series.windows
    trends = max(window.high for window in (seen.first, seen.earlier, seen.later))
    return max(trends, seen.highest_wide, series.losses.highest(alpha=ALPHA_COUNT) / series.steps_per_row)


def _start(values: Floats) -> float:
    """Return the floor of the first 2 % of the rows."""
    first = values[: max(1, len(values) // 50)]
    index = int(FLOOR * (len(first) - 1))
    return float(np.partition(first, index)[index])


def _given_back(looks: Sequence[Look], *, limit: float) -> bool:
    """Return whether gc.collect at the looks freed the growth, which is then uncollected cyclic garbage, not a leak.

    The last collection must free the share GIVEN_BACK of the growth since the look before, and the memory left after
    collections must grow by less than the limit in one of the last two intervals.
    """
    measured = [look for look in looks if look.of("rss_kib") is not None and look.of("rss_before_kib") is not None]
    if len(measured) < 2:
        return False
    last, before = measured[-1], measured[-2]
    grown = _number(last.of("rss_before_kib")) - _number(before.of("rss_kib"))
    returned = _number(last.of("rss_before_kib")) - _number(last.of("rss_kib"))
    if grown <= 0 or returned < GIVEN_BACK * grown:
        return False
    stretches = list(zip(measured[-3:], measured[-3:][1:], strict=False))
    rates = [(_number(b.of("rss_kib")) - _number(a.of("rss_kib"))) / max(1, b.step - a.step) for a, b in stretches]
    return min(rates) < limit


def _number(value: float | None) -> float:
    return float("nan") if value is None else value
