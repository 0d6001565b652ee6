"""Starts the trials of a host on its node, in a virtual environment or in a container."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from harness.errors import InfrastructureError
from harness.model.watching import Say, unheard
from harness.run import owners
from harness.run.engine import LaunchRequest, Prepared, Session
from harness.run.hosts import side_by_side
from harness.run.process import environments
from harness.run.process.engine import environment_of
from harness.run.process.environments import EnvironmentStore
from harness.run.slurm import steps
from harness.run.slurm.container_commands import (
    BARE,
    COMMANDS,
    INSIDE,
    NODE_FOLDER,
    OUTSIDE,
    Start,
    pyxis,
    pyxis_variables,
    visible_gpus,
)
from harness.run.slurm.hold import Hold
from harness.run.slurm.images import ImageFiles, NodeImages
from harness.run.slurm.queue import Allocation, slurm_environment
from harness.run.slurm.steps import printed_on_node

NodeStore = EnvironmentStore | NodeImages | ImageFiles


@dataclass(frozen=True, kw_only=True)
class NodeTrials:
    """Starts the trials of one host on the node that it holds."""

    hold: Hold
    images: NodeStore

    @property
    def container(self) -> str:
        """Return the program that starts containers, or "none"."""
        return self.hold.request.container

    def started(self, allocation: Allocation, launch: LaunchRequest) -> contextlib.AbstractContextManager[Session]:
        """Return the session of a new trial. Raises InfrastructureError."""
        run = self._in_environment if isinstance(self.images, EnvironmentStore) else self._in_container
        return run(allocation, launch)

    def probe(self, allocation: Allocation, name: str, prepared: Prepared) -> tuple[list[str], Mapping[str, str]]:
        """Return the command that runs `inside.py` with all GPUs, and the environment variables that srun needs for the
        command."""
        if isinstance(self.images, EnvironmentStore):
            return _python(prepared), {}
        start = Start(name=name, image=prepared.reference, text=steps.INSIDE.read_text(), scenario=BARE,
                      gpus=("all",), keep_entrypoint=False, unpacked=self.unpacked(allocation, prepared))  # fmt: skip
        return COMMANDS[self.container](start), self._variables(start)

    # ------------------------------------------------------------ virtual environments

    @contextlib.contextmanager
    def _in_environment(self, allocation: Allocation, launch: LaunchRequest) -> Iterator[Session]:
        python, memory_bytes = Path(launch.prepared.reference), launch.scenario.memory_bytes
        self._check_shared(allocation, python)
        name = owners.new_name()
        order = steps.order(
            launch.payload,
            root=f"{NODE_FOLDER}/{name}",
            environment=environment_of(launch),
            only=True,
            data_limit_bytes=None if self.hold.limits_memory else memory_bytes,
        )
        command = [*steps.command_of(allocation, name=name, memory_bytes=memory_bytes), *_python(launch.prepared)]
        removal = _removal("none", name)
        with environments.in_use(python), steps.started(allocation, command, first=order, removal=removal) as session:
            yield session

    def _check_shared(self, allocation: Allocation, python: Path) -> None:
        """Raise InfrastructureError if the node cannot start the interpreter of the environment that was made here."""
        if str(python) in allocation.checked:
            return
        output = steps.printed_on_node(allocation, "sh", "-c", '"$0" -c "print(1)" 2>&1 || true', str(python)).strip()
        if output != "1":
            raise InfrastructureError(
                f"node {allocation.node} cannot start {python} ({output[-200:]!r}); set `images:` to a folder that this"
                " machine and the nodes share, and install that Python on the nodes",
                place=self.hold.place,
            )
        allocation.checked.add(str(python))

    # ------------------------------------------------------------ containers

    @contextlib.contextmanager
    def _in_container(self, allocation: Allocation, launch: LaunchRequest) -> Iterator[Session]:
        name, image, scenario = owners.new_name(), launch.prepared.image, launch.scenario
        gpus = tuple(gpu.uuid for gpu in launch.gpus)
        limit_bytes = scenario.memory_bytes if isinstance(self.images, ImageFiles) else None
        selection = visible_gpus(self.container, gpus)
        order = steps.order(
            launch.payload,
            root=None,
            environment={**selection, **dict(image.environment), **dict(scenario.environment)},
            only=False,
            data_limit_bytes=None if self.hold.limits_memory else limit_bytes,
            without=_without(allocation, launch) if self.container == "pyxis" else None,
            alone=self.container == "pyxis" and not scenario.network,
        )
        start = Start(
            name=name,
            image=launch.prepared.reference,
            text=steps.INSIDE.read_text(),
            scenario=scenario,
            gpus=gpus,
            keep_entrypoint=image.keep_entrypoint,
            ulimits=self._ulimits(allocation, launch) if isinstance(self.images, NodeImages) else (),
            memory_bytes=side_by_side.default_bytes(self.hold.facts["memory_bytes"]),
            names_capabilities="NVIDIA_DRIVER_CAPABILITIES" in launch.prepared.environment,
            unpacked=self.unpacked(allocation, launch.prepared),
        )
        srun = steps.command_of(allocation, name=name, memory_bytes=limit_bytes)
        command = [*srun, *COMMANDS[self.container](start)]
        with (
            self.images.in_use(launch.prepared) if isinstance(self.images, ImageFiles) else contextlib.nullcontext(),
            steps.started(
                allocation,
                command,
                first=order,
                variables=self._variables(start),
                removal=_removal(self.container, name),
            ) as session,
        ):
            yield session

    def unpacked(self, allocation: Allocation, prepared: Prepared, say: Say = unheard) -> str:
        """Return the name of the container into which pyxis unpacked the image; unpack it if necessary. Return "" for
        other programs. Raises InfrastructureError."""
        if self.container != "pyxis":
            return ""
        return unpack(allocation, prepared.reference, prepared.digest, say=say)

    def _variables(self, start: Start) -> Mapping[str, str]:
        return pyxis_variables(start) if self.container == "pyxis" else {}

    def _ulimits(self, allocation: Allocation, launch: LaunchRequest) -> tuple[tuple[str, int, int], ...]:
        """Return the scenario's ulimits without the default ulimits that the engine on the node may not set.

        To find out, an idle container is started once with each set of ulimits.
        """
        while (left := self.hold.ulimits.of(launch.scenario)) and str(left) not in allocation.checked:
            start = Start(name=owners.new_name(), image=launch.prepared.reference, text="", scenario=BARE,
                          keep_entrypoint=False, ulimits=left)  # fmt: skip
            idle = [word if word != INSIDE else "exit 0" for word in COMMANDS[self.container](start)]
            try:
                steps.printed_on_node(allocation, *idle)
            except InfrastructureError as error:
                if not self.hold.ulimits.learn(str(error), launch.scenario):
                    raise
            else:
                allocation.checked.add(str(left))
        return left


def _python(prepared: Prepared) -> list[str]:
    return [prepared.reference, "-I", "-c", steps.INSIDE.read_text()]


def _removal(container: str, name: str) -> list[str]:
    """Return the command that removes a trial's container or folder from the node."""
    if container in ("docker", "podman"):
        return [container, "rm", "--force", "--volumes", name]
    return ["rm", "-rf", "--", f"{NODE_FOLDER}/{name}"]


def _without(allocation: Allocation, launch: LaunchRequest) -> Mapping[str, object]:
    """Return the field `without` of the header that `inside.py` reads: it describes the variables that pyxis passes to
    the container although they are not the image's."""
    return {
        "names": OUTSIDE,
        "values": slurm_environment(allocation.environ),
        "kept": sorted({*launch.prepared.environment, "PATH"}),
    }


# ---------------------------------------------------------------- images unpacked for pyxis
#
# There is one container for each image, which is started for each trial of the image and removed when the node is
# released. Without a named container, pyxis would unpack the image again for each step.


UNPACK_S = 3600.0


def unpack(allocation: Allocation, image: str, digest: str, *, say: Say) -> str:
    """Unpack an image on the node if this has not been done; return the container's name. Raises
    InfrastructureError."""
    name = owners.new_name(mark=digest.removeprefix("sha256:")[:12])  # pyxis adds the prefix `pyxis_`
    if name in allocation.checked:
        return name
    start = Start(name=name, image=image, text="", scenario=BARE, keep_entrypoint=False, unpacked=name)
    options = [word for word in pyxis(start) if word.startswith("--")]
    printed_on_node(
        allocation,
        *options,
        "true",
        limit_s=UNPACK_S,
        beat=lambda: say(f"unpacking it on node {allocation.node}"),
        variables=pyxis_variables(start),
    )
    allocation.checked.add(name)
    allocation.before_close.append(lambda: _remove(allocation, lambda own_name: own_name == name))
    return name


def remove_dead_containers(allocation: Allocation) -> int:
    """Remove the containers of dead owners from the node; return their number. Raises InfrastructureError."""
    return _remove(allocation, owners.is_dead)


def _remove(allocation: Allocation, is_meant: Callable[[str], bool]) -> int:
    """Remove the harness's containers for which `is_meant` returns true; return their number. `is_meant` gets the name
    without the prefix of pyxis: `pyxis_`, and the job id if containers belong to a job."""
    names = [line.strip() for line in printed_on_node(allocation, "enroot", "list").splitlines()]
    ours = [name for name in names if name.startswith("pyxis_") and owners.PREFIX in name]
    meant = [name for name in ours if is_meant(name[name.find(owners.PREFIX) :])]
    if meant:
        printed_on_node(allocation, "enroot", "remove", "--force", *meant)
    return len(meant)
