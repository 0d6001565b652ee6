"""The small chart of a finding's card: its figure over the versions, with intervals, as an SVG that needs no script."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from harness.report import figures
from harness.report.clean import version
from harness.report.signals import Tone

WIDTH, HEIGHT = 340, 130
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 12, 10, 22
_ROOM = 0.08
"""Of the height, above and below the outermost points."""
_ZERO = 0.5
"""A scale whose lowest figure is less than this share of its highest begins at zero."""
_LETTER = 6.2
"""Pixels that a letter of a version takes, about."""


class Point(Protocol):
    """One version: its figure with an interval, each None if it is not known."""

    @property
    def version(self) -> str: ...
    @property
    def value(self) -> float | None: ...
    @property
    def low(self) -> float | None: ...
    @property
    def high(self) -> float | None: ...
    @property
    def tone(self) -> Tone: ...


class Told(Protocol):
    """What the page needs of a card. Texts are plain, "" or empty where there is nothing to say; `also`: observations,
    such as new lines in the log.
    """

    @property
    def number(self) -> int: ...
    @property
    def sentence(self) -> str: ...
    @property
    def sure(self) -> str: ...
    @property
    def rule(self) -> str: ...
    @property
    def fault(self) -> str: ...
    @property
    def consequences(self) -> Sequence[str]: ...
    @property
    def also(self) -> Sequence[str]: ...
    @property
    def points(self) -> Sequence[Point]: ...
    @property
    def unit_title(self) -> str: ...
    @property
    def command(self) -> str: ...


@dataclass(frozen=True, kw_only=True)
class Mark:
    """A version in the chart, in pixels; `y` is None if it has no figure."""

    x: float
    y: float | None
    low: float
    high: float
    tone: Tone
    text: str


@dataclass(frozen=True, kw_only=True)
class Label:
    """A text in the chart, in pixels; `anchor` as SVG has it."""

    x: float
    y: float
    anchor: str
    text: str


@dataclass(frozen=True, kw_only=True)
class Chart:
    """All that is drawn. `line` joins the points, an SVG `points` attribute for each stretch of known figures."""

    marks: tuple[Mark, ...]
    lines: tuple[str, ...]
    labels: tuple[Label, ...]
    description: str


def chart(card: Told) -> Chart | None:
    """The chart of a card; None if fewer than two versions have a figure."""
    points = card.points
    known = [each for point in points for each in (point.low, point.value, point.high) if _is_known(each)]
    if sum(_is_known(point.value) for point in points) < 2:
        return None
    low, high = _scale([each for each in known if each is not None])
    marks = tuple(_mark(point, number, len(points), (low, high)) for number, point in enumerate(points))
    first, last = version(points[0].version), version(points[-1].version)
    return Chart(
        marks=marks,
        lines=tuple(_lines(marks)),
        labels=(*_heights(low, high), *_names(points, marks)),
        description=f"{card.unit_title}, over the versions {first} to {last}",
    )


def _is_known(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def _scale(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    if -_ROOM * high <= low < _ZERO * high:  # what is a little below zero is noise
        low = 0.0
    room = _ROOM * (high - low) or abs(high) * _ROOM or 1.0
    return (low if low == 0 else low - room), high + room


def _mark(point: Point, number: int, count: int, scale: tuple[float, float]) -> Mark:
    x = _LEFT + (WIDTH - _LEFT - _RIGHT) * (number / (count - 1) if count > 1 else 0.5)
    value = point.value if _is_known(point.value) else None
    interval = [each if each is not None and _is_known(each) else value for each in (point.low, point.high)]
    low, high = (_y(value if each is None else each, scale) for each in interval)
    told = "no figure" if value is None else figures.number(value)
    if value is not None and point.low is not None and point.high is not None:
        told = f"{told} ({figures.between((point.low, point.high))})"
    y = None if value is None else _y(value, scale)
    return Mark(x=round(x, 1), y=y, low=low, high=high, tone=point.tone, text=f"{version(point.version)}: {told}")


def _y(value: float | None, scale: tuple[float, float]) -> float:
    low, high = scale
    share = 0.0 if value is None else max(0.0, (value - low) / (high - low))
    return round(HEIGHT - _BOTTOM - share * (HEIGHT - _TOP - _BOTTOM), 1)


def _lines(marks: Sequence[Mark]) -> list[str]:
    stretches: list[list[str]] = [[]]
    for mark in marks:
        if mark.y is None:
            stretches.append([])
        else:
            stretches[-1].append(f"{mark.x},{mark.y}")
    return [" ".join(each) for each in stretches if len(each) > 1]


def _heights(low: float, high: float) -> list[Label]:
    """The ends of the scale."""
    return [
        Label(x=_LEFT - 8, y=_TOP + 4, anchor="end", text=figures.number(_short(high))),
        Label(x=_LEFT - 8, y=HEIGHT - _BOTTOM + 4, anchor="end", text=figures.number(_short(low))),
    ]


def _short(value: float) -> float:
    return float(f"{value:.1e}")


def _names(points: Sequence[Point], marks: Sequence[Mark]) -> list[Label]:
    """The oldest, the newest, and as many of the versions where something changes as there is room for."""
    y = HEIGHT - 6.0
    names = [version(point.version) for point in points]
    last = len(points) - 1
    found = [Label(x=marks[0].x, y=y, anchor="start", text=names[0])] if _fits(names[0]) else []
    end = Label(x=marks[last].x, y=y, anchor="end", text=names[last])
    taken = [(marks[0].x, marks[0].x + _width(names[0])), (end.x - _width(names[last]), end.x)]
    for number in range(1, last):
        half = _width(names[number]) / 2
        left, right = marks[number].x - half, marks[number].x + half
        is_change = points[number].tone != points[number - 1].tone
        if is_change and all(right + _LETTER < begin or left - _LETTER > stop for begin, stop in taken):
            found.append(Label(x=marks[number].x, y=y, anchor="middle", text=names[number]))
            taken.append((left, right))
    return [*found, *([end] if _fits(names[last]) else [])]


def _width(text: str) -> float:
    return len(text) * _LETTER


def _fits(text: str) -> bool:
    """Two names stand side by side at least."""
    return _width(text) < (WIDTH - _LEFT) / 2
