"""Shows the comparison of two runs or lanes as a table on a terminal, and as JSON."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table
from tabulate import tabulate

from harness import amounts
from harness.model import (
    GOOD,
    METRIC_PREFIX,
    CellVerdict,
    Column,
    Comparison,
    Effect,
    MachineChange,
    Measured,
    Metric,
    Pair,
    Setting,
    Standing,
    grouped,
)
from harness.report.blocks import Drawing
from harness.report.charts import vega_charts
from harness.report.exports.cell_table import json_ready
from harness.report.exports.summary_json import attributions_json
from harness.report.terminal.block_printer import Pen
from harness.report.text import fault_sentences, headline, signal_words
from harness.report.text.fault_causes import LOCAL, host_name
from harness.report.text.harmless_text import plain
from harness.report.text.names import together, variant_text
from harness.report.version_table import units

SCHEMA = 1
_TITLES: Mapping[Metric, str] = {"outcome": "verdict", "memory": "memory growth"}
_INDENT, _GUTTER, _LEAST = 2, 2, 10
_LETTERS = ("A", "B")
_LEVELS: Mapping[str, tuple[str, str]] = {
    "step_time": ("faster", "slower"), "run_time": ("faster", "slower"), "peak_memory": ("less", "more"),
    "memory": ("leaks less", "leaks more"),
}  # fmt: skip


def render(comparison: Comparison, console: Console) -> None:
    """Write the comparison to `console`, at its width and in its encoding."""
    pen = Pen(console)
    if comparison.together is not None:
        pen.line(headline.sentence(comparison.together), style="bold")
    for change in comparison.since:
        pen.line(since_text(change, comparison.pairs), style="bold")
    for columns in dict.fromkeys((pair.one, pair.other) for pair in comparison.pairs):
        console.print()
        _write_pairs([pair for pair in comparison.pairs if (pair.one, pair.other) == columns], columns, pen)
    for line in _refusals(comparison.pairs):
        pen.line(line, style="yellow")
    console.print()
    rates = units(verdict for pair in comparison.pairs for verdict in pair.verdicts)
    for note in (*([rates] if rates else []), *comparison.notes):
        pen.line(note, style="dim")


def to_json(comparison: Comparison) -> dict[str, Any]:
    """Return the comparison as JSON-ready data; unknown values are None."""
    merged = comparison.together
    ready: dict[str, Any] = json_ready(
        {
            "schema": SCHEMA,
            "exit_code": comparison.exit_code,
            "columns": [
                {
                    "label": each.label,
                    "run": each.run,
                    "host": each.lane.host.name,
                    "gpu": each.lane.gpu,
                    "started": each.started or None,
                }
                for each in comparison.columns
            ],
            "cells": [_pair(pair) for pair in comparison.pairs],
            "attribution": [] if merged is None else list(attributions_json(merged)),
            "since": [
                {
                    "before": change.before,
                    "after": change.after,
                    "metric": change.metric,
                    "ratio": _ratio(change),
                    "worse": list(map(_cell_name, change.worse)),
                    "alike": list(map(_cell_name, change.alike)),
                    "sentence": since_text(change, comparison.pairs),
                }
                for change in comparison.since
            ],
            "notes": comparison.notes,
        }
    )
    return ready


def _ratio(change: MachineChange) -> tuple[float, float] | None:
    """Return the lowest and the highest ratio of a level in the worse cells; None for other signals."""
    ratios = [effect.value for effect in change.effects if effect.unit == "ratio"]
    return (min(ratios), max(ratios)) if ratios else None


def standing_text(measured: Measured, one: str, other: str) -> str:
    """Return how the second column compares with the first: `slower`, `only new leaks`, `no difference shown`.

    `one` and `other` are the labels of the two columns.
    """
    what = signal_words.verb(signal_words.shown_signal(measured.metric))
    if measured.metric == "outcome" or measured.metric.startswith(METRIC_PREFIX):
        what = "is bad"
    fixed: Mapping[Standing, str] = {
        "same": "both good" if measured.metric == "outcome" else "no difference shown",
        "both bad": "both leak" if measured.metric == "memory" else "both bad",
        "worse": f"only {other} {what}",
        "better": f"only {one} {what}",
        "unknown": "not known",
    }
    less, more = _LEVELS.get(measured.metric, ("lower", "higher"))
    return {"less": less, "more": more}.get(measured.standing) or fixed[measured.standing]


def since_text(change: MachineChange, pairs: Sequence[Pair]) -> str:
    """Return what became worse on a machine, in which of the `pairs`, since what changed, and whether the images are at
    fault.
    """
    signal = signal_words.shown_signal(change.metric)
    what = signal_words.verb(signal, fault_sentences.sizes(change.effects, metric=change.metric))
    what = change.worse[0].variant.scenario.in_words(what, change.metric)
    versions, good = (list(dict.fromkeys(pair.image for pair in side)) for side in (change.worse, change.alike))
    columns = change.worse[0].one, change.worse[0].other
    asked = sum((pair.one, pair.other) == columns for pair in pairs)
    some = len(change.worse)
    cells = amounts.every(asked, "cell") if some == asked > 1 else f"{some} of {amounts.count(asked, 'cell')}"
    software = [together(list(map(plain, side))) for side in (change.after, change.before)]
    if not good:
        whose = "not the images' fault" if len(versions) > 1 else "no other image tells whether it takes this one"
    elif set(versions).isdisjoint(good):
        whose = f"good with {together(list(map(plain, good)))}: it takes both the image and the machine's {software[0]}"
    else:
        whose = f"good in {amounts.count(len(change.alike), 'cell')}, so that is not the only cause"
    host = columns[1].lane.host.name
    where = "" if host == LOCAL else f" on {host_name(host)}"
    return f"{signal.title}: {what} in {cells}{where} since {software[0]}, instead of {software[1]}; {whose}"


# ---------------------------------------------------------------- terminal


def _refusals(pairs: Sequence[Pair]) -> Iterator[str]:
    """Yield a line for each set of reasons that makes cells not comparable, with the names of these cells."""
    alike = grouped(((pair.one, pair.other, pair.refused), _cell_name(pair)) for pair in pairs if pair.refused)
    for (left, right, refused), cells in alike.items():
        yield f"not comparable: {'; '.join(cells)}: {left.label} and {right.label}: {'; '.join(refused)}"


def _write_pairs(pairs: Sequence[Pair], columns: tuple[Column, Column], pen: Pen) -> None:
    """Write each cell's name on its own line, with the cell's rows below it. All rows have the same column widths.

    If the labels do not fit, they are written above the table, and the header shows A and B.
    """
    given = (columns[0].label, columns[1].label)
    for labels in (given, _LETTERS):
        header = "", *labels, "ratio (95 %)", ""
        told = {_cell_name(pair): list(_rows(pair, *labels)) for pair in pairs}
        widths = _widths([header, *itertools.chain(*told.values())], pen)
        if widths is not None:
            break
    for letter, label in zip(labels, given, strict=True) if labels is not given else ():
        pen.line(f"{letter}: {label}", style="bold")
    pen.console.print(_grid([header], widths, pen), style="bold")
    for name, rows in told.items():
        pen.line(name)
        pen.console.print(_grid(rows, widths, pen))


def _widths(rows: Sequence[Sequence[str]], pen: Pen) -> list[int] | None:
    """Return the column widths in characters; None if the labels do not fit.

    The last two columns wrap between words if necessary.
    """
    cells = [list(map(pen.text, column)) for column in zip(*rows, strict=True)]
    *names, ratio, standing = (max(_LEAST, *(cell.cell_len for cell in column)) for column in cells)
    measured = ([Measurement.get(pen.console, pen.console.options, cell) for cell in column] for column in cells[3:])
    least = [max(_LEAST, *(cell.minimum for cell in column)) for column in measured]
    room = pen.console.width - _INDENT - sum(names) - _GUTTER * (len(cells) - 1)
    if room < sum(least):
        return None
    standing = min(standing, max(least[1], room - ratio, room // 2), room - least[0])
    return [*names, min(ratio, room - standing), standing]


def _grid(rows: Sequence[Sequence[str]], widths: Sequence[int | None] | None, pen: Pen) -> Padding:
    """Return the rows as a grid; without `widths`, cells wrap anywhere."""
    grid = Table(box=None, pad_edge=False, padding=(0, _GUTTER, 0, 0), show_header=False)
    for width in widths or [None] * len(rows[0]):
        grid.add_column(width=width, overflow="fold")
    for row in rows:
        grid.add_row(*map(pen.text, row))
    return Padding(grid, (0, 0, 0, _INDENT))


def _cell_name(pair: Pair) -> str:
    return f"{plain(pair.series)} {plain(pair.image)}, {variant_text(pair.variant)}"


def _rows(pair: Pair, one: str, other: str) -> Iterator[tuple[str, ...]]:
    """Yield for each signal its title, the two figures, their ratio, and how the second figure compares. `one` and
    `other` are the labels of the two columns.

    A signal without any figure is left out. A signal other than the growth and the peak of memory and the step time, or
    the run time if no step was timed, is also left out if the sides do not differ in it and neither side is bad.
    """
    by_metric = {measured.metric: measured for measured in pair.measured}
    # Growth is noise if neither cell leaks; if one leaks, its peak memory depends on the number of steps.
    quiet = "peak_memory" if any("leak" in verdict.verdicts for verdict in pair.verdicts) else "memory"
    verdicts = [verdict_text(verdict) for verdict in pair.verdicts]
    outcome = by_metric.get("outcome")
    told = "not comparable" if outcome is None else standing_text(outcome, one, other)
    if outcome is not None and outcome.standing == "same" and any(verdict.state != "good" for verdict in pair.verdicts):
        told = "neither is bad"
    yield _title("outcome"), *verdicts, "", told
    known = {name: both for name, both in by_metric.items() if (both.one, both.other) != (None, None)}
    always = ("memory", "step_time" if "step_time" in known else "run_time", "peak_memory")
    others = [name for name in known if name not in always and known[name].standing not in ("same", "unknown")]
    for metric in (*always, *others):
        both = known.get(metric)
        if both is not None and metric != quiet:
            values, ratio = (both.one, both.other), ""
            if both.ratio is not None and both.ci is not None:
                low, high = (round(end, 4) for end in both.ci)
                ratio = amounts.effect(Effect(value=round(both.ratio, 4), unit="ratio", ci=(low, high)))
            like, digits = amounts.middle(values), amounts.digits_apart(*values)
            shown = [signal_words.value_text(metric, value, like=like, digits=digits) or "–" for value in values]
            yield _title(metric), *shown, ratio, standing_text(both, one, other)


def verdict_text(verdict: CellVerdict) -> str:
    """Return `leak 24.1`, or `step time bad` if only a signal of a cell that ran well is bad."""
    name = signal_words.matter(verdict) if verdict.verdict in GOOD else None
    if name is not None and verdict.signals[name].seen == "bad":
        return f"{_title(name)} bad"
    told = filter(None, signal_words.word_and_figure(verdict))
    return " ".join([*told, *(["so far"] if verdict.provisional else [])])


def _title(metric: Metric) -> str:
    return _TITLES.get(metric) or signal_words.shown_signal(metric).title


# ---------------------------------------------------------------- JSON


def _pair(pair: Pair) -> dict[str, Any]:
    return {
        "series": pair.series,
        "image": pair.image,
        "scenario": pair.variant.scenario.name,
        "params": dict(pair.variant.params),
        "columns": [pair.one.label, pair.other.label],
        "verdicts": [verdict.verdict for verdict in pair.verdicts],
        "metrics": [{**asdict(measured), "ratio": measured.ratio} for measured in pair.measured],
        "refused": list(pair.refused),
    }


# ---------------------------------------------------------------- the frontier of one run


def frontier_table(settings: Sequence[Setting]) -> str:
    """Return a line per setting, lowest memory first; * marks the frontier: no other setting is better in both."""
    rows = [
        ("*" if setting.on_frontier else "", plain(setting.name), f"{setting.peak_mib:.1f}", f"{setting.items_a_s:.1f}")
        for setting in sorted(settings, key=lambda setting: (setting.peak_mib, -setting.items_a_s))
    ]
    head, align = ("", "setting", "peak memory, MiB", "throughput, items/s"), ("left", "left", "right", "right")
    return tabulate(rows, headers=head, tablefmt="plain", disable_numparse=True, colalign=align)


def frontier_svg(settings: Sequence[Setting]) -> str:
    """Return the plot as SVG, with peak memory on the x-axis and throughput on the y-axis."""
    rows = [
        {"name": plain(setting.name), "peak": setting.peak_mib, "items": setting.items_a_s,
         "tone": "good" if setting.on_frontier else "dim"}
        for setting in settings
    ]  # fmt: skip
    title = "throughput over peak memory; green: no other setting is better in both"
    return vega_charts.svg(Drawing(chart="frontier", title=title, description=title, rows={"settings": rows}))
