"""Removes what dead runs left behind on this machine: folders, processes and cgroups of the process engine.

Containers of dead runs: `containers.remove_dead`. A name tells its owner; a living owner's are not touched.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import stat
import time
from pathlib import Path

from harness.errors import InfrastructureError
from harness.run.hosts import owner
from harness.run.process import cgroups
from harness.run.process.cgroups import TrialCgroup

PREFIX = "harness-trial-"
KILLING_S = 5.0
REMOVAL_S = 2.0


def new_name() -> str:
    """A name for a folder or cgroup of ours, for this process alone."""
    return f"{PREFIX}{str(owner.this_process()).replace(':', '_')}_{secrets.token_hex(4)}"


def is_dead(name: str) -> bool:
    """Whether `name` is ours and names an owner of this machine and boot that is gone."""
    text, _, _ = name.removeprefix(PREFIX).rpartition("_")
    named = owner.parse(text.replace("_", ":"))
    return name.startswith(PREFIX) and named is not None and owner.is_alive(named) is False


def remove_folders(folder: Path, *, cgroup_root: Path) -> int:
    """Remove the trial folders and cgroups of dead owners; how many trials that were.

    `folder` is open to all users: a link, or what another user made under such a name, is none of ours. What another
    run removes at the same time is gone, and that is all we want. Raises InfrastructureError.
    """
    dead = names_of_dead(folder, cgroup_root=cgroup_root)
    for cgroup in _dead_cgroups(cgroup_root):
        kill_cgroup(cgroup)
        cgroup.remove()
    for path in _dead_folders(folder):
        remove_folder(path)
    return len(dead)


def names_of_dead(folder: Path, *, cgroup_root: Path) -> tuple[str, ...]:
    """The trials whose folders or cgroups `remove_folders` removes."""
    paths = (*_dead_folders(folder), *(cgroup.path for cgroup in _dead_cgroups(cgroup_root)))
    return tuple(sorted({path.name for path in paths}))


def _dead_cgroups(root: Path) -> list[TrialCgroup]:
    return [cgroup for cgroup in cgroups.find(PREFIX, root=root) if _is_dead_and_ours(cgroup.path)]


def _dead_folders(folder: Path) -> list[Path]:
    return [path for path in folder.glob(f"{PREFIX}*") if _is_dead_and_ours(path)]


def _is_dead_and_ours(path: Path) -> bool:
    try:
        found = path.lstat()
    except FileNotFoundError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and is_dead(path.name)


def remove_folder(path: Path) -> None:
    """Remove a trial's folder, also while a last process still writes in it. Raises InfrastructureError."""
    until_s = time.monotonic() + REMOVAL_S
    while path.exists():
        try:
            shutil.rmtree(path)
        except OSError as error:
            if time.monotonic() > until_s:
                what = f"{error.filename or path}: cannot be removed: {error.strerror}"
                raise InfrastructureError(f"{what}; end what uses it, then remove it") from error
            _open_up(path)
            time.sleep(0.02)


def _open_up(folder: Path) -> None:
    """A scenario may have taken its own rights from its folders, as the caches of some languages do."""
    with contextlib.suppress(OSError):  # it is gone, or not ours: the next attempt to remove it says so
        folder.chmod(stat.S_IRWXU)
        for inner in folder.iterdir():
            if inner.is_dir() and not inner.is_symlink():
                _open_up(inner)


def kill_cgroup(cgroup: TrialCgroup) -> None:
    """Kill what is in it until nothing is: a process may fork while it is being killed."""
    until_s = time.monotonic() + KILLING_S
    while (pids := cgroup.pids()) and time.monotonic() < until_s:
        for pid in pids:
            kill(pid)
        time.sleep(0.005)


def kill(pid: int) -> None:
    """SIGKILL, unless it is gone or has become another user's: then its end is not ours to bring."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)
