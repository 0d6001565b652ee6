"""Judges traces from files, for `harness judge`. No container is needed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.judge.trace.gpu_memory import is_shared, with_gpu
from harness.judge.trace.trace_verdict import judge_trace
from harness.model import Limits, TraceVerdict
from harness.model.watching import Say, unheard
from harness.traces import read_trace

PRINTED = (
    "verdict", "verdicts", "steps", "rate_kib_per_step", "rate_ci", "excluded_kib_per_step", "layer", "plateau_mib",
    "step_ms", "step_drift", "peak_rss_mib", "early", "metrics", "why",
)  # fmt: skip
"""The fields of a `cells` entry of summary.json that apply to a trace."""


def judge_file(path: Path, *, limits: Limits, metrics: Mapping[str, float], note: Say = unheard) -> TraceVerdict:
    """Judge a trace by resident memory, step time and the GPU's memory. Raises UsageError, with path and line.

    `metrics` maps a column to the limit of its growth, in the column's unit per step. `note` receives a message about
    each part of the file that was skipped or read with an assumption.
    """
    read = read_trace(path, metrics=tuple(metrics), note=note)
    verdict = judge_trace(read.trace, limits=limits, metrics=metrics)
    return with_gpu(verdict, read.trace, limits=limits, shared=is_shared(read.facts))


def describe(path: Path, found: TraceVerdict) -> dict[str, Any]:
    """Return a trace's verdict as `harness judge` prints it."""
    return {"trace": str(path), **{name: getattr(found, name) for name in PRINTED}}
