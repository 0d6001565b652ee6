"""Draws the small chart of a finding: a figure over the versions, with intervals, as SVG that needs no script."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from markupsafe import Markup

from harness import amounts
from harness.report.blocks import Figure, Point
from harness.report.text.harmless_text import version

WIDTH, HEIGHT = 340, 130
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 12, 10, 22
_ROOM = 0.08
"""Space above and below the outermost points, as a fraction of their range."""
_SCALES = {
    "failures": (100.0, "% of launches"), "rise": (100.0, "%"), "s": (1000.0, "ms"), "s/step": (1000.0, "ms/step"),
    "KiB": (1 / 1024, "MiB"), "B": (1 / (1 << 20), "MiB"),
}  # fmt: skip
"""Units that keep the labels of a scale short."""
_LETTER = 6.2
"""Approximate width of a character in a label, in pixels."""


def svg(figure: Figure) -> Markup | None:
    """Return the chart with its caption; None if fewer than two versions have a figure."""
    scale, unit = _SCALES.get(figure.unit, (1.0, figure.unit))
    points = [
        (point, [scale * end if end is not None and math.isfinite(end) else None
                 for end in (point.value, point.low, point.high)])
        for point in figure.points
    ]  # fmt: skip
    known = [end for _, ends in points for end in ends if end is not None]
    if sum(value is not None for _, (value, *_) in points) < 2:
        return None
    bottom, top = (0.0, 100.0) if figure.unit == "failures" else _range(min(known), max(known))

    def y(value: float) -> float:
        share = min(1.0, max(0.0, (value - bottom) / (top - bottom)))
        return round(HEIGHT - _BOTTOM - share * (HEIGHT - _TOP - _BOTTOM), 1)

    marks: list[Markup] = []
    stretches: list[list[str]] = [[]]
    across = (WIDTH - _LEFT - _RIGHT) / (len(points) - 1)
    xs = [round(_LEFT + across * number, 1) for number in range(len(points))]
    for x, (point, (value, low, high)) in zip(xs, points, strict=True):
        if value is None:
            stretches.append([])
            continue
        stretches[-1].append(f"{x},{y(value)}")
        interval = None if low is None or high is None else (low, high)
        shape = Markup('<circle cx="{}" cy="{}" r="3.5"/>').format(x, y(value))
        if point.tone == "bad":
            shape = Markup('<path d="M{} {}l5 5-5 5-5-5z"/>').format(x, y(value) - 5)
        if interval and y(interval[0]) != y(interval[1]):
            shape = Markup('<path class="interval" d="M{} {}V{}"/>{}').format(x, y(interval[0]), y(interval[1]), shape)
        kind = f"{point.tone} other" if point.tone == "bad" and not point.own else point.tone
        told = f"{version(point.version)}: {amounts.with_interval(value, interval)}"
        marks.append(Markup('<g class="{}"><title>{}</title>{}</g>').format(kind, told, shape))
    ends = ((_TOP + 4, top), (HEIGHT - _BOTTOM + 4, bottom))
    labels = [(float(_LEFT - 8), at, "end", amounts.number(float(f"{end:.1e}"))) for at, end in ends]
    labels += [(x, HEIGHT - 6, anchor, name) for x, anchor, name in _names(figure.points, xs)]
    lines = [Markup('<polyline points="{}"/>').format(" ".join(each)) for each in stretches if len(each) > 1]
    texts = [Markup('<text x="{}" y="{}" text-anchor="{}">{}</text>').format(*label) for label in labels]
    first, last = (version(point.version) for point in (figure.points[0], figure.points[-1]))
    caption = ", ".join(filter(None, (figure.title, unit)))
    return Markup(
        '<figure><figcaption>{}</figcaption><svg class="finding-chart" role="img" aria-label="{}" viewBox="0 0 {} {}">'
        "{}</svg></figure>"
    ).format(
        caption,
        f"{caption}, over the versions {first} to {last}",
        WIDTH,
        HEIGHT,
        Markup("").join([*lines, *marks, *texts]),
    )


def _range(low: float, high: float) -> tuple[float, float]:
    """Return the ends of the scale. It begins at zero if the lowest figure is below half of the highest."""
    if -_ROOM * high <= low < high / 2:  # a figure slightly below zero is noise
        low = 0.0
    room = _ROOM * (high - low) or abs(high) * _ROOM or 1.0
    return (low if low == 0 else low - room), high + room


def _names(points: Sequence[Point], xs: Sequence[float]) -> Iterator[tuple[float, str, str]]:
    """Yield place, anchor and name of the oldest and the newest version, and of each that begins a change and fits."""
    names = [version(point.version) for point in points]
    widths = [len(name) * _LETTER for name in names]
    last = len(points) - 1
    taken = [(xs[0], xs[0] + widths[0]), (xs[last] - widths[last], xs[last])]
    for place, anchor in ((0, "start"), (last, "end")):
        if widths[place] < (WIDTH - _LEFT) / 2:
            yield xs[place], anchor, names[place]
    for place in range(1, last):
        left, right = xs[place] - widths[place] / 2, xs[place] + widths[place] / 2
        is_change = points[place].tone != points[place - 1].tone
        if is_change and all(right + _LETTER < begin or left - _LETTER > stop for begin, stop in taken):
            taken.append((left, right))
            yield xs[place], "middle", names[place]
