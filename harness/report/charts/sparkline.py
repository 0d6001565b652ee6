"""Draws the sparklines of the page: resident memory over the steps, as an SVG line of a few hundred bytes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from harness.model import Floats, Trace, Trial

WIDTH = 120
HEIGHT = 28
MOST_POINTS = 60
LEAST_SCALE_KIB = 1024.0
"""Smallest growth that a sparkline's full height represents, in KiB; a smaller scale would magnify noise."""


@dataclass(frozen=True, kw_only=True)
class SparkGrowth:
    """Resident memory above its first sample, in KiB, by step. Both arrays are finite, of shape (n,) with n ≥ 2."""

    step: Floats
    kib: Floats


def growth(trials: Iterable[Trial]) -> SparkGrowth | None:
    """Return the memory growth in the trial with the most steps; None if no trial was sampled."""
    traces = [trial.trace for trial in trials if trial.trace is not None]
    return _growth(max(traces, key=lambda trace: trace.step[-1] if trace.step.size else 0)) if traces else None


def _growth(trace: Trace) -> SparkGrowth | None:
    rss = trace.column("rss_kib")
    if rss is None:
        return None
    known = np.isfinite(rss) & np.isfinite(trace.step)
    step, kib = trace.step[known], rss[known]
    return SparkGrowth(step=step, kib=kib - kib[0]) if step.size > 1 else None


def scale_kib(growths: Iterable[SparkGrowth | None]) -> float:
    """Return the growth that fills the height, in KiB: the largest in a row, so that its sparklines are comparable."""
    return max([LEAST_SCALE_KIB, *(float(growth.kib.max()) for growth in growths if growth is not None)])


def points(growth: SparkGrowth, *, scale_kib: float) -> str:
    """Return the line as an SVG `points` attribute within WIDTH × HEIGHT, with at most MOST_POINTS points."""
    chosen = np.unique(np.linspace(0, growth.step.size - 1, MOST_POINTS).astype(int))
    step, kib = growth.step[chosen], growth.kib[chosen]
    span = max(float(step[-1] - step[0]), 1.0)
    x = (step - step[0]) / span * WIDTH
    y = HEIGHT - 1 - np.clip(kib / scale_kib, 0, 1) * (HEIGHT - 2)
    return " ".join(f"{across:.0f},{down:.1f}" for across, down in zip(x.tolist(), y.tolist(), strict=True))
