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

from harness.errors import InfrastructureError

CGROUPS = Path("/sys/fs/cgroup")
NEAR = 0.9
"""Smallest share of its limit that a trial has used when the kernel kills it because of the limit."""
REMOVAL_S = 5.0
"""Seconds that the kernel may take to release an empty cgroup."""


@dataclass(frozen=True, kw_only=True)
class TrialCgroup:
    """A memory cgroup of one trial."""

    path: Path

    @property
    def procs(self) -> Path:
        """Return the file that lists the cgroup's processes; a process joins when its pid is written to the file."""
        return self.path / "cgroup.procs"

    def limit(self, memory_bytes: int) -> None:
        """Limit memory and swap together to `memory_bytes`, so that the trial cannot swap to exceed the limit.

        Raises InfrastructureError.
        """
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
        limit, that counts only near the limit: otherwise other processes used up the machine's memory. Raises
        InfrastructureError.
        """
        lines = (line.split() for line in _text(self.path / "memory.events").splitlines())
        counts = {event: int(number) for event, number in lines}
        return counts.get("oom_kill", 0) > 0 and not self._is_below_limit(hits=counts.get("max", 0))

    def _is_below_limit(self, *, hits: int) -> bool:
        """Return whether the cgroup has a limit and never came near it. If Linux reports no peak, return whether it
        never hit the limit (`hits`)."""
        limit, peak = (_number(self.path / name) for name in ("memory.max", "memory.peak"))
        if limit is None:
            return False
        return hits == 0 if peak is None else peak < NEAR * limit

    def pids(self) -> list[int]:
        """Return the pids of the cgroup's processes; [] if the cgroup is gone. Raises InfrastructureError."""
        return [int(pid) for pid in _text(self.procs).split()]

    def remove(self) -> None:
        """Remove the empty cgroup, which the kernel allows a moment after the last process has ended. Raises
        InfrastructureError."""
        until_s = time.monotonic() + REMOVAL_S
        while self.path.exists():
            try:
                self.path.rmdir()
            except OSError as error:
                if time.monotonic() > until_s:
                    text = f"{self.path}: cannot be removed: {error.strerror}; end the processes in it, then remove it"
                    raise InfrastructureError(text) from error
                time.sleep(0.01)


def _text(path: Path) -> str:
    """Return the content of a cgroup's file; "" if the cgroup is gone, because another run may remove a dead cgroup at
    the same time."""
    try:
        return path.read_text()
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENODEV):
            return ""
        raise InfrastructureError(f"{path}: {error.strerror}") from error


def _number(path: Path) -> int | None:
    text = _text(path).strip()
    return int(text) if text.isdigit() else None


def create(name: str, *, root: Path = CGROUPS) -> TrialCgroup | None:
    """Make a memory cgroup below this process's own cgroup or its nearest writable ancestor; return None if that is
    impossible."""
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


def find(prefix: str, *, root: Path = CGROUPS) -> Iterator[TrialCgroup]:
    """Yield the cgroups whose name begins with `prefix`, in all places where `create` may make them."""
    for parent in _parents(root):
        if os.access(parent, os.W_OK):
            yield from (TrialCgroup(path=path) for path in parent.glob(f"{prefix}*"))


def _parents(root: Path) -> Iterable[Path]:
    """Yield the folder of this process's own cgroup, then its ancestors up to the mount point."""
    own = Path("/proc/self/cgroup")
    if not own.exists() or not (root / "cgroup.procs").exists():
        return
    for line in own.read_text().splitlines():
        if line.startswith("0::"):
            folder = root / line.removeprefix("0::").lstrip("/")
            yield from (above for above in (folder, *folder.parents) if above.is_relative_to(root))


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
        yield None, _data_limit(memory_bytes)
        return
    try:
        if memory_bytes is not None:
            cgroup.limit(memory_bytes)
        yield cgroup, ["/bin/sh", "-c", 'echo $$ >"$0" && exec "$@"', str(cgroup.procs)]
    finally:
        cgroup.remove()


def _data_limit(memory_bytes: int | None) -> list[str]:
    if memory_bytes is None:
        return []
    if not Path("/proc/self/limits").exists():
        raise InfrastructureError("memory: no limit can be set here (no memory cgroup, no RLIMIT_DATA); use docker")
    return ["/bin/sh", "-c", 'ulimit -d "$0" && exec "$@"', str(memory_bytes >> 10)]
