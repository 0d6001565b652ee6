"""Locks items of a folder that several machines may share; the kernel releases a lock when its holder ends."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from harness.errors import InfrastructureError
from harness.file_locks import try_lock
from harness.model.watching import Say, Waiting
from harness.run.waiting import BEAT_S

REMEDY = "free some space there, or set HARNESS_CACHE (on a cluster, `images:`) to a writable folder"


def reason_of(error: OSError) -> str:
    """Return the file, if known, and the reason for an error as text."""
    place = f"{error.filename}: " if error.filename else ""
    return f"{place}{error.strerror or error}"


def _open_lock(path: Path) -> IO[str]:
    """Open the lock file of `path`, which is next to it. NFS requires a readable file for a shared lock and a writable
    one for an exclusive lock."""
    return path.with_suffix(".lock").open("a+")


@contextmanager
def locked(path: Path, *, shared: bool = False, say: Say, waiting: str) -> Iterator[None]:
    """Hold the lock of `path` during the block. Report `waiting` until it is free. Raises OSError."""
    with _open_lock(path) as lock:
        while not try_lock(lock, shared=shared):
            say(Waiting(waiting))
            time.sleep(BEAT_S)
        yield


@contextmanager
def protected(path: Path, *, what: str, is_there: Callable[[], bool]) -> Iterator[None]:
    """Protect `path` from removal during the block. `what`: the kind of item, for messages. Raises InfrastructureError
    if it has just been removed, or if its lock cannot be opened.
    """
    try:
        lock = _open_lock(path)
    except OSError as error:
        raise InfrastructureError(f"{reason_of(error)}; {REMEDY}") from error
    with lock:
        if not try_lock(lock, shared=True) or not is_there():
            raise InfrastructureError(
                f"{path}: another run removed this {what} (`harness clean --images`); run again: trials are kept"
            )
        yield


@contextmanager
def removable(path: Path, *, say: Say) -> Iterator[bool]:
    """Hold the lock of `path` during the block, which removes `path`, and yield True. If another run uses `path`,
    report that and yield False.

    Raises InfrastructureError for an OSError in the block.
    """
    try:
        with _open_lock(path) as lock:
            is_free = try_lock(lock)
            if not is_free:
                say(f"{path} is in use by another run; left alone")
            yield is_free
    except OSError as error:
        raise InfrastructureError(f"{reason_of(error)}; remove it by hand") from error
