"""Starts the trials of a host on its node, in a virtual environment or in a container."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.errors import InfrastructureError
from harness.model import Prepared
from harness.model.watching import Say, unheard
from harness.run import owners
from harness.run.engine import LaunchRequest, Session
from harness.run.hosts import side_by_side
from harness.run.images.disk_budget import architecture_of
from harness.run.process import environments
from harness.run.process.engine import check_home, environment_of, with_caches_in
from harness.run.process.environments import EnvironmentStore
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
from harness.run.slurm.queue import Allocation, run_slurm, slurm_environment
from harness.run.slurm.steps import INSIDE_TEXT, StepSession, command_of, order, printed_on_node, started
from harness.run.trial import carried_python

NodeStore = EnvironmentStore | NodeImages | ImageFiles
UNPACK_S = 3600.0
OPEN_UP = 'find "$@" -type d ! -perm -u=rwx -exec chmod u+rwx {} ";"; rm -rf -- "$@"'
REMOVAL = ("sh", "-c", OPEN_UP, "sh")
"""Removes folders of a node whatever the rights of those in them: some languages make their caches read-only."""
FREE_PORT = "import socket; port = socket.socket(); port.bind(('', 0)); print(port.getsockname()[1])"


def node_command(
    hold: Hold, allocation: Allocation, prepared: Prepared, start: Start
) -> tuple[list[str], Mapping[str, str]]:
    """Return the command that runs `inside.py` in an image, and the environment variables that srun needs for it."""
    container = hold.request.container
    if container == "none":
        return [prepared.reference, "-I", "-c", INSIDE_TEXT], {}
    if container != "pyxis":
        return COMMANDS[container](start), {}
    unpack(allocation, prepared)
    return pyxis(start), pyxis_variables(start)


def start_of(name: str, prepared: Prepared, **fields: Any) -> Start:
    """Return the container to start for an image: without `fields`, one that runs no trial."""
    told = "NVIDIA_DRIVER_CAPABILITIES" in prepared.environment
    fields = {"scenario": BARE, "keep_entrypoint": False, "names_capabilities": told, **fields}
    return Start(name=name, image=prepared.reference, unpacked=_unpacked_name(prepared), text=INSIDE_TEXT, **fields)


@contextlib.contextmanager
def running(hold: Hold, images: NodeStore, allocation: Allocation, launch: LaunchRequest) -> Iterator[Session]:
    """Yield the session of a new trial, on all its nodes. Raises InfrastructureError."""
    given = _rendezvous(allocation, launch) if allocation.beside else {}
    with contextlib.ExitStack() as ends:
        sessions = []
        for number, part in enumerate((allocation, *allocation.beside)):
            variables = {**given, "NODE_RANK": str(number)} if given else {}
            own = hold.twins.get(part.node, {})
            request = replace(launch, gpus=tuple(own.get(gpu.uuid, gpu) for gpu in launch.gpus))
            sessions.append(ends.enter_context(_on_node(hold, images, part, request, variables)))
        sessions[0].beside = {session.name: session for session in sessions[1:]}
        yield sessions[0]


def _rendezvous(allocation: Allocation, launch: LaunchRequest) -> dict[str, str]:
    """Return the variables by which the ranks on all nodes find each other, as torch and its launchers name them."""
    shown = run_slurm(
        ["scontrol", "--oneliner", "show", "node", allocation.node], environ=allocation.environ, place=allocation.place
    )
    address = re.search(r"\bNodeAddr=(\S+)", shown)
    port = printed_on_node(allocation, launch.prepared.reference, "-I", "-c", FREE_PORT).strip()
    master, nodes = address[1] if address else allocation.node, 1 + len(allocation.beside)
    return {"MASTER_ADDR": master, "MASTER_PORT": port, "NNODES": str(nodes)}


@contextlib.contextmanager
def _on_node(
    hold: Hold, images: NodeStore, allocation: Allocation, launch: LaunchRequest, given: Mapping[str, str]
) -> Iterator[StepSession]:
    container, name, scenario = hold.request.container, owners.new_name(), launch.scenario
    prepared, gpus = launch.prepared, tuple(gpu.uuid for gpu in launch.gpus)
    memory_bytes = None if isinstance(images, NodeImages) else scenario.memory_bytes
    removal, protecting = [*REMOVAL, f"{NODE_FOLDER}/{name}"], contextlib.ExitStack()
    if isinstance(images, EnvironmentStore):
        _check_shared(hold, allocation, Path(prepared.reference))
        if scenario.launcher[:1] == ("srun",):
            given = {**given, **slurm_environment(allocation.environ), "SLURM_JOB_ID": allocation.job}
        launch = with_caches_in(launch, f"{NODE_FOLDER}/{name}")
        made = environment_of(launch, root=f"{NODE_FOLDER}/{name}", own=allocation.environ)
        check_home(launch, made.get("HOME", ""), Path(NODE_FOLDER) / name)
        environment, start = {**given, **made}, start_of(name, prepared)
        protecting.enter_context(environments.in_use(Path(prepared.reference)))
    else:
        environment = {**visible_gpus(container, gpus), **launch.environment}
        ulimits = _ulimits(hold, allocation, launch) if isinstance(images, NodeImages) else ()
        start = start_of(
            name, prepared, scenario=scenario, gpus=gpus, keep_entrypoint=prepared.image.keep_entrypoint,
            ulimits=ulimits, memory_bytes=side_by_side.default_bytes(hold.facts["memory_bytes"]),
        )  # fmt: skip
        if isinstance(images, ImageFiles):
            protecting.enter_context(images.in_use(prepared))
        else:
            removal = [container, "rm", "--force", "--volumes", name]
    with protecting:
        command, variables = node_command(hold, allocation, prepared, start)
        payload = launch.payload
        if scenario.serve:
            carried_python.check_machine(architecture_of(hold.facts))
            payload = carried_python.with_client(payload, scenario, "{root}")  # the agent knows it
        kept = sorted({*prepared.environment, "PATH"})
        without = {"names": OUTSIDE, "values": slurm_environment(allocation.environ), "kept": kept}
        first = order(
            payload, root=f"{NODE_FOLDER}/{name}" if container == "none" else None, environment=environment,
            only=container == "none", data_limit_bytes=None if hold.limits_memory else memory_bytes,
            without=without if container == "pyxis" else None, alone=container == "pyxis" and not scenario.network,
        )  # fmt: skip
        srun = command_of(allocation, name=name, memory_bytes=memory_bytes)
        trial = started(allocation, [*srun, *command], first=first, variables=variables, removal=removal)
        with trial as session:
            yield session


def _check_shared(hold: Hold, allocation: Allocation, python: Path) -> None:
    """Raise InfrastructureError if the node cannot start the interpreter of the environment that was made here."""
    if str(python) in allocation.checked:
        return
    output = printed_on_node(allocation, "sh", "-c", '"$0" -c "print(1)" 2>&1 || true', str(python)).strip()
    if output != "1":
        raise InfrastructureError(
            f"node {allocation.node} cannot start {python} ({output[-200:]!r}); set `images:` to a folder that this"
            " machine and the nodes share, and install that Python on the nodes",
            place=hold.place,
        )
    allocation.checked.add(str(python))


def _ulimits(hold: Hold, allocation: Allocation, launch: LaunchRequest) -> tuple[tuple[str, int, int], ...]:
    """Return the scenario's ulimits without the default ulimits that the engine on the node may not set.

    To find out, an idle container is started once with each set of ulimits.
    """
    while (left := hold.ulimits.of(launch.scenario)) and str(left) not in allocation.checked:
        start = start_of(owners.new_name(), launch.prepared, ulimits=left)
        idle = [word if word != INSIDE else "exit 0" for word in COMMANDS[hold.request.container](start)]
        try:
            printed_on_node(allocation, *idle)
        except InfrastructureError as error:
            if not hold.ulimits.learn(str(error), launch.scenario):
                raise
        else:
            allocation.checked.add(str(left))
    return left


# ---------------------------------------------------------------- images unpacked for pyxis
#
# There is one container for each image, which is started for each trial of the image and removed when the node is
# released. Without a named container, pyxis would unpack the image again for each step. To start an image without its
# entrypoint, another container is made: pyxis leaves a file in it (/etc/rc.local) by which the entrypoint never runs.


def _unpacked_name(prepared: Prepared) -> str:
    digest = prepared.digest.removeprefix("sha256:")
    mark = digest[:12] if prepared.image.keep_entrypoint else digest[-12:]
    return owners.new_name(mark=mark)  # pyxis adds the prefix `pyxis_`


def unpack(allocation: Allocation, prepared: Prepared, say: Say = unheard) -> None:
    """Unpack an image on the node if this has not been done. Raises InfrastructureError.

    It first removes what a failed unpacking left there, which pyxis would take for the whole image.
    """
    name = _unpacked_name(prepared)
    if name in allocation.checked:
        return

    def remove() -> None:
        remove_unpacked(allocation, lambda own_name: own_name == name)

    start = start_of(name, prepared, keep_entrypoint=prepared.image.keep_entrypoint)
    with allocation.unpacking:
        if name in allocation.checked:
            return
        remove()
        allocation.before_close.append(remove)
        try:
            options = [word for word in pyxis(start) if word.startswith("--")]
            printed_on_node(
                allocation, *options, "true", limit_s=UNPACK_S, variables=pyxis_variables(start),
                beat=lambda: say(f"unpacking it on node {allocation.node}"),
            )  # fmt: skip
        except InfrastructureError:
            remove()  # it may have filled the disk
            raise
        allocation.checked.add(name)


def remove_unpacked(allocation: Allocation, is_meant: Callable[[str], bool] = owners.is_dead) -> int:
    """Remove the harness's containers for which `is_meant` returns true, without it those of dead owners; return their
    number. `is_meant` gets the name without the prefix of pyxis: `pyxis_`, and the job id if containers belong to a
    job. Raises InfrastructureError."""
    names = [line.strip() for line in printed_on_node(allocation, "enroot", "list").splitlines()]
    ours = [name for name in names if name.startswith("pyxis_") and owners.PREFIX in name]
    meant = [name for name in ours if is_meant(name[name.find(owners.PREFIX) :])]
    if meant:
        printed_on_node(allocation, "enroot", "remove", "--force", *meant)
    return len(meant)
