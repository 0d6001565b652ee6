"""Leaks of a GPU's memory, by the same rule as those of resident memory.

Two series of a trace tell of them. The framework's pool is exact to the byte: it shows objects that are kept. The
memory of the process, or of the device where the driver does not tell processes apart, also shows what a pool has
reserved and what the driver holds (plans, contexts, modules); where neither is told, what the pool has reserved stands
for it. Beside resident memory only a leak counts: allocators and libraries take working memory for some time in every
program. A trace without resident memory is what its GPU's memory is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from harness.judge.trace.growth.rule import Growth
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
"""What a pool lies in: the first of them that a trace tells is judged beside the pool."""
REPLACED: tuple[VerdictName, ...] = ("suspect", "inconclusive", "plateau", "flat")
"""What a trace may be said to be beside a leak that is not that of RSS: the strongest first."""
GIVEN_BACK = 0.5
"""Of the growth between two looks: what gc.collect returns of it at the second one was held by cycles, and not lost."""


@dataclass(frozen=True, kw_only=True)
class GpuLeak:
    """`sure`: False where another process on the GPU may be the one that grows."""

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
    """The verdict `found` on a trace, with what its GPU's memory does beside what RSS does; each column that was judged
    is among `metrics`. `steps` as for `judge_trace`; `shared` as `is_shared` has it.
    """
    grown = _grown(trace, limits=limits, steps=steps)
    told = {name: _told(name, growth, trace) for name, growth in grown.items()}
    found = replace(found, metrics={**told, **found.metrics})
    leak = _leak(trace, grown, shared=shared)
    if leak is not None:
        return _with_leak(found, leak, trace)
    return _of_gpu_alone(found, grown, trace) if grown and not is_told(trace, "rss_kib") else found


def undecided(found: TraceVerdict) -> str:
    """Why it cannot be said that the GPU's memory does not grow; "" where that is ruled out, and without a GPU."""
    columns = [found.metrics[column] for column in WORDS if column in found.metrics]
    return next((str(told["why"]) for told in columns if told["verdict"] not in GOOD), "")


def _told(column: str, growth: Growth, trace: Trace) -> Mapping[str, Any]:
    words = memory_words(growth, what=WORDS[column])
    why = words if growth.rate is not None else f"{WORDS[column]}: {words}"
    return {**metric_of(growth, trace.column(column)), "why": why}


def is_shared(facts: Mapping[str, Any]) -> bool:
    """Whether other processes computed on one of the GPUs when the trial began, by its facts."""
    gpus = facts.get("gpus")
    told = [gpu.get("processes") for gpu in gpus if isinstance(gpu, Mapping)] if isinstance(gpus, list) else []
    return any(isinstance(count, int) and count > 0 for count in told)


def is_told(trace: Trace, column: str) -> bool:
    values = trace.column(column)
    return values is not None and bool(np.isfinite(values).any())


def _grown(trace: Trace, *, limits: Limits, steps: Steps | None) -> dict[str, Growth]:
    """What the pool does and what it lies in, of those that are told, the most exact first."""
    whole = next((column for column in WHOLE if is_told(trace, column)), None)
    columns = [column for column in ("gpu_pool_kib", whole) if column is not None]
    judged = {
        column: judge_memory(trace, limit=limits.leak_kib_per_step, steps=steps, column=column) for column in columns
    }
    return {column: _but_cycles(growth, column, trace) for column, growth in judged.items() if growth is not None}


def _but_cycles(growth: Growth, column: str, trace: Trace) -> Growth:
    """What gc.collect gives back at the looks is no leak."""
    kept = look_rate(trace.looks, column)
    given_back = kept is not None and growth.rate is not None and kept <= (1 - GIVEN_BACK) * growth.rate
    return replace(growth, verdict="plateau", cycles=True) if growth.verdict == "leak" and given_back else growth


def _leak(trace: Trace, grown: Mapping[str, Growth], *, shared: bool) -> GpuLeak | None:
    """The most exact one."""
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
    """The verdict where resident memory was not measured: the strongest of what the GPU's memory is."""
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
    """`words`, before what the trace's verdict says of RSS and step times, if these were measured."""
    if is_told(trace, "rss_kib") or is_told(trace, "step_s"):
        return f"{words}; {found.why}"
    return f"{words}; up to step {found.steps}"
