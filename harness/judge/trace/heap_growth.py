"""Judges the growth of the C heap in use, by the rule for resident memory: it shows leaks that resident memory hides.

A leak first fills memory that is free inside the heap: after a warm-up that freed much, resident memory stays constant
for thousands of steps. A heap that is sometimes full of garbage also stays resident at its largest size, which hides a
leak below that size. The heap in use shows both.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from harness.judge.trace.even_rows import even_rows, sampled, thinned_rows
from harness.judge.trace.growth.rule import HUGE_PAGE_KIB, LEAST_ROWS, Growth, judge_growth
from harness.judge.trace.look_rates import keep_on, paces_at
from harness.judge.trace.memory_layer import WRAP_KIB
from harness.model import Trace
from harness.reasons import GrowthReason

GRAIN_KIB = 16 / 1024
"""Alignment of malloc, in KiB: the smallest change of the heap in use."""
LOOKS = 4
"""Looks that can make a trace suspect: three intervals, which double in length, with one growth rate."""
KEEPS_AT_LOOKS = 0.95
"""Minimum ratio of a leak's rates in successive intervals. Memory after a collection has little noise; growth by the
power 0.9 of time has a ratio of 0.93.
"""


def judge_heap(trace: Trace, *, limit: float, alpha: float) -> Growth | None:
    """Judge the samples of the C heap in use; `limit` is in KiB/step. Return None if the samples are too few, or if
    more memory is in use than resident, because part of it was never touched.
    """
    values, steps_per_row = thinned_rows(*even_rows(trace.step, trace.column("heap_kib")))
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
        looks=[replace(look, rss_before_kib=look.heap_before_kib, rss_kib=look.heap_kib) for look in trace.looks],
    )


def kept_at_looks(trace: Trace, *, limit: float) -> Growth | None:
    """Judge the heap that is left after the collections at the looks: return a suspect growth, or None. Four points do
    not prove a leak, because a table that doubles in size also shows one rate.
    """
    paces = paces_at(trace.looks, "heap_kib", fewest=LOOKS, most=LOOKS)
    if not keep_on(paces, limit=limit, keeps=KEEPS_AT_LOOKS):
        return None
    resident = sampled(trace.column("rss_kib"))
    _, left = max((look.step, look.heap_kib) for look in trace.looks if look.heap_kib is not None)
    if not len(resident) or left > resident[-1]:
        return None
    how = GrowthReason.STEADY_AT_LOOKS()
    return Growth(verdict="suspect", rate=paces[-1], interval=(min(paces), max(paces)), how=how)
