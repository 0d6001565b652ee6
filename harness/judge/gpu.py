"""Leaks of a GPU's memory, by the same rule as those of resident memory.

Two series of a trace tell of them. The framework's pool is exact to the byte: it shows objects that are kept. The
memory of the process, or of the device where the driver does not tell processes apart, also shows what a pool has
reserved and what the driver holds (plans, contexts, modules). Only a leak counts: allocators and libraries take
working memory for some time in every program.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from harness.judge.layer import gpu_layer_of, look_rate
from harness.judge.trend import judge_metric
from harness.model import Interval, Limits, Steps, Trace, TraceVerdict, Trial, VerdictName

WORDS = {
    "gpu_pool_kib": "the framework's GPU memory",
    "gpu_process_kib": "the process's GPU memory",
    "gpu_kib": "the GPU's memory",
}
REPLACED: frozenset[VerdictName] = frozenset({"suspect", "inconclusive", "plateau", "flat"})
"""What RSS may be said to do beside a leak that is not its own."""

GIVEN_BACK = 0.5
"""Of the growth between two looks: what gc.collect returns of it at the second one was held by cycles, and not lost."""


@dataclass(frozen=True, kw_only=True)
class GpuLeak:
    """`sure`: False where another process on the GPU may be the one that grows."""

    column: str
    rate_kib_per_step: float
    interval: Interval
    sure: bool

    def __str__(self) -> str:
        low, high = self.interval
        grows = f"{WORDS[self.column]} grows {self.rate_kib_per_step:.4g} KiB a step ({low:.4g} to {high:.4g})"
        return f"{grows}, at the same pace all the time" if self.sure else f"{grows}, but other processes use the GPU"


def with_gpu(found: TraceVerdict, trial: Trial, *, limits: Limits, steps: Steps) -> TraceVerdict:
    """The verdict on a trial's trace, with what its GPU's memory does beside what RSS does."""
    leak = next(_leaks(trial, limits=limits, steps=steps), None)
    if leak is None or trial.trace is None:
        return found
    why = f"{leak}; {found.why}"
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
        layer=gpu_layer_of(trial.trace) if leak.sure else None,
    )


def _leaks(trial: Trial, *, limits: Limits, steps: Steps) -> Iterator[GpuLeak]:
    """Those that a trial shows, the most exact first."""
    trace = trial.trace
    if trace is None:
        return
    whole = "gpu_process_kib" if _is_told(trace, "gpu_process_kib") else "gpu_kib"
    for column in ("gpu_pool_kib", whole):
        if not _is_told(trace, column):
            continue
        judged = judge_metric(trace, column, limit=limits.leak_kib_per_step, steps=steps)
        kept = look_rate(trace.looks, column)
        if judged["verdict"] == "leak" and (kept is None or kept > (1 - GIVEN_BACK) * judged["rate"]):
            sure = column != "gpu_kib" or not _is_shared(trial)
            yield GpuLeak(column=column, rate_kib_per_step=judged["rate"], interval=judged["rate_ci"], sure=sure)


def _is_told(trace: Trace, column: str) -> bool:
    values = trace.column(column)
    return values is not None and bool(np.isfinite(values).any())


def _is_shared(trial: Trial) -> bool:
    """Whether other processes computed on one of the GPUs when the trial began."""
    gpus = trial.facts.get("gpus")
    told = [gpu.get("processes") for gpu in gpus if isinstance(gpu, Mapping)] if isinstance(gpus, list) else []
    return any(isinstance(count, int) and count > 0 for count in told)
