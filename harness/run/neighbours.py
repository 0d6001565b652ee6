"""Sweeps of other kinds on this machine: processes and containers share its processors, and disturb step times.

Each sweep that uses this machine holds a shared lock on a file of its kind, which the kernel frees when it ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import platform
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

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
            number = os.open(place / _name(is_process), os.O_RDWR | os.O_CREAT, 0o666)
            held.callback(os.close, number)
            fcntl.flock(number, fcntl.LOCK_SH | fcntl.LOCK_NB)
        yield


def _name(is_process: bool) -> str:
    return f"harness-sweeps-{KINDS[is_process]}"


def _is_held(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # nobody ever was there, or it is not ours to read
        return False
    return False
