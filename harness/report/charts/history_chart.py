"""Draws the figures of one history over its versions: leak rate, step time, peak memory, and other changes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from harness import amounts
from harness.model import FAILURES, CellResult, Finding, Interval, Metric, unit_per
from harness.report.blocks import Drawing
from harness.report.text import finding_words, signal_words
from harness.report.text.harmless_text import version
from harness.report.text.signal_words import Tone
from harness.report.version_table import Row, Shown, row_of

_WORDS = {"first_bad": "first bad", "first_fixed": "good again"}
_APART = 0.2
"""Least distance between two words at the same height, as a fraction of the versions: their width at 1200 px."""


def drawings(row: Row, *, name: str) -> list[Drawing]:
    """Return a drawing for each figure that any version has.

    Failures are drawn only if there are any; signals without a chart of their own only if they changed or are bad in
    some cell. `name` is the name of the history.
    """
    cells = [cell.result for cell in row.cells if cell is not None]
    wanted = [metric for metric in _TITLES if metric != "outcome" or any(entry.verdict.failed for entry in cells)]
    others = signal_words.in_order(name for entry in cells for name in entry.verdict.signals)
    bad = {name for entry in cells for name, signal in entry.verdict.signals.items() if signal.seen == "bad"}
    wanted += [metric for metric in others if metric not in wanted and (metric in row.levels or metric in bad)]
    drawn = (drawing(metric, row, name=name) for metric in wanted)
    return [chart for chart in drawn if chart is not None]


def of_findings(findings: Sequence[Finding], row: Sequence[CellResult]) -> Drawing | None:
    """Return the drawing of the figure of findings of one metric over the versions of their row, oldest first, with
    their changes; None if fewer than two versions have that figure.
    """
    verdicts = row_of(row, [entry.cell.image.version for entry in row], findings)
    drawn = drawing(findings[0].metric, verdicts, name=finding_words.place(findings[0]))
    has_two = drawn is not None and sum(point["value"] is not None for point in drawn.rows["points"]) > 1
    return drawn if has_two else None


def drawing(metric: Metric, row: Row, *, name: str) -> Drawing | None:
    """Return the drawing of one figure; None if no version has that figure."""
    signal = signal_words.shown_signal(metric)
    cells = [cell for cell in row.levels.get(metric, row).cells if cell is not None]
    unit = unit_per(signal, signal_words.per_of(cell.result.verdict for cell in cells))
    title = _TITLES.get(metric, "").format(unit=unit)
    title = title or (signal.title if signal.kind == "value" else f"{signal.title}, {unit}")
    figures = [_figure(metric, cell.result) for cell in cells]
    known = [value for value, _ in figures if value is not None]
    if not known:
        return None
    if metric == "step_time" and max(known) < _SHORT_MS:
        title, figures = "step time, µs", [_thousandfold(*figure) for figure in figures]
    tones = [
        _tone(cell, metric, value, is_changed=metric in row.levels)
        for cell, (value, _) in zip(cells, figures, strict=True)
    ]
    return Drawing(
        chart="history",
        title=title,
        description=f"{title}, over the versions of {name}",
        rows={
            "points": [
                _point(cell, metric, *figure, tone=tone)
                for cell, figure, tone in zip(cells, figures, tones, strict=True)
            ],
            "changes": list(_changes(cells, tones, is_changed=metric in row.levels)),
        },
    )


def _figure(metric: Metric, entry: CellResult) -> tuple[float | None, Interval | None]:
    """Return a figure and its confidence interval, in the unit of the chart's title. For peak memory that was not
    compared, the interval is the range of the launches.
    """
    value, interval = signal_words.figure_beside(metric, entry.verdict)
    scale = _SCALES.get(metric, 1.0)
    value, interval = value and scale * value, interval and (scale * interval[0], scale * interval[1])
    peaks = [trial.peak_rss_kib / 1024 for trial in entry.trials if trial.peak_rss_kib]
    if metric == "peak_memory" and interval is None and peaks:
        interval = min(peaks), max(peaks)
    return value, interval


def _thousandfold(value: float | None, interval: Interval | None) -> tuple[float | None, Interval | None]:
    return value and 1000 * value, interval and (1000 * interval[0], 1000 * interval[1])


_SHORT_MS = 0.1
"""If all step times, in ms, are below this, they are drawn in µs."""
_TITLES: Mapping[Metric, str] = {
    "memory": "growth, {unit} (grey: more is ruled out)",
    "outcome": "launches that failed, %",
    "step_time": "step time, ms",
    "peak_memory": "peak memory, MiB",
}


_SCALES: Mapping[Metric, float] = {"outcome": 100.0, "step_time": 1000.0, "peak_memory": 1 / 1024}
"""From the signal's unit to that of its title."""


def _tone(cell: Shown, metric: Metric, value: float | None, *, is_changed: bool) -> Tone:
    """Return the tone of a version in the chart of one metric, regardless of the version's other signals.

    A figure that was not compared with those of other versions is `unsure`.
    """
    verdict = cell.result.verdict
    if value is not None and signal_words.is_uncompared(metric, verdict):
        return "unsure"
    if is_changed or (value is None and _says_why(cell)):
        return cell.tone
    if value is None:
        return "none"
    if metric not in verdict.signals:
        return "good" if metric in ("step_time", "peak_memory") else cell.tone
    tone = signal_words.TONES[verdict.signals[metric].seen]
    return "unsure" if tone == "good" and verdict.provisional else tone


def _point(
    cell: Shown, metric: Metric, value: float | None, interval: Interval | None, *, tone: Tone
) -> dict[str, Any]:
    """Return a row of the dataset `points`."""
    text = _text(cell, metric, value)
    value = value if value is not None and math.isfinite(value) else None
    interval = interval if value is not None and interval is not None and all(map(math.isfinite, interval)) else None
    low, high = interval or (value, value)
    return {
        "version": version(cell.result.cell.image.version),
        "value": value,
        "low": low,
        "high": high,
        "tone": tone if tone != "none" else "unsure",
        "text": text,
        "excluded": cell.result.verdict.of("memory").visible if metric == "memory" else None,
        "told": amounts.with_interval(value, interval),
    }


def _says_why(cell: Shown) -> bool:
    """Return whether the cell's verdict explains a missing figure: the version failed or did not run."""
    return cell.tone == "none" or cell.result.verdict.verdict in FAILURES


def _text(cell: Shown, metric: Metric, value: float | None) -> str:
    """Return the verdict on a version, or if it has no figure, the reason for that."""
    if cell.tone == "none":
        return cell.word
    if value is not None and not math.isfinite(value):
        return signal_words.value_text(metric, value)
    return signal_words.cell_text(cell.result.verdict) if value is not None or _says_why(cell) else "not measured"


def _changes(cells: Sequence[Shown], tones: Sequence[Tone], *, is_changed: bool) -> Iterator[dict[str, str]]:
    """Yield a row of the dataset `changes` for each mark that this metric explains; other marks belong to other
    findings.

    A word that would overlap the preceding word is left out; a word near the right edge is placed left of its line.
    """
    was_bad = False
    last = dict.fromkeys(_WORDS, -math.inf)
    for place, (cell, tone) in enumerate(zip(cells, tones, strict=True)):
        is_own = is_changed or (tone == "bad" if cell.mark == "first_bad" else was_bad)
        if cell.mark is not None and is_own:
            name = version(cell.result.cell.image.version)
            is_left = place > (1 - _APART) * len(cells)
            fits = place - last[cell.mark] >= (1 + is_left) * _APART * len(cells)
            if fits:
                last[cell.mark] = place
            yield {
                "version": name, "word": _WORDS[cell.mark] if fits else "", "side": "left" if is_left else "right",
                "tone": "bad" if cell.mark == "first_bad" else "good",
            }  # fmt: skip
        was_bad = tone == "bad" if tone in ("bad", "good") else was_bad
