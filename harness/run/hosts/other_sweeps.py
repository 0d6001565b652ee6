"""Detects sweeps of the other kind on this machine: trials in processes and trials in containers disturb each other's
step times, and no lease covers both.

Each sweep that uses this machine holds a shared lock on the file of its kind. The kernel releases it when the sweep
ends.
"""

from __future__ import annotations

import contextlib
import os
import platform
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from harness.file_locks import try_lock
from harness.model.watching import Say
from harness.safe_files import opened

TRIES = 5
KINDS = {True: "process", False: "container"}
NOTE = (
    "{host}: another sweep runs {other} trials on this machine at the same time; step times of both may be disturbed: "
    "run them one after the other before relying on small changes"
)


@contextlib.contextmanager
def announced(
    host: str, facts: Mapping[str, Any], *, is_process: bool, note: Say, folder: Path | None = None
) -> Iterator[None]:
    """Announce this sweep to others on this machine during the block; call `note` if a sweep of the other kind runs.

    Do nothing if the engine's `facts` name another machine, or if the lock file cannot be opened.
    """
    place = folder or Path(tempfile.gettempdir())
    if not is_process and facts.get("name") != platform.node():
        yield
        return
    if _is_held(place / _name(is_process=not is_process)):
        note(NOTE.format(host=host, other=KINDS[not is_process]))
    with contextlib.ExitStack() as held:
        with contextlib.suppress(OSError):
            path = place / _name(is_process=is_process)
            with contextlib.suppress(FileExistsError):  # it may be another user's
                os.close(opened(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644))
            number = opened(path, os.O_RDONLY)
            held.callback(os.close, number)
            _lock_with_others(number)
        yield


def _lock_with_others(number: int) -> None:
    """Take the shared lock. Retry a few times: a process that only checks holds the exclusive lock for a moment."""
    for _ in range(TRIES):
        if try_lock(number, shared=True):
            return
        time.sleep(0.05)


def _name(*, is_process: bool) -> str:
    return f"harness-sweeps-{KINDS[is_process]}"


def _is_held(path: Path) -> bool:
    try:
        with os.fdopen(opened(path, os.O_RDONLY), "rb") as file:
            return not try_lock(file)
    except OSError:  # no sweep ever ran here, or the file is not readable
        return False
