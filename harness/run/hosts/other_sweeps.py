"""Sweeps of other kinds on this machine: processes and containers share its processors, and disturb step times.

Each sweep that uses this machine holds a shared lock on a file of its kind, which the kernel frees when it ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import platform
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

TRIES = 5
KINDS = {True: "process", False: "container"}
NOTE = (
    "{host}: another sweep runs {other} trials on this machine at the same time; step times of both may be disturbed: "
    "run them one after the other before relying on small changes"
)


@contextlib.contextmanager
def announced(
    host: str, facts: Mapping[str, Any], *, is_process: bool, note: Callable[[str], None], folder: Path | None = None
) -> Iterator[None]:
    """Tell other sweeps on this machine that this one is here, and `note` one of the other kind that is. Nothing is
    done for a host on another machine, by its engine's `facts`, or where no such file can be had.
    """
    place = folder or Path(tempfile.gettempdir())
    if not is_process and facts.get("name") != platform.node():
        yield
        return
    if _is_held(place / _name(not is_process)):
        note(NOTE.format(host=host, other=KINDS[not is_process]))
    with contextlib.ExitStack() as held:
        with contextlib.suppress(OSError):
            number = _opened(place / _name(is_process))
            held.callback(os.close, number)
            _lock_with_others(number)
        yield


def _opened(path: Path) -> int:
    """Its file descriptor, to read: another user may have made it. No link is followed, and no pipe waited for."""
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644))
    return os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)


def _lock_with_others(number: int) -> None:
    """Somebody who only looks holds it for a moment."""
    for _ in range(TRIES):
        try:
            return fcntl.flock(number, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(0.05)
    return None


def _name(is_process: bool) -> str:
    return f"harness-sweeps-{KINDS[is_process]}"


def _is_held(path: Path) -> bool:
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # nobody ever was there, or it is not ours to read
        return False
    return False
