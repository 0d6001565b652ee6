"""Opens the index: checks its file before using it, and rebuilds the file if it is unusable."""

from __future__ import annotations

import json
import os
import sqlite3
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import TypeVar

from harness.errors import InfrastructureError, UsageError
from harness.history.index import OpenIndex
from harness.model.watching import Say

FILE = "index.sqlite"
BUSY_S = 20.0
_BESIDE = ("", "-wal", "-shm", "-journal")
_ODD = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""What reading an index raises if its tables hold what this harness does not write."""
T = TypeVar("T")


def with_index(out: Path, ask: Callable[[OpenIndex], T], *, say: Say, rebuild: bool = False) -> T:
    """Bring the index of the runs in `out` up to date, and return what `ask` returns for it.

    A damaged index, or one in an older format, is set aside and rebuilt, which `say` reports. If the index cannot be
    written to (another user's folder), it is built in memory. Raises InfrastructureError if another process keeps the
    index locked for BUSY_S or if it is not a regular file; UsageError if a newer harness wrote it or `out` is missing.
    """
    if not out.is_dir():
        raise UsageError(
            f"{out}: no such folder; sweeps keep their runs there: run one first, or name another folder with --in"
        )
    path = out / FILE
    seen = _inode(path)
    try:
        if rebuild:
            _set_aside(path, seen, "rebuilt, as requested", say=say)
        try:
            return _ask(path, ask, say=say)
        except (sqlite3.DatabaseError, *_ODD) as error:
            why: object = error
            if isinstance(error, _ODD):
                why = "it holds what this harness does not write"
            elif not _is_damage(error):
                raise
            _set_aside(path, seen or _inode(path), f"{why}; it is rebuilt from the runs", say=say)
            return _ask(path, ask, say=say)  # what a new index raises is a fault of the harness, and shown as one
    except sqlite3.DatabaseError as error:
        to_do = "remove it; it will be rebuilt from the runs" if _is_damage(error) else "free some disk space"
        told = f"another process has kept it locked for {BUSY_S:.0f} s; try again"
        raise InfrastructureError(f"{path}: {told if 'locked' in str(error) else f'{error}; {to_do}'}") from error


def _is_damage(error: Exception) -> bool:
    """Return whether rebuilding the file would help. `sqlite3` and this module raise DatabaseError itself only for a
    damaged or a foreign file; for locks, a full disk and the like `sqlite3` raises subclasses.
    """
    return type(error) is sqlite3.DatabaseError


def _ask(path: Path, ask: Callable[[OpenIndex], T], *, say: Say) -> T:
    with _connected(path, say=say) as connection:
        refresh(connection, path.parent, say=say)
        return ask(OpenIndex(connection))


@contextmanager
def _connected(path: Path, *, say: Say) -> Iterator[sqlite3.Connection]:
    is_writable = os.access(path.parent, os.W_OK) and (not path.exists() or os.access(path, os.W_OK))
    if is_writable:
        for end in _BESIDE:  # SQLite follows links and waits for pipes
            beside = path.with_name(f"{path.name}{end}")
            with suppress(FileNotFoundError):
                if not stat.S_ISREG(beside.lstat().st_mode):
                    raise InfrastructureError(
                        f"{beside}: not a regular file; remove it; it will be rebuilt from the runs"
                    )
    else:
        say(f"{path}: not writable; the index is built in memory, which takes longer")
    connection = sqlite3.connect(path if is_writable else ":memory:", timeout=BUSY_S, isolation_level=None)
    try:
        # A file copied from elsewhere may hold anything: keep its triggers and views from running, and check its pages.
        for setting in ("trusted_schema = OFF", "cell_size_check = ON", "mmap_size = 0"):
            connection.execute(f"PRAGMA {setting}")
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA synchronous = NORMAL")
        _prepare(connection, path)
        yield connection
    finally:
        connection.close()


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    """Create the tables in a new file, or check that they are the harness's. Raises DatabaseError and UsageError."""
    if _is_ours(connection, path):
        return
    connection.execute("PRAGMA journal_mode = WAL")  # has no effect on a network file system without WAL
    with connection:
        connection.execute("BEGIN IMMEDIATE")
        if not _is_ours(connection, path):  # another process may have created them meanwhile
            for table in TABLES:
                connection.execute(table)
            connection.execute(f"PRAGMA user_version = {SCHEMA}")


def _is_ours(connection: sqlite3.Connection, path: Path) -> bool:
    """Return whether the file holds the harness's tables; False for a new file. Their SQL is compared word for word, so
    that a copied file with extra triggers or views is refused. Raises DatabaseError and UsageError.
    """
    format_ = connection.execute("PRAGMA user_version").fetchone()[0]
    there = [row[0] for row in connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL")]
    if not there and format_ == 0:
        return False
    if format_ > SCHEMA:
        raise UsageError(
            f"{path}: written by a newer harness (format {format_}; this one supports {SCHEMA}); update this harness, "
            "or remove the file; it will be rebuilt from the runs"
        )
    if sorted(there) != sorted(TABLES):
        raise sqlite3.DatabaseError("its tables are not those of the harness")
    return True


def _inode(path: Path) -> int | None:
    try:
        return path.lstat().st_ino
    except FileNotFoundError:
        return None


def _set_aside(path: Path, inode: int | None, why: str, *, say: Say) -> None:
    """Rename the file to `index.sqlite.old`, replacing any earlier one. Do nothing if the file no longer has `inode`,
    because another process has already set it aside. Raises InfrastructureError.
    """
    if inode is None or _inode(path) != inode:
        return
    say(f"{path}: {why}")
    try:
        with suppress(FileNotFoundError):  # another process was quicker
            path.replace(path.with_name(f"{path.name}.old"))
            for end in _BESIDE[1:]:
                path.with_name(f"{path.name}{end}").unlink(missing_ok=True)
    except OSError as error:
        raise InfrastructureError(f"{path}: cannot be set aside: {error.strerror}; remove it") from error


# ---------------------------------------------------------------- filling


MOST_TOLD = 3
PROBES = "probes.json"
FILES = ("result.json", PROBES)
"""The files that mark a directory as a finished run, and whose stamps show that the run has changed."""
PLAN = "plan.json"
"""The file that marks a directory without any of FILES as a run that was killed or is still going on."""


def refresh(connection: sqlite3.Connection, out: Path, *, say: Say) -> None:
    """Add the runs in `out` that are new or changed, and remove those that no longer exist. A directory that cannot be
    read is stored with its problem, and reported once through `say`.
    """
    known = dict(connection.execute("SELECT path, stamp FROM runs"))
    there = dict(_runs(out, known))
    changed = sorted((path for path in there if known.get(path) != there[path]), key=lambda path: Path(path).name)
    problems = []
    if changed or known.keys() - there.keys():
        from harness.history import writing  # noqa: PLC0415 - slow, and needed only where a run is new

        for path in known.keys() - there.keys():
            writing.remove(connection, path)
        for path in changed:
            if problem := writing.replace(connection, out, path, stamp=there[path]):
                problems.append(f"{path}: {problem}")
    for text in problems[:MOST_TOLD]:
        say(f"not in the index: {text}")
    if len(problems) > MOST_TOLD:
        say(f"not in the index: {len(problems) - MOST_TOLD} more directories; `harness runs` lists them")
    stale = connection.execute("SELECT id, matrix, series FROM histories WHERE concluded IS NULL").fetchall()
    if stale:
        _conclude(connection, stale)


def _conclude(connection: sqlite3.Connection, stale: Sequence[tuple[int, str, str]]) -> None:
    """Conclude again what new or removed runs may have changed: the lives and the drifts of these histories, each with
    its matrix and series.
    """
    from harness.history.conclusions import drifts_of, lives_of  # noqa: PLC0415 - slow, and rarely needed

    index = OpenIndex(connection)
    versions = cache(index.versions)
    for history, matrix, series in stale:
        with connection:
            connection.execute("BEGIN IMMEDIATE")
            measured = index.measurements(histories=[history])
            found = [finding for _, finding in index.findings(histories=[history])]
            lives = lives_of(measured, found, versions(matrix, series))
            drifts = drifts_of(measured, versions(matrix, series))
            kept = json.dumps({"lives": list(map(asdict, lives)), "drifts": list(map(asdict, drifts))})
            connection.execute("UPDATE histories SET concluded = ? WHERE id = ?", (kept, history))


def _runs(out: Path, known: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the path of every run that has ended, and a stamp of its files, which changes when they are rewritten, or
    made readable. `known` are the stamps of the runs in the index.
    """
    for matrix in _folders(out):
        for run in _folders(matrix):
            if run.name[:1].isdigit():
                path = f"{matrix.name}/{run.name}"
                stamps = [stamp for name in FILES if (stamp := _stamp(run.path, name))]
                plan = "" if stamps else _stamp(run.path, PLAN)
                if stamps or (plan and (known.get(path) == plan or _was_killed(run.path))):
                    yield path, " ".join(stamps) or plan


def _was_killed(run: str) -> bool:
    """Return whether a run without a result has stopped running."""
    from harness.store import in_use  # noqa: PLC0415 - slow, and needed once for each such run

    try:
        return not in_use(Path(run))
    except OSError:  # it was removed meanwhile
        return False


def _folders(path: os.PathLike[str]) -> list[os.DirEntry[str]]:
    """Return the subfolders of a folder, without symbolic links; [] if the folder cannot be listed."""
    try:
        with os.scandir(path) as entries:
            # SQLite can store only names that are valid text.
            return [entry for entry in entries if entry.name.isprintable() and entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []


def _stamp(folder: str, name: str) -> str:
    try:
        found = os.lstat(f"{folder}/{name}")  # creating thousands of Path objects takes longer than the system calls
    except PermissionError:  # the run is there, and its problem is told
        return f"?{name[0]}"
    except OSError:
        return ""
    kind = "" if stat.S_ISREG(found.st_mode) else "!"
    return f"{kind}{name[0]}{found.st_ctime_ns}-{found.st_size}-{found.st_ino}"


# ---------------------------------------------------------------- index schema


SCHEMA = 1

TABLES = (
    """CREATE TABLE runs (
        id INTEGER PRIMARY KEY, path TEXT UNIQUE, matrix TEXT, kind TEXT, started TEXT, duration_s REAL, verdict TEXT,
        cells INTEGER, bad INTEGER, findings INTEGER, warnings TEXT, problem TEXT, stamp TEXT
    )""",
    """CREATE TABLE histories (
        id INTEGER PRIMARY KEY, matrix TEXT, series TEXT, host TEXT, gpu TEXT, scenario TEXT, params TEXT, lane TEXT,
        variant TEXT, concluded TEXT, UNIQUE (matrix, series, lane, scenario, params)
    )""",
    """CREATE TABLE images (
        run INTEGER REFERENCES runs ON DELETE CASCADE, series TEXT, position INTEGER, version TEXT, is_baseline INTEGER,
        PRIMARY KEY (run, series, position)
    ) WITHOUT ROWID""",
    """CREATE TABLE cells (
        id INTEGER PRIMARY KEY, run INTEGER REFERENCES runs ON DELETE CASCADE, history INTEGER REFERENCES histories,
        version TEXT, digest TEXT, verdict TEXT, state TEXT, why TEXT, trials INTEGER, failed INTEGER,
        first_launch TEXT, taken_over INTEGER, provisional INTEGER, per TEXT, layer TEXT
    )""",
    "CREATE INDEX cells_by_history ON cells (history, version)",
    "CREATE INDEX cells_by_run ON cells (run)",
    """CREATE TABLE figures (
        cell INTEGER REFERENCES cells ON DELETE CASCADE, signal TEXT, seen TEXT, value REAL, low REAL, high REAL,
        "limit" REAL, visible REAL, PRIMARY KEY (cell, signal)
    ) WITHOUT ROWID""",
    """CREATE TABLE findings (
        run INTEGER REFERENCES runs ON DELETE CASCADE, number INTEGER, history INTEGER REFERENCES histories,
        signal TEXT, kind TEXT, before TEXT, after TEXT, verdict TEXT, effect REAL, unit TEXT, low REAL, high REAL,
        p REAL, confirmed INTEGER, consequence_of TEXT, PRIMARY KEY (run, number)
    ) WITHOUT ROWID""",
    "CREATE INDEX findings_by_history ON findings (history)",
    """CREATE TABLE causes (
        run INTEGER REFERENCES runs ON DELETE CASCADE, number INTEGER, findings TEXT, sentence TEXT,
        PRIMARY KEY (run, number)
    ) WITHOUT ROWID""",
)
