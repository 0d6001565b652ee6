"""The two pictures of a bug report: the figure over the versions, and good beside bad over the steps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from harness.model import CellResult, Interval, Trial
from harness.model.evidence import Issue
from harness.report import words
from harness.report.charts import Drawing
from harness.report.clean import plain

POINTS = 200


def pictures(issue: Issue) -> dict[str, Drawing]:
    """By file name without its ending; what there is nothing to draw of is not there."""
    drawn = {"versions": _versions(issue), "steps": _steps(issue)}
    return {name: drawing for name, drawing in drawn.items() if drawing is not None}


# ---------------------------------------------------------------- over the versions


def _versions(issue: Issue) -> Drawing | None:
    title = {
        "memory": "growth of memory, KiB a step",
        "step_time": "step time, ms",
        "peak_memory": "peak memory, MiB",
        "outcome": "launches that failed, %",
    }[issue.finding.metric]
    points = [_point(one, *_figure(one, issue.finding.metric)) for one in issue.history]
    if sum(point["value"] is not None for point in points) < 2:
        return None
    changed = {"version": plain(issue.finding.after), "word": issue.finding.kind.replace("_", " ")}
    tone = "good" if issue.finding.kind == "first_fixed" else "bad"
    rows = {"points": points, "changes": [{**changed, "tone": tone}]}
    return Drawing(chart="history", title=title, description=f"{title}, over the versions", rows=rows)


def _figure(entry: CellResult, metric: str) -> tuple[float | None, Interval | None]:
    verdict = entry.verdict
    if metric == "memory":
        return verdict.rate_kib_per_step, verdict.rate_ci
    if metric == "step_time":
        return verdict.step_ms, verdict.step_ms_ci
    if metric == "peak_memory":
        return verdict.peak_rss_mib, None
    return (100 * verdict.failed / verdict.trials if verdict.trials else None), None


def _point(entry: CellResult, value: float | None, interval: Interval | None) -> dict[str, Any]:
    tone = words.tone(entry.verdict.verdict)
    low, high = interval or (value, value)
    return {
        "version": plain(entry.cell.image.version),
        "value": value,
        "low": low,
        "high": high,
        "tone": tone if tone != "none" else "unsure",
        "text": words.cell_text(entry.verdict),
        "told": "",
    }


# ---------------------------------------------------------------- over the steps


def _steps(issue: Issue) -> Drawing | None:
    column, scale, title = "rss_kib", 1 / 1024, "resident memory, MiB"
    if issue.finding.metric == "step_time":
        column, scale, title = "step_s", 1000.0, "step time, ms"
    sides = [one for one in (issue.good, issue.bad) if one is not None]
    lines = [line for one in sides for line in _lines(one, column, scale)]
    if not lines:
        return None
    return Drawing(
        chart="trace", title=title, description=f"{title}, over the steps", rows={"lines": lines, "looks": []}
    )


def _lines(entry: CellResult, column: str, scale: float) -> Iterator[dict[str, Any]]:
    """One line for a version: its longest launch."""
    sampled = [trial for trial in entry.trials if trial.trace is not None and trial.trace.step.size > 1]
    longest = max(sampled, key=lambda trial: trial.last_step, default=None)
    if longest is not None and (line := _line(longest, column, scale)) is not None:
        yield {"trial": f"{plain(entry.cell.image.version)} ({words.verdict_word(entry.verdict)})", **line}


def _line(trial: Trial, column: str, scale: float) -> dict[str, Any] | None:
    """The column in at most POINTS places; each the median of its neighbourhood, so that a spike hides nothing."""
    trace = trial.trace
    values = None if trace is None else trace.column(column)
    if trace is None or values is None:
        return None
    known = np.isfinite(values) & np.isfinite(trace.step)
    step, level = trace.step[known], values[known] * scale
    if step.size < 2:
        return None
    parts = np.array_split(np.arange(step.size), min(POINTS, step.size))
    return {
        "step": [int(step[part[-1]]) for part in parts],
        "value": [round(float(np.median(level[part])), 4) for part in parts],
    }
