"""Defines the settings that only Slurm's hosts have, and what the engine can with them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from harness.model import Abilities, EngineKind, EngineSettings, Host
from harness.model.from_file import FromFile, Later

if TYPE_CHECKING:
    from harness.model import forms
    from harness.run.slurm import host_keys
else:
    forms, host_keys = Later("harness.model.forms"), Later("harness.run.slurm.host_keys")

ContainerKind = Literal["none", "docker", "enroot", "pyxis", "apptainer"]


@dataclass(frozen=True, kw_only=True)
class Select(FromFile):
    """The node to request, and the account to charge: options of salloc by their long names, passed on unchanged."""

    partition: host_keys.Option | None = None
    """The partition, or several, separated by commas."""
    gres: host_keys.Option | None = None
    """Generic resources of the node: gpu:rtx3090:1."""
    gpus: host_keys.Option | None = None
    """The number of GPUs: 1, rtx3090:1."""
    constraint: host_keys.Option | None = None
    """Features that the node must have: driver535&nvlink."""
    exclude: host_keys.Option | None = None
    """Nodes to avoid."""
    account: host_keys.Option | None = None
    """The account to charge."""
    qos: host_keys.Option | None = None
    """The quality of service."""
    reservation: host_keys.Option | None = None
    """A reservation to use."""
    mem: host_keys.Option | None = None
    """The node's memory for the sweep; default: all of it if the hold is exclusive."""
    cpus_per_task: Annotated[host_keys.Option | None, forms.key("cpus-per-task")] = None
    """The number of CPUs; default: all of the node's if the hold is exclusive."""
    licenses: host_keys.Option | None = None
    """Licenses that the sweep needs."""
    nice: host_keys.Option | None = None
    """The amount by which the sweep's priority in the queue is lowered."""

    @property
    def options(self) -> tuple[tuple[str, str], ...]:
        """Return the options that are given, by their long names."""
        return tuple((name.replace("_", "-"), value) for name, value in vars(self).items() if value is not None)


@dataclass(frozen=True, kw_only=True)
class NodeHold(FromFile):
    """The time for which a node is held for the sweep, and the time to wait for one."""

    time_s: Annotated[forms.Duration, forms.Within(least=60), forms.key("time", default="4h")] = 4 * 3600.0
    """The time limit of an allocation; a sweep that takes longer requests another one on the same node."""
    wait_s: Annotated[forms.Duration, forms.key("wait", default="24h")] = 24 * 3600.0
    """How long to wait in the queue before the host counts as lost."""
    exclusive: forms.Truth = True
    """false: other jobs may run on the node at the same time, and may disturb what is measured."""


@dataclass(frozen=True, kw_only=True)
class NodeRequest(EngineSettings):
    """The node that a host requests from Slurm's queue, and how a trial is started on it.

    `node` is the only node to use, if given. `place` and `preferred` are those of the host.
    """

    container: ContainerKind = "none"
    """slurm: what starts images on the node; none: virtual environments. Default: none."""
    select: Annotated[tuple[tuple[str, str], ...], forms.InFile(form=Select, then=lambda select: select.options)] = ()
    """slurm: the requirements on the node, and the account to charge."""
    nodes: host_keys.Nodes | None = None
    """slurm: the number of equal nodes that share the rows, or the names of nodes; each named node is a separate host,
    HOST.NODE. Default: 1."""
    nodes_per_trial: Annotated[forms.Whole, forms.Within(least=1, most=host_keys.MOST_NODES)] = 1
    """slurm: the number of nodes on which each launch runs at the same time, with container: none. Default: 1."""
    hold: NodeHold = NodeHold()
    """slurm: how long a node is held for the sweep, and how long the harness waits for one."""
    images: Annotated[Path | None, forms.LOCATED] = None
    """slurm: a folder that this machine shares with the nodes, for environments and imported images. Default: the
    harness's cache folder."""
    node: Annotated[str | None, forms.NotInFile()] = None
    place: Annotated[int, forms.NotInFile()] = 0
    preferred: Annotated[str | None, forms.NotInFile()] = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "can", abilities(self.container, nodes=self.nodes_per_trial))

    @property
    def named(self) -> tuple[str, ...]:
        """Return the names of the nodes, if the file has them."""
        return self.nodes if isinstance(self.nodes, tuple) else ()

    def hosts(self, host: Host) -> Iterator[Host]:
        """Yield one host for each named node; without names, one host, which is a pool if it has several nodes."""
        if self.named:
            yield from (replace(host, name=f"{host.name}.{n}", settings=replace(self, node=n)) for n in self.named)
        else:
            count = self.nodes if isinstance(self.nodes, int) else 1
            yield replace(host, pool=(host.engine,) * count if count > 1 else ())

    def problems(self, host: Host) -> Iterator[tuple[tuple[str | int, ...], str]]:
        for position, node in enumerate(self.named):
            if node in self.named[:position]:
                yield ("nodes", position), f"{node} is listed twice; keep one"
        if self.nodes_per_trial > 1 and (self.nodes or self.container != "none"):
            text = "is for a host without `nodes`, and with `container: none`; remove one of them"
            yield ("nodes_per_trial",), text
        if host.parallel not in ("auto", False):
            yield ("parallel",), "is not for engine: slurm; ask for several nodes instead"


def abilities(container: ContainerKind, *, nodes: int = 1) -> Abilities:
    """Return what Slurm can with a program for containers, or with none, and a number of nodes for each trial."""
    return Abilities(
        makes_environments=container == "none",
        sees_ports=container == "none",
        lacks_loopback=container in ("enroot", "apptainer"),
        keeps_caches=container == "none" and nodes == 1,
        queues=True,
        keeps_images_there=container == "docker",
        spans_machines=nodes > 1,
    )


KIND = EngineKind(
    opener="harness.run.slurm.engine:open_engine",
    can=abilities("none"),
    settings=NodeRequest,
    not_in_pool="a cluster cannot be in a pool; write engine: slurm, and the number of `nodes`",
)
"""The engine that the entry point `slurm` names."""
