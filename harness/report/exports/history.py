"""`harness runs` and `harness history` for other programs: JSON-ready data and CSV.

Text is not cleaned in JSON. In CSV a text that a spreadsheet would run as a formula gets an apostrophe.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from harness.model.history import Drift, FindingLife, HistoryView, IndexedHistory, IndexedRun, Measurement, SeenFinding
from harness.report.exports.cells_csv import harmless

RUN_COLUMNS = (
    "path", "matrix", "kind", "started", "duration_s", "verdict", "cells", "bad", "findings", "problem",
)  # fmt: skip
PLACE_COLUMNS = ("matrix", "series", "host", "gpu", "scenario", "params")
MEASURED_COLUMNS = (
    "image", "digest", "run", "started", "first_launch", "verdict", "state", "trials", "failed", "taken_over",
    "provisional", "why",
)  # fmt: skip
FIGURE_COLUMNS = ("seen", "value", "low", "high", "limit", "visible")


def runs_json(runs: Iterable[IndexedRun]) -> list[dict[str, Any]]:
    """Return an object for each run, from old to new."""
    return [
        {**{name: getattr(run, name) for name in RUN_COLUMNS}, "sentences": list(run.sentences),
         "warnings": list(run.warnings)} for run in runs
    ]  # fmt: skip


def runs_csv(runs: Iterable[IndexedRun]) -> str:
    """Return a header and a line for each run."""
    return _csv(RUN_COLUMNS, ([getattr(run, name) for name in RUN_COLUMNS] for run in runs))


def histories_json(views: Iterable[HistoryView]) -> list[dict[str, Any]]:
    """Return an object for each history, with all that was measured, its findings and its drifts."""
    return [
        {
            **_place(view),
            "images": list(view.versions),
            "measured": [_measured(one) for one in view.measured],
            "findings": [_life(one, view) for one in view.lives],
            "drifts": [_drift(one) for one in view.drifts],
        }
        for view in views
    ]


def histories_csv(views: Sequence[HistoryView], *, signals: Sequence[str]) -> str:
    """Return a header and a line for each measurement, with the figures of these signals; () stands for all."""
    names = list(signals) or sorted({name for view in views for one in view.measured for name in one.figures})
    columns = (*PLACE_COLUMNS, *MEASURED_COLUMNS, *(f"{name}.{part}" for name in names for part in FIGURE_COLUMNS))
    return _csv(columns, (row for view in views for row in _rows(view, names)))


def _rows(view: HistoryView, names: Sequence[str]) -> Iterator[list[Any]]:
    history = view.history
    place = [history.matrix, history.series, history.host, history.gpu, history.scenario, _params(view)]
    for one in view.measured:
        known = [one.figures.get(name) for name in names]
        figures = [None if figure is None else getattr(figure, part) for figure in known for part in FIGURE_COLUMNS]
        yield [*place, *(_measured(one, figures=False)[name] for name in MEASURED_COLUMNS), *figures]


def _params(view: HistoryView) -> str:
    return " ".join(f"{name}={value}" for name, value in view.history.params)


def _place(view: HistoryView) -> dict[str, Any]:
    history = view.history
    names = ("matrix", "series", "host", "gpu", "scenario")
    return {**{name: getattr(history, name) for name in names}, "params": dict(history.params)}


def _measured(one: Measurement, *, figures: bool = True) -> dict[str, Any]:
    names = [name for name in MEASURED_COLUMNS if name != "image"]
    found = {"image": one.version, **{name: getattr(one, name) for name in names}}
    return {**found, "figures": {name: asdict(each) for name, each in one.figures.items()}} if figures else found


def _life(one: FindingLife, view: HistoryView) -> dict[str, Any]:
    def run(id_: int | None) -> Mapping[str, str] | None:
        return None if id_ is None else {"run": view.runs[id_].path, "started": view.runs[id_].started}

    return {
        "signal": one.begins.signal,
        "status": one.status,
        "begins": _finding(one.begins),
        "ends": None if one.ends is None else _finding(one.ends),
        "found": run(one.found),
        "seen": run(one.seen),
        "closed": run(one.closed),
    }


def _finding(one: SeenFinding) -> dict[str, Any]:
    names = ("kind", "before", "after", "verdict", "p", "confirmed", "consequence_of")
    effect = None if one.effect is None else asdict(one.effect)
    return {**{name: getattr(one, name) for name in names}, "effect": effect}


def _drift(one: Drift) -> dict[str, Any]:
    return {name: value for name, value in asdict(one).items() if name != "history"}


def drift_json(history: IndexedHistory, one: Drift) -> dict[str, Any]:
    """Return a drift with its place."""
    names = ("matrix", "series", "host", "gpu", "scenario")
    place = {name: getattr(history, name) for name in names}
    return {**place, "params": dict(history.params), **_drift(one)}


def _csv(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    for row in rows:
        writer.writerow([harmless(value) if isinstance(value, str) else value for value in row])
    return out.getvalue()
