"""Writes runs into the index, one transaction per run."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from harness.errors import UsageError
from harness.index.run_rows import RunRows, killed_rows, probe_rows, refused_rows, sweep_rows
from harness.store import began_at, result_file
from harness.store.saved_probes import FILE as PROBES


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
    return rows.problem


def _insert(connection: sqlite3.Connection, rows: RunRows, *, path: str, stamp: str) -> None:
    matrix = path.partition("/")[0]
    run = connection.execute(
        "INSERT INTO runs (path, matrix, kind, started, duration_s, verdict, cells, bad, findings, warnings, problem,"
        " stamp) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (path, matrix, *rows.run, stamp),
    ).lastrowid
    numbers = [_history(connection, matrix, history) for history in rows.histories]
    connection.executemany("INSERT INTO images VALUES (?, ?, ?, ?, ?)", ((run, *row) for row in rows.images))
    for cell in rows.cells:
        number = connection.execute(
            "INSERT INTO cells (run, history, version, digest, verdict, state, why, trials, failed, first_launch,"
            " taken_over, provisional, layer) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (run, numbers[cell.history], *cell.row),
        ).lastrowid
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
