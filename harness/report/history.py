"""The figures of one history over its versions, as drawings: leak rate, step time, peak memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from harness.model import CellResult, Interval
from harness.report import figures, words
from harness.report.charts import Drawing
from harness.report.clean import plain
from harness.report.table import Row, Shown

Figure = Callable[[CellResult], tuple[float | None, Interval | None]]
_WORDS = {"first_bad": "first bad", "first_fixed": "good again"}


def drawings(verdicts: Row, medians: Mapping[str, Row], *, name: str) -> list[Drawing]:
    """One for each figure that any version has. `medians` are the rows of those that changed: `step_time` and
    `peak_memory`; `name` says whose history it is.
    """
    rows = {"rate": verdicts, **{metric: medians.get(metric, verdicts) for metric in ("step_time", "peak_memory")}}
    return [
        _drawing(
            rows[metric],
            figure,
            title=title,
            name=name,
            is_judged=metric == "rate" or metric in medians,
            is_rate=metric == "rate",
        )
        for metric, (title, figure) in _FIGURES.items()
        if any(cell is not None and figure(cell.result)[0] is not None for cell in rows[metric].cells)
    ]


def _rate(entry: CellResult) -> tuple[float | None, Interval | None]:
    return entry.verdict.rate_kib_per_step, entry.verdict.rate_ci


def _step(entry: CellResult) -> tuple[float | None, Interval | None]:
    return entry.verdict.step_ms, entry.verdict.step_ms_ci


def _peak(entry: CellResult) -> tuple[float | None, Interval | None]:
    """Launches differ little here: their range is the interval."""
    peaks = [trial.peak_rss_kib / 1024 for trial in entry.trials if trial.peak_rss_kib is not None]
    return entry.verdict.peak_rss_mib, (min(peaks), max(peaks)) if peaks else None


_FIGURES: Mapping[str, tuple[str, Figure]] = {
    "rate": ("growth, KiB a step (grey: more is ruled out)", _rate),
    "step_time": ("step time, ms", _step),
    "peak_memory": ("peak memory, MiB", _peak),
}


def _drawing(row: Row, figure: Figure, *, title: str, name: str, is_judged: bool, is_rate: bool) -> Drawing:
    cells = [cell for cell in row.cells if cell is not None]
    return Drawing(
        chart="history",
        title=title,
        description=f"{title}, over the versions of {name}",
        rows={
            "points": [_point(cell, *figure(cell.result), is_judged=is_judged, is_rate=is_rate) for cell in cells],
            "changes": _changes(cells) if is_judged else [],
        },
    )


def _point(
    cell: Shown, value: float | None, interval: Interval | None, *, is_judged: bool, is_rate: bool
) -> dict[str, Any]:
    """A figure that nobody called bad is drawn as good, also of a version that is bad in another way."""
    value = value if value is not None and math.isfinite(value) else None
    interval = interval if value is not None and interval is not None and all(map(math.isfinite, interval)) else None
    told = "" if value is None else figures.number(value)
    low, high = interval or (value, value)
    tone = cell.tone if is_judged or value is None else "good"
    return {
        "version": plain(cell.result.cell.image.version),
        "value": value,
        "low": low,
        "high": high,
        "tone": tone if tone != "none" else "unsure",
        "text": words.cell_text(cell.result.verdict) if cell.tone != "none" else cell.word,
        "excluded": cell.result.verdict.excluded_kib_per_step if is_rate else None,
        "told": told if interval is None else f"{told} ({figures.between(interval)})",
    }


def _changes(cells: Sequence[Shown]) -> list[dict[str, str]]:
    return [
        {
            "version": plain(cell.result.cell.image.version),
            "word": _WORDS[cell.mark],
            "tone": "bad" if cell.mark == "first_bad" else "good",
        }
        for cell in cells
        if cell.mark is not None
    ]
