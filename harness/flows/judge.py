"""Judges traces from files, for `harness judge`. It needs no container."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.errors import UsageError
from harness.judge.trace.gpu_memory import is_shared, with_gpu
from harness.judge.trace.verdict import judge_trace
from harness.model import Limits, TraceVerdict
from harness.model.watching import Say, unheard
from harness.traces import read_trace


def judge_traces(
    paths: Sequence[Path],
    *,
    limits: Limits,
    metrics: Mapping[str, float],
    note: Say = unheard,
    refused: Callable[[UsageError], None],
) -> Iterator[dict[str, Any]]:
    """Yield the verdict on each trace, in the order given, as `harness judge` prints it.

    `metrics` maps a column to the limit of its rate, in its own unit a step; `note` is told what was read in a doubtful
    way, `refused` of each file that cannot be judged, with path and line: the others are.
    """
    for path in paths:
        try:
            verdict = judge_file(path, limits=limits, metrics=metrics, note=note)
        except UsageError as error:
            refused(error)
        else:
            yield describe(path, verdict)


def judge_file(path: Path, *, limits: Limits, metrics: Mapping[str, float], note: Say = unheard) -> TraceVerdict:
    """Judge a trace by resident memory, step time and the GPU's memory. Raises UsageError."""
    read = read_trace(path, metrics=tuple(metrics), note=note)
    verdict = judge_trace(read.trace, limits=limits, metrics=metrics)
    return with_gpu(verdict, read.trace, limits=limits, shared=is_shared(read.facts))


def describe(path: Path, found: TraceVerdict) -> dict[str, Any]:
    """Return a trace's verdict with the fields of a `cells` entry of summary.json that apply."""
    return {
        "trace": str(path),
        "verdict": found.verdict,
        "verdicts": list(found.verdicts),
        "steps": found.steps,
        "rate_kib_per_step": found.rate_kib_per_step,
        "rate_ci": list(found.rate_ci) if found.rate_ci else None,
        "excluded_kib_per_step": found.excluded_kib_per_step,
        "layer": found.layer,
        "plateau_mib": found.plateau_mib,
        "step_ms": found.step_ms,
        "step_drift": found.step_drift,
        "peak_rss_mib": found.peak_rss_mib,
        "early": found.early,
        "metrics": dict(found.metrics),
        "why": found.why,
    }
