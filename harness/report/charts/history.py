"""Draws the figures of one history over its versions: leak rate, step time, peak memory, and other changes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from harness.model import CellResult, Interval, Metric
from harness.report.charts.definitions import Drawing
from harness.report.content.table import Row, Shown
from harness.report.text import numbers, signal_words, words
from harness.report.text.clean import version

CellFigure = Callable[[CellResult], tuple[float | None, Interval | None]]
_WORDS = {"first_bad": "first bad", "first_fixed": "good again"}


def drawings(verdicts: Row, medians: Mapping[Metric, Row], *, name: str) -> list[Drawing]:
    """Return a drawing for each figure that any version has.

    Failures are drawn only if there are any, other signals only if they are bad somewhere. `name` is the name of the
    history, `medians` are the rows of the levels that changed.
    """
    cells = [cell.result for cell in verdicts.cells if cell is not None]
    wanted = [metric for metric in _FIGURES if metric != "outcome" or any(one.verdict.failed for one in cells)]
    others = signal_words.in_order(one.verdict for one in cells)
    wanted += [metric for metric in others if metric not in wanted and (metric in medians or _is_bad(metric, cells))]
    drawn = (drawing(metric, verdicts, medians, name=name) for metric in wanted)
    return [one for one in drawn if one is not None]


def drawing(metric: Metric, verdicts: Row, medians: Mapping[Metric, Row], *, name: str) -> Drawing | None:
    """Return the drawing of one figure; None if no version has it."""
    title, figure = _FIGURES.get(metric) or _other(metric)
    row = medians.get(metric, verdicts)
    cells = [cell for cell in row.cells if cell is not None]
    if all(figure(cell.result)[0] is None for cell in cells):
        return None
    is_judged = metric in ("memory", "outcome", *medians) or metric not in _FIGURES
    return Drawing(
        chart="history",
        title=title,
        description=f"{title}, over the versions of {name}",
        rows={
            "points": [
                _point(cell, *figure(cell.result), is_judged=is_judged, is_rate=metric == "memory") for cell in cells
            ],
            "changes": _changes(cells) if is_judged else [],
        },
    )


def _is_bad(metric: Metric, cells: Iterable[CellResult]) -> bool:
    return any(metric in one.verdict.signals and one.verdict.signals[metric].seen == "bad" for one in cells)


def _other(metric: Metric) -> tuple[str, CellFigure]:
    """Return the title and the figure of any other signal, in its own unit."""
    signal = signal_words.signal_of(metric)

    def figure(entry: CellResult) -> tuple[float | None, Interval | None]:
        known = entry.verdict.signals.get(metric)
        return (None, None) if known is None else (known.value, known.ci)

    return signal.title if signal.kind == "value" else f"{signal.title}, {signal.unit}", figure


def _rate(entry: CellResult) -> tuple[float | None, Interval | None]:
    return entry.verdict.rate_kib_per_step, entry.verdict.rate_ci


def _step(entry: CellResult) -> tuple[float | None, Interval | None]:
    return entry.verdict.step_level


def _peak(entry: CellResult) -> tuple[float | None, Interval | None]:
    """Return the peak in MiB; if nothing was compared, the interval is the range of the launches, which is small."""
    value, interval = entry.verdict.peak_level
    peaks = [trial.peak_rss_kib / 1024 for trial in entry.trials if trial.peak_rss_kib is not None]
    whole = entry.verdict.compared_peak_mib is None and peaks
    return value, (min(peaks), max(peaks)) if whole else interval


def _failed(entry: CellResult) -> tuple[float | None, Interval | None]:
    verdict = entry.verdict
    return (100 * verdict.failed / verdict.trials if verdict.trials else None), None


_FIGURES: Mapping[Metric, tuple[str, CellFigure]] = {
    "memory": ("growth, KiB a step (grey: more is ruled out)", _rate),
    "outcome": ("launches that failed, %", _failed),
    "step_time": ("step time, ms", _step),
    "peak_memory": ("peak memory, MiB", _peak),
}


def _point(
    cell: Shown, value: float | None, interval: Interval | None, *, is_judged: bool, is_rate: bool
) -> dict[str, Any]:
    """Return a row of `points`; a figure that is not judged has the tone good, even if the version is bad otherwise."""
    value = value if value is not None and math.isfinite(value) else None
    interval = interval if value is not None and interval is not None and all(map(math.isfinite, interval)) else None
    told = "" if value is None else numbers.number(value)
    low, high = interval or (value, value)
    tone = cell.tone if is_judged or value is None else "good"
    return {
        "version": version(cell.result.cell.image.version),
        "value": value,
        "low": low,
        "high": high,
        "tone": tone if tone != "none" else "unsure",
        "text": words.cell_text(cell.result.verdict) if cell.tone != "none" else cell.word,
        "excluded": cell.result.verdict.excluded_kib_per_step if is_rate else None,
        "told": told if interval is None else f"{told} ({numbers.between(interval)})",
    }


def _changes(cells: Sequence[Shown]) -> list[dict[str, str]]:
    return [
        {
            "version": version(cell.result.cell.image.version),
            "word": _WORDS[cell.mark],
            "tone": "bad" if cell.mark == "first_bad" else "good",
        }
        for cell in cells
        if cell.mark is not None
    ]
