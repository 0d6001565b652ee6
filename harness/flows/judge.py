"""`harness judge`: the verdict on traces from files, without any container."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.judge import trend
from harness.model import Limits, TraceVerdict
from harness.traces import read_trace, unheard


def judge_traces(
    paths: Sequence[Path], *, limits: Limits, metrics: Mapping[str, float], note: Callable[[str], None] = unheard
) -> Iterator[dict[str, Any]]:
    """The verdict on each trace, in the order given, as `harness judge` prints it.

    `metrics` maps a column to the limit of its rate, in its own unit a step; `note` is told how doubtful units were
    read. Raises UsageError with path and line.
    """
    for path in paths:
        trace = read_trace(path, metrics=tuple(metrics), note=note)
        yield describe(path, trend.judge_trace(trace, limits=limits, metrics=metrics))


def describe(path: Path, found: TraceVerdict) -> dict[str, Any]:
    """A trace's verdict with the fields of a `cells` entry of summary.json that apply."""
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
