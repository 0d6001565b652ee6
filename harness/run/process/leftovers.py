"""Removes what dead runs left behind on this machine: folders, processes and cgroups of the process engine.

`docker/containers.py` does the same for containers. The name of each item contains its owner; items of a living
owner are not touched.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from harness.errors import InfrastructureError
from harness.run.hosts import holders
from harness.run.process import cgroups
from harness.run.process.cgroups import TrialCgroup

PREFIX = "harness-trial-"
AGENT_PREFIX = "harness-agent-"
"""Begins the name of a folder with the copy of the agent that the trials of a run share."""
FILES_PREFIX = "harness-files-"
"""Begins the name of a folder that `folder_for_files` made."""
_PREFIXES = (PREFIX, AGENT_PREFIX, FILES_PREFIX)
KILLING_S = 5.0
"""Seconds after which the attempt to kill all processes of a cgroup is given up."""
REMOVAL_S = 2.0
"""Seconds for which the removal of a folder is retried."""
SHARED_S = 10.0
"""Additional seconds for which the removal is retried while another run removes the same folder."""
REMEDY = "free some space there, or set TMPDIR to another folder"


def new_name(prefix: str = PREFIX) -> str:
    """Return a new name, for a trial's folder and cgroup or with another prefix, which names this process as the
    owner."""
    return f"{prefix}{str(holders.this_process()).replace(':', '_')}_{secrets.token_hex(4)}"


def temporary_folder() -> Path:
    """Return the folder for temporary files, which all users share. Raises InfrastructureError."""
    try:
        return Path(tempfile.gettempdir())
    except FileNotFoundError as error:
        raise InfrastructureError(f"{error.strerror}; {REMEDY}") from error


@contextlib.contextmanager
def folder_for_files() -> Iterator[Path]:
    """Make a temporary folder, yield it, and remove it after the block. If this process is killed or the folder cannot
    be removed, `harness clean` or the next run on a process host removes it. Raises InfrastructureError."""
    folder = temporary_folder() / new_name(FILES_PREFIX)
    try:
        folder.mkdir(mode=0o700)
    except OSError as error:
        raise InfrastructureError(f"{folder}: {error.strerror}; {REMEDY}") from error
    try:
        yield folder
    finally:
        with contextlib.suppress(InfrastructureError):
            remove_folder(folder)


def is_dead(name: str) -> bool:
    """Return whether `name` is one of the harness's names and its owner ran on this machine, since the last boot, and
    is gone."""
    prefix = next((prefix for prefix in _PREFIXES if name.startswith(prefix)), None)
    if prefix is None:
        return False
    text, _, _ = name.removeprefix(prefix).rpartition("_")
    maker = holders.parse(text.replace("_", ":"))
    return maker is not None and holders.is_alive(maker) is False


def remove_leftovers(folder: Path, *, cgroup_root: Path) -> int:
    """Remove the folders and cgroups of dead owners; return the number of names.

    All users can write to `folder`, so links and folders of other users are ignored, whatever their names. Another run
    may remove the same items at the same time. Raises InfrastructureError.
    """
    dead = leftover_names(folder, cgroup_root=cgroup_root)
    for cgroup in _dead_cgroups(cgroup_root):
        kill_cgroup(cgroup)
        cgroup.remove()
    for path in _dead_folders(folder):
        remove_folder(path)
    return len(dead)


def leftover_names(folder: Path, *, cgroup_root: Path) -> tuple[str, ...]:
    """Return the names of the folders and cgroups that `remove_leftovers` would remove; a trial has one name."""
    paths = (*_dead_folders(folder), *(cgroup.path for cgroup in _dead_cgroups(cgroup_root)))
    return tuple(sorted({path.name for path in paths}))


def _dead_cgroups(root: Path) -> list[TrialCgroup]:
    return [cgroup for cgroup in cgroups.find(PREFIX, root=root) if _is_dead_and_ours(cgroup.path)]


def _dead_folders(folder: Path) -> list[Path]:
    found = (path for prefix in _PREFIXES for path in folder.glob(f"{prefix}*"))
    return [path for path in found if _is_dead_and_ours(path)]


def _is_dead_and_ours(path: Path) -> bool:
    try:
        details = path.lstat()
    except FileNotFoundError:
        return False
    return stat.S_ISDIR(details.st_mode) and details.st_uid == os.getuid() and is_dead(path.name)


def remove_folder(path: Path) -> None:
    """Remove a trial's folder; retry while a last process still writes to it. Raises InfrastructureError."""
    until_s = time.monotonic() + REMOVAL_S
    while os.path.lexists(path):
        try:
            if path.is_symlink():  # a trial replaced its own folder
                path.unlink()
            else:
                shutil.rmtree(path)
        except OSError as error:
            is_shared = isinstance(error, FileNotFoundError)  # another run removes it at the same time
            if time.monotonic() > until_s + is_shared * SHARED_S:
                what = f"{path}: cannot be removed: {error.strerror}"  # `filename` is often relative
                raise InfrastructureError(f"{what}; end the processes that use it, then remove it") from error
            _open_up(path)
            time.sleep(0.02)


def _open_up(folder: Path) -> None:
    """Restore the owner's permissions on all folders: a scenario may have removed them, and caches of some languages
    do."""
    with contextlib.suppress(OSError):  # gone, or another user's: the next attempt at removal reports that
        folder.chmod(stat.S_IRWXU)
        for inner in folder.iterdir():
            if inner.is_dir() and not inner.is_symlink():
                _open_up(inner)


def kill_cgroup(cgroup: TrialCgroup) -> None:
    """Kill the cgroup's processes, repeatedly until none is left, because a process may fork while others are
    killed."""
    until_s = time.monotonic() + KILLING_S
    while (pids := cgroup.pids()) and time.monotonic() < until_s:
        for pid in pids:
            kill(pid)
        time.sleep(0.005)


def kill(pid: int) -> None:
    """Send SIGKILL to a process; do nothing if it is gone or now belongs to another user."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)
