"""Names who uses a host: the owner of a container or a temporary folder, and other sweeps on this machine.

An owner is written `<machine>:<pid>:<start>`, so that whatever a killed run leaves behind names a process that is gone.
`machine` is the boot id and the pid namespace, because a pid is unique only there: a harness in a container that uses
the machine's engine must not be taken for dead.

Trials in processes and trials in containers disturb each other's step times, and no lease covers both. So each sweep on
this machine holds a shared lock on the file of its kind, which the kernel releases when the sweep ends.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import platform
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from harness.file_locks import try_lock
from harness.model.watching import Say
from harness.safe_files import opened

OWNER_LABEL = "harness.owner"
STARTED = 19
"""Index of the start time among the fields after the command's name in /proc/PID/stat (see proc_pid_stat(5))."""


@dataclass(frozen=True, kw_only=True)
class Owner:
    """A process. `start`, its start time, distinguishes it from others with the same pid. On Linux it is in clock ticks
    since the boot, because setting the clock changes seconds since 1970; elsewhere it is in seconds since 1970.
    """

    machine: str
    pid: int
    start: int

    def __str__(self) -> str:
        return f"{self.machine}:{self.pid}:{self.start}"


def this_process() -> Owner:
    pid = os.getpid()
    return Owner(machine=_machine(), pid=pid, start=_start(pid))


def in_words() -> str:
    """Return a description of this process such as `root@lab-3090, process 1234`, which a waiting harness displays."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # the user has no name
        user = str(os.getuid())
    return f"{user}@{platform.node()}, process {os.getpid()}"


def parse(text: str) -> Owner | None:
    """Return the owner that `text` names; None if `text` has another format."""
    machine, _, rest = text.partition(":")
    pid, _, start = rest.partition(":")
    if not (machine and pid.isdecimal() and start.isdecimal()):
        return None
    return Owner(machine=machine, pid=int(pid), start=int(start))


def is_alive(owner: Owner) -> bool | None:
    """Return whether the owner still runs; None if that is unknown, because it ran on another machine, in another
    pid namespace or before a reboot."""
    if owner.machine != _machine():
        return None
    try:
        is_zombie = psutil.Process(owner.pid).status() == psutil.STATUS_ZOMBIE
        return not is_zombie and _start(owner.pid) == owner.start
    except (psutil.NoSuchProcess, FileNotFoundError, ProcessLookupError):
        return False


def _start(pid: int) -> int:
    """Return the start time of a process, in the unit of Owner.start. Raises FileNotFoundError, ProcessLookupError or
    psutil.NoSuchProcess."""
    if not psutil.LINUX:
        return round(psutil.Process(pid).create_time())
    return int(Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[STARTED])


def _machine() -> str:
    boot = Path("/proc/sys/kernel/random/boot_id")
    if not boot.exists():
        return f"{uuid.getnode():x}"
    return f"{boot.read_text().strip()}.{Path('/proc/self/ns/pid').stat().st_ino}"


# ---------------------------------------------------------------- other sweeps


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
