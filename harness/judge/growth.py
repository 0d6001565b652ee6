"""Is a series growing for ever? The rule for one series of one trace (memory, or any other thing that should not grow).

The windows are A, the second quarter of the rows, and B, the second half; the first quarter is warm-up. A leak goes on
at the same pace in both, up to the last quarter: a filling buffer ends, a logarithmic warm-up has half the rate in B
that it had in A, growth by the square root 0.71 of it and 0.65 in the last quarter. A leak may also begin late, and
then goes on at the same pace through both halves of B. Demand that fell before it rose may be a slow wave, and is no
leak. Rows are taken as evenly spaced in steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from harness.judge.fit import BLOCKS, FLOOR, Trend, block_levels, eroded, fit_trend, has_saw_teeth, observed_quantum
from harness.model import Floats, Interval, Look, VerdictName

PAGE_KIB = 4.0
HUGE_PAGE_KIB = 2048.0
LEAST_ROWS = 4 * BLOCKS
KEEPS_PACE = 0.78
"""Of its rate in A that a leak has in B at least, and in the last quarter."""
LARGEST_SHARE = 0.34
"""Of the rise in B that one step may be: more is a jump, not a leak."""
LARGEST_SHARE_LATE = 0.20
"""The same when the growth began late: less time has shown that it is steady."""
KEEPS_PACE_LATE = 0.8
WALK_DRIFT = 3.33
"""Standard errors (p = .0025 with 14 degrees of freedom) by which B must grow even if its floors are a random walk: the
estimate of how far they are one is biased in short series.
"""
FELL = 0.1
"""Of the rise in B by which a steady fall before it makes the rise doubtful."""
STILL_GROWS = 0.05
"""Of the whole rise: with more than that in B, memory has not come to a plateau."""
GIVEN_BACK = 0.5
"""Of the growth between two looks that gc.collect must return for the growth to be called reference cycles."""


@dataclass(frozen=True, kw_only=True)
class Growth:
    """What one series does. `unmet` says which condition kept a trend from being a leak.

    `rise` is how far the floor rose since the first 2 % of the rows; `trend` is that of B, None if too few rows.
    `below` is the limit that a steady growth, which goes on, stays below; None where there is no such growth.
    """

    verdict: VerdictName
    trend: Trend | None = None
    excluded: float | None = None
    rise: float = 0.0
    unmet: str = ""
    cycles: bool = False
    below: float | None = None

    @property
    def rate(self) -> float | None:
        return None if self.trend is None else self.trend.rate

    @property
    def interval(self) -> Interval | None:
        return None if self.trend is None else (self.trend.low, self.trend.high)


@dataclass(frozen=True, kw_only=True)
class _Windows:
    """The trends of the four quarters, the second of which is A, and of `later`, the second half, which is B."""

    first: Trend
    earlier: Trend
    third: Trend
    last: Trend
    later: Trend

    @property
    def fell(self) -> bool:
        """Whether memory fell steadily in a quarter of the first half, by enough to doubt the rise in B."""
        before = (self.first, self.earlier)
        return any(quarter.high < 0 and -quarter.rise > FELL * self.later.rise for quarter in before)


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
    """`values` has shape (n,), without missing rows. `plateau` is the rise from which "flat" is called "plateau";
    `quanta` bounds the quantum; all in the unit of `values`.
    """
    if len(values) < LEAST_ROWS:
        return Growth(verdict="inconclusive", unmet=too_few(len(values)))
    seen = _windows(values, steps_per_row=steps_per_row, alpha=alpha)
    later = seen.later
    quantum = observed_quantum(values, least=quanta[0], most=quanta[1])
    excluded = max(later.high, 0.0) + quantum / later.span
    rise = later.last_level - _start(values)
    unmet = _unmet(seen, limit=limit, quantum=quantum)
    late = unmet is not None and _is_late_leak(seen, limit=limit, quantum=quantum)
    if unmet is None or late:
        cycles = _given_back(looks, limit=limit)
        trend = seen.last if late else later
        return Growth(verdict="plateau" if cycles else "leak", trend=trend, rise=rise, cycles=cycles)
    if excluded < limit:
        grows = later.low > 0 and later.rise > max(2 * quantum, STILL_GROWS * rise)
        good: VerdictName = "plateau" if rise > plateau and not grows else "flat"
        return Growth(verdict=good, trend=later, excluded=excluded, rise=rise, below=limit if grows else None)
    verdict: VerdictName = "suspect" if later.low > 0 else "inconclusive"
    return Growth(verdict=verdict, trend=later, excluded=excluded, rise=rise, unmet=unmet)


def too_few(rows: int) -> str:
    return f"too few samples to judge: {rows}, and it takes {LEAST_ROWS}"


def _windows(values: Floats, *, steps_per_row: float, alpha: float) -> _Windows:
    toothed = has_saw_teeth(values)

    def window(begin: float, end: float) -> Trend:
        """The trend of the floors between two fractions of the rows."""
        piece = values[int(begin * len(values)) : int(end * len(values))]
        floors = block_levels(piece, share=FLOOR)
        if toothed:
            floors = eroded(floors)
        return fit_trend(floors, steps_per_block=len(piece) // BLOCKS * steps_per_row, alpha=alpha)

    return _Windows(
        first=window(0.0, 0.25),
        earlier=window(0.25, 0.5),
        third=window(0.5, 0.75),
        last=window(0.75, 1.0),
        later=window(0.5, 1.0),
    )


def _start(values: Floats) -> float:
    """The floor of the first 2 % of the rows."""
    first = values[: max(1, len(values) // 50)]
    index = int(FLOOR * (len(first) - 1))
    return float(np.partition(first, index)[index])


def _unmet(seen: _Windows, *, limit: float, quantum: float) -> str | None:
    """The first condition of a leak that does not hold, in words; None if all hold."""
    earlier, later = seen.earlier, seen.later
    keeps_pace = min(later.rate, seen.last.rate) >= KEEPS_PACE * earlier.rate
    conditions = (
        (later.low > 0, "no steady growth in the second half"),
        (later.rate >= limit, "the growth is slower than the limit"),
        (not seen.fell, "memory fell before it grew"),
        (earlier.low > 0, "the growth is not steady over the whole trace"),
        (keeps_pace, "the growth is slowing down"),
        (later.rise > 2 * quantum, "it grew by no more than two allocations of its smallest size"),
        (later.largest_step <= LARGEST_SHARE * later.rise, "one jump makes most of the growth"),
        (later.drift >= WALK_DRIFT, "memory that wanders about can grow as much"),
    )
    return next((words for holds, words in conditions if not holds), None)


def _is_late_leak(seen: _Windows, *, limit: float, quantum: float) -> bool:
    """Whether a leak began after A, whose trend is then the last quarter's: faster than A, steady in each half of B."""
    earlier, third, last, later = seen.earlier, seen.third, seen.last, seen.later
    if later.low <= 0 or later.drift < WALK_DRIFT or later.rise <= 2 * quantum or earlier.rate > later.rate:
        return False
    return (
        not seen.fell
        and min(third.low, last.low) > 0
        and last.rate >= max(limit, KEEPS_PACE_LATE * third.rate)
        and later.largest_step <= LARGEST_SHARE_LATE * later.rise
        and all(half.largest_step <= LARGEST_SHARE * half.rise for half in (third, last))
    )


def _given_back(looks: Sequence[Look], *, limit: float) -> bool:
    """Whether gc.collect at the looks returned the growth: then it is cyclic garbage that waits, and no leak.

    It is given back if half of what grew since the look before is gone after the collection, and what stays after the
    collections does not grow at the limit in each of the last two stretches.
    """
    measured = [look for look in looks if look.rss_kib is not None and look.rss_before_kib is not None]
    if len(measured) < 2:
        return False
    last, before = measured[-1], measured[-2]
    grown = _number(last.rss_before_kib) - _number(before.rss_kib)
    returned = _number(last.rss_before_kib) - _number(last.rss_kib)
    if grown <= 0 or returned < GIVEN_BACK * grown:
        return False
    stretches = list(zip(measured[-3:], measured[-3:][1:], strict=False))
    rates = [(_number(b.rss_kib) - _number(a.rss_kib)) / max(1, b.step - a.step) for a, b in stretches]
    return min(rates) < limit


def _number(value: float | None) -> float:
    return float("nan") if value is None else value
