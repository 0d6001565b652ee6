"""Creates a memory cgroup, v1 or v2, for one trial of the process engine, if this user may create one.

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
UNLIMITED = 1 << 60
"""A limit in bytes that no machine reaches: cgroup v1 reports at least this if no limit is set."""
NEAR = 0.9
"""Smallest share of its limit that a trial has used when the kernel kills it because of the limit."""
REMOVAL_S = 5.0
"""Seconds that the kernel may take to release an empty cgroup."""


@dataclass(frozen=True, kw_only=True)
class TrialCgroup:
    """A memory cgroup of one trial, of `version` 1 or 2."""

    path: Path
    version: int

    @property
    def procs(self) -> Path:
        """Return the file that lists the cgroup's processes; a process joins when its pid is written to the file."""
        return self.path / "cgroup.procs"

    def limit(self, memory_bytes: int) -> None:
        """Limit memory and swap together to `memory_bytes`, so that the trial cannot swap to exceed the limit.

        Raises InfrastructureError.
        """
        memory, swap, swap_bytes = "memory.max", self.path / "memory.swap.max", 0
        if self.version == 1:
            memory, swap, swap_bytes = "memory.limit_in_bytes", self.path / "memory.memsw.limit_in_bytes", memory_bytes
        try:
            (self.path / memory).write_text(str(memory_bytes))
            if swap.exists():  # kernels without swap accounting have neither file
                swap.write_text(str(swap_bytes))
        except OSError as error:
            text = f"memory: a limit of {memory_bytes} bytes cannot be set in {self.path}: {error.strerror}; use docker"
            raise InfrastructureError(text) from error

    def oom_killed(self) -> bool:
        """Return whether the kernel killed one of the cgroup's processes because memory ran out. If the cgroup has a
        limit, that counts only near the limit: otherwise other processes used up the machine's memory. Raises
        InfrastructureError.
        """
        counts = self._counts("memory.events" if self.version == 2 else "memory.oom_control")
        return counts.get("oom_kill", 0) > 0 and not self._is_below_limit(hits=counts.get("max", 0))

    def _is_below_limit(self, *, hits: int) -> bool:
        """Return whether the cgroup has a limit and never came near it. If Linux reports no peak, return whether it
        never hit the limit (`hits`)."""
        of_version_1 = ("memory.limit_in_bytes", "memory.max_usage_in_bytes")
        names = ("memory.max", "memory.peak") if self.version == 2 else of_version_1
        limit, peak = (_number(self.path / name) for name in names)
        if limit is None or limit >= UNLIMITED:
            return False
        return hits == 0 if peak is None else peak < NEAR * limit

    def _counts(self, name: str) -> dict[str, int]:
        lines = (line.split() for line in _text(self.path / name).splitlines())
        return {event: int(number) for event, number in lines}

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
    for version, parent in _parents(root):
        path = parent / name
        try:
            path.mkdir()
        except OSError:
            continue  # not writable: try the next one above
        if (path / ("memory.max" if version == 2 else "memory.limit_in_bytes")).exists():
            return TrialCgroup(path=path, version=version)
        path.rmdir()
    return None


def find(prefix: str, *, root: Path = CGROUPS) -> Iterator[TrialCgroup]:
    """Yield the cgroups whose name begins with `prefix`, in all places where `create` may make them."""
    for version, parent in _parents(root):
        if os.access(parent, os.W_OK):
            yield from (TrialCgroup(path=path, version=version) for path in parent.glob(f"{prefix}*"))


def _parents(root: Path) -> Iterable[tuple[int, Path]]:
    """Yield (version, folder) of this process's own memory cgroup, then of its ancestors up to the mount point."""
    own = Path("/proc/self/cgroup")
    if not own.exists():
        return
    for line in own.read_text().splitlines():
        _, controllers, place = line.split(":", 2)
        version = 1 if "memory" in controllers.split(",") else 2 if not controllers else 0
        mount = root / "memory" if version == 1 else root
        if version and (mount / "cgroup.procs").exists():
            folder = mount / place.lstrip("/")
            yield from ((version, above) for above in (folder, *folder.parents) if above.is_relative_to(mount))


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
