"""Judges one trace: growth of memory and of further metrics, and drift of the step time.

Growth is judged by `growth.judge_growth`. A slowdown is a trend of log block medians, fitted by AR(1) feasible least
squares.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from harness.judge import intervals
from harness.judge.trace.growth import HUGE_PAGE_KIB, LEAST_ROWS, PAGE_KIB, Growth, judge_growth
from harness.judge.trace.memory_layer import WRAP_KIB, heap_layer_of, layer_of
from harness.judge.trace.samples import even_rows, keep_on, paces_at, sampled, thinned_rows, without_refills
from harness.judge.trace.trends import BLOCKS, KEEPS, block_levels, fit_trend
from harness.model import GOOD, Floats, Limits, Look, Steps, Trace, TraceVerdict, VerdictName
from harness.reasons import GrowthReason, LayerName, MemoryName, TraceReason

ALPHA = 0.01
"""Significance level of a leak in one trace, divided equally among its looks (Bonferroni)."""
ALPHA_SLOWDOWN = 0.005
"""Significance level of a slowdown."""
CLEAR_SLOWDOWN = 5.0
"""Minimum slope of a slowdown, in standard errors, which allow for a clock frequency that is a random walk."""
EARLY_STEPS = 1000
"""Step up to which growth is only `suspect`: until then, a buffer that fills looks like a leak."""
ORDER: tuple[VerdictName, ...] = ("leak", "slowdown", "suspect", "inconclusive", "plateau", "flat")


@dataclass(frozen=True, kw_only=True)
class _Drift:
    """Drift of the step time over the last three quarters of a trace: the `relative` rise, as a fraction, and whether
    it is a `slowdown`. `unmet` is the reason if it was not judged.
    """

    relative: float | None = None
    slowdown: bool = False
    unmet: str = ""


_VERDICTS: WeakKeyDictionary[Trace, dict[tuple[Limits, Steps | None], TraceVerdict]] = WeakKeyDictionary()
"""The verdicts on traces that are in use: a sweep needs all of them whenever it decides what to launch next."""


def judge_trace(
    trace: Trace, *, limits: Limits, steps: Steps | None = None, metrics: Mapping[str, float] | None = None
) -> TraceVerdict:
    """Return the verdict on all the rows of a trace. `steps` are the settings of its trial, whose looks share ALPHA;
    None means that the trace is complete and judged once. `metrics` maps further columns to their limits, in their own
    units per step. A trace is judged once for each combination of limits and steps.
    """
    known = _VERDICTS.setdefault(trace, {})
    if (limits, steps) not in known:
        known[limits, steps] = _judged(trace, limits=limits, steps=steps)
    further = {name: judge_metric(trace, name, limit=limit, steps=steps) for name, limit in (metrics or {}).items()}
    return replace(known[limits, steps], metrics=further) if further else known[limits, steps]


def _judged(trace: Trace, *, limits: Limits, steps: Steps | None) -> TraceVerdict:
    last = int(sampled(trace.step).max(initial=0))
    memory = judge_memory(trace, limit=limits.leak_kib_per_step, steps=steps)
    memory, in_heap = _with_heap(memory, trace, limit=limits.leak_kib_per_step, steps=steps)
    early = steps is not None and last < steps.budget and last <= EARLY_STEPS
    early = early and memory is not None and memory.verdict in ("leak", "suspect")
    if memory is not None and early:
        memory = replace(memory, verdict="suspect")
    durations = trace.column("step_s")
    drift = _drift(even_rows(trace.step, durations)[0], limit=limits.slowdown)
    settled_s = settled_median(durations)
    rss = sampled(trace.column("rss_kib"))
    names: set[VerdictName] = set()
    if drift.slowdown:
        names.add("slowdown")
    if memory is not None:
        names.add(memory.verdict)
    elif not drift.slowdown:
        names.add("flat" if (drift.relative is not None) else "inconclusive")
    verdict = TraceVerdict(
        verdicts=tuple(name for name in ORDER if name in names),
        steps=last,
        why=_why(memory, drift=drift, last=last, early=early, in_heap=in_heap),
        rate_kib_per_step=None if memory is None else memory.rate,
        rate_ci=None if memory is None else memory.interval,
        excluded_kib_per_step=None if memory is None else memory.excluded,
        plateau_mib=memory.rise / 1024 if memory is not None and memory.verdict == "plateau" else None,
        step_ms=None if settled_s is None else settled_s * 1000,
        step_drift=drift.relative,
        peak_rss_mib=float(rss.max()) / 1024 if len(rss) else None,
        layer=_layer(memory, trace, in_heap=in_heap),
        early=early,
    )
    return with_children(verdict, trace, limit=limits.leak_kib_per_step)


def judge_metric(trace: Trace, name: str, *, limit: float, steps: Steps | None = None) -> Mapping[str, Any]:
    """Judge another column by the same rule, in its own unit; the result has the form of `growth_report`'s."""
    values, steps_per_row = thinned_rows(*even_rows(trace.step, trace.column(name)))
    growth = judge_growth(
        values, steps_per_row=steps_per_row, limit=limit, alpha=_alpha(steps), plateau=math.inf, quanta=(0.0, math.inf)
    )
    return growth_report(growth, trace.column(name))


def growth_report(growth: Growth, values: Floats | None) -> Mapping[str, Any]:
    """Return the report on the growth of a column other than RSS, whose rows are `values`."""
    return {
        "verdict": growth.verdict,
        "rate": growth.rate,
        "rate_ci": growth.interval,
        "excluded": growth.excluded,
        "median": settled_median(values),
    }


def prefix(trace: Trace, last: int) -> Trace:
    """Return the trace up to step `last`."""
    rows = int(np.searchsorted(trace.step, last, side="right"))
    columns = {name: values[:rows] for name, values in trace.columns.items()}
    return Trace(step=trace.step[:rows], columns=columns, looks=tuple(k for k in trace.looks if k.step <= last))


def settled_median(values: Floats | None) -> float | None:
    """Return the median of the measured rows after the warm-up quarter; None if there are none."""
    measured = sampled(values)
    return float(np.median(measured[len(measured) // 4 :])) if len(measured) else None


def judge_memory(trace: Trace, *, limit: float, steps: Steps | None, column: str = "rss_kib") -> Growth | None:
    """Judge the growth of resident memory, or of another column in KiB, over all the rows of a trace; `limit` is in KiB
    per step. Return None if the column was not sampled.
    """
    rows = without_refills(trace) if column == "rss_kib" else trace.column(column)
    values, steps_per_row = thinned_rows(*even_rows(trace.step, rows))
    if not len(values):
        return None
    growth = judge_growth(
        values,
        steps_per_row=steps_per_row,
        limit=limit,
        alpha=_alpha(steps),
        plateau=1024.0,
        quanta=(PAGE_KIB, HUGE_PAGE_KIB),
        looks=trace.looks if column == "rss_kib" else (),
    )
    return _with_own_rate(growth)


def _with_own_rate(growth: Growth) -> Growth:
    """Return the growth; if it continues below the limit, the excluded rate is at least the rate of this growth."""
    if growth.below is None or growth.rate is None or growth.excluded is None:
        return growth
    return replace(growth, excluded=max(growth.excluded, growth.rate))


def _with_heap(memory: Growth | None, trace: Trace, *, limit: float, steps: Steps | None) -> tuple[Growth | None, bool]:
    """Combine the growth of resident memory with that of the C heap in use; return it, and whether the heap alone shows
    or suggests a leak. Slow growth of the heap raises the excluded rate, because resident memory may hide it.
    """
    if memory is None or memory.verdict == "leak" or memory.cycles:
        return memory, False
    heap = judge_heap(trace, limit=limit, alpha=_alpha(steps))
    if heap is not None and heap.verdict == "leak":
        return heap, True
    if heap is None or heap.verdict not in GOOD:
        kept = kept_at_looks(trace, limit=limit)
        return (memory, False) if kept is None else (kept, True)
    if heap.below is not None and heap.excluded is not None and memory.excluded is not None:
        return replace(memory, excluded=max(memory.excluded, heap.excluded)), False
    return memory, False


def _alpha(steps: Steps | None) -> float:
    return ALPHA / (1 if steps is None else len(steps.looks()))


def _drift(durations: Floats, *, limit: float) -> _Drift:
    """Judge the step time: in a slowdown, block medians rise steadily, by more than the limit, and not in one jump."""
    settled = durations[len(durations) // 4 :]
    if not len(durations):
        return _Drift(unmet=GrowthReason.NO_ROWS())
    if len(durations) < LEAST_ROWS:
        return _Drift(unmet=GrowthReason.TOO_FEW_ROWS(rows=len(durations), least=LEAST_ROWS))
    medians = block_levels(settled, share=0.5)
    if medians.min() <= 0:
        return _Drift(unmet=TraceReason.STEPS_TOO_SHORT())
    trend = fit_trend(np.log(medians), steps_per_block=1.0, alpha=ALPHA_SLOWDOWN)
    total = trend.rate * (BLOCKS - 1)
    steady = trend.low > 0 and trend.rate >= CLEAR_SLOWDOWN * trend.error
    rising = steady and intervals.share_of(total) > limit and intervals.share_of(trend.rise) > limit
    return _Drift(relative=intervals.share_of(total), slowdown=rising and trend.largest_step <= 0.5 * trend.rise)


def _layer(memory: Growth | None, trace: Trace, *, in_heap: bool) -> str | None:
    if memory is None:
        return None
    if memory.cycles:
        return LayerName.CYCLES()
    if memory.verdict != "leak":
        return None
    return heap_layer_of(trace) if in_heap else layer_of(trace)


def _why(memory: Growth | None, *, drift: _Drift, last: int, early: bool, in_heap: bool) -> str:
    parts = []
    if memory is not None:
        parts.append(memory_words(memory, what=MemoryName.HEAP if in_heap else MemoryName.RSS, early=early))
    if in_heap:
        parts.append(TraceReason.HEAP_ALONE())
    if drift.slowdown and drift.relative is not None:
        parts.append(TraceReason.SLOWDOWN(rise=drift.relative))
    elif memory is None:
        parts.append(drift.unmet or TraceReason.STEP_TIME_FLAT())
    return TraceReason.UP_TO_STEP(found="; ".join(parts), last=last)


def memory_words(memory: Growth, *, what: MemoryName = MemoryName.RSS, early: bool = False) -> str:
    """Return the reason for a verdict on memory as text; `what` is the name of the memory."""
    if memory.rate is None or memory.interval is None:
        return memory.unmet
    name, (low, high) = what(), memory.interval
    grows = TraceReason.GROWS(memory=name, rate=memory.rate, low=low, high=high)
    if memory.cycles:
        return TraceReason.GROWS_BY_CYCLES(memory=name, rate=memory.rate)
    if memory.how and not early:
        return f"{grows}, {memory.how}"
    if memory.below is not None:
        return TraceReason.GROWS_SLOWLY(memory=name, rate=memory.rate, limit=memory.below, excluded=memory.excluded)
    if early:
        return TraceReason.GROWS_EARLY(grows=grows)
    noisy = TraceReason.NOISY(memory=name)
    if memory.due is not None:
        noisy = TraceReason.RISE_DUE(memory=name, rise=memory.due)
    found = {
        "plateau": TraceReason.PLATEAU(memory=name, rise_mib=memory.rise / 1024),
        "flat": TraceReason.FLAT(memory=name),
        "suspect": TraceReason.MAY_LEAK(grows=grows, unmet=memory.unmet),
        "inconclusive": noisy,
    }[memory.verdict]
    excluded, detectable = memory.excluded or 0.0, memory.detectable or 0.0
    found = TraceReason.RULED_OUT(found=found, excluded=_figure(excluded))
    if memory.verdict not in GOOD and detectable >= excluded:
        found = TraceReason.STEADY_RULED_OUT(found=found, detectable=_figure(detectable))
    return found


def _figure(value: float) -> str:
    """Return a value with two significant digits, without an exponent for large values."""
    return f"{value:.0f}" if value >= 100 else f"{value:.2g}"


# ---------------------------------------------------------------- the C heap in use
#
# A leak first fills memory that is free inside the heap: after a warm-up that freed much, resident memory stays
# constant for thousands of steps. A heap that is sometimes full of garbage also stays resident at its largest size,
# which hides a leak below that size. The heap in use shows both.


GRAIN_KIB = 16 / 1024
"""Alignment of malloc, in KiB: the smallest change of the heap in use."""
LOOKS = 4
"""Looks that can make a trace suspect: three intervals, which double in length, with one growth rate."""
KEEPS_AT_LOOKS = 0.95
"""Minimum ratio of a leak's rates in successive intervals. Memory after a collection has little noise; growth by the
power 0.9 of time has a ratio of 0.93.
"""


def judge_heap(trace: Trace, *, limit: float, alpha: float) -> Growth | None:
    """Judge the samples of the C heap in use; `limit` is in KiB per step. Return None if the samples are too few, or if
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
        looks=[replace(look, values=_as_resident(look)) for look in trace.looks],
    )


def _as_resident(look: Look) -> dict[str, float]:
    """Return the heap's figures of a look under the names of those of resident memory."""
    figures = {"rss_before_kib": look.of("heap_before_kib"), "rss_kib": look.of("heap_kib")}
    return {name: value for name, value in figures.items() if value is not None}


def kept_at_looks(trace: Trace, *, limit: float) -> Growth | None:
    """Judge the heap that is left after the collections at the looks: return a suspect growth, or None. Four points do
    not prove a leak, because a table that doubles in size also shows one rate.
    """
    paces = paces_at(trace.looks, "heap_kib", fewest=LOOKS, most=LOOKS)
    if not keep_on(paces, limit=limit, keeps=KEEPS_AT_LOOKS):
        return None
    resident = sampled(trace.column("rss_kib"))
    _, left = max((look.step, look.of("heap_kib")) for look in trace.looks if look.of("heap_kib") is not None)
    if not len(resident) or left > resident[-1]:
        return None
    how = GrowthReason.STEADY_AT_LOOKS()
    return Growth(verdict="suspect", rate=paces[-1], interval=(min(paces), max(paces)), how=how)


# ---------------------------------------------------------------- child processes
#
# The samples of a script cover only its own process. The memory of its children is read only at the looks: too rarely
# for the verdict `leak`, but often enough to make a trace `suspect` if the children keep growing.


FEWEST, MOST = 3, 4
"""Fewest and most looks that are compared: two or three intervals, which double in length. Fewer give false alarms."""


def with_children(verdict: TraceVerdict, trace: Trace, *, limit: float) -> TraceVerdict:
    """Return the verdict, or `suspect` if it is good and the children grow by `limit` KiB per step or more."""
    paces = paces_at(trace.looks, "children_kib", fewest=FEWEST, most=MOST)
    if not GOOD & set(verdict.verdicts) or not keep_on(paces, limit=limit, keeps=KEEPS):
        return verdict
    low, high = min(paces), max(paces)
    return replace(
        verdict,
        verdicts=(*(name for name in verdict.verdicts if name not in GOOD), "suspect"),
        why=TraceReason.CHILDREN_GROW(rate=paces[-1], low=low, high=high, why=verdict.why),
        rate_kib_per_step=paces[-1],
        rate_ci=(low, high),
        excluded_kib_per_step=max(high, verdict.excluded_kib_per_step or 0.0),
        plateau_mib=None,
    )
