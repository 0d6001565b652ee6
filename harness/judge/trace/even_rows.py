"""Resamples a column for the judge: only measured rows, sorted, on an even grid of steps."""

from __future__ import annotations

import numpy as np

from harness.model import LARGEST, Floats

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
    return _on_grid(step, values, gaps)


def thinned_rows(values: Floats, steps_per_row: float) -> tuple[Floats, float]:
    """Return at most MOST_ROWS rows and their spacing in steps. Each row is the minimum of a group, which avoids
    aliasing.
    """
    every = -(-len(values) // MOST_ROWS)
    if every <= 1:
        return values, steps_per_row
    whole = values[len(values) % every :]
    return whole.reshape(-1, every).min(axis=1), steps_per_row * every


def _on_grid(step: Floats, values: Floats, gaps: Floats) -> tuple[Floats, float]:
    span = float(step[-1] - step[0])
    if span <= 0:
        return values[-1:], 1.0
    width = max(float(np.quantile(gaps, USUAL_GAP)), span / len(step))
    count = max(int(span / width), 1)
    grid = np.linspace(step[-1] - width * count, step[-1], count + 1)
    rows = np.maximum(np.searchsorted(step, grid, side="right") - 1, 0)
    return values[rows], width


def _measured(values: Floats) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    return (values < LARGEST) & (values > -LARGEST)
