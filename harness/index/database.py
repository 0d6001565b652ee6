"""Opens the index: checks its file before using it, and rebuilds the file if it is unusable."""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from harness import file_locks
from harness.errors import InfrastructureError, UsageError
from harness.index.filling import refresh
from harness.index.index_schema import SCHEMA, TABLES
from harness.index.queries import OpenIndex
from harness.model.watching import Say
from harness.safe_files import opened

FILE = "index.sqlite"
LOCK = "index.lock"
BUSY_S = 20.0
_BESIDE = ("", "-wal", "-shm", "-journal")
T = TypeVar("T")


class _Unusable(Exception):
    """Raised for a file that is not an index of this format; the message says why. The caller rebuilds the file."""


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
        except (_Unusable, sqlite3.DatabaseError) as error:
            if not _is_damage(error):
                raise
            _set_aside(path, seen or _inode(path), f"{error}; it is rebuilt from the runs", say=say)
            return _ask(path, ask, say=say)
    except (_Unusable, sqlite3.DatabaseError) as error:
        if "locked" in str(error):
            text = f"another process has kept it locked for {BUSY_S:.0f} s; try again"
            raise InfrastructureError(f"{path}: {text}") from error
        to_do = "remove it; it will be rebuilt from the runs" if _is_damage(error) else "free some disk space"
        raise InfrastructureError(f"{path}: {error}; {to_do}") from error


def _is_damage(error: Exception) -> bool:
    """Return whether rebuilding the file would help. `sqlite3` raises DatabaseError itself only for a damaged file; for
    locks, a full disk and the like it raises subclasses.
    """
    return type(error) in (_Unusable, sqlite3.DatabaseError)


def _ask(path: Path, ask: Callable[[OpenIndex], T], *, say: Say) -> T:
    with _connected(path, say=say) as connection:
        index = OpenIndex(connection)
        refresh(connection, path.parent, say=say)
        return ask(index)


@contextmanager
def _connected(path: Path, *, say: Say) -> Iterator[sqlite3.Connection]:
    is_writable = os.access(path.parent, os.W_OK) and (not path.exists() or os.access(path, os.W_OK))
    if is_writable:
        _refuse_links(path)
    else:
        say(f"{path}: not writable; the index is built in memory, which takes longer")
    connection = sqlite3.connect(path if is_writable else ":memory:", timeout=BUSY_S, isolation_level=None)
    try:
        # A file copied from elsewhere may hold anything: keep its triggers and views from running, and check its pages.
        for pragma in (
            "trusted_schema = OFF",
            "cell_size_check = ON",
            "mmap_size = 0",
            "foreign_keys = ON",
            "synchronous = NORMAL",
        ):
            connection.execute(f"PRAGMA {pragma}")
        _prepare(connection, path)
        yield connection
    finally:
        connection.close()


def _refuse_links(path: Path) -> None:
    """Raise InfrastructureError unless the index and its side files are regular files, because SQLite follows links and
    waits for pipes.
    """
    for end in _BESIDE:
        beside = path.with_name(f"{path.name}{end}")
        with suppress(FileNotFoundError):
            if not stat.S_ISREG(beside.lstat().st_mode):
                raise InfrastructureError(f"{beside}: not a regular file; remove it; it will be rebuilt from the runs")


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    """Create the tables in a new file, or check that they are the harness's. Raises _Unusable and UsageError."""
    if _is_ours(connection, path):
        return
    connection.execute("PRAGMA journal_mode = WAL")  # has no effect on a network file system without WAL
    connection.execute("BEGIN IMMEDIATE")
    if not _is_ours(connection, path):  # another process may have created them meanwhile
        for table in TABLES:
            connection.execute(table)
        connection.execute(f"PRAGMA user_version = {SCHEMA}")
    connection.execute("COMMIT")


def _is_ours(connection: sqlite3.Connection, path: Path) -> bool:
    """Return whether the file holds the harness's tables; False for a new file. Their SQL is compared word for word, so
    that a copied file with extra triggers or views is refused. Raises _Unusable and UsageError.
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
        raise _Unusable("its tables are not those of the harness")
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
    try:
        handle = opened(path.with_name(LOCK), os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        text = f"{path.with_name(LOCK)}: cannot be created: {error.strerror}; free some disk space"
        raise InfrastructureError(text) from error
    try:
        file_locks.lock(handle)
        if inode is not None and _inode(path) == inode:
            say(f"{path}: {why}")
            path.replace(path.with_name(f"{path.name}.old"))
            for end in _BESIDE[1:]:
                path.with_name(f"{path.name}{end}").unlink(missing_ok=True)
    except OSError as error:
        raise InfrastructureError(f"{path}: cannot be set aside: {error.strerror}; remove it") from error
    finally:
        os.close(handle)
