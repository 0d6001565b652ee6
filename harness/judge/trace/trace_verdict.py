"""Judges one trace: growth of memory and of further columns, and drift of the step time; and decides at a look whether
its launch goes on.

Growth is judged by one rule, `growth.SampledSeries`; COLUMNS says what it needs to know about a column. If resident
memory was measured, only a leak of another column changes its verdict, because allocators and libraries take working
memory for some time in every program. If not, the GPU memory decides the verdict. A slowdown is a trend of log block
medians, fitted by AR(1) feasible least squares.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Literal
from weakref import WeakKeyDictionary

import numpy as np

from harness.amounts import general
from harness.judge.trace.growth import LEAST_ROWS, GrowingColumn, SampledSeries, grows
from harness.judge.trace.memory_layer import WRAP_KIB, heap_layer_of, late_rate, layer_of
from harness.judge.trace.samples import (
    even_rows,
    last_pace,
    look_values,
    paces_at,
    prefix,
    sampled,
    settled_median,
    thinned_rows,
    without_file_pages,
    without_refills,
)
from harness.judge.trace.trends import BLOCKS, block_levels, fit_trend
from harness.model import (
    GOOD,
    NOT_MEASURED,
    SIGNALS,
    Floats,
    Growth,
    Limits,
    Look,
    Per,
    Steps,
    Trace,
    TraceVerdict,
    VerdictName,
    counted,
    share_of,
    unit_per,
)
from harness.model.measured import Facts

ALPHA = 0.01
"""Significance level of a leak in one trace, divided equally among its looks (Bonferroni)."""
EARLY_STEPS = 1000
"""Step up to which growth is only `suspect`: until then, a buffer that fills looks like a leak."""
ORDER: tuple[VerdictName, ...] = ("leak", "slowdown", "suspect", "inconclusive", "plateau", "flat")
REPLACED: tuple[VerdictName, ...] = ("suspect", "inconclusive", "plateau", "flat")
"""Verdicts that a leak of another column replaces, the strongest first."""


# ---------------------------------------------------------------- columns that may grow


COLUMNS: Mapping[str, GrowingColumn] = {
    "rss_kib": GrowingColumn(words="RSS", before="rss_before_kib", layer=layer_of),
    # A heap changes by at least the alignment of malloc.
    "heap_kib": GrowingColumn(
        words="the C heap in use", quanta=(16 / 1024, 2048.0), before="heap_before_kib", layer=heap_layer_of
    ),
    "gpu_pool_kib": GrowingColumn(words="the framework's GPU memory"),
    "gpu_process_kib": GrowingColumn(words="the process's GPU memory"),
    "gpu_kib": GrowingColumn(words="the GPU's memory"),
    "gpu_reserved_kib": GrowingColumn(words="the GPU memory reserved by the framework"),
    "worker_memory": GrowingColumn(words="it", plateau=math.inf),
}
OWN_NUMBER = GrowingColumn(words="RSS", quanta=(0.0, math.inf), plateau=math.inf)
BESIDE = (("gpu_pool_kib",), ("gpu_process_kib", "gpu_kib", "gpu_reserved_kib"))
"""Columns judged in addition to resident memory: of each group, the first that a trace has. The framework's pool is
exact to the byte and shows objects that are kept. The memory of the process, or of the device if the driver does not
report processes, also includes what the pool has reserved and what the driver holds (plans, contexts, modules).
"""
HEAP_ALONE = "RSS alone does not show it: the growth fills memory that was free, or garbage hides it"
GIVEN_BACK = 0.5
"""Minimum share of the growth between two looks that gc.collect must free if reference cycles cause it."""
LEAST_DISTANCE = 0.125
"""Least distance of a look from the one before, as a share of its own step."""
BLOCK_KIB = 0.5
"""Largest block of Python's own allocator: what is larger comes from the C heap."""


def unit_of(per: Per) -> str:
    """Return the unit of the rates of memory."""
    return unit_per(SIGNALS["memory"], per)


def judge_column(
    trace: Trace, name: str, *, limit: float, steps: Steps | None = None, per: Per = "step", hidden: float = 0.0
) -> Growth:
    """Judge the growth of a column over all the rows of a trace; `limit` is in its unit per step. A leak that
    gc.collect frees at the looks is a plateau. Growth up to the rate `hidden` is not ruled out.
    """
    column = COLUMNS.get(name, OWN_NUMBER)
    rows = without_refills(trace) if name == "rss_kib" else trace.column(name)
    values, steps_per_row = thinned_rows(*even_rows(trace.step, rows))
    series = SampledSeries(
        values=np.unwrap(values, period=WRAP_KIB) if name == "heap_kib" else values,
        steps_per_row=steps_per_row,
        limit=limit,
        alpha=ALPHA / (1 if steps is None else len(steps.looks())),
        column=column,
        unit=unit_of(per),
        hidden=hidden,
    )
    growth = replace(series.judged(), column=name)
    if growth.verdict != "leak" or growth.rate is None or name not in COLUMNS:
        return growth
    if column.before:
        is_freed = _given_back(trace, name, column.before, limit=limit) or (
            name == "rss_kib" and (_stays_with_allocator(trace, limit=limit) or _stays_in_arenas(trace, limit=limit))
        )
    else:
        kept = last_pace(trace.looks, name)
        is_freed = kept is not None and kept <= (1 - GIVEN_BACK) * growth.rate
    if not is_freed:
        return replace(growth, layer=column.layer(trace))
    cycles, per_step = "reference cycles", f"{general(growth.rate, 4)} {unit_of(per)}"
    why = f"{column.words} grows {per_step}, and gc.collect frees it: {cycles}"
    return replace(growth, verdict="plateau", layer=cycles, why=why)


def _stays_with_allocator(trace: Trace, *, limit: float) -> bool:
    """Return whether gc.collect freed the growth of resident memory, of which the allocator gave nothing back: the heap
    in use shows that, and trimming it at the last look gives the memory back."""
    resident = look_values(trace.looks, "rss_kib")
    trimmed = look_values(trace.looks, "rss_trimmed_kib")
    if not trimmed:
        return False
    (first, before), (last, after) = min(resident.items()), max(trimmed.items())
    is_kept = after - before >= limit * (last - first)
    return not is_kept and _given_back(trace, "heap_kib", "heap_before_kib", limit=limit)


def _stays_in_arenas(trace: Trace, *, limit: float) -> bool:
    """Return whether gc.collect freed the growth of resident memory, which Python's own arenas keep: the blocks that it
    freed could hold it, the C heap does not grow, and less than the limit of it came while there were fewer blocks than
    before, when new objects took the places of those that were freed.
    """
    resident, blocks, step = trace.column("rss_kib"), trace.column("blocks"), trace.step
    if resident is None or blocks is None or not _given_back(trace, "blocks", "blocks_before", limit=limit / BLOCK_KIB):
        return False
    both = np.isfinite(resident) & np.isfinite(blocks)
    resident, blocks, step = resident[both], blocks[both], step[both]
    reuses = blocks[1:] < np.maximum.accumulate(blocks)[1:]
    freed = max((look.of("blocks_before") or 0.0) - (look.of("blocks") or 0.0) for look in trace.looks)
    besides = limit * np.diff(step)[reuses].sum()
    heap = min(paces_at(trace.looks, "heap_kib", fewest=2, most=3), default=math.inf)
    is_explained = heap < limit and resident[-1] - resident[0] <= BLOCK_KIB * freed
    return bool(is_explained and np.diff(resident)[reuses].sum() < besides)


def judge_beside(trace: Trace, name: str, *, limit: float, steps: Steps | None = None, per: Per = "step") -> Growth:
    """Judge the growth of a column beside resident memory, whose usual value is told as well."""
    growth = judge_column(trace, name, limit=limit, steps=steps, per=per)
    return replace(growth, median=settled_median(trace.column(name)))


def _given_back(trace: Trace, name: str, before: str, *, limit: float) -> bool:
    """Return whether gc.collect at the looks freed the growth, which is then uncollected cyclic garbage, not a leak.

    The last collection must free the share GIVEN_BACK of the growth since the look before, and the memory left after
    collections must grow by less than the limit in one of the last two intervals. A look right after another one, as
    when a program ends by itself, finds no garbage, and is left out.
    """
    apart = ((look, look.step - last.step) for last, look in pairwise((Look(step=0), *trace.looks)))
    looks = [look for look, steps in apart if steps >= LEAST_DISTANCE * look.step]
    both = [(look.step, look.of(before), look.of(name)) for look in looks]
    measured = [(step, full, left) for step, full, left in both if full is not None and left is not None]
    if len(measured) < 2:
        return False
    (_, _, left_before), (_, full, left) = measured[-2:]
    grown = full - left_before
    if grown <= 0 or full - left < GIVEN_BACK * grown:
        return False
    return min((b - a) / max(1, end - begin) for (begin, _, a), (end, _, b) in pairwise(measured[-3:])) < limit


def is_told(trace: Trace, column: str) -> bool:
    """Return whether a column was measured."""
    return len(sampled(trace.column(column))) > 0


# ---------------------------------------------------------------- the verdict


_VERDICTS: WeakKeyDictionary[Trace, dict[tuple[Limits, Steps | None, bool, Per], TraceVerdict]] = WeakKeyDictionary()
"""The verdicts on traces that are in use: a sweep needs all of them whenever it decides what to launch next."""


def judge_trace(
    trace: Trace, *, limits: Limits, steps: Steps | None = None, shared: bool = False, per: Per = "step"
) -> TraceVerdict:
    """Return the verdict on all the rows of a trace. `steps` are the settings of its trial, whose looks share ALPHA;
    None means that the trace is complete and judged once. `shared` is the result of `is_shared`; `per` is what the
    rates are counted by. A trace is judged once for each combination of limits, steps, `shared` and `per`.
    """
    known = _VERDICTS.setdefault(trace, {})
    if (limits, steps, shared, per) not in known:
        known[limits, steps, shared, per] = _judged(trace, limits=limits, steps=steps, shared=shared, per=per)
    return known[limits, steps, shared, per]


def _judged(trace: Trace, *, limits: Limits, steps: Steps | None, shared: bool, per: Per) -> TraceVerdict:
    trace = without_file_pages(trace)
    last, limit = int(sampled(trace.step).max(initial=0)), limits.leak_kib_per_step
    memory = _memory(trace, limit=limit, steps=steps, per=per) if is_told(trace, "rss_kib") else None
    early = steps is not None and last < steps.budget and last <= EARLY_STEPS
    early = early and memory is not None and memory.verdict in ("leak", "suspect")
    if memory is not None and early:
        memory = _too_early(memory, per=per)
    durations = trace.column("step_s")
    drift, slower, unmet = _drift(even_rows(trace.step, durations)[0], limit=limits.slowdown)
    settled_s = settled_median(durations)
    rss = sampled(trace.column("rss_kib"))
    names: set[VerdictName] = {"slowdown"} if slower else set()
    found = []
    if memory is not None:
        names.add(memory.verdict)
        found += [memory.why, *([HEAP_ALONE] if memory.column == "heap_kib" else [])]
        files = late_rate(trace, "file_kib")
        if files is not None and files >= limit:
            found.append(f"besides, it maps {general(files, 4)} {unit_of(per)} more of files, which is no leak")
    elif not slower:
        names.add("inconclusive" if drift is None else "flat")
        found.append(unmet or "step time is flat; memory was not measured")
    if slower:
        found.append(f"a {counted(per)} takes {drift:.0%} longer at the end than after the first quarter")
    verdict = TraceVerdict(
        verdicts=tuple(name for name in ORDER if name in names),
        steps=last,
        why=f"{'; '.join(found)} (up to {counted(per)} {last})",
        growth=memory or NOT_MEASURED,
        step_ms=None if settled_s is None else settled_s * 1000,
        step_drift=drift,
        peak_rss_mib=float(rss.max()) / 1024 if len(rss) else None,
        early=early,
    )
    return _with_beside(verdict, trace, limit=limit, steps=steps, shared=shared, per=per)


def _too_early(growth: Growth, *, per: Per) -> Growth:
    """Return growth in which a leak cannot yet be told from a buffer that fills."""
    if growth.rate is None or growth.interval is None:
        return growth
    told = grows(COLUMNS[growth.column].words, growth.rate, growth.interval, unit_of(per))
    return replace(
        growth, verdict="suspect", layer=None, why=f"{told}: too early to distinguish it from a buffer that fills"
    )


# ---------------------------------------------------------------- step times that drift

ALPHA_SLOWDOWN = 0.005
"""Significance level of a slowdown."""
CLEAR_SLOWDOWN = 5.0
"""Minimum slope of a slowdown, in standard errors, which allow for a clock frequency that is a random walk."""


def _drift(durations: Floats, *, limit: float) -> tuple[float | None, bool, str]:
    """Return by how much step times rise over the last three quarters, as a share, whether that is a slowdown, and why
    it was not judged. In a slowdown, block medians rise steadily, by more than the limit, and not in one jump.
    """
    if not len(durations):
        return None, False, "no samples of memory or step times to judge"
    if len(durations) < LEAST_ROWS:
        return None, False, f"too few samples to judge: {len(durations)} of at least {LEAST_ROWS}"
    medians = block_levels(durations[len(durations) // 4 :], share=0.5)
    if medians.min() <= 0:
        return None, False, "the steps are too short for the clock"
    trend = fit_trend(np.log(medians), steps_per_block=1.0, alpha=ALPHA_SLOWDOWN)
    relative = share_of(trend.rate * (BLOCKS - 1))
    steady = trend.low > 0 and trend.rate >= CLEAR_SLOWDOWN * trend.error
    rising = steady and relative > limit and share_of(trend.rise) > limit
    return relative, rising and trend.largest_step <= 0.5 * trend.rise, ""


# ---------------------------------------------------------------- resident memory and the C heap in use
#
# A leak first fills memory that is free inside the heap: after a warm-up that freed much, resident memory stays
# constant for thousands of steps. A heap that is sometimes full of garbage also stays resident at its largest size,
# which hides a leak below that size. The heap in use shows both.
#
# Memory that is read only at the looks is read too rarely for the verdict `leak`, because a table that doubles in size
# also shows one rate, but often enough to make a trace `suspect`: the heap that is left after the collections.


KEEPS_AT_LOOKS = 0.95
"""Minimum ratio of a leak's rates in successive intervals. Memory after a collection has little noise; growth by the
power 0.9 of time has a ratio of 0.93.
"""
LOOKS = 4
"""Looks that can make a trace suspect: three intervals, which double in length, with one growth rate."""


def _memory(trace: Trace, *, limit: float, steps: Steps | None, per: Per) -> Growth:
    """Return the growth of resident memory, or of the C heap in use if that alone shows or suggests a leak. Slow growth
    of the heap raises the excluded rate, because resident memory may hide it.
    """
    memory = judge_column(trace, "rss_kib", limit=limit, steps=steps, per=per)
    if memory.verdict == "leak" or memory.layer is not None:
        return memory
    rows, resident_kib = sampled(trace.column("heap_kib")), float(sampled(trace.column("rss_kib"))[-1])
    # More memory may be in use than resident, because part of it was never touched.
    if len(rows) >= LEAST_ROWS and np.unwrap(rows, period=WRAP_KIB)[-1] <= resident_kib:
        heap = judge_column(trace, "heap_kib", limit=limit, steps=steps, per=per)
        if heap.verdict == "leak":
            return heap
        if heap.slow and heap.excluded is not None and memory.excluded is not None and memory.excluded < heap.excluded:
            return judge_column(trace, "rss_kib", limit=limit, steps=steps, per=per, hidden=heap.excluded)
        if heap.verdict in GOOD:
            return memory
    paces = paces_at(trace.looks, "heap_kib", fewest=LOOKS, most=LOOKS)
    keeps_on = bool(paces) and min(paces) >= limit and all(b >= KEEPS_AT_LOOKS * a for a, b in pairwise(paces))
    if not keeps_on or max(look_values(trace.looks, "heap_kib").items())[1] > resident_kib:
        return memory
    rate, interval = paces[-1], (min(paces), max(paces))
    how = "at the same rate from look to look, with garbage collected; a table that doubles in size may look the same"
    why = f"{grows(COLUMNS['heap_kib'].words, rate, interval, unit_of(per))}, {how}"
    return Growth(verdict="suspect", rate=rate, interval=interval, column="heap_kib", why=why)


# ---------------------------------------------------------------- columns beside resident memory


def _with_beside(
    verdict: TraceVerdict, trace: Trace, *, limit: float, steps: Steps | None, shared: bool, per: Per
) -> TraceVerdict:
    """Return the verdict on a trace, updated by its GPU memory; `beside` has each column that was judged."""
    measured = [[column for column in group if is_told(trace, column)] for group in BESIDE]
    grown = [judge_beside(trace, group[0], limit=limit, steps=steps, per=per) for group in measured if group]
    named = (each.why if each.rate is not None else f"{COLUMNS[each.column].words}: {each.why}" for each in grown)
    told = {each.column: replace(each, why=why) for each, why in zip(grown, named, strict=True)}
    verdict = replace(verdict, beside=told)
    leaking = next((each for each in grown if each.verdict == "leak"), None)
    kept = tuple(own for own in verdict.verdicts if own not in REPLACED)
    if leaking is None:
        if not grown or is_told(trace, "rss_kib"):
            return verdict
        worst = min(grown, key=lambda each: REPLACED.index(each.verdict))
        why = _beside(worst.why, verdict, trace, per=per)
        return replace(verdict, verdicts=(*kept, worst.verdict), why=why, growth=replace(worst, layer=None))
    is_sure = leaking.column != "gpu_kib" or not shared  # no other process on the GPU can be the cause
    if not is_sure:
        leaking = replace(leaking, layer=None, why=f"{leaking.why}, but other processes use the GPU")
    found = leaking.why if leaking.layer is None else f"{leaking.why}: {leaking.layer}"
    why = _beside(found, verdict, trace, per=per)
    if "leak" in verdict.verdicts:
        return replace(verdict, why=why)
    return replace(
        verdict,
        verdicts=("leak", *kept) if is_sure else (*kept, "suspect"),
        why=why,
        growth=replace(leaking, excluded=None),
    )


def _beside(words: str, verdict: TraceVerdict, trace: Trace, *, per: Per) -> str:
    """Return `words`, followed by the reason for RSS and step times if these were measured."""
    if is_told(trace, "rss_kib") or is_told(trace, "step_s"):
        return f"{words}; {verdict.why}"
    return f"{words} (up to {counted(per)} {verdict.steps})"


def undecided(verdict: TraceVerdict) -> str:
    """Return why growth of GPU memory is not ruled out; "" if it is, or if no GPU memory was measured."""
    return next((growth.why for growth in verdict.beside.values() if growth.verdict not in GOOD), "")


def is_shared(facts: Facts) -> bool:
    """Return whether other processes used one of the GPUs when the trial began, according to its facts."""
    return any((gpu.processes or 0) > 0 for gpu in facts.gpus or ())


# ---------------------------------------------------------------- whether a launch goes on

STOP_LEAK_KIB = 1024 * 1024.0
"""Growth from which a leak may end its trial, in KiB. Caches of up to this size fill up and then stop growing."""
CLEAR_LEAK = 10.0
"""Ratio to the limit from which growth counts as clear."""
LONG_ENOUGH_S = 0.3
"""Minimum total step time, in seconds, of a trial that stops early: a shorter trial costs little to continue, and its
step times become more precise.
"""
LONG_ENOUGH_IN_SLICES_S = 4.0
"""The same for a launch in slices: pairs of it are as precise as they have cycles, which saves whole rounds."""


def decide_at_look(trace: Trace, *, limits: Limits, steps: Steps, whole_budget: bool) -> Literal["go", "stop"]:
    """Return the decision at a look, which is the trace's last step.

    A flat trial stops, unless it must run the whole budget, its steps took hardly any time, or its GPU memory is
    undecided. A leaking trial stops if it also leaked at the previous look and has grown by STOP_LEAK_KIB: less may be
    a buffer that fills. A trial with early growth of CLEAR_LEAK times the limit stops, too, as `suspect`, unless it is
    brief or must run the whole budget: another launch that runs it will show whether the growth continues.
    """
    verdict = judge_trace(trace, limits=limits, steps=steps)
    if verdict.verdict in GOOD:
        return "go" if whole_budget or is_brief(trace) or undecided(verdict) else "stop"
    if verdict.early and not (whole_budget or is_brief(trace)) and clear_leak(verdict, limits=limits):
        return "stop"
    trace = without_file_pages(trace)
    rss = sampled(trace.column("rss_kib"))
    grown_kib = float(rss[-1] - rss[: max(1, len(rss) // 50)].min()) if len(rss) else 0.0
    if "leak" in verdict.verdicts and grown_kib >= STOP_LEAK_KIB:
        before = [look for look in steps.looks() if look < verdict.steps]
        past = prefix(trace, before[-1]) if before else trace
        memory = judge_column(past, "rss_kib", limit=limits.leak_kib_per_step, steps=steps)
        if before and memory.verdict == "leak":
            return "stop"
    return "go"


def clear_leak(verdict: TraceVerdict, *, limits: Limits) -> bool:
    """Return whether memory certainly grows by CLEAR_LEAK times the limit: even a shorter launch then counts as
    agreeing."""
    interval = verdict.growth.interval
    return interval is not None and interval[0] >= CLEAR_LEAK * limits.leak_kib_per_step


def is_brief(trace: Trace) -> bool:
    """Return whether the steps were timed and took less than LONG_ENOUGH_S in total."""
    least_s = LONG_ENOUGH_S if trace.column("slice") is None else LONG_ENOUGH_IN_SLICES_S
    # Of the requests to a server, as many are made at a time as each has items. It is more if a script returns items of
    # its own, and then a launch only ends later than it might.
    items = sampled(trace.column("items")) if is_told(trace, "failed") else np.empty(0)
    at_a_time = max(1.0, float(np.median(items))) if len(items) else 1.0
    return 0 < float(sampled(trace.column("step_s")).sum()) / at_a_time < least_s
