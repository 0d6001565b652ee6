"""Creates a memory cgroup (version 2) for one trial of the process engine, if this user may create one.

The cgroup limits memory (including swap), records whether the kernel killed a process because memory ran out, and lists
all processes to kill at the end, including those that left their process group. A cgroup is named by its folder. All
functions raise InfrastructureError, but not if the cgroup is gone: another run may remove a dead one at the same time.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from harness.agent import killing
from harness.errors import InfrastructureError
from harness.run import owners

CGROUPS = Path("/sys/fs/cgroup")
PROCS = "cgroup.procs"
"""The file that lists a cgroup's processes; a process joins when its pid is written to it."""
NEAR = 0.9
"""Smallest share of its limit that a trial has used when the kernel kills it because of the limit."""
ENDING_S = 5.0
"""Seconds after which killing processes is given up, and that an empty cgroup may take to be released."""


def limit(cgroup: Path, memory_bytes: int) -> None:
    """Limit memory and swap together to `memory_bytes`, so that the trial cannot swap to exceed the limit."""
    swap = cgroup / "memory.swap.max"
    try:
        (cgroup / "memory.max").write_text(str(memory_bytes))
        if swap.exists():  # kernels without swap accounting do not have the file
            swap.write_text("0")
    except OSError as error:
        text = f"memory: a limit of {memory_bytes} bytes cannot be set in {cgroup}: {error.strerror}; use docker"
        raise InfrastructureError(text) from error


def oom_killed(cgroup: Path) -> bool:
    """Return whether the kernel killed one of the cgroup's processes because memory ran out. If the cgroup has a limit,
    that counts only if the cgroup came near it or, if Linux reports no peak, hit it: otherwise other processes used up
    the machine's memory."""
    words = _text(cgroup / "memory.events").split()
    counts = dict(zip(words[::2], map(int, words[1::2]), strict=False))
    texts = (_text(cgroup / name).strip() for name in ("memory.max", "memory.peak"))
    most, peak = (int(text) if text.isdigit() else None for text in texts)
    came_near = most is None or (counts.get("max", 0) > 0 if peak is None else peak >= NEAR * most)
    return counts.get("oom_kill", 0) > 0 and came_near


def pids(cgroup: Path) -> list[int]:
    """Return the pids of the cgroup's processes."""
    return [int(pid) for pid in _text(cgroup / PROCS).split()]


def kill(cgroup: Path) -> None:
    """Kill the cgroup's processes until none is left."""
    killing.kill(lambda: pids(cgroup), for_s=ENDING_S)


def remove(cgroup: Path) -> None:
    """Remove the empty cgroup, which the kernel allows a moment after the last process has ended."""
    until_s = time.monotonic() + ENDING_S
    while cgroup.exists():
        try:
            cgroup.rmdir()
        except OSError as error:
            if time.monotonic() > until_s:
                text = f"{cgroup}: cannot be removed: {error.strerror}; end the processes in it, then remove it"
                raise InfrastructureError(text) from error
            time.sleep(0.01)


def _text(file: Path) -> str:
    """Return the text of a file of a cgroup; "" if the cgroup is gone."""
    try:
        return file.read_text()
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENODEV):
            return ""
        raise InfrastructureError(f"{file}: {error.strerror}") from error


def create(name: str, *, root: Path = CGROUPS) -> Path | None:
    """Make a memory cgroup below this process's own or its nearest writable ancestor; return None if none can be."""
    for parent in _parents(root):
        path = parent / name
        try:
            path.mkdir()
        except OSError:
            continue  # not writable: try the next one above
        if (path / "memory.max").exists():
            return path
        path.rmdir()
    return None


def _parents(root: Path) -> Iterable[Path]:
    """Yield the folder of this process's own cgroup, then its ancestors up to the mount point."""
    own = Path("/proc/self/cgroup")
    if not own.exists() or not (root / PROCS).exists():
        return
    for line in own.read_text().splitlines():
        if line.startswith("0::"):
            folder = root / line.removeprefix("0::").lstrip("/")
            yield from (above for above in (folder, *folder.parents) if above.is_relative_to(root))


def own_limits(*, root: Path = CGROUPS) -> list[int]:
    """Return the memory limits, in bytes, of this process's own cgroup and of those above it, as a container has."""
    files = [folder / "memory.max" for folder in _parents(root)]
    return [int(text) for file in files if file.exists() and (text := file.read_text().strip()).isdigit()]


@contextlib.contextmanager
def memory_limit(
    memory_bytes: int | None, *, name: str, root: Path = CGROUPS
) -> Iterator[tuple[Path | None, list[str]]]:
    """Yield (cgroup or None, the words to put before a command so that it starts under the limit).

    A shell joins the cgroup and then executes the command, so that no code of this multi-threaded process runs between
    fork and exec. Without a cgroup, RLIMIT_DATA limits each process's private memory instead.
    """
    cgroup = create(name, root=root)
    if cgroup is None:
        if memory_bytes is not None and not Path("/proc/self/limits").exists():
            raise InfrastructureError("memory: no limit can be set here (no memory cgroup, no RLIMIT_DATA); use docker")
        limited = ["/bin/sh", "-c", 'ulimit -d "$0" && exec "$@"', str((memory_bytes or 0) >> 10)]
        yield None, [] if memory_bytes is None else limited
        return
    try:
        if memory_bytes is not None:
            limit(cgroup, memory_bytes)
        yield cgroup, ["/bin/sh", "-c", 'echo $$ >"$0" && exec "$@"', str(cgroup / PROCS)]
    finally:
        remove(cgroup)


# ---------------------------------------------------------------- leftovers of dead runs


def leftovers(folder: Path, *, root: Path = CGROUPS) -> tuple[str, ...]:
    """Return the names of the folders and cgroups that `remove_leftovers` would remove; a trial has one name."""
    return tuple(sorted({path.name for path in (*_dead_folders(folder), *_dead_cgroups(root))}))


def remove_leftovers(folder: Path, *, root: Path = CGROUPS) -> int:
    """Remove the folders and cgroups of dead owners; return the number of names. Another run may remove the same items
    at the same time. Raises InfrastructureError."""
    dead = leftovers(folder, root=root)
    for path in _dead_cgroups(root):
        kill(path)
        remove(path)
    for path in _dead_folders(folder):
        owners.remove_folder(path)
    return len(dead)


def _dead_cgroups(root: Path) -> list[Path]:
    """Return the cgroups of dead owners, in all places where `create` may make them."""
    parents = (parent for parent in _parents(root) if os.access(parent, os.W_OK))
    return owners.dead_among(path for parent in parents for path in parent.glob(f"{owners.PREFIX}*"))


def _dead_folders(folder: Path) -> list[Path]:
    return owners.dead_among(folder.glob("harness-*"))
