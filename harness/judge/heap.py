"""The C heap in use, by the same rule as resident memory: it shows a leak that resident memory hides.

What a program loses first takes memory that is free inside its heap: after a warm-up that gave back much, resident
memory stays for thousands of steps. And a heap that is full of garbage now and then stays resident at its largest,
where a leak below it cannot be seen. What is in use tells both.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from harness.judge.growth import HUGE_PAGE_KIB, LEAST_ROWS, Growth, judge_growth
from harness.judge.layer import WRAP_KIB
from harness.judge.rows import even_rows, sampled, thinned
from harness.model import Look, Trace

WORDS = "the C heap in use"
GRAIN_KIB = 16 / 1024
"""What malloc rounds to."""


def judge_heap(trace: Trace, *, limit: float, alpha: float) -> Growth | None:
    """None where too few samples of the heap are there, or where it holds memory that was never touched: more than is
    resident. `limit` in KiB a step.
    """
    values, steps_per_row = thinned(*even_rows(trace.step, trace.column("heap_kib")))
    resident = sampled(trace.column("rss_kib"))
    if len(values) < LEAST_ROWS or not len(resident):
        return None
    values = np.unwrap(values, period=WRAP_KIB)
    if values[-1] > resident[-1]:
        return None
    return judge_growth(
        values,
        steps_per_row=steps_per_row,
        limit=limit,
        alpha=alpha,
        plateau=1024.0,
        quanta=(GRAIN_KIB, HUGE_PAGE_KIB),
        looks=tuple(_of_heap(look) for look in trace.looks),
    )


def _of_heap(look: Look) -> Look:
    """A look whose resident memory is the heap's."""
    return replace(look, rss_before_kib=look.heap_before_kib, rss_kib=look.heap_kib)
