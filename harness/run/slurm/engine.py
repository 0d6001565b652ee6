"""The Slurm engine: an allocation holds one node for the sweep, and each trial is a step of it.

The files of a trial go to the node through the step's input, and the conversation through its input and output. Only
images need a folder that this machine shares with the nodes.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.errors import EngineUnreachable, ImageUnavailable, InfrastructureError, Interrupted
from harness.model import Host, Image, Scenario
from harness.model.doctor import HostCondition
from harness.model.gpus import Gpu
from harness.run.docker.containers import MEMORY_SHARE, refused_default_ulimit
from harness.run.engine import Kept, LaunchRequest, Lease, Payload, Prepared, Say, Session
from harness.run.hosts import owner
from harness.run.hosts.gpus import PROBE_S, parse
from harness.run.images.disk_budget import total_bytes
from harness.run.process import environments, leftovers
from harness.run.process.store import EnvironmentStore
from harness.run.slurm import commands, hold, left_behind, steps
from harness.run.slurm.allocation import Allocation
from harness.run.slurm.containers import COMMANDS, INSIDE, Start
from harness.run.slurm.node_images import NodeImages
from harness.run.slurm.visible_gpus import ours
from harness.run.trial.payload import agent_files

SHELL_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
NODE_FOLDER = "/tmp"
STEP_S = 60.0


def open_engine(host: Host, *, environ: Mapping[str, str], say: Say) -> SlurmEngine:
    """Return the engine of a host with `engine: slurm`. A node is asked for when one is needed.

    Raises EngineUnreachable if Slurm does not answer on this machine.
    """
    say("asking Slurm")
    engine = SlurmEngine(host, environ=environ)
    try:
        engine.set_version(commands.asked(["sinfo", "--version"], environ=environ, place=host.where).strip())
        commands.asked(["squeue", "--me", "--noheader"], environ=environ, place=host.where)
    except BaseException as error:
        engine.close()
        if isinstance(error, InfrastructureError):
            raise EngineUnreachable(str(error)) from error
        raise
    return engine


class SlurmEngine:
    def __init__(self, host: Host, *, environ: Mapping[str, str]) -> None:
        assert host.slurm is not None
        self._host, self._request, self._environ = host, host.slurm, environ
        self._place = str(host.where)
        shared = {**environ, "HARNESS_CACHE": str(host.slurm.images)} if host.slurm.images else dict(environ)
        self._hold = hold.join(host, environ=environ)
        self._images: EnvironmentStore | NodeImages = (
            EnvironmentStore(environ=shared, host_in_words="engine: slurm with container: none")
            if host.in_environments
            else NodeImages(self._hold, program=host.slurm.container)
        )
        self._is_closed = False
        self.facts: Mapping[str, Any] = self._hold.facts

    def set_version(self, version: str) -> None:
        self._hold.version = version

    def _node(self, say: Say) -> Allocation:
        found = self._hold.node(say)
        self.facts = {**self._hold.facts, **self.facts}
        return found

    # ------------------------------------------------------------ images

    def prepare(self, image: Image, say: Say) -> Prepared:
        return self._images.prepare(image, say)

    def at_hand(self, image: Image) -> bool:
        return self._images.at_hand(image)

    def look(self, image: Image, say: Say) -> Prepared | None:
        return self._images.look(image, say)

    def holds(self, prepared: Prepared) -> bool:
        return self._images.holds(prepared)

    def size_bytes(self, prepared: Prepared) -> int:
        return self._images.size_bytes(prepared)

    def kept(self) -> tuple[Kept, ...]:
        return self._images.kept()

    def remove(self, kept: Kept, say: Say) -> bool:
        return self._images.remove(kept, say)

    def remove_images(self, say: Say) -> tuple[str, ...]:
        return self._images.remove_images(say)

    # ------------------------------------------------------------ trials

    def gpus(self, images: Sequence[Image], say: Say) -> tuple[Gpu, ...]:
        place = f"{self._place}.gpus"
        allocation = self._node(say)
        prepared = self._any(images, say)
        name, payload = leftovers.new_name(), Payload(job={}, files=agent_files())
        given = steps.order(payload, root=None, environment={}, only=False, arguments=["gpus"])
        inside = self._probe(name, prepared) if self._in_containers else self._python(prepared)
        command = [*steps.command_of(allocation, name=name), *inside]
        with steps.started(allocation, command, first=given, place=place) as session:
            output = _all_of(session, limit_s=PROBE_S, place=place, say=say)
        visible = self._on_node(allocation, "sh", "-c", 'echo "$CUDA_VISIBLE_DEVICES"')
        return ours(parse(output, place=place) or (), visible.strip(), place=place)

    def cpu(self, images: Sequence[Image], say: Say) -> str | None:
        """Return the model of the node's CPU; a node is asked for if none is held."""
        self._node(say)
        found = self.facts["cpu"]
        return None if found is None else str(found)

    def _probe(self, name: str, prepared: Prepared) -> list[str]:
        """Return the command of a container with all GPUs."""
        scenario = Scenario(name="gpus", where=self._host.where, shm_bytes=64 << 20)
        start = Start(name=name, image=prepared.reference, text=steps.INSIDE.read_text(), scenario=scenario,
                      gpus=("all",), keep_entrypoint=False)  # fmt: skip
        return COMMANDS[self._request.container](start)

    def _on_node(self, allocation: Allocation, *command: str) -> str:
        return steps.printed(
            allocation, command, name=leftovers.new_name(), limit_s=STEP_S, place=self._place, beat=lambda: None
        )

    def _any(self, images: Sequence[Image], say: Say) -> Prepared:
        """Return the first of `images` that is available."""
        for image in images[:-1]:
            with contextlib.suppress(ImageUnavailable):  # reported when its cells are run
                return self.prepare(image, say)
        if not images:
            raise InfrastructureError(f"{self._place}.gpus: there is no image to ask in; see `series:`")
        return self.prepare(images[-1], say)

    @contextlib.contextmanager
    def launch(self, launch: LaunchRequest) -> Iterator[Session]:
        allocation, begun_s = self._node(_unheard), time.monotonic()
        run = self._in_container if self._in_containers else self._in_environment
        with run(allocation, launch) as session:
            yield session
        self._hold.longest_s = max(self._hold.longest_s, time.monotonic() - begun_s)

    @property
    def _in_containers(self) -> bool:
        return self._request.container != "none"

    @contextlib.contextmanager
    def _in_environment(self, allocation: Allocation, launch: LaunchRequest) -> Iterator[Session]:
        python, memory_bytes = Path(launch.prepared.reference), launch.scenario.memory_bytes
        self._check_shared(allocation, python)
        name = leftovers.new_name()
        given = steps.order(
            launch.payload,
            root=f"{NODE_FOLDER}/{name}",
            environment=_environment(launch),
            only=True,
            data_limit_bytes=None if self._hold.limits_memory else memory_bytes,
        )
        command = [*steps.command_of(allocation, name=name, memory_bytes=memory_bytes), *self._python(launch.prepared)]
        with environments.in_use(python), steps.started(allocation, command, first=given, place=self._place) as session:
            yield session

    def _python(self, prepared: Prepared) -> list[str]:
        return [prepared.reference, "-I", "-c", steps.INSIDE.read_text()]

    @contextlib.contextmanager
    def _in_container(self, allocation: Allocation, launch: LaunchRequest) -> Iterator[Session]:
        name, image, scenario = leftovers.new_name(), launch.prepared.image, launch.scenario
        environment = {**dict(image.environment), **dict(scenario.environment)}
        given = steps.order(launch.payload, root=None, environment=environment, only=False)
        start = Start(
            name=name,
            image=launch.prepared.reference,
            text=steps.INSIDE.read_text(),
            scenario=scenario,
            gpus=tuple(gpu.uuid for gpu in launch.gpus),
            keep_entrypoint=image.keep_entrypoint,
            ulimits=self._ulimits(allocation, launch),
            memory_bytes=int(self._hold.facts["memory_bytes"] * MEMORY_SHARE),
        )
        command = [*steps.command_of(allocation, name=name), *COMMANDS[self._request.container](start)]
        with steps.started(allocation, command, first=given, place=self._place) as session:
            yield session

    def _ulimits(self, allocation: Allocation, launch: LaunchRequest) -> tuple[tuple[str, int, int], ...]:
        """Return the scenario's ulimits without the default ones that the engine on the node may not set.

        A container that does nothing finds out, once for each set of ulimits.
        """
        asked = launch.scenario.ulimits
        while (left := tuple(one for one in asked if one[0] not in self._hold.refused_ulimits)) and (
            str(left) not in allocation.checked
        ):
            name = leftovers.new_name()
            start = Start(name=name, image=launch.prepared.reference, text="", keep_entrypoint=False, ulimits=left,
                          scenario=Scenario(name="ulimits", where=self._host.where, shm_bytes=64 << 20))  # fmt: skip
            nothing = [word if word != INSIDE else "exit 0" for word in COMMANDS[self._request.container](start)]
            try:
                self._on_node(allocation, *nothing)
            except InfrastructureError as error:
                refused = refused_default_ulimit(str(error), launch.scenario)
                if refused is None or refused in self._hold.refused_ulimits:
                    raise
                self._hold.refused_ulimits.add(refused)
            else:
                allocation.checked.add(str(left))
        return left

    def _check_shared(self, allocation: Allocation, python: Path) -> None:
        """Raise InfrastructureError if the node does not have the environment that was made here."""
        if str(python) in allocation.checked:
            return
        found = self._on_node(allocation, "sh", "-c", '"$0" -c "print(1)" 2>&1 || true', str(python))
        if found.strip() != "1":
            raise InfrastructureError(
                f"{self._place}: node {allocation.node} cannot start {python} ({found.strip()[-200:]!r}); set `images:`"
                " to a folder that this machine and the nodes share, and have that Python on the nodes"
            )
        allocation.checked.add(str(python))

    @contextlib.contextmanager
    def lease(self, say: Say, stopped: Callable[[], bool]) -> Iterator[Lease]:
        """Hold a node: the queue is what keeps other sweeps away from it."""

        def told(text: str) -> None:
            if stopped():
                raise Interrupted("interrupted")
            say(text)

        with hold.waited_for(self._hold.lease, lambda: told(f"waiting: {owner.in_words()} uses this host")):
            self._node(told)
            yield _HeldNode(lambda: self._hold.renewed(told))

    # ------------------------------------------------------------ leftovers

    def leftovers(self) -> tuple[str, ...]:
        return tuple(left_behind.dead_jobs(environ=self._environ, place=self._place).values())

    def remove_leftovers(self) -> int:
        """Remove the allocations of dead runs, and what they left on the node that is held, if one is."""
        allocation = self._hold.allocation
        jobs = left_behind.remove_jobs(environ=self._environ, place=self._place)
        if allocation is None:
            return jobs
        if self._in_containers:
            return jobs + left_behind.remove_containers(allocation, self._request.container, place=self._place)
        return jobs + left_behind.remove_folders(allocation, NODE_FOLDER, place=self._place)

    def condition(self, say: Say) -> HostCondition:
        if self._in_containers:  # only the node knows which images it has
            self._node(say)
        held = self._hold.allocation if self._hold.lease.locked() else None
        return HostCondition(
            engine=f"{self._hold.version}, container: {self._request.container}",
            holder=None if held is None else f"{owner.in_words()}, has node {held.node} as job {held.job}",
            room=self._images.room(),
            leftovers=self.leftovers(),
            kept_bytes=total_bytes(self.kept()),
        )

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            hold.leave(self._hold)


class _HeldNode:
    """The lease: before each trial there is a node with time for it."""

    def __init__(self, renew: Callable[[], object]) -> None:
        self._renew = renew

    def check(self) -> None:
        self._renew()


def _environment(launch: LaunchRequest) -> dict[str, str]:
    """Return the trial's whole environment, as the process engine gives it."""
    folder = Path(launch.prepared.reference).parent
    return {
        "PATH": f"{folder}:{SHELL_PATH}",
        "VIRTUAL_ENV": str(folder.parent),
        "LANG": "C.UTF-8",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": ",".join(gpu.uuid for gpu in launch.gpus),
        **dict(launch.prepared.image.environment),
        **dict(launch.scenario.environment),
    }


def _all_of(session: Session, *, limit_s: float, place: str, say: Say) -> str:
    """Return all that a step prints. Raises InfrastructureError if it takes too long."""
    until_s, parts = time.monotonic() + limit_s, []
    while (data := session.receive(0.2)) is not None:
        parts.append(data)
        say("asking for its GPUs")
        if time.monotonic() > until_s:
            raise InfrastructureError(
                f"{place}: the NVIDIA driver did not answer within {limit_s:.0f} s; see `nvidia-smi` on that node"
            )
    output = b"".join(parts).decode(errors="replace")
    return output or session.exit().stderr_tail


def _unheard(text: str) -> None:
    """A node that is held already has nothing to tell."""
