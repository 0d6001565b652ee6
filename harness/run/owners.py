"""Names the owner of everything that a run creates, so that whatever a killed run leaves behind names a process that is
gone: only that is removed. The owner is in the label of a container and, shortened, in the name of a temporary folder,
a cgroup or a job of Slurm. A trial's folder is its TMPDIR, and the path of a Unix socket has at most 107 characters, of
which `multiprocessing` adds 32: with names of 43 characters, TMPDIR of the harness may have 31.

An owner is written `<machine>:<pid>:<start>`. `machine` is the boot id and the pid namespace, because a pid is unique
only there: a harness in a container that uses the machine's engine must not be taken for dead. `start`, the start time,
distinguishes a process from others with the same pid. On Linux it is in clock ticks since the boot, because setting the
clock changes seconds since 1970; elsewhere it is in seconds since 1970.
"""

from __future__ import annotations

import base64
import contextlib
import getpass
import hashlib
import os
import platform
import re
import secrets
import stat
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import psutil

from harness.agent import caches, killing, stopping
from harness.errors import InfrastructureError

PROC = Path("/proc")
STATE, STARTED = 0, 19
"""Indices of the state and the start time behind the command's name in /proc/PID/stat (proc_pid_stat(5))."""
PREFIX = "harness-trial-"
AGENT_PREFIX = "harness-agent-"
"""Begins the name of a folder with the copy of the agent that the trials of a run share."""
FILES_PREFIX = "harness-files-"
"""Begins the name of a folder that `folder_for_files` made."""
CACHE_PREFIX = "harness-cache-"
"""Begins the name of a folder with a warm cache, which a launch fills and others copy."""
NAME = re.compile(
    rf"(?:{PREFIX}|{AGENT_PREFIX}|{FILES_PREFIX}|{CACHE_PREFIX})(?P<machine>[a-z2-7]{{6}})_(?P<pid>\d+)_(?P<start>[0-9a-f]+)_.*"
)
REMOVAL_S = 2.0
"""Seconds for which the removal of a folder is retried."""
SHARED_S = 10.0
"""Additional seconds for which the removal is retried while another run removes the same folder."""
REMEDY = "free some space there, or set TMPDIR to another folder"


def this_process() -> str:
    """Return this process as an owner."""
    pid = os.getpid()
    return f"{_machine()}:{pid}:{_look(pid)[1]}"


def in_words() -> str:
    """Return a description of this process such as `root@lab-3090, process 1234`, which a waiting harness displays."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # the user has no name
        user = str(os.getuid())
    return f"{user}@{platform.node()}, process {os.getpid()}"


def is_alive(owner: str) -> bool | None:
    """Return whether the owner still runs; None if that is unknown, because it ran on another machine, in another pid
    namespace or before a reboot, because /proc hides the processes of other users (`hidepid`), or because `owner` has
    another format."""
    machine, _, rest = owner.partition(":")
    pid, _, start = rest.partition(":")
    if not (pid.isdecimal() and start.isdecimal()) or machine != _machine():
        return None
    if not killing.exists(int(pid)):
        return False
    try:
        is_zombie, began = _look(int(pid))
    except (OSError, psutil.Error):
        return None
    return not is_zombie and began == int(start)


def _look(pid: int) -> tuple[bool, int]:
    """Return whether a process is a zombie, and its start time. Raises OSError and psutil.Error."""
    if not psutil.LINUX:
        process = psutil.Process(pid)
        return process.status() == psutil.STATUS_ZOMBIE, round(process.create_time())
    fields = (PROC / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()
    return fields[STATE] in ("Z", "X"), int(fields[STARTED])


def _machine() -> str:
    """Return the id of this boot and pid namespace; where the system tells none, that of this machine.

    A machine without a network card has no id that other processes know: its owners count as unknown, never as gone.
    """
    try:
        boot = (PROC / "sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}.{(PROC / 'self/ns/pid').stat().st_ino}"
    except OSError:
        return f"{uuid.getnode():x}"


# ---------------------------------------------------------------- names that contain their owner


def new_name(prefix: str = PREFIX, mark: str = "") -> str:
    """Return a name that contains this process as the owner, and ends with `mark` or a random mark."""
    machine, pid, start = this_process().split(":")
    return f"{prefix}{_short(machine)}_{pid}_{int(start):x}_{mark or _letters(secrets.token_bytes(5))[:5]}"


def is_dead(name: str) -> bool:
    """Return whether `name` is one of the harness's, whose owner ran here since the last boot, and is gone."""
    parts = NAME.fullmatch(name)
    if parts is None or parts["machine"] != _short(_machine()):
        return False
    return is_alive(f"{_machine()}:{parts['pid']}:{int(parts['start'], 16)}") is False


def _short(machine: str) -> str:
    return _letters(hashlib.sha256(machine.encode()).digest())[:6]


def _letters(data: bytes) -> str:
    return base64.b32encode(data).decode().lower()


def dead_among(paths: Iterator[Path]) -> list[Path]:
    """Return the folders of dead owners. Links and folders of other users are ignored, whatever their names, because
    all users can write to the folder for temporary files."""
    found = []
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            details = path.lstat()
            if stat.S_ISDIR(details.st_mode) and details.st_uid == os.getuid() and is_dead(path.name):
                found.append(path)
    return found


# ---------------------------------------------------------------- temporary folders


def temporary_folder() -> Path:
    """Return the folder for temporary files, which all users share. Raises InfrastructureError."""
    try:
        return Path(tempfile.gettempdir())
    except FileNotFoundError as error:
        raise InfrastructureError(f"{error.strerror}; {REMEDY}") from error


def new_folder(prefix: str) -> Path:
    """Make a temporary folder, whose name contains this process as the owner. Raises InfrastructureError."""
    folder = temporary_folder() / new_name(prefix)
    try:
        folder.mkdir(mode=0o700)
    except OSError as error:
        raise InfrastructureError(f"{folder}: {error.strerror}; {REMEDY}") from error
    return folder


@contextlib.contextmanager
def folder_for_files() -> Iterator[Path]:
    """Make a temporary folder, yield it, and remove it after the block. If this process is killed or the folder cannot
    be removed, `harness clean` or the next run on a process host removes it. Raises InfrastructureError."""
    folder = new_folder(FILES_PREFIX)
    try:
        yield folder
    finally:
        with contextlib.suppress(InfrastructureError):
            remove_folder(folder)


def remove_folder(path: Path) -> None:
    """Remove a folder, kill what still runs with it as its home, and end what a command started elsewhere; retry while
    a last process still writes to it. Raises InfrastructureError."""
    killing.kill(lambda: killing.at_home(str(path)), for_s=REMOVAL_S)
    stopping.stop(str(path))
    until_s = time.monotonic() + REMOVAL_S
    while os.path.lexists(path):
        try:
            if path.is_symlink():  # a trial replaced its own folder
                path.unlink()
            else:
                caches.remove(str(path))
        except OSError as error:
            is_shared = isinstance(error, FileNotFoundError)  # another run removes it at the same time
            if time.monotonic() > until_s + is_shared * SHARED_S:
                what = f"{path}: cannot be removed: {error.strerror}"  # `filename` is often relative
                raise InfrastructureError(f"{what}; end the processes that use it, then remove it") from error
            time.sleep(0.02)
