"""Defines each chart once in Vega-Lite: a browser draws it in the page, and vl-convert as SVG and PNG.

A definition contains no data; a Drawing supplies it. Colours are from a palette: the page's palette refers to the
page's CSS variables, so that charts adapt to dark mode and print.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from harness.report.blocks import ChartName, Drawing

DRAWN_BY_A_PAGE: tuple[ChartName, ...] = ("history", "trace", "latency")
Palette = Mapping[str, str]
Definition = dict[str, Any]

NAMES = ("ink", "dim", "line", "bad", "good", "unsure", "t1", "t2", "t3", "t4", "t5", "t6", "t7", "t8")
PAGE: Palette = {name: f"var(--{name})" for name in NAMES}
PAPER: Palette = dict(
    zip(
        NAMES,
        ("#1d2126", "#5c6570", "#d9dde2", "#b42318", "#1a6b3c", "#8a5a00",
         "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#806000", "#56b4e9", "#5c4b9b", "#7a7a7a"),
        strict=True,
    )
)  # fmt: skip
_TRIAL_COLOURS = NAMES[6:]
_TONES = ("bad", "good", "unsure")
_SILENT: Definition = {"aria": False}
"""Hides marks that repeat what the points show from screen readers."""
_STATIC_WIDTH = 560
_ROOM = 8
"""Pixels between the outermost points and the edge, so that the edge does not cut a point in half."""


def definitions(palette: Palette) -> dict[ChartName, Definition]:
    """Return the definitions of all charts, without data and as wide as their containers."""
    return {
        "history": _history(palette),
        "trace": _trace(palette),
        "latency": _latency(palette),
        "frontier": _frontier(palette),
    }


def svg(drawing: Drawing) -> str:
    """Return the chart as an SVG file with a white background."""
    import vl_convert  # noqa: PLC0415 - it starts a JavaScript engine, which most commands do not need

    return vl_convert.vegalite_to_svg(_on_paper(drawing))


def png(drawing: Drawing) -> bytes:
    """Return the chart as a PNG file, at twice the pixel density of the SVG."""
    import vl_convert  # noqa: PLC0415

    return vl_convert.vegalite_to_png(_on_paper(drawing), scale=2)


def _on_paper(drawing: Drawing) -> Definition:
    return {**definitions(PAPER)[drawing.chart], **drawing.fill, "width": _STATIC_WIDTH, "background": "white"}


# ---------------------------------------------------------------- a figure over the versions


def _history(palette: Palette) -> Definition:
    """Return the chart of a figure over the versions.

    Dataset `points` has version, value, low, high, tone, text, told and excluded. `excluded`, the leak rate that is
    ruled out, is drawn as a tick, so that the noise of flat versions does not fill the height. A point without a value
    shows its text instead. Dataset `changes` has version (where the change begins), word, side (of its line, where the
    word is written) and tone.
    """
    version = {"field": "version", "type": "ordinal", "sort": None, "title": None, "axis": {"labelAngle": -40}}
    tone = _by_tone([palette[name] for name in _TONES])
    points, changes = _points(palette, {"x": version}, tone), _changes({"x": version | {"bandPosition": 0}}, tone)
    # The points are the first layer, because the axis takes the order of the versions from it.
    return _base(palette) | {"height": 150, "layer": [points[0], *changes, *points[1:]]}


def _by_tone(values: Sequence[str]) -> Definition:
    """Return an encoding that maps each of _TONES to one of these values."""
    return {"field": "tone", "type": "nominal", "legend": None, "scale": {"domain": list(_TONES), "range": values}}


def _points(palette: Palette, at: Definition, tone: Definition) -> list[Definition]:
    """Return the layers of the points: the line, ticks for excluded rates, intervals, points, and texts for versions
    without a value.
    """
    scale = {"zero": False, "nice": True, "padding": _ROOM}
    value = {"field": "value", "type": "quantitative", "title": None, "scale": scale}
    ruled_out = {"field": "excluded", "type": "quantitative"}
    interval = {"y": {"field": "low", "type": "quantitative"}, "y2": {"field": "high"}, "color": tone}
    shape = _by_tone(["diamond", "circle", "triangle-up"])
    tooltip = [
        {"field": "version", "title": "version"}, {"field": "text", "title": "verdict"},
        {"field": "told", "title": "value"},
    ]  # fmt: skip
    text = {"text": {"field": "text"}, "color": tone, "y": {"value": 146}}
    return [
        _layer("points", _SILENT | {"type": "line", "color": palette["line"]}, at | {"y": value}),
        _layer("points", _SILENT | {"type": "tick", "color": palette["dim"]}, at | {"y": ruled_out}),
        _layer("points", _SILENT | {"type": "rule", "strokeWidth": 2}, at | interval),
        _layer(
            "points",
            {"type": "point", "filled": True, "size": 70, "opacity": 1},
            at | {"y": value, "color": tone, "shape": shape, "tooltip": tooltip},
        ),
        _layer("points", {"type": "text", "angle": 270, "align": "left", "baseline": "middle"}, at | text)
        | {"transform": [{"filter": "!isValid(datum.value)"}]},
    ]


def _changes(begin: Definition, tone: Definition) -> list[Definition]:
    """Return the layers of the changes: a dashed line and a word, which is placed low for changes to bad versions, as
    their points are high.
    """
    word = _SILENT | {"type": "text", "baseline": "middle"}
    sides = {"right": {"align": "left", "dx": 4}, "left": {"align": "right", "dx": -4}}
    return [
        _layer("changes", _SILENT | {"type": "rule", "strokeDash": [4, 3]}, begin | {"color": tone}),
        *(
            _layer("changes", word | at_side, begin | {"y": {"value": y}, "text": {"field": "word"}, "color": tone})
            | {"transform": [{"filter": f"datum.tone === '{name}' && datum.side === '{side}'"}]}
            for name, y in (("bad", 140), ("good", 8))
            for side, at_side in sides.items()
        ),
    ]


def _layer(data: str, mark: Mapping[str, Any], encoding: Mapping[str, Any]) -> dict[str, Any]:
    return {"data": {"name": data}, "mark": mark, "encoding": encoding}


# ---------------------------------------------------------------- lines: over the steps, and of latencies


def _trace(palette: Palette) -> Definition:
    """Return the chart of a figure over the steps.

    The datasets `lines` and `looks` have trial, and step and value, which are lists of the same length.
    """
    step = {"field": "step", "type": "quantitative", "title": "step", "scale": {"nice": False}}
    return _line_chart(
        palette, height=140, width=1.3, of={"field": "trial", "title": "trial"}, legend={"titleOrient": "left"},
        x=step | {"axis": {"tickCount": 6}},
        y={"field": "value", "type": "quantitative", "title": None, "scale": {"zero": False}},
        marks={"looks": {"type": "point", "filled": False, "size": 55}},
    )  # fmt: skip


def _latency(palette: Palette) -> Definition:
    """Return the chart of the latencies of the requests to a server, on a logarithmic scale.

    The dataset `lines` has version, and share (a percentile) and value, which are lists of the same length.
    """
    share = {"field": "share", "type": "ordinal", "sort": None, "title": "share of requests", "axis": {"labelAngle": 0}}
    value = {
        "field": "value", "type": "quantitative", "title": None, "scale": {"type": "log", "nice": False},
        "axis": {"tickCount": 12, "format": "~g"},  # with fewer, only powers of ten have a number
    }  # fmt: skip
    of, legend = {"field": "version", "title": None, "sort": None}, {"columns": 4}
    return _line_chart(palette, height=200, width=1.5, of=of, legend=legend, x=share, y=value)


def _line_chart(
    palette: Palette, *, height: int, width: float, of: Definition, legend: Definition, x: Definition, y: Definition,
    marks: Mapping[str, Definition] = MappingProxyType({}),
) -> Definition:  # fmt: skip
    """Return a chart of the dataset `lines`: a line in a colour of its own for each value of the field `of`, whose `x`
    and `y` are lists. `marks`: how the points of further datasets are marked.
    """
    drawn = {"orient": "top", "direction": "horizontal", "offset": 4, "symbolType": "stroke"} | legend
    colour = of | {"type": "nominal", "scale": {"range": [palette[name] for name in _TRIAL_COLOURS]}, "legend": drawn}
    tooltip = {"tooltip": [{"field": each["field"], "title": each["field"]} for each in (of, x, y)]}
    unseen = {"type": "point", "opacity": 0, "size": 60, "aria": False}
    layers = [
        _layer("lines", {"type": "line", "strokeWidth": width}, {}),
        *(_layer(data, mark, tooltip) for data, mark in (("lines", unseen), *marks.items())),
    ]
    flat = {"transform": [{"flatten": [x["field"], y["field"]]}]}
    encoding = {"x": x, "y": y, "color": colour}
    return _base(palette) | {"height": height, "encoding": encoding, "layer": [layer | flat for layer in layers]}


# ---------------------------------------------------------------- speed over memory


def _frontier(palette: Palette) -> Definition:
    """Return the chart of throughput over peak memory.

    The dataset `settings` has name, peak (MiB), items (throughput in items/s) and tone (`good` on the frontier, `dim`
    elsewhere).
    """
    tone = {
        "field": "tone", "type": "nominal", "legend": None,
        "scale": {"domain": ["good", "dim"], "range": [palette["good"], palette["dim"]]},
    }  # fmt: skip
    at = {
        "x": {"field": "peak", "type": "quantitative", "title": "peak memory, MiB", "scale": {"padding": _ROOM}},
        "y": {"field": "items", "type": "quantitative", "title": "throughput, items/s", "scale": {"padding": _ROOM}},
        "color": tone,
    }
    name = {"type": "text", "align": "left", "dx": 7, "baseline": "middle"}
    return _base(palette) | {
        "height": 320,
        "layer": [
            _layer("settings", {"type": "point", "filled": True, "size": 70, "opacity": 1}, at),
            _layer("settings", name, at | {"text": {"field": "name"}}),
        ],
    }


def _base(palette: Palette) -> Definition:
    quiet = {"labelColor": palette["dim"], "titleColor": palette["dim"], "titleFontWeight": "normal"}
    lines = dict.fromkeys(("gridColor", "domainColor", "tickColor"), palette["line"])
    return {
        "width": "container",
        "background": None,
        "config": {
            "font": "system-ui, 'DejaVu Sans', sans-serif",
            "view": {"stroke": None},
            "axis": quiet | lines,
            "axisX": {"grid": False, "labelOverlap": "greedy", "labelLimit": 90},
            "axisY": {"tickCount": 5},
            "legend": quiet,
            "title": {"color": palette["ink"], "anchor": "start", "fontSize": 12, "fontWeight": 600},
            "text": {"color": palette["dim"]},
        },
    }  # fmt: skip
