"""Exports runs and histories from the index for other programs, as JSON-ready data and CSV.

Text is not cleaned in JSON. In CSV, text that a spreadsheet would run as a formula gets a leading apostrophe.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from harness.history.records import (
    Drift,
    FindingLife,
    HistoryView,
    IndexedHistory,
    IndexedRun,
    Measurement,
    SeenFinding,
)
from harness.report.exports.cell_table import harmless

RUN_COLUMNS = (
    "path", "matrix", "kind", "started", "duration_s", "verdict", "cells", "bad", "findings", "problem",
)  # fmt: skip
PLACE_COLUMNS = ("matrix", "series", "host", "gpu", "scenario", "params")
MEASURED_COLUMNS = (
    "image", "digest", "run", "started", "first_launch", "verdict", "state", "trials", "failed", "taken_over",
    "provisional", "per", "why",
)  # fmt: skip
FIGURE_COLUMNS = ("seen", "value", "low", "high", "limit", "visible")


def runs_json(runs: Iterable[IndexedRun]) -> list[dict[str, Any]]:
    """Return an object for each run, in the given order."""
    return [
        {**{name: getattr(run, name) for name in RUN_COLUMNS}, "sentences": list(run.sentences),
         "warnings": list(run.warnings)} for run in runs
    ]  # fmt: skip


def runs_csv(runs: Iterable[IndexedRun]) -> str:
    """Return a header and a line for each run."""
    return _csv(RUN_COLUMNS, ([getattr(run, name) for name in RUN_COLUMNS] for run in runs))


def histories_json(views: Iterable[HistoryView]) -> list[dict[str, Any]]:
    """Return an object for each history, with its measurements, findings and drifts."""
    return [
        {
            **_place(view.history),
            "images": list(view.versions),
            "measured": [{**_measured(measurement), "figures": _figures(measurement)} for measurement in view.measured],
            "findings": [_life(life, view) for life in view.lives],
            "drifts": [_drift(drift) for drift in view.drifts],
        }
        for view in views
    ]


def histories_csv(views: Sequence[HistoryView], *, signals: Sequence[str]) -> str:
    """Return a header and a line for each measurement, with the figures of `signals`; () means all signals."""
    names = list(signals) or sorted(
        {name for view in views for measurement in view.measured for name in measurement.figures}
    )
    columns = (*PLACE_COLUMNS, *MEASURED_COLUMNS, *(f"{name}.{part}" for name in names for part in FIGURE_COLUMNS))
    return _csv(columns, (row for view in views for row in _rows(view, names)))


def _rows(view: HistoryView, names: Sequence[str]) -> Iterator[list[Any]]:
    params = " ".join(f"{name}={value}" for name, value in view.history.params)
    place = {**_place(view.history), "params": params}
    for measurement in view.measured:
        known = _figures(measurement)
        figures = [known.get(name, {}).get(part) for name in names for part in FIGURE_COLUMNS]
        yield [*(place[name] for name in PLACE_COLUMNS), *_measured(measurement).values(), *figures]


def _place(history: IndexedHistory) -> dict[str, Any]:
    """Return the fields named in PLACE_COLUMNS."""
    return {name: getattr(history, name) for name in PLACE_COLUMNS} | {"params": dict(history.params)}


def _measured(measurement: Measurement) -> dict[str, Any]:
    """Return the fields named in MEASURED_COLUMNS, in that order."""
    return {name: measurement.version if name == "image" else getattr(measurement, name) for name in MEASURED_COLUMNS}


def _figures(measurement: Measurement) -> dict[str, dict[str, Any]]:
    """Return the fields named in FIGURE_COLUMNS, by signal."""
    return {
        name: dict(
            zip(FIGURE_COLUMNS, (one.seen, one.value, *(one.ci or (None, None)), one.limit, one.visible), strict=True)
        )
        for name, one in measurement.figures.items()
    }


def _life(life: FindingLife, view: HistoryView) -> dict[str, Any]:
    def run(id_: int | None) -> Mapping[str, str] | None:
        return None if id_ is None else {"run": view.runs[id_].path, "started": view.runs[id_].started}

    return {
        "signal": life.begins.signal,
        "status": life.status,
        "begins": _finding(life.begins),
        "ends": None if life.ends is None else _finding(life.ends),
        "found": run(life.found),
        "seen": run(life.seen),
        "closed": run(life.closed),
    }


def _finding(finding: SeenFinding) -> dict[str, Any]:
    names = ("kind", "before", "after", "verdict", "p", "confirmed", "consequence_of")
    effect = None if finding.effect is None else asdict(finding.effect)
    return {**{name: getattr(finding, name) for name in names}, "effect": effect}


def _drift(drift: Drift) -> dict[str, Any]:
    return {name: value for name, value in asdict(drift).items() if name != "history"}


def drift_json(history: IndexedHistory, drift: Drift) -> dict[str, Any]:
    """Return a drift with its series, host, GPU, scenario and params."""
    return {**_place(history), **_drift(drift)}


def _csv(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    for row in rows:
        writer.writerow([harmless(value) if isinstance(value, str) else value for value in row])
    return out.getvalue()
