"""Removes what dead runs left behind on this machine: folders, processes and cgroups of the process engine.

Containers of dead runs: `containers.remove_dead`. A name tells its owner; a living owner's are not touched.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import time
from pathlib import Path

from harness.run import cgroups, owner
from harness.run.cgroups import Cgroup

PREFIX = "harness-trial-"
KILLING_S = 5.0


def new_name() -> str:
    """A name for a folder or cgroup of ours, for this process alone."""
    return f"{PREFIX}{str(owner.this_process()).replace(':', '_')}_{secrets.token_hex(4)}"


def is_dead(name: str) -> bool:
    """Whether `name` is ours and names an owner of this machine and boot that is gone."""
    text, _, _ = name.removeprefix(PREFIX).rpartition("_")
    named = owner.parse(text.replace("_", ":"))
    return name.startswith(PREFIX) and named is not None and owner.is_alive(named) is False


def remove_folders(folder: Path, *, cgroup_root: Path) -> int:
    """Remove the trial folders and cgroups of dead owners; how many trials that were."""
    dead_cgroups = [cgroup for cgroup in cgroups.find(PREFIX, root=cgroup_root) if is_dead(cgroup.path.name)]
    for cgroup in dead_cgroups:
        kill_cgroup(cgroup)
        cgroup.remove()
    dead = [path for path in folder.glob(f"{PREFIX}*") if path.is_dir() and is_dead(path.name)]
    for path in dead:
        shutil.rmtree(path)
    return len({path.name for path in dead} | {cgroup.path.name for cgroup in dead_cgroups})


def kill_cgroup(cgroup: Cgroup) -> None:
    """Kill what is in it until nothing is: a process may fork while it is being killed."""
    until_s = time.monotonic() + KILLING_S
    while (pids := cgroup.pids()) and time.monotonic() < until_s:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.005)
