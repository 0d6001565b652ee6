"""Numbers that test processes on one machine reserve for themselves."""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def free_number(folder: Path, *, most: int, taken: Exception) -> Iterator[int]:
    """Hold the lowest free number below `most` in this folder. Raises `taken` if there is none."""
    folder.mkdir(exist_ok=True)
    for number in range(1, most):
        with (folder / f"{number}.lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            yield number
            return
    raise taken
