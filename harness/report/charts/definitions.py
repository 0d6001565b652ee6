"""The charts, each defined once in Vega-Lite: drawn by the page in a browser, and by vl-convert as SVG and PNG.

A definition has no data; a Drawing is laid over it, in the page by a script. Colours are those of a palette: the page
names its own CSS variables, so that charts follow it into the dark and onto paper.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Chart = Literal["history", "trace", "frontier"]
DRAWN_BY_A_PAGE: tuple[Chart, ...] = ("history", "trace")
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
"""A mark that repeats what the points say."""
_STATIC_WIDTH = 560
_ROOM = 8
"""Pixels between the outermost points and the edge: a point has a size, and a nice scale may end at its middle."""


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """A chart with its data: `rows` by the name of the dataset that the definition asks for."""

    chart: Chart
    title: str
    description: str
    rows: Mapping[str, Sequence[Mapping[str, Any]]]

    @property
    def fill(self) -> dict[str, Any]:
        """What is put over the definition."""
        return {"title": self.title, "description": self.description, "datasets": dict(self.rows)}


def definitions(palette: Palette) -> dict[Chart, Definition]:
    """Every chart without data, as wide as what it is put into."""
    return {"history": _history(palette), "trace": _trace(palette), "frontier": _frontier(palette)}


def svg(drawing: Drawing) -> str:
    """The chart as an SVG file, on a light ground."""
    import vl_convert  # noqa: PLC0415 - starts a JavaScript engine, which those who draw nothing need not pay for

    return vl_convert.vegalite_to_svg(_on_paper(drawing))


def png(drawing: Drawing) -> bytes:
    """The same as a PNG file, in twice the resolution of a screen."""
    import vl_convert  # noqa: PLC0415

    return vl_convert.vegalite_to_png(_on_paper(drawing), scale=2)


def _on_paper(drawing: Drawing) -> Definition:
    return {**definitions(PAPER)[drawing.chart], **drawing.fill, "width": _STATIC_WIDTH, "background": "white"}


# ---------------------------------------------------------------- a figure over the versions


def _history(palette: Palette) -> Definition:
    """Dataset `points`: version, value, low, high, tone, text, told, excluded (what is ruled out, a tick, so that the
    noise of what is flat does not fill the height); without a value the text stands in its place.

    Dataset `changes`: the version that a change begins with, its word, its tone.
    """
    version = {"field": "version", "type": "ordinal", "sort": None, "title": None, "axis": {"labelAngle": -40}}
    tone = _by_tone([palette[name] for name in _TONES])
    points, changes = _points(palette, {"x": version}, tone), _changes({"x": version | {"bandPosition": 0}}, tone)
    # The points come first: the order of their versions is that of the axis.
    return _base(palette) | {"height": 150, "layer": [points[0], *changes, *points[1:]]}


def _by_tone(values: Sequence[str]) -> Definition:
    """An encoding that has one of these for each of _TONES."""
    return {"field": "tone", "type": "nominal", "legend": None, "scale": {"domain": list(_TONES), "range": values}}


def _points(palette: Palette, at: Definition, tone: Definition) -> list[Definition]:
    """The line through the points, what is ruled out, intervals, the points, and words in place of those without."""
    scale = {"zero": False, "nice": True, "padding": _ROOM}
    value = {"field": "value", "type": "quantitative", "title": None, "scale": scale}
    ruled_out = {"field": "excluded", "type": "quantitative"}
    interval = {"y": {"field": "low", "type": "quantitative"}, "y2": {"field": "high"}, "color": tone}
    shape = _by_tone(["diamond", "circle", "triangle-up"])
    tooltip = [
        {"field": "version", "title": "version"}, {"field": "text", "title": "is"}, {"field": "told", "title": "value"},
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
    """A dashed line where a change begins, and its word: low beside a bad version, whose point is high, and the other
    way round.
    """
    word = _SILENT | {"type": "text", "align": "left", "dx": 4, "baseline": "middle"}
    return [
        _layer("changes", _SILENT | {"type": "rule", "strokeDash": [4, 3]}, begin | {"color": tone}),
        *(
            _layer("changes", word, begin | {"y": {"value": y}, "text": {"field": "word"}, "color": tone})
            | {"transform": [{"filter": f"datum.tone === '{name}'"}]}
            for name, y in (("bad", 140), ("good", 8))
        ),
    ]


def _layer(data: str, mark: Mapping[str, Any], encoding: Mapping[str, Any]) -> dict[str, Any]:
    return {"data": {"name": data}, "mark": mark, "encoding": encoding}


# ---------------------------------------------------------------- a figure over the steps


def _trace(palette: Palette) -> Definition:
    """Datasets `lines` and `looks`: trial, and as long as each other lists of step and value."""
    colour = {
        "field": "trial", "type": "nominal", "title": "trial",
        "scale": {"range": [palette[name] for name in _TRIAL_COLOURS]},
        "legend": {"orient": "top", "direction": "horizontal", "offset": 4, "symbolType": "stroke",
                   "titleOrient": "left"},
    }  # fmt: skip
    step = {
        "field": "step",
        "type": "quantitative",
        "title": "step",
        "scale": {"nice": False},
        "axis": {"tickCount": 6},
    }
    value = {"field": "value", "type": "quantitative", "title": None, "scale": {"zero": False}}
    tooltip = [{"field": name, "title": name} for name in ("trial", "step", "value")]
    flat = {"transform": [{"flatten": ["step", "value"]}]}
    unseen = {"type": "point", "opacity": 0, "size": 60, "aria": False}
    return _base(palette) | {
        "height": 140,
        "encoding": {"x": step, "y": value, "color": colour},
        "layer": [
            _layer("lines", {"type": "line", "strokeWidth": 1.3}, {}) | flat,
            _layer("lines", unseen, {"tooltip": tooltip}) | flat,
            _layer("looks", {"type": "point", "filled": False, "size": 55}, {"tooltip": tooltip}) | flat,
        ],
    }


# ---------------------------------------------------------------- speed over memory


def _frontier(palette: Palette) -> Definition:
    """Dataset `settings`: name, peak in MiB, items a second, tone (`good` on the frontier, or `dim`)."""
    tone = {
        "field": "tone", "type": "nominal", "legend": None,
        "scale": {"domain": ["good", "dim"], "range": [palette["good"], palette["dim"]]},
    }  # fmt: skip
    at = {
        "x": {"field": "peak", "type": "quantitative", "title": "peak memory, MiB", "scale": {"padding": _ROOM}},
        "y": {"field": "items", "type": "quantitative", "title": "items a second", "scale": {"padding": _ROOM}},
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
