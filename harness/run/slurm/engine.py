"""Runs trials on Slurm: an allocation holds one node for the sweep, and each trial is a step of the allocation.

A trial's files are sent to the node through the step's input, and the conversation uses its input and output. Only
images need a folder that this machine shares with the nodes.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

from harness.errors import EngineUnreachable, InfrastructureError, named_place
from harness.model import Host, Image, Prepared
from harness.model.answers import HostCondition
from harness.model.matrix import Gpu
from harness.model.watching import Say, unheard
from harness.run import owners
from harness.run.engine import LaunchRequest, Lease, Payload, Session
from harness.run.hosts.host_gpus import PROBE_S, first_available, parse_gpus
from harness.run.images.disk_budget import total_bytes
from harness.run.interruptible import BEAT_S, say_unless, unavailable
from harness.run.leases import wait_until_free
from harness.run.process.environments import EnvironmentStore
from harness.run.slurm import hold, queue, steps, trials
from harness.run.slurm.container_commands import NODE_FOLDER, WITH_FILES
from harness.run.slurm.images import ImageFiles, NodeImages, check_folder
from harness.run.slurm.queue import Allocation, run_slurm, run_slurm_quietly
from harness.run.slurm.request import NodeRequest
from harness.run.slurm.steps import printed_on_node
from harness.run.slurm.trials import NodeStore
from harness.run.trial.payload import agent_files

ABSENT = 'for path; do [ -e "$path" ] || printf "%s\\0" "$path"; done'
"""Prints those of its arguments that are no paths of the node."""


def open_engine(host: Host, *, environ: Mapping[str, str], say: Say) -> SlurmEngine:
    """Return the engine of a host with `engine: slurm`. It requests a node only when one is needed.

    Raises EngineUnreachable if Slurm does not answer on this machine.
    """
    say("connecting to Slurm")
    try:
        version = queue.slurm_version(environ=environ, place=host.where)
        queue.run_slurm(["squeue", "--me", "--noheader"], environ=environ, place=host.where)
    except InfrastructureError as error:
        raise EngineUnreachable(error.text, place=error.place) from error
    return SlurmEngine(host, environ=environ, version=version)


class SlurmEngine:
    """Runs trials on one node of the cluster. `version`: Slurm's name and version."""

    def __init__(self, host: Host, *, environ: Mapping[str, str], version: str) -> None:
        assert isinstance(host.settings, NodeRequest)
        self._request, self._environ = host.settings, environ
        self._place = str(host.where)
        if self._request.container != "docker":
            check_folder(self._request, place=self._place)
        self._hold = hold.join(host, environ=environ, version=version)
        images = self._images = self._store()
        self.look, self.refused, self.holds = images.look, images.refused, images.holds
        self.size_bytes, self.kept = images.size_bytes, images.kept
        self.remove, self.remove_images = images.remove, images.remove_images
        self._is_closed = False
        self.facts: Mapping[str, Any] = self._hold.facts

    def _store(self) -> NodeStore:
        request = self._request
        if request.container in WITH_FILES:
            return ImageFiles(self._hold, environ=self._environ)
        if request.container != "none":
            return NodeImages(self._hold)
        shared = {**self._environ, "HARNESS_CACHE": str(request.images)} if request.images else self._environ
        return EnvironmentStore(environ=shared, host_in_words="engine: slurm with container: none")

    def _node(self, say: Say) -> Allocation:
        allocation = self._hold.node(say)
        self.facts = {**self._hold.facts, **self.facts}
        return allocation

    def prepare(self, image: Image, say: Say) -> Prepared:
        prepared = self._images.prepare(image, say)
        if self._request.container == "pyxis":
            try:
                trials.unpack(self._node(say), prepared, say)
            except InfrastructureError as error:
                raise unavailable(f"cannot be unpacked: {error}", place=image.place, cause=str(error)) from error
        return prepared

    # ------------------------------------------------------------ trials

    def gpus(self, images: Sequence[Image], say: Say) -> tuple[Gpu, ...]:
        place, allocation = f"{self._place}.gpus", self._node(say)
        prepared = first_available(self, images, say, place=place, remedy="see `series:`")
        listed = self._listed(allocation, prepared, say, place=place)
        for other in allocation.beside:
            there = self._listed(other, prepared, say, place=place)
            if [gpu.name for gpu in there] != [gpu.name for gpu in listed]:
                raise InfrastructureError(f"nodes {allocation.node} and {other.node} have other GPUs", place=place)
            self._hold.twins[other.node] = {own.uuid: twin for own, twin in zip(listed, there, strict=True)}
        return listed

    def _listed(self, allocation: Allocation, prepared: Prepared, say: Say, *, place: str) -> tuple[Gpu, ...]:
        name, payload = owners.new_name(), Payload(job={}, files=agent_files())
        order = steps.order(payload, root=None, environment={}, only=False, arguments=["gpus"])
        with named_place(self._place, ".gpus"):
            start = trials.start_of(name, prepared, gpus=("all",))
            probe, variables = trials.node_command(self._hold, allocation, prepared, start)
            command = [*steps.command_of(allocation, name=name), *probe]
            with steps.started(allocation, command, first=order, variables=variables) as session:
                output = _all_of(session, place=place, say=say)
            visible = printed_on_node(allocation, "sh", "-c", 'echo "$CUDA_VISIBLE_DEVICES"')
        return allocated_gpus(parse_gpus(output, place=place) or (), visible.strip(), place=place)

    def cpu(self, images: Sequence[Image], say: Say) -> str | None:
        """Return the model of the node's CPU, or None; request a node if none is held."""
        self._node(say)
        model = self.facts["cpu"]
        return None if model is None else str(model)

    @contextlib.contextmanager
    def launch(self, launch: LaunchRequest) -> Iterator[Session]:
        allocation, begun_s = self._node(unheard), time.monotonic()
        with trials.running(self._hold, self._images, allocation, launch) as session:
            yield session
        self._hold.longest_s = max(self._hold.longest_s, time.monotonic() - begun_s)

    @contextlib.contextmanager
    def lease(self, say: Say, stopped: Callable[[], bool]) -> Iterator[Lease]:
        """Hold a node during the block. Slurm keeps sweeps of other processes away from it."""
        lease, say_unless_stopped = self._hold.lease, say_unless(stopped, say)
        wait_until_free(lambda: "" if lease.acquire(timeout=BEAT_S) else owners.in_words(), say=say, stopped=stopped)
        try:
            self._node(say_unless_stopped)
            yield partial(self._hold.renew, say_unless_stopped)
        finally:
            lease.release()

    def make_cache(self) -> str:
        folder, allocation = f"{NODE_FOLDER}/{owners.new_name(owners.CACHE_PREFIX)}", self._node(unheard)
        printed_on_node(allocation, "mkdir", "-m", "700", folder)
        allocation.checked.add(folder)
        return folder

    def has_cache(self, reference: str) -> bool:
        """Return whether it is of the present allocation: /tmp may be a job's own, or be emptied at the job's end."""
        return self._hold.allocation is not None and reference in self._hold.allocation.checked

    def remove_cache(self, reference: str) -> None:
        if self._hold.allocation is not None:
            self._hold.allocation.checked.discard(reference)
            printed_on_node(self._hold.allocation, *trials.REMOVAL, reference)

    # ------------------------------------------------------------ leftovers

    def leftovers(self) -> tuple[str, ...]:
        return tuple(self._dead_jobs().values())

    def _dead_jobs(self) -> dict[str, str]:
        """Return the names of this user's jobs whose harness is gone, by job id. Raises InfrastructureError.

        Jobs whose harness ran on another machine are left out; they end at their time limit.
        """
        command = ["squeue", "--me", "--noheader", "--states=PENDING,RUNNING,SUSPENDED", "--format=%i|%j"]
        listed = [
            line.partition("|") for line in run_slurm(command, environ=self._environ, place=self._place).splitlines()
        ]
        return {job.strip(): name.strip() for job, _, name in listed if owners.is_dead(name.strip())}

    def remove_leftovers(self) -> int:
        """Remove the allocations of dead runs and, if a node is held, what dead runs left on it; return their
        number. Each item's name contains its owner; items of living owners are not touched."""
        allocation, program, jobs = self._hold.allocation, self._request.container, self._dead_jobs()
        if jobs:
            run_slurm_quietly(["scancel", "--quiet", *jobs], environ=self._environ)
        if allocation is None:
            return len(jobs)
        if isinstance(self._images, NodeImages):
            listing = [program, "ps", "--all", "--filter", f"name={owners.PREFIX}", "--format", "{{.Names}}"]
            removal = [program, "rm", "--force", "--volumes"]
        else:
            user = printed_on_node(allocation, "id", "-u").strip()
            names = ["(", "-name", f"{owners.PREFIX}*", "-o", "-name", f"{owners.CACHE_PREFIX}*", ")"]
            kind = ["-maxdepth", "1", "-type", "d", "-user", user, *names]
            listing, removal = ["find", NODE_FOLDER, *kind], [*trials.REMOVAL]
        removed = len(jobs)
        for part in (allocation, *allocation.beside):
            listed = printed_on_node(part, *listing).splitlines()
            dead = [name for name in listed if owners.is_dead(PurePosixPath(name).name)]
            if dead:
                printed_on_node(part, *removal, *dead)
            removed += len(dead)
        return removed + (trials.remove_unpacked(allocation) if program == "pyxis" else 0)

    def missing(self, paths: Sequence[Path]) -> tuple[Path, ...]:
        listed = printed_on_node(self._node(unheard), "sh", "-c", ABSENT, "sh", *map(str, paths))
        return tuple(path for path in paths if str(path) in listed.split("\0"))

    def condition(self, say: Say) -> HostCondition:
        if isinstance(self._images, NodeImages):  # only the node knows which images it has
            self._node(say)
        held = self._hold.allocation if self._hold.lease.locked() else None
        return HostCondition(
            engine=f"{self._hold.version}, container: {self._request.container}",
            holder=None if held is None else f"{owners.in_words()}, holds {held.name} as job {held.job}",
            room=self._images.room(),
            leftovers=self.leftovers(),
            kept_bytes=total_bytes(self.kept()),
        )

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            hold.leave(self._hold)


def _all_of(session: Session, *, place: str, say: Say) -> str:
    """Return everything that a step prints. Raises InfrastructureError after PROBE_S seconds."""
    until_s, parts = time.monotonic() + PROBE_S, []
    while (data := session.receive(0.2)) is not None:
        parts.append(data)
        say("listing its GPUs")
        if time.monotonic() > until_s:
            raise InfrastructureError(
                f"the NVIDIA driver did not answer within {PROBE_S:.0f} s; see `nvidia-smi` on that node", place=place
            )
    output = b"".join(parts).decode(errors="replace")
    return output or session.exit().stderr_tail


def allocated_gpus(listed: Sequence[Gpu], visible: str, *, place: object) -> tuple[Gpu, ...]:
    """Return the GPUs in `listed` that are named in `visible`, the value of CUDA_VISIBLE_DEVICES; () if it is empty.

    If Slurm also hides the node's other GPUs (ConstrainDevices), the driver lists only those of the step, and the
    numbers start at 0. Otherwise it lists all cards under its own numbers. Raises InfrastructureError if `visible`
    names a GPU that is not listed.
    """
    names = [name.strip() for name in visible.split(",") if name.strip() and name.strip() != "NoDevFiles"]
    if len(names) == len(listed):
        return tuple(listed)
    chosen = tuple(gpu for name in names for gpu in listed if name in (str(gpu.index), gpu.uuid))
    if len(chosen) != len(names):
        there = "; ".join(map(str, listed)) or "none"
        raise InfrastructureError(
            f"Slurm gave the GPUs {visible}, but the driver lists {there}; see gres.conf of the cluster", place=place
        )
    return chosen
