"""Writes runs into the index, each in one transaction."""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Mapping
from pathlib import Path

from pydantic import BaseModel, TypeAdapter

from harness.errors import UsageError
from harness.history.database import PROBES
from harness.model import Lane, Plan, Variant, VersionRow
from harness.model.signals import known_effect
from harness.store import began_at, result_file
from harness.store.json_files import UNREADABLE, read_extra
from harness.store.plan_file import plan_from_file, read_plan_file
from harness.store.result_file import CellEntry, ResultFile
from harness.store.trial_json import trial_files

MOST_LETTERS = 2000
"""Maximum length in characters of one text in the index."""
Sweep = tuple[Plan, ResultFile]
Columns = Mapping[str, object]


class _Probe(BaseModel):
    problem: str = ""


_PROBES = TypeAdapter(list[_Probe])


def remove(connection: sqlite3.Connection, path: str) -> None:
    """Remove a run."""
    with connection:
        connection.execute("BEGIN IMMEDIATE")
        _remove(connection, path)


def replace(connection: sqlite3.Connection, out: Path, path: str, *, stamp: str) -> str:
    """Write a run in place of its earlier rows. Return why the run cannot be read, or ""."""
    began = began_at(Path(path).name)
    run: Columns = {
        "path": path, "matrix": path.partition("/")[0], "kind": "sweep",
        "started": "" if began is None else began.isoformat(), "duration_s": 0.0, "verdict": None, "cells": 0, "bad": 0,
        "findings": 0, "warnings": (), "problem": "", "stamp": stamp,
    }  # fmt: skip
    try:
        known, sweep = _read(out / path)
        _write(connection, {**run, **known}, sweep)
        return ""
    except UsageError as error:
        problem = str(error)
    except OSError as error:
        problem = f"{error.filename}: {error.strerror}; {UNREADABLE}"
    except RecursionError:
        problem = "its files are nested too deeply"
    except (OverflowError, sqlite3.IntegrityError) as error:
        # A copied run may hold numbers too large for a column, or the same cell twice.
        problem = f"not written by this harness: {error}"
    _write(connection, {**run, "problem": problem}, None)
    return problem


# ---------------------------------------------------------------- reading


def _read(folder: Path) -> tuple[Columns, Sweep | None]:
    """Return the columns that a run's files give, and its plan and result if it has them. Raises UsageError."""
    if (folder / result_file.FILE).exists():
        plan = plan_from_file(read_plan_file(folder), folder)
        told = result_file.read_result(folder, plan)
        return ({"kind": "rehearsal"}, None) if plan.rehearsal else (_of_sweep(plan, told), (plan, told))
    return _of_probe(folder) if (folder / PROBES).exists() else _of_killed(folder), None


def _of_sweep(plan: Plan, told: ResultFile) -> Columns:
    verdicts = [told.cells[cell.id].verdict for row in plan.rows for cell in row.cells if cell.id in told.cells]
    shown = len(told.causes) or sum(not finding.consequence_of for finding in told.findings)  # as reports count faults
    return {
        "duration_s": told.duration_s if told.duration_s >= 0 else None, "verdict": told.verdict,
        "cells": len(verdicts), "bad": sum(verdict.state == "bad" for verdict in verdicts), "findings": shown,
        "warnings": told.warnings, **({"started": told.started} if told.started else {}),
    }  # fmt: skip


def _of_probe(folder: Path) -> Columns:
    """Return the columns of a directory that `harness probe` made; `cells` is the number of probes."""
    entries = read_extra(folder / PROBES, _PROBES.validate_python)
    failed = sum(bool(entry.problem) for entry in entries)
    warnings = (f"{failed} of {len(entries)} probes failed",) if failed else ()
    return {"kind": "probe", "cells": len(entries), "warnings": warnings}


def _of_killed(folder: Path) -> Columns:
    """Return the columns of a run that was killed before it wrote a result: what its plan and its launches show."""
    plan = plan_from_file(read_plan_file(folder), folder)
    if plan.rehearsal:
        return {"kind": "rehearsal"}
    launches = len(trial_files(folder))
    kept = f"{'1 launch is' if launches == 1 else f'{launches:,} launches are'} kept for the next run of the same sweep"
    cells, warning = sum(len(row.cells) for row in plan.rows), f"killed before it wrote a result; {kept}"
    return {"kind": "killed", "verdict": "interrupted", "cells": cells, "warnings": (warning,)}


# ---------------------------------------------------------------- rows


def _remove(connection: sqlite3.Connection, path: str) -> None:
    """Remove a run. Its histories must be concluded again."""
    connection.execute(
        "UPDATE histories SET concluded = NULL WHERE id IN"
        " (SELECT history FROM cells JOIN runs ON runs.id = cells.run WHERE path = ?)",
        (path,),
    )
    connection.execute("DELETE FROM runs WHERE path = ?", (path,))


def _write(connection: sqlite3.Connection, columns: Columns, sweep: Sweep | None) -> None:
    with connection:
        connection.execute("BEGIN IMMEDIATE")
        _remove(connection, str(columns["path"]))
        run = _add(connection, "runs", **columns)
        if sweep is not None:
            plan, told = sweep
            for series in plan.matrix.series:
                for place, image in enumerate(series.images):
                    _add(
                        connection, "images", run=run, series=series.name, position=place, version=image.version,
                        is_baseline=image.version == series.baseline,
                    )  # fmt: skip
            histories = {}
            for row in plan.rows:
                history = _history(connection, str(columns["matrix"]), row)
                histories[row.series.name, row.lane, row.variant] = history
                for cell in row.cells:
                    if entry := told.cells.get(cell.id):
                        _add_cell(connection, entry, run=run, history=history, version=cell.image.version)
            _add_findings(connection, told, histories, run=run)


def _history(connection: sqlite3.Connection, matrix: str, row: VersionRow) -> int:
    """Return the id of a row's history, adding it if it is new. The history must be concluded again."""
    lane, variant = row.lane, row.variant
    params = json.dumps(dict(variant.params))
    if len(params) > MOST_LETTERS:
        raise UsageError(f"params longer than {MOST_LETTERS:,} characters")
    names = (row.series.name, lane.host.name, lane.gpu, variant.scenario.name, params, str(lane), str(variant))
    found = connection.execute(
        "INSERT INTO histories (matrix, series, host, gpu, scenario, params, lane, variant) VALUES (?,?,?,?,?,?,?,?)"
        " ON CONFLICT (matrix, series, lane, scenario, params) DO UPDATE SET concluded = NULL RETURNING id",
        (matrix, *map(_stored, names)),
    ).fetchone()
    return int(found[0])


def _add_cell(connection: sqlite3.Connection, entry: CellEntry, *, run: int, history: int, version: str) -> None:
    """Add a cell with the signals that say something, in their units, as reports show them."""
    verdict = entry.verdict
    cell = _add(
        connection, "cells", run=run, history=history, version=version, digest=entry.digest, verdict=verdict.verdict,
        state=verdict.state, why="; ".join(dict.fromkeys(filter(None, (entry.problem, verdict.why)))),
        trials=verdict.trials, failed=verdict.failed, first_launch=entry.first_launch, taken_over=entry.taken_over,
        provisional=verdict.provisional, per=verdict.per, layer=verdict.layer,
    )  # fmt: skip
    figures = (
        (cell, name, signal.seen, signal.value, *(signal.ci or (None, None)), signal.limit,
         known_effect(name, signal.visible))
        for name, signal in verdict.signals.items() if signal.seen != "none" or signal.value is not None
    )  # fmt: skip
    connection.executemany(
        "INSERT INTO figures VALUES (?, ?, ?, ?, ?, ?, ?, ?)", (tuple(map(_stored, row)) for row in figures)
    )


def _add_findings(
    connection: sqlite3.Connection, told: ResultFile, histories: Mapping[tuple[str, Lane, Variant], int], *, run: int
) -> None:
    for number, finding in enumerate(told.findings, start=1):
        effect = finding.effect
        low, high = (effect and effect.ci) or (None, None)
        _add(
            connection, "findings", run=run, number=number, signal=finding.metric, kind=finding.kind,
            history=histories[finding.series, finding.lane, finding.variant], before=finding.before,
            after=finding.after, verdict=finding.verdict, effect=effect and effect.value, unit=effect and effect.unit,
            low=low, high=high, p=finding.p, confirmed=finding.confirmed, consequence_of=finding.consequence_of,
        )  # fmt: skip
    for number, cause in enumerate((cause for cause in told.causes if cause.sentence), start=1):
        _add(connection, "causes", run=run, number=number, findings=cause.findings, sentence=cause.sentence)


def _add(connection: sqlite3.Connection, table: str, **columns: object) -> int:
    """Add a row to a table; return its id."""
    names, marks = ", ".join(f'"{name}"' for name in columns), ", ".join("?" * len(columns))
    values = list(map(_stored, columns.values()))
    return connection.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", values).lastrowid or 0


def _stored(value: object) -> object:
    """Return a value as SQLite can store it: of a text the first MOST_LETTERS characters in valid Unicode, None for a
    number that is not finite, and several values as JSON.
    """
    if isinstance(value, str):
        return value[:MOST_LETTERS].encode(errors="replace").decode()
    if isinstance(value, tuple):
        return json.dumps([_stored(one) for one in value[:MOST_LETTERS]])
    return None if isinstance(value, float) and not math.isfinite(value) else value
