"""The C heap in use, by the same rule as resident memory: it shows a leak that resident memory hides.

What a program loses first takes memory that is free inside its heap: after a warm-up that gave back much, resident
memory stays for thousands of steps. And a heap that is full of garbage now and then stays resident at its largest,
where a leak below it cannot be seen. What is in use tells both.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from harness.judge.trace.growth.rule import HUGE_PAGE_KIB, LEAST_ROWS, Growth, judge_growth
from harness.judge.trace.look_rates import keep_on, paces_at
from harness.judge.trace.memory_layer import WRAP_KIB
from harness.judge.trace.rows import even_rows, sampled, thinned
from harness.model import Look, Trace

WORDS = "the C heap in use"
GRAIN_KIB = 16 / 1024
"""What malloc rounds to."""
LOOKS = 4
"""That make a program suspect: three stretches of one pace, each as long as all before it."""
KEEPS_AT_LOOKS = 0.95
"""Of its pace in one stretch that a leak has in the next: what is left after a collection is hardly ever noisy, and by
the power .9 of time it is .93.
"""


def judge_heap(trace: Trace, *, limit: float, alpha: float) -> Growth | None:
    """By its samples. None where there are too few, or where more is in use than is resident: memory that was never
    touched. `limit` in KiB a step.
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


def kept_at_looks(trace: Trace, *, limit: float) -> Growth | None:
    """What collections at the looks leave of it, if that is suspect; else None. Four points accuse nobody: a table that
    doubles has one pace there, too.
    """
    paces = paces_at(trace.looks, "heap_kib", fewest=LOOKS, most=LOOKS)
    if not keep_on(paces, limit=limit, keeps=KEEPS_AT_LOOKS):
        return None
    resident = sampled(trace.column("rss_kib"))
    _, left = max((look.step, look.heap_kib) for look in trace.looks if look.heap_kib is not None)
    if not len(resident) or left > resident[-1]:
        return None
    how = "at one pace from look to look, with garbage collected; a table that doubles would, too"
    return Growth(verdict="suspect", rate=paces[-1], interval=(min(paces), max(paces)), how=how)


def _of_heap(look: Look) -> Look:
    """A look whose resident memory is the heap's."""
    return replace(look, rss_before_kib=look.heap_before_kib, rss_kib=look.heap_kib)
