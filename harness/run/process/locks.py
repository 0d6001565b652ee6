"""Locks of files in a folder that several machines may share; the kernel frees them when their holder ends."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from harness.errors import InfrastructureError
from harness.file_locks import try_lock
from harness.model.watching import Say
from harness.run.waiting import BEAT_S


def open_lock(path: Path) -> IO[str]:
    """Open the lock file beside `path` for reading and writing: NFS needs the first for a shared lock, the second for
    an exclusive one."""
    return path.with_suffix(".lock").open("a+")


@contextmanager
def locked(path: Path, *, shared: bool = False, say: Say, waiting: str) -> Iterator[None]:
    """Hold the lock of `path`. `waiting` is said until it is free. Raises OSError."""
    with open_lock(path) as lock:
        while not try_lock(lock, shared=shared):
            say(waiting)
            time.sleep(BEAT_S)
        yield


@contextmanager
def protected(
    path: Path, *, is_there: Callable[[], bool], gone: str, unusable: Callable[[OSError], str]
) -> Iterator[None]:
    """Protect `path` from removal. Raises InfrastructureError: `gone` if it was just removed, `unusable` if its lock
    cannot be opened.
    """
    try:
        lock = open_lock(path)
    except OSError as error:
        raise InfrastructureError(unusable(error)) from error
    with lock:
        if not try_lock(lock, shared=True) or not is_there():
            raise InfrastructureError(gone)
        yield
