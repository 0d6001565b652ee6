"""The exclusive lease of a process host: a locked file. The kernel frees it when its holder ends, however that happens.

Nobody removes the file: of two who wait for it, one would hold a file that is no longer there.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from pathlib import Path

from harness.errors import InfrastructureError, Interrupted
from harness.run.engine import Say
from harness.run.hosts import owner
from harness.run.waiting import BEAT_S

NAME = "harness-lease"
HOLDER_BYTES = 300


class HeldLock:
    """A lock that is ours; it cannot be lost while we live."""

    def check(self) -> None:
        """Nothing can have happened."""


@contextlib.contextmanager
def held(folder: Path, *, place: str, say: Say, stopped: Callable[[], bool]) -> Iterator[HeldLock]:
    """This machine is ours meanwhile, among all users that have the same `folder` for temporary files.

    Waits for whoever has it, and says who that is; raises Interrupted once `stopped`, and InfrastructureError.
    """
    path = folder / NAME
    try:
        number = _opened(path)
    except OSError as error:
        text = f"{place}: {path}: {error.strerror}; remove it, or set TMPDIR to another folder"
        raise InfrastructureError(text) from error
    with os.fdopen(number, "r+b", buffering=0) as file:
        _lock(number, say=say, stopped=stopped)
        since = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
        file.truncate(0)
        file.write(f"{owner.in_words()}, since {since}".encode())
        yield HeldLock()


def _opened(path: Path) -> int:
    """Its file descriptor. Made without O_CREAT where it is there: kernels forbid that for files of other users."""
    with contextlib.suppress(FileNotFoundError):
        return os.open(path, os.O_RDWR)
    with contextlib.suppress(FileExistsError):  # somebody made it just now
        number = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        os.fchmod(number, 0o666)  # other users of this machine wait for it too
        return number
    return os.open(path, os.O_RDWR)


def _lock(number: int, *, say: Say, stopped: Callable[[], bool]) -> None:
    while not stopped():
        try:
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(number, HOLDER_BYTES, 0).decode(errors="replace")
            say(f"waiting: {holder} uses this host")
            time.sleep(BEAT_S)
        else:
            return
    raise Interrupted("interrupted")


def holder(folder: Path) -> str | None:
    """Who has the lock, in words; None if nobody does."""
    try:
        file = (folder / NAME).open("rb")
    except OSError:  # nobody ever had it, or it is not ours to read: `held` tells that
        return None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return file.read(HOLDER_BYTES).decode(errors="replace")
        return None
