"""The exclusive lease of a process host: a locked file. The kernel frees it when its holder ends, for whatever reason.

The file is never removed: otherwise one of two waiting processes could lock a file that no longer exists.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from pathlib import Path

from harness import file_locks
from harness.errors import InfrastructureError, Interrupted
from harness.model.watching import Say
from harness.run.hosts import owner
from harness.run.waiting import BEAT_S
from harness.safe_files import opened

NAME = "harness-lease"
HOLDER_BYTES = 300


class HeldLock:
    """A lock that this process holds; it cannot be lost while the process lives."""

    def check(self) -> None:
        """Do nothing: the lock cannot have been lost."""


@contextlib.contextmanager
def held(folder: Path, *, place: str, say: Say, stopped: Callable[[], bool]) -> Iterator[HeldLock]:
    """Hold this machine during the block, against all users that have the same `folder` for temporary files.

    While another process has it, wait and report which. Raises Interrupted once `stopped`, and InfrastructureError.
    """
    path = folder / NAME
    try:
        number = _opened(path)
    except OSError as error:
        why = (
            "is a link or a pipe, and no lease"
            if error.errno in (errno.ELOOP, errno.ENXIO, errno.EINVAL)
            else error.strerror
        )
        text = f"{place}: {path}: {why}; remove it, or set TMPDIR to another folder"
        raise InfrastructureError(text) from error
    with os.fdopen(number, "r+b", buffering=0) as file:
        _lock(number, say=say, stopped=stopped)
        since = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
        file.truncate(0)
        file.write(f"{owner.in_words()}, since {since}".encode())
        yield HeldLock()


def _opened(path: Path) -> int:
    """Return its file descriptor. Without O_CREAT where it is there: kernels forbid that for files of other users.

    The folder is open to all users, and what is written goes into the file: one under another name as well (a link) is
    not ours to write to, and a pipe would be waited for. Who made the file does not matter: the lease is of all users.
    """
    with contextlib.suppress(FileNotFoundError):
        return _of_one_name(opened(path, os.O_RDWR))
    with contextlib.suppress(FileExistsError):  # another process made it just now
        number = opened(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        os.fchmod(number, 0o666)  # other users of this machine wait for it too
        return number
    return _of_one_name(opened(path, os.O_RDWR))


def _of_one_name(number: int) -> int:
    """Return the descriptor of a file that has one name; close any other and raise OSError."""
    if os.fstat(number).st_nlink == 1:
        return number
    os.close(number)
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))


def _told(number: int) -> str:
    """Return what the holder wrote, in one line: any user of this machine may have written it."""
    text = os.pread(number, HOLDER_BYTES, 0).decode(errors="replace")
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def _lock(number: int, *, say: Say, stopped: Callable[[], bool]) -> None:
    while not stopped():
        if file_locks.try_lock(number):
            return
        say(f"waiting: {_told(number)} uses this host")
        time.sleep(BEAT_S)
    raise Interrupted("interrupted")


def holder(folder: Path) -> str | None:
    """Return who has the lock, in words; None if nobody does."""
    try:
        number = _of_one_name(opened(folder / NAME, os.O_RDONLY))
    except OSError:  # nobody ever had it, or it is not ours to read: `held` tells that
        return None
    with os.fdopen(number, "rb"):
        return None if file_locks.try_lock(number, shared=True) else _told(number)
