"""Brings the index up to date with the runs' directories, one run in one transaction.

If the process is killed, the index holds whole runs, and the next call goes on from there.
"""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path

from harness.errors import UsageError
from harness.index.rows import RunRows, probe_rows, refused_rows, sweep_rows
from harness.model.watching import Say
from harness.store import result_file, saved_probes

MOST_TOLD = 3
_FILES = (result_file.FILE, saved_probes.FILE)


def refresh(connection: sqlite3.Connection, out: Path, *, say: Say) -> None:
    """Add the runs in `out` that are new or changed, and remove those that are gone. A directory that cannot be read
    is remembered with its problem, and `say` is told once.
    """
    there = dict(_runs(out))
    known = dict(connection.execute("SELECT path, stamp FROM runs"))
    for path in known.keys() - there.keys():
        _remove(connection, path)
    problems = []
    for path in sorted(there.keys(), key=lambda path: Path(path).name):
        if known.get(path) != there[path]:
            problem = _replace(connection, _rows(out, path), path=path, stamp=there[path])
            problems += [f"{path}: {problem}"] if problem else []
    for text in problems[:MOST_TOLD]:
        say(f"not in the index: {text}")
    if len(problems) > MOST_TOLD:
        say(f"not in the index: {len(problems) - MOST_TOLD} more directories; `harness runs` lists them")
    if connection.execute("SELECT 1 FROM histories WHERE stale").fetchone():
        from harness.index.conclusions import conclude  # noqa: PLC0415 - slow, and rarely needed

        conclude(connection)


def _runs(out: Path) -> Iterator[tuple[str, str]]:
    """Yield every run that has come to an end, and the stamp of its files: it changes when they are written anew."""
    for matrix in _folders(out):
        for run in _folders(Path(matrix)):
            if run.name[:1].isdigit():
                stamps = [stamp for name in _FILES if (stamp := _stamp(Path(run) / name))]
                if stamps:
                    yield f"{matrix.name}/{run.name}", " ".join(stamps)


def _folders(path: Path) -> list[os.DirEntry[str]]:
    """Return the folders in a folder, without links; none if it cannot be listed."""
    try:
        with os.scandir(path) as entries:
            return [entry for entry in entries if _is_text(entry.name) and entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []


def _is_text(name: str) -> bool:
    """Return whether a file's name is text: SQLite holds no others."""
    return name.isprintable()


def _stamp(path: Path) -> str:
    try:
        found = path.lstat()
    except OSError:
        return ""
    kind = "" if stat.S_ISREG(found.st_mode) else "!"
    return f"{kind}{path.name[0]}{found.st_mtime_ns}-{found.st_size}-{found.st_ino}"


def _rows(out: Path, path: str) -> RunRows:
    """Return what the index keeps of a run; a directory that cannot be read is a row with its problem."""
    folder = out / path
    began = _began(folder.name)
    try:
        has_result = (folder / result_file.FILE).exists()
        return sweep_rows(folder, began=began) if has_result else probe_rows(folder, began=began)
    except UsageError as error:
        return refused_rows(str(error), began=began)
    except RecursionError:
        return refused_rows("its files are nested too deeply", began=began)


def _began(name: str) -> str:
    """Return the time in a run's name; "" if there is none."""
    try:
        return datetime.strptime(name[:16], "%Y%m%dT%H%M%SZ").replace(tzinfo=timezone.utc).isoformat()
    except ValueError:
        return ""


# ---------------------------------------------------------------- writing


def _remove(connection: sqlite3.Connection, path: str) -> None:
    connection.execute("BEGIN IMMEDIATE")
    _delete(connection, path)
    connection.execute("COMMIT")


def _delete(connection: sqlite3.Connection, path: str) -> None:
    """Remove a run, and mark its histories to be concluded again."""
    connection.execute(
        "UPDATE histories SET stale = 1 WHERE id IN"
        " (SELECT history FROM cells JOIN runs ON runs.id = cells.run WHERE runs.path = ?)",
        (path,),
    )
    connection.execute("DELETE FROM runs WHERE path = ?", (path,))


def _replace(connection: sqlite3.Connection, rows: RunRows, *, path: str, stamp: str) -> str:
    """Write a run in place of what was known of it. Return why it cannot be read, or ""."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        _delete(connection, path)
        _insert(connection, rows, path=path, stamp=stamp)
    except (OverflowError, sqlite3.IntegrityError) as error:
        # A copied run may hold numbers that no column holds, or one cell twice.
        connection.execute("ROLLBACK")
        refused = refused_rows(f"not of this harness: {error}", began=_began(Path(path).name))
        return _replace(connection, refused, path=path, stamp=stamp)
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
        "INSERT INTO causes VALUES (?, ?, ?, ?)",
        ((run, place, *row) for place, row in enumerate(rows.causes, start=1)),
    )


def _history(connection: sqlite3.Connection, matrix: str, row: tuple[object, ...]) -> int:
    """Return the number of a history, and mark it to be concluded again."""
    series, host, gpu, scenario, params, lane, variant = row
    found = connection.execute(
        "INSERT INTO histories (matrix, series, host, gpu, scenario, params, lane, variant) VALUES (?,?,?,?,?,?,?,?)"
        " ON CONFLICT (matrix, series, lane, scenario, params) DO UPDATE SET stale = 1 RETURNING id",
        (matrix, series, host, gpu, scenario, params, lane, variant),
    ).fetchone()
    return int(found[0])
