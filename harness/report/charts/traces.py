"""Shows the traces of a cell's trials as drawings and as a table of looks. Memory is in MiB, step time in ms."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from markupsafe import Markup

from harness import amounts
from harness.model import CellResult, Floats, Look, Trial
from harness.report.blocks import Drawing

MIB = 1 / 1024


MEASURES: Mapping[str, tuple[str, float]] = {
    "rss_kib": ("resident memory, MiB", MIB),
    "heap_kib": ("C heap in use, MiB", MIB),
    "blocks": ("Python objects, thousands", 1e-3),
    "gpu_process_kib": ("GPU memory of the trial, MiB", MIB),
    "gpu_pool_kib": ("GPU memory in use by the framework, MiB", MIB),
    "gpu_kib": ("total GPU memory in use, MiB", MIB),
    "step_s": ("step time, ms", 1000.0),
}
"""The title of each column of a trace, and the factor to its unit. Except for step time, a Look has a figure of the
same name."""


def lines_of(entry: CellResult) -> int:
    """Return how many lines the drawings of a cell have, as a measure of their size in the page."""
    return sum(trial.figures(column) is not None for trial in entry.trials for column in MEASURES)


def drawings(entry: CellResult, *, name: str, points: int) -> list[Drawing]:
    """Return a drawing for each measure that any trial has: a line for each trial, with its looks marked.

    A line has at most `points` points. `name` is the name of the cell, for the description.
    """
    drawn = []
    for column, (title, _) in MEASURES.items():
        lines = [
            row
            for trial in entry.trials
            if (row := line_row(trial, column, points=points, name=trial.number)) is not None
        ]
        if lines:
            looks = [row for trial in entry.trials if (row := _looks(trial, column)) is not None]
            told = f"{title} over the steps of {amounts.count(len(lines), 'trial')} of {name}"
            rows = {"lines": lines, "looks": looks}
            drawn.append(Drawing(chart="trace", title=title, description=told, rows=rows))
    return drawn


def line_row(trial: Trial, column: str, *, points: int, name: int | str) -> dict[str, object] | None:
    """Return a row of the dataset `lines` with at most `points` points; None if nothing was sampled.

    `name` is shown in the legend.
    """
    values = trial.figures(column)
    if values is None or trial.trace is None:
        return None
    rows = np.flatnonzero(np.isfinite(values) & np.isfinite(trial.trace.step))
    rows = rows[np.unique(np.linspace(0, rows.size - 1, points).astype(np.intp))]
    step, scaled = trial.trace.step[rows], values[rows] * MEASURES[column][1]
    return {"trial": name, "step": step.astype(int).tolist(), "value": _short(scaled)}


def _looks(trial: Trial, column: str) -> dict[str, object] | None:
    looks = () if trial.trace is None else trial.trace.looks
    known = [(look.step, value) for look in looks if (value := look.of(column)) is not None]
    if not known:
        return None
    values = _short(np.array([value for _, value in known]) * MEASURES[column][1])
    return {"trial": trial.number, "step": [step for step, _ in known], "value": values}


def _short(values: Floats) -> list[float]:
    """Round the values to about a thousandth of their range, because finer differences are invisible and digits make
    the page larger.
    """
    span = float(values.max() - values.min()) or abs(float(values[0])) or 1.0
    return np.round(values, max(0, 3 - math.floor(math.log10(span)))).tolist()  # type: ignore[no-any-return]


# ---------------------------------------------------------------- looks as a table

LOOK_TITLES = ("trial", "step", "resident MiB", "C heap MiB", "Python objects", "GPU MiB", "threads")


def look_rows(trials: Sequence[Trial]) -> list[tuple[str, ...]]:
    """Return a row with the columns LOOK_TITLES for every look of every trial; "" means a missing figure."""
    return [_look_row(trial, look) for trial in trials if trial.trace is not None for look in trial.trace.looks]


def _look_row(trial: Trial, look: Look) -> tuple[str, ...]:
    figures = map(look.of, ("gpu_process_kib", "gpu_pool_kib", "gpu_kib"))
    gpu = next((figure for figure in figures if figure is not None), None)
    blocks, threads = look.of("blocks"), look.of("threads")
    return (
        f"A/A {trial.number}" if trial.is_replicate else f"{trial.number}",
        f"{look.step:,}",
        *("" if kib is None else f"{kib * MIB:,.2f}" for kib in (look.of("rss_kib"), look.of("heap_kib"))),
        "" if blocks is None else f"{blocks:,.0f}",
        "" if gpu is None else f"{gpu * MIB:,.2f}",
        "" if threads is None else f"{threads:.0f}",
    )


# ---------------------------------------------------------------- sparkline


WIDTH, HEIGHT = 120, 28
MOST_POINTS = 60
LEAST_SCALE_KIB = 1024.0
"""Smallest growth that a sparkline's full height represents, in KiB; a smaller scale would magnify noise."""


def _growth(trials: Sequence[Trial]) -> tuple[Floats, Floats] | None:
    """Return the steps of the trial with the most steps, and its resident memory above its first sample, in KiB; None
    with fewer than two samples.
    """
    sampled = [trial.trace for trial in trials if trial.trace is not None]
    longest = max(sampled, key=lambda trace: trace.step[-1] if trace.step.size else 0, default=None)
    rss = None if longest is None else longest.column("rss_kib")
    if longest is None or rss is None:
        return None
    known = np.isfinite(rss) & np.isfinite(longest.step)
    step, kib = longest.step[known], rss[known]
    return (step, kib - kib[0]) if step.size > 1 else None


def scale_kib(cells: Iterable[Sequence[Trial]]) -> float:
    """Return the growth that fills the height, in KiB: the largest in a row, so that its sparklines are comparable."""
    growths = (growth for trials in cells if (growth := _growth(trials)) is not None)
    return max([LEAST_SCALE_KIB, *(float(kib.max()) for _, kib in growths)])


def sparkline(trials: Sequence[Trial], *, scale_kib: float, tone: str) -> Markup:
    """Return the growth of memory in the longest trial as a small SVG, "" if nothing was sampled."""
    growth = _growth(trials)
    if growth is None:
        return Markup("")
    chosen = np.unique(np.linspace(0, growth[0].size - 1, MOST_POINTS).astype(int))
    step, kib = growth[0][chosen], growth[1][chosen]
    x = (step - step[0]) / max(float(step[-1] - step[0]), 1.0) * WIDTH
    y = HEIGHT - 1 - np.clip(kib / scale_kib, 0, 1) * (HEIGHT - 2)
    points = " ".join(f"{across:.0f},{down:.1f}" for across, down in zip(x.tolist(), y.tolist(), strict=True))
    head = Markup('<svg class="{}" role="img" aria-label="memory over the steps" viewBox="0 0 {} {}" width="{}">')
    return head.format(tone, WIDTH, HEIGHT, WIDTH) + Markup('<polyline points="{}"/></svg>').format(points)
