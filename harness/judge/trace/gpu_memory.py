"""Leaks of GPU memory, by the same rule as leaks of resident memory.

Two series of a trace show them. The framework's pool is exact to the byte and shows objects that are kept. The memory
of the process, or of the device if the driver does not report processes, also shows what the pool has reserved and
what the driver holds (plans, contexts, modules); without either, the reserved memory of the pool takes its place.
Beside resident memory only a leak counts, because allocators and libraries take working memory for some time in every
program. Without resident memory, the GPU memory decides the verdict.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from harness.judge.trace.growth.rule import GIVEN_BACK, Growth
from harness.judge.trace.memory_layer import gpu_layer_of, look_rate
from harness.judge.trace.verdict import judge_memory, memory_words, metric_of
from harness.model import GOOD, Interval, Limits, Steps, Trace, TraceVerdict, VerdictName

WORDS = {
    "gpu_pool_kib": "the framework's GPU memory",
    "gpu_process_kib": "the process's GPU memory",
    "gpu_kib": "the GPU's memory",
    "gpu_reserved_kib": "what the framework keeps of the GPU's memory",
}
WHOLE = ("gpu_process_kib", "gpu_kib", "gpu_reserved_kib")
"""Columns that contain the pool: the first of them in a trace is judged beside the pool."""
REPLACED: tuple[VerdictName, ...] = ("suspect", "inconclusive", "plateau", "flat")
"""Verdicts that a leak of GPU memory replaces, the strongest first."""


@dataclass(frozen=True, kw_only=True)
class GpuLeak:
    """A leak of GPU memory in one column. `sure`: no other process on the GPU can be the cause."""

    column: str
    rate_kib_per_step: float
    interval: Interval
    layer: str | None
    sure: bool

    def __str__(self) -> str:
        low, high = self.interval
        grows = f"{WORDS[self.column]} grows {self.rate_kib_per_step:.4g} KiB a step ({low:.4g} to {high:.4g})"
        if not self.sure:
            return f"{grows}, but other processes use the GPU"
        return f"{grows}, at the same pace all the time{f': {self.layer}' if self.layer else ''}"


def with_gpu(
    found: TraceVerdict, trace: Trace, *, limits: Limits, steps: Steps | None = None, shared: bool = False
) -> TraceVerdict:
    """Return the verdict `found` on a trace, updated by its GPU memory; `metrics` gains each column that was judged.

    `steps` is that of `judge_trace`; `shared` is the result of `is_shared`.
    """
    grown = _grown(trace, limits=limits, steps=steps)
    metrics = {name: _told(name, growth, trace) for name, growth in grown.items()}
    found = replace(found, metrics={**metrics, **found.metrics})
    leak = _leak(trace, grown, shared=shared)
    if leak is not None:
        return _with_leak(found, leak, trace)
    return _of_gpu_alone(found, grown, trace) if grown and not is_told(trace, "rss_kib") else found


def undecided(found: TraceVerdict) -> str:
    """Return why growth of GPU memory is not ruled out; "" if it is, or without a GPU."""
    columns = [found.metrics[column] for column in WORDS if column in found.metrics]
    return next((str(told["why"]) for told in columns if told["verdict"] not in GOOD), "")


def _told(column: str, growth: Growth, trace: Trace) -> Mapping[str, Any]:
    words = memory_words(growth, what=WORDS[column])
    why = words if growth.rate is not None else f"{WORDS[column]}: {words}"
    return {**metric_of(growth, trace.column(column)), "why": why}


def is_shared(facts: Mapping[str, Any]) -> bool:
    """Return whether other processes used one of the GPUs when the trial began, according to its facts."""
    gpus = facts.get("gpus")
    told = [gpu.get("processes") for gpu in gpus if isinstance(gpu, Mapping)] if isinstance(gpus, list) else []
    return any(isinstance(count, int) and count > 0 for count in told)


def is_told(trace: Trace, column: str) -> bool:
    """Return whether a column was measured."""
    values = trace.column(column)
    return values is not None and bool(np.isfinite(values).any())


def _grown(trace: Trace, *, limits: Limits, steps: Steps | None) -> dict[str, Growth]:
    """Return the growth of the pool and of the first column of WHOLE, as far as measured, the most exact first."""
    whole = next((column for column in WHOLE if is_told(trace, column)), None)
    columns = [column for column in ("gpu_pool_kib", whole) if column is not None]
    judged = {
        column: judge_memory(trace, limit=limits.leak_kib_per_step, steps=steps, column=column) for column in columns
    }
    return {column: _but_cycles(growth, column, trace) for column, growth in judged.items() if growth is not None}


def _but_cycles(growth: Growth, column: str, trace: Trace) -> Growth:
    """Return the growth as a plateau if gc.collect returns it at the looks."""
    kept = look_rate(trace.looks, column)
    given_back = kept is not None and growth.rate is not None and kept <= (1 - GIVEN_BACK) * growth.rate
    return replace(growth, verdict="plateau", cycles=True) if growth.verdict == "leak" and given_back else growth


def _leak(trace: Trace, grown: Mapping[str, Growth], *, shared: bool) -> GpuLeak | None:
    """Return the leak in the most exact column, if any."""
    for column, growth in grown.items():
        if growth.verdict == "leak" and growth.rate is not None and growth.interval is not None:
            sure = column != "gpu_kib" or not shared
            layer = gpu_layer_of(trace) if sure else None
            return GpuLeak(
                column=column, rate_kib_per_step=growth.rate, interval=growth.interval, layer=layer, sure=sure
            )
    return None


def _with_leak(found: TraceVerdict, leak: GpuLeak, trace: Trace) -> TraceVerdict:
    why = _beside(f"{leak}", found, trace)
    if "leak" in found.verdicts:
        return replace(found, why=why)
    name: VerdictName = "leak" if leak.sure else "suspect"
    kept = tuple(verdict for verdict in found.verdicts if verdict not in REPLACED)
    verdicts = (name, *kept) if leak.sure else (*kept, name)
    return replace(
        found,
        verdict=verdicts[0],
        verdicts=verdicts,
        why=why,
        rate_kib_per_step=leak.rate_kib_per_step,
        rate_ci=leak.interval,
        excluded_kib_per_step=None,
        plateau_mib=None,
        layer=leak.layer,
    )


def _of_gpu_alone(found: TraceVerdict, grown: Mapping[str, Growth], trace: Trace) -> TraceVerdict:
    """Return the verdict on a trace without resident memory: the strongest verdict on its GPU memory."""
    column, growth = min(grown.items(), key=lambda one: REPLACED.index(one[1].verdict))
    verdicts = (*(verdict for verdict in found.verdicts if verdict not in REPLACED), growth.verdict)
    return replace(
        found,
        verdict=verdicts[0],
        verdicts=verdicts,
        why=_beside(memory_words(growth, what=WORDS[column]), found, trace),
        rate_kib_per_step=growth.rate,
        rate_ci=growth.interval,
        excluded_kib_per_step=growth.excluded,
        plateau_mib=growth.rise / 1024 if growth.verdict == "plateau" else None,
    )


def _beside(words: str, found: TraceVerdict, trace: Trace) -> str:
    """Return `words` followed by the reason for RSS and step times, if these were measured."""
    if is_told(trace, "rss_kib") or is_told(trace, "step_s"):
        return f"{words}; {found.why}"
    return f"{words}; up to step {found.steps}"
