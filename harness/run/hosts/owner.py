"""Names the owner of a container or a temporary folder (the process that made it), and checks whether it still runs.

An owner is written `<machine>:<pid>:<start>`, so that whatever a killed run leaves behind names a process that is gone.
`machine` is the boot id and the pid namespace, because a pid is unique only there: a harness in a container that uses
the machine's engine must not be taken for dead.
"""

from __future__ import annotations

import getpass
import os
import platform
import uuid
from dataclasses import dataclass
from pathlib import Path

import psutil

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
