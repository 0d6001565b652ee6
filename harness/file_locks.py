"""Locks whole files; the kernel frees a lock when its holder ends. Windows has no such locks, so it can only show
reports.
"""

from __future__ import annotations

import errno
from typing import IO

try:
    import fcntl
except ImportError:
    fcntl = None  # type: ignore[assignment]

NO_LOCKS = (
    "this system has no file locks, which a run needs: run it on Linux or macOS, or in WSL; reports can be read here"
)


def are_known() -> bool:
    """Return whether this system has file locks."""
    return fcntl is not None


def try_lock(file: int | IO[str] | IO[bytes], *, shared: bool = False) -> bool:
    """Take the lock if it is free; return whether it was. Raises OSError if the system or file system has no locks."""
    if fcntl is None:
        raise OSError(errno.ENOLCK, NO_LOCKS)
    try:
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def lock(file: int) -> None:
    """Wait for the lock and take it. Raises OSError if the system or the file system has no locks."""
    if fcntl is None:
        raise OSError(errno.ENOLCK, NO_LOCKS)
    fcntl.flock(file, fcntl.LOCK_EX)
