"""Judges leaks of GPU memory by the same rule as leaks of resident memory.

Two series of a trace show such leaks. The framework's pool is exact to the byte and shows objects that are kept. The
memory of the process, or of the device if the driver does not report processes, also includes what the pool has
reserved and what the driver holds (plans, contexts, modules); if both are missing, the pool's reserved memory stands in
for them. If resident memory was measured, only a leak of GPU memory changes the verdict, because allocators and
libraries take working memory for some time in every program. If not, the GPU memory decides the verdict.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from harness.judge.trace.growth import GIVEN_BACK, Growth
from harness.judge.trace.memory_layer import gpu_layer_of
from harness.judge.trace.samples import last_pace
from harness.judge.trace.trace_verdict import growth_report, judge_memory, memory_words
from harness.model import GOOD, Limits, Steps, Trace, TraceVerdict, VerdictName
from harness.reasons import MemoryName, TraceReason

NAMES = {
    "gpu_pool_kib": MemoryName.GPU_POOL,
    "gpu_process_kib": MemoryName.GPU_PROCESS,
    "gpu_kib": MemoryName.GPU,
    "gpu_reserved_kib": MemoryName.GPU_RESERVED,
}
WHOLE = ("gpu_process_kib", "gpu_kib", "gpu_reserved_kib")
"""Columns that contain the pool. The first of them that a trace has is judged in addition to the pool."""
REPLACED: tuple[VerdictName, ...] = ("suspect", "inconclusive", "plateau", "flat")
"""Verdicts that a leak of GPU memory replaces, the strongest first."""


def with_gpu(
    verdict: TraceVerdict, trace: Trace, *, limits: Limits, steps: Steps | None = None, shared: bool = False
) -> TraceVerdict:
    """Return the verdict on a trace, updated by its GPU memory; `metrics` gains each column that was judged.

    `steps` is as for `judge_trace`; `shared` is the result of `is_shared`.
    """
    grown = _grown(trace, limits=limits, steps=steps)
    metrics = {name: _metric(name, growth, trace) for name, growth in grown.items()}
    verdict = replace(verdict, metrics={**metrics, **verdict.metrics})
    for column, growth in grown.items():
        if growth.verdict == "leak":
            return _with_leak(verdict, growth, trace, column=column, sure=column != "gpu_kib" or not shared)
    return _of_gpu_alone(verdict, grown, trace) if grown and not is_told(trace, "rss_kib") else verdict


def undecided(verdict: TraceVerdict) -> str:
    """Return why growth of GPU memory is not ruled out; "" if it is, or if no GPU memory was measured."""
    columns = [verdict.metrics[column] for column in NAMES if column in verdict.metrics]
    return next((str(metric["why"]) for metric in columns if metric["verdict"] not in GOOD), "")


def _metric(column: str, growth: Growth, trace: Trace) -> Mapping[str, Any]:
    words = memory_words(growth, what=NAMES[column])
    why = words if growth.rate is not None else f"{NAMES[column]()}: {words}"
    return {**growth_report(growth, trace.column(column)), "why": why}


def is_shared(facts: Mapping[str, Any]) -> bool:
    """Return whether other processes used one of the GPUs when the trial began, according to its facts."""
    gpus = facts.get("gpus")
    counts = [gpu.get("processes") for gpu in gpus if isinstance(gpu, Mapping)] if isinstance(gpus, list) else []
    return any(isinstance(count, int) and count > 0 for count in counts)


def is_told(trace: Trace, column: str) -> bool:
    """Return whether a column was measured."""
    values = trace.column(column)
    return values is not None and bool(np.isfinite(values).any())


def _grown(trace: Trace, *, limits: Limits, steps: Steps | None) -> dict[str, Growth]:
    """Return the growth of the pool and of the first column of WHOLE, so far as they were measured, by column."""
    whole = next((column for column in WHOLE if is_told(trace, column)), None)
    columns = [column for column in ("gpu_pool_kib", whole) if column is not None]
    judged = {
        column: judge_memory(trace, limit=limits.leak_kib_per_step, steps=steps, column=column) for column in columns
    }
    return {column: _but_cycles(growth, column, trace) for column, growth in judged.items() if growth is not None}


def _but_cycles(growth: Growth, column: str, trace: Trace) -> Growth:
    """Return the growth, as a plateau if gc.collect frees it at the looks."""
    kept = last_pace(trace.looks, column)
    given_back = kept is not None and growth.rate is not None and kept <= (1 - GIVEN_BACK) * growth.rate
    return replace(growth, verdict="plateau", cycles=True) if growth.verdict == "leak" and given_back else growth


def _with_leak(verdict: TraceVerdict, growth: Growth, trace: Trace, *, column: str, sure: bool) -> TraceVerdict:
    """Return the verdict on a trace whose `column` leaks. `sure`: no other process on the GPU can be the cause."""
    layer = gpu_layer_of(trace) if sure else None
    words = memory_words(growth, what=NAMES[column])
    if not sure:
        words = TraceReason.GPU_SHARED(found=words)
    why = _beside(f"{words}: {layer}" if layer else words, verdict, trace)
    if "leak" in verdict.verdicts:
        return replace(verdict, why=why)
    name: VerdictName = "leak" if sure else "suspect"
    kept = tuple(own for own in verdict.verdicts if own not in REPLACED)
    return replace(
        verdict,
        verdicts=(name, *kept) if sure else (*kept, name),
        why=why,
        rate_kib_per_step=growth.rate,
        rate_ci=growth.interval,
        excluded_kib_per_step=None,
        plateau_mib=None,
        layer=layer,
    )


def _of_gpu_alone(verdict: TraceVerdict, grown: Mapping[str, Growth], trace: Trace) -> TraceVerdict:
    """Return the verdict on a trace without resident memory: the strongest verdict on its GPU memory."""
    column, growth = min(grown.items(), key=lambda item: REPLACED.index(item[1].verdict))
    return replace(
        verdict,
        verdicts=(*(own for own in verdict.verdicts if own not in REPLACED), growth.verdict),
        why=_beside(memory_words(growth, what=NAMES[column]), verdict, trace),
        rate_kib_per_step=growth.rate,
        rate_ci=growth.interval,
        excluded_kib_per_step=growth.excluded,
        plateau_mib=growth.rise / 1024 if growth.verdict == "plateau" else None,
    )


def _beside(words: str, verdict: TraceVerdict, trace: Trace) -> str:
    """Return `words`, followed by the reason for RSS and step times if these were measured."""
    if is_told(trace, "rss_kib") or is_told(trace, "step_s"):
        return f"{words}; {verdict.why}"
    return TraceReason.UP_TO_STEP(found=words, last=verdict.steps)
