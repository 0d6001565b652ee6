"""Numbers that processes of tests on one machine take for themselves."""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def free_number(folder: Path, *, most: int, taken: Exception) -> Iterator[int]:
    """Hold the lowest number below `most` that nobody else holds in this folder. Raise `taken` if there is none."""
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
