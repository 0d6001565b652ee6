"""Creates a memory cgroup (version 2) for one trial of the process engine, if this user may create one.

The cgroup limits memory (including swap), records whether the kernel killed a process because memory ran out, and lists
all processes to kill at the end, including those that left their process group.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from harness.agent import killing
from harness.errors import InfrastructureError
from harness.run import owners

CGROUPS = Path("/sys/fs/cgroup")
NEAR = 0.9
"""Smallest share of its limit that a trial has used when the kernel kills it because of the limit."""
ENDING_S = 5.0
"""Seconds after which killing processes is given up, and that an empty cgroup may take to be released."""


@dataclass(frozen=True, kw_only=True)
class TrialCgroup:
    """A memory cgroup of one trial. All methods raise InfrastructureError, but not if the cgroup is gone, because
    another run may remove a dead cgroup at the same time."""

    path: Path

    @property
    def procs(self) -> Path:
        """Return the file that lists the cgroup's processes; a process joins when its pid is written to the file."""
        return self.path / "cgroup.procs"

    def limit(self, memory_bytes: int) -> None:
        """Limit memory and swap together to `memory_bytes`, so that the trial cannot swap to exceed the limit."""
        swap = self.path / "memory.swap.max"
        try:
            (self.path / "memory.max").write_text(str(memory_bytes))
            if swap.exists():  # kernels without swap accounting do not have the file
                swap.write_text("0")
        except OSError as error:
            text = f"memory: a limit of {memory_bytes} bytes cannot be set in {self.path}: {error.strerror}; use docker"
            raise InfrastructureError(text) from error

    def oom_killed(self) -> bool:
        """Return whether the kernel killed one of the cgroup's processes because memory ran out. If the cgroup has a
        limit, that counts only if the cgroup came near it or, if Linux reports no peak, hit it: otherwise other
        processes used up the machine's memory."""
        words = self._text("memory.events").split()
        counts = dict(zip(words[::2], map(int, words[1::2]), strict=False))
        texts = (self._text(name).strip() for name in ("memory.max", "memory.peak"))
        limit, peak = (int(text) if text.isdigit() else None for text in texts)
        came_near = limit is None or (counts.get("max", 0) > 0 if peak is None else peak >= NEAR * limit)
        return counts.get("oom_kill", 0) > 0 and came_near

    def pids(self) -> list[int]:
        """Return the pids of the cgroup's processes; [] if the cgroup is gone."""
        return [int(pid) for pid in self._text("cgroup.procs").split()]

    def kill(self) -> None:
        """Kill the processes until none is left."""
        killing.kill(self.pids, for_s=ENDING_S)

    def remove(self) -> None:
        """Remove the empty cgroup, which the kernel allows a moment after the last process has ended."""
        until_s = time.monotonic() + ENDING_S
        while self.path.exists():
            try:
                self.path.rmdir()
            except OSError as error:
                if time.monotonic() > until_s:
                    text = f"{self.path}: cannot be removed: {error.strerror}; end the processes in it, then remove it"
                    raise InfrastructureError(text) from error
                time.sleep(0.01)

    def _text(self, name: str) -> str:
        try:
            return (self.path / name).read_text()
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENODEV):
                return ""
            raise InfrastructureError(f"{self.path / name}: {error.strerror}") from error


def create(name: str, *, root: Path = CGROUPS) -> TrialCgroup | None:
    """Make a memory cgroup below this process's own or its nearest writable ancestor; return None if none can be."""
    for parent in _parents(root):
        path = parent / name
        try:
            path.mkdir()
        except OSError:
            continue  # not writable: try the next one above
        if (path / "memory.max").exists():
            return TrialCgroup(path=path)
        path.rmdir()
    return None


def _parents(root: Path) -> Iterable[Path]:
    """Yield the folder of this process's own cgroup, then its ancestors up to the mount point."""
    own = Path("/proc/self/cgroup")
    if not own.exists() or not (root / "cgroup.procs").exists():
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
) -> Iterator[tuple[TrialCgroup | None, list[str]]]:
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
            cgroup.limit(memory_bytes)
        yield cgroup, ["/bin/sh", "-c", 'echo $$ >"$0" && exec "$@"', str(cgroup.procs)]
    finally:
        cgroup.remove()


# ---------------------------------------------------------------- leftovers of dead runs


def leftovers(folder: Path, *, root: Path = CGROUPS) -> tuple[str, ...]:
    """Return the names of the folders and cgroups that `remove_leftovers` would remove; a trial has one name."""
    return tuple(sorted({path.name for path in (*_dead_folders(folder), *_dead_cgroups(root))}))


def remove_leftovers(folder: Path, *, root: Path = CGROUPS) -> int:
    """Remove the folders and cgroups of dead owners; return the number of names. Another run may remove the same items
    at the same time. Raises InfrastructureError."""
    dead = leftovers(folder, root=root)
    for path in _dead_cgroups(root):
        TrialCgroup(path=path).kill()
        TrialCgroup(path=path).remove()
    for path in _dead_folders(folder):
        owners.remove_folder(path)
    return len(dead)


def _dead_cgroups(root: Path) -> list[Path]:
    """Return the cgroups of dead owners, in all places where `create` may make them."""
    parents = (parent for parent in _parents(root) if os.access(parent, os.W_OK))
    return owners.dead_among(path for parent in parents for path in parent.glob(f"{owners.PREFIX}*"))


def _dead_folders(folder: Path) -> list[Path]:
    return owners.dead_among(folder.glob("harness-*"))
