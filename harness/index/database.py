"""Opens the index. Its file is checked before anything in it is used, and is made anew if it cannot be used."""

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
from harness.index.queries import OpenIndex
from harness.index.schema import SCHEMA, TABLES
from harness.model.watching import Say
from harness.safe_files import opened

FILE = "index.sqlite"
LOCK = "index.lock"
BUSY_S = 20.0
_BESIDE = ("", "-wal", "-shm", "-journal")
T = TypeVar("T")


class _Unusable(Exception):
    """Raised for a file that is not an index of this format. It is set aside and made anew; the text says why."""


def with_index(out: Path, ask: Callable[[OpenIndex], T], *, say: Say, rebuild: bool = False) -> T:
    """Bring the index of the runs in `out` up to date, and return the answer of `ask` from it.

    An index that is damaged, or of an older format, is set aside and made anew, as `say` reports. One that cannot be
    written to (a folder of somebody else) is made in memory. Raises InfrastructureError for one that another process
    holds for too long or that is not a regular file, UsageError for one of a newer harness and where `out` is missing.
    """
    if not out.is_dir():
        raise UsageError(
            f"{out}: no such folder; sweeps keep their runs there: run one first, or name another folder with --in"
        )
    path = out / FILE
    seen = _inode(path)
    try:
        if rebuild:
            _set_aside(path, seen, "made anew, as asked", say=say)
        try:
            return _ask(path, ask, say=say)
        except (_Unusable, sqlite3.DatabaseError) as error:
            if not _is_damage(error):
                raise
            _set_aside(path, seen or _inode(path), f"{error}; it is made anew from the runs", say=say)
            return _ask(path, ask, say=say)
    except (_Unusable, sqlite3.DatabaseError) as error:
        if "locked" in str(error):
            text = f"another process has held it for {BUSY_S:.0f} s; try again"
            raise InfrastructureError(f"{path}: {text}") from error
        to_do = "remove it: it is made anew from the runs" if _is_damage(error) else "make room"
        raise InfrastructureError(f"{path}: {error}; {to_do}") from error


def _is_damage(error: Exception) -> bool:
    """Return whether a new file is the cure. Python raises DatabaseError itself only for a damaged file; locks, a full
    disk and the like are subclasses of it.
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
        say(f"{path}: cannot be written to; the index is made in memory, which takes longer")
    connection = sqlite3.connect(path if is_writable else ":memory:", timeout=BUSY_S, isolation_level=None)
    try:
        # A file that somebody copied here may hold anything: its triggers and views run nothing, its pages are checked.
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
    """Raise InfrastructureError for anything but regular files: SQLite follows links and waits for pipes."""
    for end in _BESIDE:
        beside = path.with_name(f"{path.name}{end}")
        with suppress(FileNotFoundError):
            if not stat.S_ISREG(beside.lstat().st_mode):
                raise InfrastructureError(f"{beside}: not a regular file; remove it: it is made anew from the runs")


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    """Make the tables, or make sure that they are the harness's. Raises _Unusable and UsageError."""
    if _is_ours(connection, path):
        return
    connection.execute("PRAGMA journal_mode = WAL")  # some network file systems have none: then it stays as it was
    connection.execute("BEGIN IMMEDIATE")
    if not _is_ours(connection, path):  # another process may have been faster
        for table in TABLES:
            connection.execute(table)
        connection.execute(f"PRAGMA user_version = {SCHEMA}")
    connection.execute("COMMIT")


def _is_ours(connection: sqlite3.Connection, path: Path) -> bool:
    """Return whether the harness's tables are there; False for a new file. They are compared word by word, so that a
    copied file with triggers or views of its own is refused.
    """
    format_ = connection.execute("PRAGMA user_version").fetchone()[0]
    there = [row[0] for row in connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL")]
    if not there and format_ == 0:
        return False
    if format_ > SCHEMA:
        raise UsageError(
            f"{path}: of a newer harness (format {format_}; this one knows {SCHEMA}); update this harness, or remove "
            "the file: it is made anew from the runs"
        )
    if format_ < SCHEMA:
        raise _Unusable(f"of an older harness (format {format_}, now {SCHEMA})")
    if sorted(there) != sorted(TABLES):
        raise _Unusable("has other tables than the harness makes")
    return True


def _inode(path: Path) -> int | None:
    try:
        return path.lstat().st_ino
    except FileNotFoundError:
        return None


def _set_aside(path: Path, inode: int | None, why: str, *, say: Say) -> None:
    """Rename the file to `index.sqlite.old`, in place of an older one, unless another process has done so since it was
    seen with that inode.
    """
    try:
        handle = opened(path.with_name(LOCK), os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise InfrastructureError(f"{path.with_name(LOCK)}: cannot be made: {error.strerror}; make room") from error
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
