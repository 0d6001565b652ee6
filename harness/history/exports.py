"""Exports runs and histories from the index for other programs, as JSON-ready data and CSV.

Text is not cleaned in JSON. In CSV, text that a spreadsheet would run as a formula gets a leading apostrophe.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from harness.history.records import FindingLife, HistoryView, IndexedHistory, IndexedRun, Measurement, SeenFinding
from harness.history.words import Runs
from harness.model import SignalVerdict

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
    names = (*RUN_COLUMNS, "sentences", "warnings")
    return [{name: getattr(run, name) for name in names} for run in runs]


def runs_csv(runs: Iterable[IndexedRun]) -> str:
    """Return a header and a line for each run."""
    return _csv(RUN_COLUMNS, ([getattr(run, name) for name in RUN_COLUMNS] for run in runs))


def histories_json(views: Iterable[HistoryView], runs: Runs) -> list[dict[str, Any]]:
    """Return an object for each history, with its measurements, findings and drifts."""
    return [
        {
            **_place(view.history),
            "images": list(view.versions),
            "measured": [
                {**_measured(one), "figures": {name: _figure(signal) for name, signal in one.verdict.signals.items()}}
                for one in view.measured
            ],
            "findings": [_life(life, runs) for life in view.history.lives],
            "drifts": list(map(asdict, view.history.drifts)),
        }
        for view in views
    ]


def histories_csv(views: Sequence[HistoryView], *, signals: Sequence[str]) -> str:
    """Return a header and a line for each measurement, with the figures of `signals`; () means all signals."""
    names = signals or sorted({name for view in views for one in view.measured for name in one.verdict.signals})
    columns = (*PLACE_COLUMNS, *MEASURED_COLUMNS, *(f"{name}.{part}" for name in names for part in FIGURE_COLUMNS))
    rows = []
    for view in views:
        params = " ".join(f"{name}={value}" for name, value in view.history.params)
        place = {**_place(view.history), "params": params}.values()
        for one in view.measured:
            figures = [part for name in names for part in _figure(one.verdict.signals.get(name)).values()]
            rows.append([*place, *_measured(one).values(), *figures])
    return _csv(columns, rows)


def drifts_json(history: IndexedHistory) -> list[dict[str, Any]]:
    """Return the drifts of a history, each with its series, host, GPU, scenario and params."""
    return [{**_place(history), **asdict(drift)} for drift in history.drifts]


def _place(history: IndexedHistory) -> dict[str, Any]:
    """Return the fields named in PLACE_COLUMNS."""
    return {name: getattr(history, name) for name in PLACE_COLUMNS} | {"params": dict(history.params)}


def _measured(one: Measurement) -> dict[str, Any]:
    """Return the fields named in MEASURED_COLUMNS, in that order."""
    verdict = one.verdict
    values = (
        one.version, one.digest, one.run, one.started, one.first_launch, verdict.verdict, one.state, verdict.trials,
        verdict.failed, one.taken_over, verdict.provisional, verdict.per, verdict.why,
    )  # fmt: skip
    return dict(zip(MEASURED_COLUMNS, values, strict=True))


def _figure(one: SignalVerdict | None) -> dict[str, Any]:
    """Return the fields named in FIGURE_COLUMNS, in that order."""
    if one is None:
        return dict.fromkeys(FIGURE_COLUMNS)
    values = (one.seen, one.value, *(one.ci or (None, None)), one.limit, one.visible)
    return dict(zip(FIGURE_COLUMNS, values, strict=True))


def _life(life: FindingLife, runs: Runs) -> dict[str, Any]:
    def run(path: str | None) -> Mapping[str, str] | None:
        return None if path is None else {"run": path, "started": runs[path].started}

    return {
        "signal": life.begins.metric,
        "status": life.status,
        "begins": _finding(life.begins),
        "ends": None if life.ends is None else _finding(life.ends),
        "found": run(life.found),
        "seen": run(life.seen),
        "closed": run(life.closed),
    }


def _finding(finding: SeenFinding) -> dict[str, Any]:
    return {name: value for name, value in asdict(finding).items() if name not in ("run", "number", "metric")}


def _csv(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    from harness.report.exports.cell_table import harmless  # noqa: PLC0415 - slow, and needed only for CSV

    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    for row in rows:
        writer.writerow([harmless(value) if isinstance(value, str) else value for value in row])
    return out.getvalue()
