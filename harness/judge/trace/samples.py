"""Prepares the samples of a trace for the judge: a column on an even grid of steps, the rates between looks, and
resident memory without the pages of mapped files and without the growth that a look itself causes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from harness.model import LARGEST, Floats, Look, Trace

MOST_ROWS = 200_000
"""Most rows of a series that is judged without thinning, which keeps the floors and bounds the cost of judging."""
USUAL_GAP = 0.95
"""Quantile of the distances between rows that becomes the spacing of the even grid."""


def sampled(values: Floats | None) -> Floats:
    """Return the rows that hold a number, shape (n,); n = 0 if there is no such column."""
    if values is None:
        return np.empty(0)
    present = _measured(values)
    return values if present.all() else values[present]


def settled_median(values: Floats | None) -> float | None:
    """Return the median of the measured rows after the warm-up quarter; None if there are none."""
    measured = sampled(values)
    return float(np.median(measured[len(measured) // 4 :])) if len(measured) else None


def prefix(trace: Trace, last: int) -> Trace:
    """Return the trace up to step `last`."""
    rows = int(np.searchsorted(trace.step, last, side="right"))
    columns = {name: values[:rows] for name, values in trace.columns.items()}
    return Trace(step=trace.step[:rows], columns=columns, looks=tuple(k for k in trace.looks if k.step <= last))


def even_rows(step: Floats, values: Floats | None) -> tuple[Floats, float]:
    """Return the column on an even grid of steps, shape (n,), and the spacing of the grid in steps. If all steps are
    equal, n = 1.

    Rows without a number are left out, and unsorted rows are sorted. If the spacing varies (a thinned trace, missing
    rows), each grid point takes the last row before it, so that the sampling density does not change the law of growth.
    """
    if values is None:
        return np.empty(0), 1.0
    present = _measured(values) & _measured(step)
    if not present.all():
        step, values = step[present], values[present]
    if len(step) < 2:
        return values, 1.0
    gaps = np.diff(step)
    least, most = float(gaps.min()), float(gaps.max())
    if least == most > 0:
        return values, most
    if least < 0:
        order = np.argsort(step, kind="stable")
        step, values = step[order], values[order]
        gaps = np.diff(step)
    span = float(step[-1] - step[0])
    if span <= 0:
        return values[-1:], 1.0
    width = max(float(np.quantile(gaps, USUAL_GAP)), span / len(step))
    count = max(int(span / width), 1)
    grid = np.linspace(step[-1] - width * count, step[-1], count + 1)
    rows = np.maximum(np.searchsorted(step, grid, side="right") - 1, 0)
    return values[rows], width


def thinned_rows(values: Floats, steps_per_row: float) -> tuple[Floats, float]:
    """Return at most MOST_ROWS rows and their spacing in steps. Each row is the minimum of a group, which avoids
    aliasing.
    """
    every = -(-len(values) // MOST_ROWS)
    if every <= 1:
        return values, steps_per_row
    whole = values[len(values) % every :]
    return whole.reshape(-1, every).min(axis=1), steps_per_row * every


def _measured(values: Floats) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    return (values < LARGEST) & (values > -LARGEST)


# ---------------------------------------------------------------- rates between looks, each at twice the step before


def look_values(looks: Sequence[Look], name: str) -> dict[int, float]:
    """Return the figure `name` by step, for the looks that have it."""
    return {look.step: value for look in looks if (value := look.of(name)) is not None}


def paces_at(looks: Sequence[Look], name: str, *, fewest: int, most: int) -> list[float]:
    """Return the growth rates of a figure (per step) between the last `most` looks that have it, oldest first; an empty
    list if fewer than `fewest` looks have it.
    """
    last = sorted(look_values(looks, name).items())[-most:]
    return [(b - a) / (after - before) for (before, a), (after, b) in pairwise(last)] if len(last) >= fewest else []


def last_pace(looks: Sequence[Look], name: str) -> float | None:
    """Return the growth rate of a figure (per step) between the last two looks that have it; None if fewer do."""
    paces = paces_at(looks, name, fewest=2, most=2)
    return paces[0] if paces else None


# ---------------------------------------------------------------- pages of mapped files
#
# A program that reads more and more of a mapped file (a data set, weights) becomes larger, but keeps nothing: the
# system takes such pages back whenever memory is short.

OF_RESIDENT = ("rss_before_kib", "rss_kib", "rss_trimmed_kib")


def without_file_pages(trace: Trace) -> Trace:
    """Return the trace with resident memory without the pages of mapped files, but with what was swapped out. These
    pages are then the column `file_kib`. A trace in which they were not told apart, or no longer are, is unchanged.

    A row may lack them, and shared and swapped memory is read at the looks alone: in between, they count as if they
    changed steadily.
    """
    rss, anon = trace.column("rss_kib"), trace.column("anon_kib")
    if rss is None or anon is None or not len(sampled(anon)):
        return trace
    looks: list[Look] = []
    shared: list[float] = []
    swapped: list[float] = []
    for look in trace.looks:
        values = dict(look.values)
        file_kib, swap_kib = values.pop("rss_file_kib", 0.0), values.get("swap_kib", 0.0)
        values |= {name: values[name] - file_kib + swap_kib for name in OF_RESIDENT if name in values}
        shared.append(values.get("rss_shmem_kib", 0.0))
        swapped.append(swap_kib)
        looks.append(replace(look, values=values))
    places = [look.step for look in looks]
    of_looks = [np.interp(trace.step, places, kib) if looks else np.zeros(len(rss)) for kib in (shared, swapped)]
    known = np.isfinite(rss) & np.isfinite(anon)
    anon = rss - np.interp(trace.step, trace.step[known], (rss - anon)[known]) if known.any() else anon
    columns = {name: values for name, values in trace.columns.items() if name != "anon_kib"}
    columns |= {"rss_kib": anon + of_looks[0] + of_looks[1], "file_kib": rss - anon - of_looks[0]}
    return replace(trace, columns=columns, looks=tuple(looks))


# ---------------------------------------------------------------- refills
#
# A look calls gc.collect. A program with cyclic garbage shrinks for a moment, and fills up with new garbage in the next
# steps: the look itself caused this growth.


BACK = 0.9
"""Share of the collected memory that is in use again when the refill is complete."""
SOON = 0.25
"""Share of the rows up to the next look within which a refill must end: growth that takes longer may be a leak."""
STAYS = 0.5
"""Minimum share of the collected memory that stays in use after a refill: a deeper fall is a saw-tooth."""


def without_refills(trace: Trace) -> Floats | None:
    """Return resident memory (KiB), in which a straight line from the look to twice the refill time replaces each
    refill; None if it was not sampled.
    """
    rss = trace.column("rss_kib")
    if rss is None or not trace.looks:
        return rss
    values = rss.copy()
    places = np.searchsorted(trace.step, [look.step for look in trace.looks], side="right")
    for look, (begin, end) in zip(trace.looks, pairwise([*map(int, places), len(values)]), strict=True):
        _bridge(values[begin:end], look)
    return values


def _bridge(rows: Floats, look: Look) -> None:
    """Replace the refill in place; `rows` are the rows between a look and the next."""
    before, after = look.of("rss_before_kib"), look.of("rss_kib")
    if before is None or after is None or not before > after:
        return
    given = before - after
    back = np.flatnonzero(rows[: int(SOON * len(rows))] >= after + BACK * given)
    if not len(back) or not np.nanmin(rows[back[0] :]) > after + STAYS * given:
        return
    until = 2 * int(back[0])
    rows[:until] = np.interp(np.arange(until), [-1, until], [before, rows[until]])
