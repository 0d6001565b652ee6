"""Locks files in a folder that several machines may share; the kernel frees the locks when their holder ends."""

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

REMEDY = "make room there, or set HARNESS_CACHE (`images:` on a Slurm host) to a folder that can be written"


def reason_of(error: OSError) -> str:
    """Return the file and the reason of an error, in words."""
    place = f"{error.filename}: " if error.filename else ""
    return f"{place}{error.strerror or error}"


def _open_lock(path: Path) -> IO[str]:
    """Open the lock file beside `path`. NFS needs it readable for a shared lock and writable for an exclusive one."""
    return path.with_suffix(".lock").open("a+")


@contextmanager
def locked(path: Path, *, shared: bool = False, say: Say, waiting: str) -> Iterator[None]:
    """Hold the lock of `path`. Say `waiting` until it is free. Raises OSError."""
    with _open_lock(path) as lock:
        while not try_lock(lock, shared=shared):
            say(Waiting(waiting))
            time.sleep(BEAT_S)
        yield


@contextmanager
def protected(path: Path, *, what: str, is_there: Callable[[], bool]) -> Iterator[None]:
    """Protect `path` from removal; `what` names it in messages. Raises InfrastructureError if it was just removed, or
    if its lock cannot be opened.
    """
    try:
        lock = _open_lock(path)
    except OSError as error:
        raise InfrastructureError(f"{reason_of(error)}; {REMEDY}") from error
    with lock:
        if not try_lock(lock, shared=True) or not is_there():
            raise InfrastructureError(
                f"{path}: another run removed this {what} (`harness clean --images`); start again: trials are kept"
            )
        yield


@contextmanager
def removable(path: Path, *, say: Say) -> Iterator[bool]:
    """Hold the lock of `path` while it is removed; yield False, and say so, if another run uses it.

    Raises InfrastructureError for an OSError of the block.
    """
    try:
        with _open_lock(path) as lock:
            is_free = try_lock(lock)
            if not is_free:
                say(f"{path} is in use by another run; left alone")
            yield is_free
    except OSError as error:
        raise InfrastructureError(f"{reason_of(error)}; remove it by hand") from error
