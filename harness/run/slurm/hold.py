"""Holds the node of a host: one allocation, which all engines that this process opened for the host share.

One engine may prepare images while another runs trials; both use the same node.
"""

from __future__ import annotations

import contextlib
import re
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from harness.errors import InfrastructureError
from harness.model import Host
from harness.model.matrix import Gpu
from harness.model.watching import Say, Waiting
from harness.run.docker.containers import Ulimits
from harness.run.interruptible import BEAT_S
from harness.run.slurm.container_commands import VERSIONS, options_of
from harness.run.slurm.queue import Allocation, allocate, run_slurm
from harness.run.slurm.request import NodeRequest
from harness.run.slurm.steps import printed_on_node

LOOK = (
    'echo "GPUs $SLURM_STEP_GPUS/$CUDA_VISIBLE_DEVICES";'
    " uname -rm; nproc; sed -n 's/^MemTotal: *\\([0-9]*\\) kB/\\1/p' /proc/meminfo;"
    " sed -n 's/^model name[^:]*: *//p' /proc/cpuinfo | head -n 1"
)
TELL = 'command -v "$0" >/dev/null || { echo "no $0 on the PATH of this node" >&2; exit 1; }; "$0" "$@"'
LIMITS_MEMORY = re.compile(r"^ConstrainRAMSpace\s*=\s*yes", re.MULTILINE | re.IGNORECASE)
PREFERRED_S = 20.0
"""Seconds to wait for the node that measured rows in earlier runs; after that, any node is accepted."""
WAITING = Waiting("waiting for a Slurm node")
LEAST_LEFT_S = 30.0
"""Smallest remaining time of an allocation, in seconds, with which another trial is started."""

_HOLDS: dict[tuple[str, str, NodeRequest], Hold] = {}
_LOCK = threading.Lock()


@dataclass(kw_only=True)
class Hold:
    """The node that is held for one host. `facts`: the description of the node when it was first held. `users`: the
    number of engines that share the hold."""

    place: str
    request: NodeRequest
    environ: Mapping[str, str]
    version: str
    users: int = 0
    allocation: Allocation | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    gpus: str | None = None
    """The GPUs of the first allocation, as Slurm names them. A later allocation must have the same."""
    twins: dict[str, dict[str, Gpu]] = field(default_factory=dict)
    """For each further node of a trial, the GPU that stands there for each one of the first, by its UUID."""
    limits_memory: bool = False
    """True if Slurm limits the memory of steps."""
    ulimits: Ulimits = field(default_factory=Ulimits)
    longest_s: float = 0.0
    """Duration of the longest trial so far, in seconds."""
    lock: threading.Lock = field(default_factory=threading.Lock)
    lease: threading.Lock = field(default_factory=threading.Lock)
    """Ensures that only one sweep of this process uses the node at a time; Slurm keeps other processes away."""

    @contextlib.contextmanager
    def _locked(self, say: Say) -> Iterator[None]:
        """Hold the lock during the block. While another thread has it, `say` is called all the time, and may raise."""
        while not self.lock.acquire(timeout=BEAT_S):
            say(WAITING)
        try:
            yield
        finally:
            self.lock.release()

    def node(self, say: Say) -> Allocation:
        """Return the allocation; wait for one if none is held. Raises InfrastructureError, and any error of `say`."""
        with self._locked(say):
            return self.allocation or self._allocate(say)

    def renew(self, say: Say) -> None:
        """Ensure that the allocation has enough time for a trial: get a new one on the same node if the present one is
        gone or ends soon. Raises InfrastructureError, and any error of `say`."""
        with self._locked(say):
            old = self.allocation
            if old is None:
                self._allocate(say)
                return
            needed_s = min(max(LEAST_LEFT_S, 2 * self.longest_s), self.request.hold.time_s / 2)
            ends_soon = old.until_s - time.monotonic() < needed_s
            why = old.why_gone() or ("the allocation ends soon" if ends_soon else "")
            if why:
                old.close()
                self.allocation = None
                say(f"{why}; requesting node {old.name} again")
                self._allocate(say, node=old.name)

    def _allocate(self, say: Say, *, node: str | None = None) -> Allocation:
        """Get `node`, or the one that measured rows in earlier runs, if it is free within PREFERRED_S, else any."""
        if node is None and self.request.preferred is not None:
            with contextlib.suppress(InfrastructureError):  # it is in use, down, or no longer part of this cluster
                hold = replace(self.request.hold, wait_s=min(PREFERRED_S, self.request.hold.wait_s))
                self._ask(replace(self.request, hold=hold), say, node=self.request.preferred)
        allocation = self.allocation or self._ask(self.request, say, node=node)
        facts, different = self._facts_of(allocation, say), ""
        for other in allocation.beside:
            unequal = [name for name, value in self._facts_of(other, say).items() if facts[name] != value]
            if unequal != ["name"]:
                why = f"nodes {allocation.node} and {other.node} differ ({', '.join(unequal[1:])})"
                raise InfrastructureError(f"{why}; choose equal ones in `select`", place=self.place)
        facts["name"] = allocation.name
        if self.facts and facts != self.facts:
            names = ", ".join(name for name in facts if facts[name] != self.facts.get(name))
            different = f"node {allocation.node} has changed ({names})"
        elif self.gpus not in (None, allocation.gpus):
            different = f"Slurm gave other GPUs of node {allocation.node} than before"
        if different:
            raise InfrastructureError(
                f"{different}; sweep again: its trials are not mixed with earlier ones", place=self.place
            )
        self.facts, self.gpus = facts, allocation.gpus
        config = run_slurm(["scontrol", "show", "config"], environ=self.environ, place=self.place)
        self.limits_memory = LIMITS_MEMORY.search(config) is not None
        return allocation

    def _ask(self, request: NodeRequest, say: Say, *, node: str | None) -> Allocation:
        """Request a node from the queue and hold it. A node that is not exclusive may already belong to another place
        of this pool: it is released, and another one is requested.
        """
        taken: tuple[str, ...] = ()
        while True:
            allocation = allocate(request, place=self.place, environ=self.environ, say=say, node=node, without=taken)
            with _LOCK:
                pool = [hold for hold in _HOLDS.values() if hold.place == self.place and hold is not self]
                taken = tuple(sorted({hold.allocation.node for hold in pool if hold.allocation is not None}))
                if allocation.node not in taken:
                    self.allocation = allocation
                    return allocation
            allocation.close()
            if node is not None:
                raise InfrastructureError(f"node {node} already belongs to this pool", place=self.place)

    def _facts_of(self, allocation: Allocation, say: Say) -> dict[str, Any]:
        """Return the facts about the node, and store its GPUs in `allocation`. Raises InfrastructureError."""
        asking = f"querying node {allocation.node}"
        say(asking)
        lines = printed_on_node(allocation, "sh", "-c", LOOK, beat=lambda: say(asking)).splitlines()
        allocation.gpus = lines[0] if lines else ""
        container: str = self.request.container
        if container in VERSIONS:
            words = printed_on_node(allocation, "sh", "-c", TELL, *VERSIONS[container]).split()
            container = f"{container} {words[-1] if words else '?'}"
        try:
            _, machine, cpus, memory_kib, *cpu = lines
            kernel, architecture = machine.split()
            return {
                "engine": f"{self.version}, container: {container}",
                **({"options": options} if (options := options_of(self.request.container)) else {}),
                "name": allocation.node,
                "exclusive": self.request.hold.exclusive,
                "cpu": cpu[0] if cpu else None,
                "cpus": int(cpus),
                "memory_bytes": int(memory_kib) << 10,
                "kernel": kernel,
                "architecture": architecture,
            }
        except ValueError as error:
            raise InfrastructureError(
                f"node {allocation.node} answered {' '.join(lines)[:200]!r}; see `srun uname -a` there",
                place=self.place,
            ) from error


def join(host: Host, *, environ: Mapping[str, str], version: str) -> Hold:
    """Return the hold of a host for one more engine. This requests nothing from the cluster yet."""
    assert isinstance(host.settings, NodeRequest)
    request = replace(host.settings, place=host.place, preferred=host.preferred)
    key = (host.name, environ.get("SLURM_CONF", ""), request)
    with _LOCK:
        hold = _HOLDS.get(key)
        if hold is None:
            hold = Hold(place=str(host.where), request=request, environ=environ, version=version)
            _HOLDS[key] = hold
        hold.users += 1
        return hold


def leave(hold: Hold) -> None:
    """Record that an engine no longer needs the hold; release the node if it was the last one."""
    with _LOCK:
        hold.users -= 1
        if hold.users > 0:
            return
        for key in [key for key, other in _HOLDS.items() if other is hold]:
            del _HOLDS[key]
    allocation, hold.allocation = hold.allocation, None
    if allocation is not None:
        allocation.close()
