"""Writes runs into the index, one transaction per run."""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.errors import UsageError
from harness.history.records import RunKind
from harness.model import CellVerdict, Plan
from harness.model.signals import known_effect
from harness.store import began_at, result_file
from harness.store.plan_file import plan_from_file, read_plan_file
from harness.store.result_file import ResultFile
from harness.store.saved_probes import FILE as PROBES
from harness.store.saved_probes import read_entries
from harness.store.trial_json import trial_files


def remove(connection: sqlite3.Connection, path: str) -> None:
    connection.execute("BEGIN IMMEDIATE")
    _delete(connection, path)
    connection.execute("COMMIT")


def _delete(connection: sqlite3.Connection, path: str) -> None:
    """Remove a run, and mark its histories as stale, so that their lives and drifts are recomputed."""
    connection.execute(
        "UPDATE histories SET stale = 1 WHERE id IN"
        " (SELECT history FROM cells JOIN runs ON runs.id = cells.run WHERE runs.path = ?)",
        (path,),
    )
    connection.execute("DELETE FROM runs WHERE path = ?", (path,))


def replace(connection: sqlite3.Connection, rows: RunRows, *, path: str, stamp: str) -> str:
    """Write a run, replacing its earlier rows. Return why the run cannot be read, or ""."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        _delete(connection, path)
        _insert(connection, rows, path=path, stamp=stamp)
    except (OverflowError, sqlite3.IntegrityError) as error:
        # A copied run may hold numbers too large for a column, or the same cell twice.
        connection.execute("ROLLBACK")
        refused = refused_rows(f"not written by this harness: {error}", began=_began(Path(path).name))
        return replace(connection, refused, path=path, stamp=stamp)
    connection.execute("COMMIT")
    return str(rows.run["problem"])


def _insert(connection: sqlite3.Connection, rows: RunRows, *, path: str, stamp: str) -> None:
    matrix = path.partition("/")[0]
    run = _add(connection, "runs", {"path": path, "matrix": matrix, **rows.run, "stamp": stamp})
    numbers = [_history(connection, matrix, history) for history in rows.histories]
    connection.executemany("INSERT INTO images VALUES (?, ?, ?, ?, ?)", ((run, *row) for row in rows.images))
    for cell in rows.cells:
        number = _add(connection, "cells", {"run": run, "history": numbers[cell.history], **cell.row})
        connection.executemany(
            "INSERT INTO figures VALUES (?, ?, ?, ?, ?, ?, ?, ?)", ((number, *row) for row in cell.figures)
        )
    connection.executemany(
        "INSERT INTO findings VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        ((run, place, numbers[history], *row) for place, (history, *row) in enumerate(rows.findings, start=1)),
    )
    connection.executemany(
        "INSERT INTO causes VALUES (?, ?, ?, ?)", ((run, place, *row) for place, row in enumerate(rows.causes, start=1))
    )


def _add(connection: sqlite3.Connection, table: str, columns: Mapping[str, Any]) -> int | None:
    """Add a row to a table; return its id."""
    names, marks = ", ".join(columns), ", ".join("?" * len(columns))
    return connection.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", tuple(columns.values())).lastrowid


def _history(connection: sqlite3.Connection, matrix: str, row: tuple[object, ...]) -> int:
    """Return the id of a history, adding it if it is new, and mark the history as stale."""
    found = connection.execute(
        "INSERT INTO histories (matrix, series, host, gpu, scenario, params, lane, variant) VALUES (?,?,?,?,?,?,?,?)"
        " ON CONFLICT (matrix, series, lane, scenario, params) DO UPDATE SET stale = 1 RETURNING id",
        (matrix, *row),
    ).fetchone()
    return int(found[0])


def rows_of(folder: Path) -> RunRows:
    """Return the rows of a run; for a directory that cannot be read, a single row with its problem."""
    began = _began(folder.name)
    try:
        if (folder / result_file.FILE).exists():
            return sweep_rows(folder, began=began)
        return probe_rows(folder, began=began) if (folder / PROBES).exists() else killed_rows(folder, began=began)
    except UsageError as error:
        return refused_rows(str(error), began=began)
    except RecursionError:
        return refused_rows("its files are nested too deeply", began=began)


def _began(name: str) -> str:
    """Return the time in a run's name in ISO 8601; "" if the name has none."""
    began = began_at(name)
    return "" if began is None else began.isoformat()


# ---------------------------------------------------------------- run rows


MOST_LETTERS = 2000
"""Maximum length in characters of one text in the index."""

SqlRow = tuple[Any, ...]


@dataclass(frozen=True, kw_only=True)
class CellRows:
    """A cell, by its columns, with its figures. `history` is a position in `RunRows.histories`."""

    history: int
    row: Mapping[str, Any]
    figures: tuple[SqlRow, ...]


@dataclass(frozen=True, kw_only=True)
class RunRows:
    """The rows of one run, in the column order of the tables but without the columns that the index adds; `run` is by
    the names of its columns. The first field of a finding is a position in `histories`.
    """

    run: Mapping[str, Any]
    histories: tuple[SqlRow, ...] = ()
    images: tuple[SqlRow, ...] = ()
    cells: tuple[CellRows, ...] = ()
    findings: tuple[SqlRow, ...] = ()
    causes: tuple[SqlRow, ...] = ()


def _run(kind: RunKind, *, started: str, problem: str = "", **known: Any) -> Mapping[str, Any]:
    blank = {"duration_s": 0.0, "verdict": None, "cells": 0, "bad": 0, "findings": 0, "warnings": "[]"}
    return {"kind": kind, "started": started, "problem": problem, **blank, **known}


def refused_rows(problem: str, *, began: str) -> RunRows:
    """Return the rows of a run whose directory cannot be read, for the reason `problem`."""
    return RunRows(run=_run("sweep", started=began, problem=_text(problem)))


def probe_rows(folder: Path, *, began: str) -> RunRows:
    """Return the rows of a directory that `harness probe` made; `cells` is the number of probes. Raises UsageError."""
    entries = read_entries(folder / PROBES)
    failed = sum(bool(entry.problem) for entry in entries)
    warnings = [f"{failed} of {len(entries)} probes failed"] if failed else []
    return RunRows(run=_run("probe", started=began, cells=len(entries), warnings=json.dumps(warnings)))


def killed_rows(folder: Path, *, began: str) -> RunRows:
    """Return the rows of a run that was killed before it wrote a result: what its plan and its launches show. Raises
    UsageError.
    """
    plan = plan_from_file(read_plan_file(folder), folder)
    launches = len(trial_files(folder))
    kept = f"{'1 launch is' if launches == 1 else f'{launches:,} launches are'} kept for the next run of the same sweep"
    row = _run(
        "killed",
        started=began,
        verdict="interrupted",
        cells=sum(len(row.cells) for row in plan.rows),
        warnings=json.dumps([f"killed before it wrote a result; {kept}"]),
    )
    return RunRows(run=row)


def sweep_rows(folder: Path, *, began: str) -> RunRows:
    """Return the rows of a run that has a report. `began`, the time in the run's name, serves if the result has no
    start time. Raises UsageError.
    """
    plan = plan_from_file(read_plan_file(folder), folder)
    told = result_file.read_result(folder, plan)
    cells = tuple(_cells(plan, told))
    shown = len(told.causes) or sum(
        not finding.consequence_of for finding in told.findings
    )  # the faults that reports show
    known = _number(told.duration_s)
    return RunRows(
        run=_run(
            "sweep",
            started=_text(told.started) or began,
            duration_s=known if known is not None and known >= 0 else None,
            verdict=told.verdict,
            cells=len(cells),
            bad=sum(cell.row["state"] == "bad" for cell in cells),
            findings=shown,
            warnings=json.dumps([_text(warning) for warning in told.warnings[:MOST_LETTERS]]),
        ),
        histories=tuple(_histories(plan)),
        images=tuple(_images(plan)),
        cells=cells,
        findings=tuple(_findings(plan, told)),
        causes=tuple((json.dumps(cause.findings), _text(cause.sentence)) for cause in told.causes if cause.sentence),
    )


def _histories(plan: Plan) -> Iterator[SqlRow]:
    for row in plan.rows:
        lane, variant = row.lane, row.variant
        params = json.dumps(dict(variant.params))
        if len(params) > MOST_LETTERS:
            raise UsageError(f"params longer than {MOST_LETTERS:,} characters")
        names = (row.series.name, lane.host.name, lane.gpu, variant.scenario.name, params, str(lane), str(variant))
        yield tuple(None if name is None else _text(name) for name in names)


def _images(plan: Plan) -> Iterator[SqlRow]:
    for series in plan.matrix.series:
        for place, image in enumerate(series.images):
            yield _text(series.name), place, _text(image.version), image.version == series.baseline


def _cells(plan: Plan, told: ResultFile) -> Iterator[CellRows]:
    for number, row in enumerate(plan.rows):
        for cell in row.cells:
            if (entry := told.cells.get(cell.id)) is None:
                continue
            verdict = entry.verdict
            why = "; ".join(dict.fromkeys(filter(None, (entry.problem, verdict.why))))
            columns = {
                "version": _text(cell.image.version), "digest": entry.digest and _text(entry.digest),
                "verdict": verdict.verdict, "state": verdict.state, "why": _text(why), "trials": verdict.trials,
                "failed": verdict.failed, "first_launch": entry.first_launch and _text(entry.first_launch),
                "taken_over": entry.taken_over, "provisional": verdict.provisional, "per": verdict.per,
                "layer": verdict.layer and _text(verdict.layer),
            }  # fmt: skip
            yield CellRows(history=number, row=columns, figures=tuple(_figures(verdict)))


def _figures(verdict: CellVerdict) -> Iterator[SqlRow]:
    """Yield a row per signal, in the signal's unit. Memory, step time and peak memory have the figures that reports
    show.
    """
    for name, signal in verdict.signals.items():
        if signal.seen != "none" or signal.value is not None:
            low, high = (None, None) if signal.ci is None else signal.ci
            limits = _number(signal.limit), _number(known_effect(name, signal.visible))
            yield _text(name), signal.seen, _number(signal.value), _number(low), _number(high), *limits


def _findings(plan: Plan, told: ResultFile) -> Iterator[SqlRow]:
    histories = {(row.series.name, row.lane, row.variant): number for number, row in enumerate(plan.rows)}
    for finding in told.findings:
        effect = finding.effect
        low, high = (None, None) if effect is None or effect.ci is None else effect.ci
        history = histories[finding.series, finding.lane, finding.variant]
        yield (
            history, _text(finding.metric), finding.kind, finding.before and _text(finding.before),
            _text(finding.after), _text(finding.verdict), None if effect is None else _number(effect.value),
            effect and _text(effect.unit), _number(low), _number(high), _number(finding.p), finding.confirmed,
            _text(finding.consequence_of),
        )  # fmt: skip


def _number(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _text(value: str) -> str:
    """Return the first MOST_LETTERS characters of a text, in a form that SQLite can store."""
    return value[:MOST_LETTERS].encode(errors="replace").decode()
