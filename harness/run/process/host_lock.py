"""The exclusive lease of a process host: a locked file. The kernel frees it when its holder ends, for whatever reason.

The file is never removed: otherwise one of two waiting processes could lock a file that no longer exists.
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
"""Most bytes of the holder's description that are read from the file."""


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
        text = f"{place}: {path}: {error.strerror}; remove it, or set TMPDIR to another folder"
        raise InfrastructureError(text) from error
    with os.fdopen(number, "r+b", buffering=0) as file:
        _lock(number, say=say, stopped=stopped)
        since = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
        file.truncate(0)
        file.write(f"{owner.in_words()}, since {since}".encode())
        yield HeldLock()


def _opened(path: Path) -> int:
    """Return a descriptor. An existing file is opened without O_CREAT: kernels forbid that for other users' files."""
    with contextlib.suppress(FileNotFoundError):
        return os.open(path, os.O_RDWR)
    with contextlib.suppress(FileExistsError):  # another process has just made it
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
    """Return the holder of the lock, in words; None if it is free."""
    try:
        file = (folder / NAME).open("rb")
    except OSError:  # never held, or not readable: `held` reports that
        return None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return file.read(HOLDER_BYTES).decode(errors="replace")
        return None
