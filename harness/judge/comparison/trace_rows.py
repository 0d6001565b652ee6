"""Reads the rows of a trace between two steps."""

from __future__ import annotations

import numpy as np

from harness.judge.comparison.slow_versions import WARM_UP
from harness.model import Floats, Trace


def settled_step_s(trace: Trace, common: int) -> Floats:
    """Return the step times (s) after the warm-up quarter of the first `common` steps, which all launches have."""
    return rows_between(trace, "step_s", common * WARM_UP, common)


def rows_between(trace: Trace, name: str, after: float, last: float) -> Floats:
    """Return the finite rows of the steps after `after`, up to `last`."""
    values = trace.column(name)
    if values is None:
        return np.empty(0)
    rows = all_rows(trace, values, after, last)
    return np.asarray(rows[np.isfinite(rows)], dtype=np.float64)


def all_rows(trace: Trace, values: Floats, after: float, last: float) -> Floats:
    """Return the rows of the steps after `after`, up to `last`, including rows that are NaN."""
    first, stop = np.searchsorted(trace.step, (after, last), side="right")
    return values[int(first) : int(stop)]
