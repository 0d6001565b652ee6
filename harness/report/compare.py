"""Two places side by side: a table on a terminal, and the same as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from harness.model import CellVerdict, Column, Comparison, Effect, Measured, Metric, Pair, Standing
from harness.report import figures, headline, words
from harness.report.clean import plain, spelled
from harness.report.summary import attribution_json, json_ready
from harness.report.table import UNITS

SCHEMA = 1
METRICS: Mapping[Metric, str] = {
    "outcome": "verdict", "memory": "memory growth", "step_time": "step time", "peak_memory": "peak memory",
}  # fmt: skip
_INDENT, _GUTTER, _LEAST = 2, 2, 10
_LEVELS: Mapping[str, tuple[str, str]] = {
    "step_time": ("faster", "slower"), "peak_memory": ("less", "more"), "memory": ("leaks less", "leaks more"),
}  # fmt: skip


def render(comparison: Comparison, console: Console) -> None:
    """Write the whole comparison to `console`, at its width and in its encoding."""
    if comparison.together is not None:
        console.print(_text(headline.sentence(comparison.together), console), style="bold")
    for one, other in dict.fromkeys((pair.one, pair.other) for pair in comparison.pairs):
        here = [pair for pair in comparison.pairs if (pair.one, pair.other) == (one, other)]
        console.print()
        _write_pairs(here, one, other, console)
    for pair in comparison.pairs:
        if pair.refused:
            told = f"not comparable: {_cell_name(pair)}, {pair.one.label} and {pair.other.label}: "
            console.print(_text(told + "; ".join(pair.refused), console), style="yellow")
    console.print()
    if comparison.pairs:
        console.print(_text(UNITS, console), style="dim")
    for note in comparison.notes:
        console.print(_text(note, console), style="dim")


def to_json(comparison: Comparison) -> dict[str, Any]:
    """The comparison in JSON's own types; what is not known is null."""
    together = comparison.together
    ready: dict[str, Any] = json_ready(
        {
            "schema": SCHEMA,
            "exit_code": comparison.exit_code,
            "columns": [_column(one) for one in comparison.columns],
            "cells": [_pair(one) for one in comparison.pairs],
            "attribution": [attribution_json(one, together) for one in together.attribution] if together else [],
            "notes": comparison.notes,
        }
    )
    return ready


def standing_text(measured: Measured, one: Column, other: Column) -> str:
    """`slower`, `only new leaks`, `no difference`."""
    what = "leaks" if measured.metric == "memory" else "is bad"
    fixed: Mapping[Standing, str] = {
        "same": "both good" if measured.metric == "outcome" else "no difference shown",
        "both bad": "both leak" if measured.metric == "memory" else "both bad",
        "worse": f"only {other.label} {what}",
        "better": f"only {one.label} {what}",
        "unknown": "not known",
    }
    if measured.standing == "less":
        return _LEVELS[measured.metric][0]
    return _LEVELS[measured.metric][1] if measured.standing == "more" else fixed[measured.standing]


# ---------------------------------------------------------------- terminal


def _text(text: str, console: Console) -> Text:
    return Text(spelled(plain(text), encoding=console.encoding))


def _write_pairs(pairs: Sequence[Pair], one: Column, other: Column, console: Console) -> None:
    """Each cell's name on a line of its own, its rows beneath; all rows share the widths of their columns."""
    rows = {_cell_name(pair): list(_rows(pair)) for pair in pairs}
    header = ("", one.label, other.label, "ratio (95 %)", "")
    longest = [
        max(_LEAST, *(_text(row[place], console).cell_len for some in rows.values() for row in some))
        for place in range(len(header))
    ]
    room = console.width - _INDENT - sum(longest[:3]) - _GUTTER * (len(header) - 1)
    standing = min(longest[4], max(_LEAST, room // 2))
    widths = [*longest[:3], min(longest[3], max(_LEAST, room - standing)), standing]
    console.print(_grid([header], widths, console), style="bold")
    for name, told in rows.items():
        console.print(_text(name, console))
        console.print(_grid(told, widths, console))


def _grid(rows: Sequence[Sequence[str]], widths: Sequence[int], console: Console) -> Padding:
    """Rows under each other; what does not fit is folded, in all columns where the terminal is very narrow."""
    grid = Table(box=None, pad_edge=False, padding=(0, _GUTTER, 0, 0), show_header=False)
    fits = _INDENT + sum(widths) + _GUTTER * (len(widths) - 1) <= console.width
    for width in widths:
        grid.add_column(width=width if fits else None, overflow="fold")
    for row in rows:
        grid.add_row(*(_text(cell, console) for cell in row))
    return Padding(grid, (0, 0, 0, _INDENT))


def _cell_name(pair: Pair) -> str:
    return f"{plain(pair.series)} {plain(pair.image)}, {words.variant_text(pair.variant)}"


def _rows(pair: Pair) -> Iterator[tuple[str, ...]]:
    """Metric, the two figures, their ratio, and how the second stands. What neither side knows is left out."""
    by_metric = {one.metric: one for one in pair.measured}
    verdicts = [f"{words.verdict_word(verdict)} {words.cell_figure(verdict)}".strip() for verdict in pair.verdicts]
    outcome = by_metric.get("outcome")
    told = "not comparable" if outcome is None else standing_text(outcome, pair.one, pair.other)
    yield METRICS["outcome"], *verdicts, "", told
    for metric in ("memory", "step_time", "peak_memory"):
        one = by_metric.get(metric)
        if one is not None and (one.one, one.other) != (None, None) and not _is_quiet(one, pair.verdicts):
            shown = [_figure(metric, value) for value in (one.one, one.other)]
            yield METRICS[metric], *shown, _ratio(one), standing_text(one, pair.one, pair.other)


def _is_quiet(measured: Measured, verdicts: tuple[CellVerdict, CellVerdict]) -> bool:
    """The growth of what is flat on both sides is noise; the peak of a leak is a matter of how long it ran."""
    leaking = any("leak" in verdict.verdicts for verdict in verdicts)
    return leaking if measured.metric == "peak_memory" else measured.metric == "memory" and not leaking


def _figure(metric: Metric, value: float | None) -> str:
    if value is None:
        return "–"
    if metric == "step_time":
        return figures.milliseconds(1000 * value)
    return figures.mebibytes(value / 1024) if metric == "peak_memory" else figures.rate(value)


def _ratio(measured: Measured) -> str:
    if measured.ratio is None or measured.ci is None:
        return ""
    low, high = measured.ci
    rounded = Effect(value=round(measured.ratio, 4), unit="ratio", ci=(round(low, 4), round(high, 4)))
    return figures.effect(rounded)


# ---------------------------------------------------------------- JSON


def _column(column: Column) -> dict[str, Any]:
    lane = {"host": column.lane.host.name, "gpu": column.lane.gpu}
    return {"label": column.label, "run": column.run, **lane, "started": column.started or None}


def _pair(pair: Pair) -> dict[str, Any]:
    return {
        "series": pair.series,
        "image": pair.image,
        "scenario": pair.variant.scenario.name,
        "params": dict(pair.variant.params),
        "columns": [pair.one.label, pair.other.label],
        "verdicts": [verdict.verdict for verdict in pair.verdicts],
        "metrics": [asdict(one) for one in pair.measured],
        "refused": list(pair.refused),
    }
