"""Collects a finding's figures over the versions of one row: points for a small chart, and a text about both sides."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from harness.model import (
    CellResult,
    CellVerdict,
    Effect,
    Episode,
    Finding,
    Interval,
    Metric,
    RunResult,
    VersionRow,
    signal_of,
)
from harness.model.episodes import span
from harness.model.judged import State
from harness.report.text import numbers, signal_words
from harness.report.text.harmless_text import plain
from harness.report.text.signal_marks import Tone

_TONES: Mapping[State, Tone] = {True: "bad", False: "good", None: "unsure"}


@dataclass(frozen=True, kw_only=True)
class Point:
    """The figure of one version with its confidence interval, in the unit of `Figure`.

    `own`: whether this finding itself makes the version bad. `most`: the smallest leak rate that the version rules out.
    """

    version: str
    value: float | None
    low: float | None
    high: float | None
    tone: Tone
    own: bool
    most: float | None = None


@dataclass(frozen=True, kw_only=True)
class Figure:
    """The points of a chart, oldest first.

    `unit` is the signal's unit, except `ms` for step time and `MiB` for peak memory. Values in `failures` and in `rise`
    (of the step time within a launch) are fractions, not percentages.
    """

    title: str
    unit: str
    points: tuple[Point, ...]


def figure_of(episode: Episode, result: RunResult) -> Figure:
    """Return an episode's figure for its series, lane and variant. Tones show only the state of its metric."""
    finding = episode.finding
    place = (finding.series, finding.lane, finding.variant)
    row = next(row for row in result.plan.rows if (row.series.name, row.lane, row.variant) == place)
    known = {entry.cell.id: entry for entry in result.cells}
    drifts = finding.verdict == "slowdown"
    title = "rise of the step time within a launch" if drifts else plain(signal_of(finding.metric).title)
    return Figure(title=title, unit=_unit(finding), points=tuple(_points(row, known, episode)))


def _points(row: VersionRow, known: Mapping[str, CellResult], episode: Episode) -> list[Point]:
    order = {cell.image.version: place for place, cell in enumerate(row.cells)}
    own = span(episode, order)
    points = []
    for place, (cell, told) in enumerate(zip(row.cells, episode.states, strict=True)):
        entry = known.get(cell.id)
        state = None if entry is not None and _is_uncompared(entry, episode.finding) else told
        value, interval = (None, None) if entry is None else _value(entry.verdict, episode.finding)
        low, high = interval or (None, None)
        point = Point(
            version=cell.image.version,
            value=value,
            low=low,
            high=high,
            tone="none" if value is None and not state else _TONES[state],
            own=state is True and place in own,
            most=None if entry is None or episode.finding.metric != "memory" else entry.verdict.of("memory").visible,
        )
        points.append(point)
    return points


def _is_uncompared(entry: CellResult, finding: Finding) -> bool:
    """Return whether the finding compares levels and could not compare this one. A slowdown compares no levels."""
    return finding.verdict != "slowdown" and signal_words.is_uncompared(finding.metric, entry.verdict)


def _value(verdict: CellVerdict, finding: Finding) -> tuple[float | None, Interval | None]:
    return (verdict.drift, None) if finding.verdict == "slowdown" else value_of(finding.metric, verdict)


_FACTORS = {"step_time": 1000.0, "peak_memory": 1 / 1024}
"""What a figure in the signal's unit is multiplied by, for the units of `Figure`."""


def value_of(metric: Metric, verdict: CellVerdict) -> tuple[float | None, Interval | None]:
    """Return a cell's figure of a signal, with its confidence interval, in the units of `Figure`."""
    if metric == "outcome":
        return (verdict.failed / verdict.trials if verdict.trials else None), None
    seen, factor = verdict.of(metric), _FACTORS.get(metric, 1.0)
    interval = None if seen.ci is None else (seen.ci[0] * factor, seen.ci[1] * factor)
    return None if seen.value is None else seen.value * factor, interval


def _unit(finding: Finding) -> str:
    own = {"step_time": "rise" if finding.verdict == "slowdown" else "ms", "peak_memory": "MiB"}
    return own.get(finding.metric, signal_of(finding.metric).unit)


# ---------------------------------------------------------------- both sides as text

_WORDS: Mapping[str, Callable[[float, float | None], str]] = {
    "KiB/step": numbers.rate,
    "ms": numbers.milliseconds,
    "MiB": numbers.mebibytes,
    "s": lambda value, like: numbers.milliseconds(1000 * value, None if like is None else 1000 * like),
    "KiB": lambda value, like: numbers.mebibytes(value / 1024, None if like is None else like / 1024),
    "B": lambda value, like: numbers.mebibytes(value / (1 << 20), None if like is None else like / (1 << 20)),
    "failures": lambda value, like: f"{numbers.number(100 * value)} % of launches",
    "rise": lambda value, like: numbers.percent(value),
    "ratio": lambda value, like: f"{numbers.number(value)}×",
}


def change_text(figure: Figure, old: str | None, new: str, *, size: Effect | None = None) -> str:
    """Return `memory at most 0.017 → 7.84 KiB/step (7.83 to 7.85)`; "" if the new side has no figure. `size` is the
    size of the finding; if it is not the ratio of the two figures, the text says which ratio it is.
    """
    points = {point.version: point for point in figure.points}
    after = points[new]
    if after.value is None or math.isnan(after.value):
        return ""
    side = None if old is None else _side(points[old])
    like, digits = numbers.middle([after.value, side]), numbers.digits_apart(after.value, side)
    text = _amount(after.value, figure.unit, like, digits=digits)
    before = ""
    if old is not None:
        before = f"{numbers.without_unit(_shown(points[old], figure.unit, like, digits=digits), text)} → "
    interval = ""
    if after.low is not None and after.high is not None:
        low, high = (numbers.without_unit(_amount(end, figure.unit, like), text) for end in (after.low, after.high))
        interval = f" ({low} to {high})"
    return f"{figure.title} {before}{text}{interval}{_over_all(points, old, after.value, figure, size)}"


def _over_all(points: Mapping[str, Point], old: str | None, after: float, figure: Figure, size: Effect | None) -> str:
    """Return `; +42 % (37 to 47) over all versions before and after it`; "" if the two figures show the same ratio. A
    finding compares the levels of all versions between two changes.
    """
    before = None if old is None else points[old].value
    if size is None or size.unit != "ratio" or figure.unit == "rise" or not before:
        return ""
    if signal_words.changed(before, after) == signal_words.changed(1.0, size.value):
        return ""
    return f"; {numbers.effect(size)} over all versions before and after it"


def _side(point: Point) -> float | None:
    """Return the figure that is shown for the good side; for a good version, this is the smallest leak that it rules
    out.
    """
    return point.most if point.most is not None and point.tone == "good" else point.value


def _shown(point: Point, unit: str, like: float | None, *, digits: int) -> str:
    value = _side(point)
    if value is None:
        return "unknown"
    bound = "at most " if point.most is not None and point.tone == "good" else ""
    return f"{bound}{_amount(value, unit, like, digits=digits)}"


def _amount(value: float, unit: str, like: float | None, *, digits: int = numbers.DIGITS) -> str:
    return (
        _WORDS[unit](value, like)
        if unit in _WORDS
        else f"{numbers.number(value, digits=digits)} {plain(unit)}".rstrip()
    )
