"""Stand-in: one card for each finding that is no repair, until findings are merged into cards."""

from __future__ import annotations

from dataclasses import dataclass

from harness.model import Finding, RunResult
from harness.report import signals, words
from harness.report.clean import plain
from harness.report.episodes import ordered, place_of, place_of_cell
from harness.report.signals import Tone


@dataclass(frozen=True, kw_only=True)
class Point:
    """One version of the chart."""

    version: str
    value: float | None
    low: float | None
    high: float | None
    tone: Tone


@dataclass(frozen=True, kw_only=True)
class Card:
    """What the page shows of a finding."""

    number: int
    sentence: str
    sure: str
    rule: str
    fault: str
    consequences: tuple[str, ...]
    also: tuple[str, ...]
    points: tuple[Point, ...]
    unit_title: str
    command: str


def cards(result: RunResult) -> tuple[Card, ...]:
    """One for each finding that is no repair."""
    return tuple(_card(number, one, result) for number, one in enumerate(ordered(result), 1))


def _card(number: int, finding: Finding, result: RunResult) -> Card:
    signal = signals.signal_of(finding.metric)
    return Card(
        number=number, sentence=words.finding_line(finding), sure="", rule="", fault="", consequences=(), also=(),
        points=tuple(_points(finding, result)), unit_title=f"{signal.title}, {signal.unit}",
        command=f"harness issue {plain(result.directory.name)} {number}",
    )  # fmt: skip


def _points(finding: Finding, result: RunResult) -> list[Point]:
    found = []
    for entry in result.cells:
        if place_of_cell(entry.cell)[:3] == place_of(finding)[:3]:
            verdict = entry.verdict
            value = signals.value_of(finding.metric, verdict)
            ci = verdict.rate_ci if finding.metric == "memory" else None
            if finding.metric in verdict.signals:
                ci = verdict.signals[finding.metric].ci
            low, high = ci or (None, None)
            tone = words.cell_tone(verdict)
            found.append(Point(version=entry.cell.image.version, value=value, low=low, high=high, tone=tone))
    return found
