"""Draws the small chart of a card: the figure over the versions, with intervals, as SVG that needs no script."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from harness import amounts
from harness.report.content.finding_boxes import Figure, Point
from harness.report.text.harmless_text import version
from harness.report.text.signal_words import Tone

WIDTH, HEIGHT = 340, 130
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 12, 10, 22
_ROOM = 0.08
"""Space above and below the outermost points, as a fraction of their range."""
_ZERO = 0.5
"""A scale begins at zero if its lowest figure is below this fraction of its highest."""
_SCALES = {"failures": 100.0, "rise": 100.0, "s": 1000.0, "s/step": 1000.0, "KiB": 1 / 1024, "B": 1 / (1 << 20)}
_UNITS = {"failures": "% of launches", "rise": "%", "s": "ms", "s/step": "ms/step", "KiB": "MiB", "B": "MiB"}
"""Units that keep the labels of a scale short."""
_LETTER = 6.2
"""Approximate width of a character in a label, in pixels."""


@dataclass(frozen=True, kw_only=True)
class PointMark:
    """A version in the chart; coordinates are in pixels, and `y` is None without a figure. `is_other`: the version is
    bad only because of another finding.
    """

    x: float
    y: float | None
    low: float
    high: float
    tone: Tone
    is_other: bool
    text: str


@dataclass(frozen=True, kw_only=True)
class Label:
    """A text in the chart; coordinates are in pixels, and `anchor` is SVG's `text-anchor`."""

    x: float
    y: float
    anchor: str
    text: str


@dataclass(frozen=True, kw_only=True)
class Chart:
    """The elements of a chart. `lines` join the points: an SVG `points` attribute for each unbroken series."""

    title: str
    marks: tuple[PointMark, ...]
    lines: tuple[str, ...]
    labels: tuple[Label, ...]
    description: str


def chart(figure: Figure) -> Chart | None:
    """Return the chart of a card; None if fewer than two versions have a figure."""
    points = [_in_unit(point, _SCALES.get(figure.unit, 1.0)) for point in figure.points]
    if sum(point.value is not None for point in points) < 2:
        return None
    known = [end for point in points for end in (point.low, point.value, point.high) if end is not None]
    heights = (0.0, 100.0) if figure.unit == "failures" else _scale(known)
    across = (WIDTH - _LEFT - _RIGHT) / (len(points) - 1)
    marks = tuple(_mark(point, _LEFT + across * number, heights) for number, point in enumerate(points))
    first, last = version(points[0].version), version(points[-1].version)
    title = ", ".join(filter(None, (figure.title, _UNITS.get(figure.unit, figure.unit))))
    stretches: list[list[str]] = [[]]
    for mark in marks:
        if mark.y is None:
            stretches.append([])
        else:
            stretches[-1].append(f"{mark.x},{mark.y}")
    return Chart(
        title=title,
        marks=marks,
        lines=tuple([" ".join(stretch) for stretch in stretches if len(stretch) > 1]),
        labels=(*_heights(*heights), *_names(points, marks)),
        description=f"{title}, over the versions {first} to {last}",
    )


def _in_unit(point: Point, scale: float) -> Point:
    """Return a point in the unit of the labels; figures that are not finite become None."""
    ends = (point.value, point.low, point.high)
    value, low, high = (scale * end if end is not None and math.isfinite(end) else None for end in ends)
    return replace(point, value=value, low=low, high=high)


def _scale(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    if -_ROOM * high <= low < _ZERO * high:  # a figure slightly below zero is noise
        low = 0.0
    room = _ROOM * (high - low) or abs(high) * _ROOM or 1.0
    return (low if low == 0 else low - room), high + room


def _mark(point: Point, x: float, heights: tuple[float, float]) -> PointMark:
    value, low, high = point.value, point.low, point.high
    interval = None if low is None or high is None else (low, high)
    return PointMark(
        x=round(x, 1),
        y=None if value is None else _y(value, heights),
        low=_y(value if low is None else low, heights),
        high=_y(value if high is None else high, heights),
        tone=point.tone,
        is_other=point.tone == "bad" and not point.own,
        text=f"{version(point.version)}: {amounts.with_interval(value, interval) or 'no figure'}",
    )


def _y(value: float | None, heights: tuple[float, float]) -> float:
    low, high = heights
    share = 0.0 if value is None else min(1.0, max(0.0, (value - low) / (high - low)))
    return round(HEIGHT - _BOTTOM - share * (HEIGHT - _TOP - _BOTTOM), 1)


def _heights(low: float, high: float) -> list[Label]:
    """Return the labels at the ends of the scale."""
    return [
        Label(x=_LEFT - 8, y=_TOP + 4, anchor="end", text=amounts.number(_short(high))),
        Label(x=_LEFT - 8, y=HEIGHT - _BOTTOM + 4, anchor="end", text=amounts.number(_short(low))),
    ]


def _short(value: float) -> float:
    return float(f"{value:.1e}")


def _names(points: Sequence[Point], marks: Sequence[PointMark]) -> list[Label]:
    """Return labels for the oldest and the newest version, and for as many versions that begin a change as fit."""
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
    """Return whether two names as wide as `text` fit side by side."""
    return _width(text) < (WIDTH - _LEFT) / 2
