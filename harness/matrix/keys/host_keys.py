"""Defines the shape of `hosts`: engines and their GPUs, and requests to Slurm."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, Tag

from harness import model
from harness.matrix.fields import BY_FORM, Duration, Engines, Gpus, Parallel, Shape, Size, Text, Truth, Whole

MOST_NODES = 64


class SelectEntry(Shape):
    """The node to request, and the account to charge: options of salloc by their long names, passed on unchanged."""

    partition: Text | None = None
    """The partition, or several, separated by commas."""
    gres: Text | None = None
    """Generic resources of the node: gpu:rtx3090:1."""
    gpus: Text | None = None
    """The number of GPUs: 1, rtx3090:1."""
    constraint: Text | None = None
    """Features that the node must have: driver535&nvlink."""
    exclude: Text | None = None
    """Nodes to avoid."""
    account: Text | None = None
    """The account to charge."""
    qos: Text | None = None
    """The quality of service."""
    reservation: Text | None = None
    """A reservation to use."""
    mem: Text | None = None
    """The node's memory for the sweep; default: all of it if the hold is exclusive."""
    cpus_per_task: Annotated[Text | None, Field(alias="cpus-per-task")] = None
    """The number of CPUs; default: all of the node's if the hold is exclusive."""
    licenses: Text | None = None
    """Licenses that the sweep needs."""
    nice: Text | None = None
    """The amount by which the sweep's priority in the queue is lowered."""


class HoldEntry(Shape):
    """The time for which a node is held for the sweep, and the time to wait for one."""

    time: Annotated[Duration, Field(ge=60, json_schema_extra={"default": "4h"})] = model.SlurmRequest.time_s
    """The time limit of an allocation; a sweep that takes longer requests another one on the same node."""
    wait: Annotated[Duration, Field(json_schema_extra={"default": "24h"})] = model.SlurmRequest.wait_s
    """How long to wait in the queue before the host counts as lost."""
    exclusive: Truth = True
    """false: other jobs may run on the node at the same time, and may disturb what is measured."""


Nodes = Annotated[
    Annotated[Whole, Field(ge=1, le=MOST_NODES), Tag("<text>")]
    | Annotated[list[Text], Field(min_length=1), Tag("<list>")],
    BY_FORM,
]


class HostEntry(Shape):
    """One engine and its GPUs, or a pool of equal machines."""

    engine: Engines
    """docker (the active context or DOCKER_HOST), process (no container), slurm (nodes of a cluster), context:NAME,
    ssh://…, tcp://… or unix://…; or a list of container engines: a pool of equal machines, which share the rows."""
    gpus: Gpus = "none"
    """none; all (one lane with all GPUs); each (one lane per GPU); or a list by index, UUID, MIG id or name, one
    lane each."""
    parallel: Parallel = "auto"
    """auto: launches whose times are not compared run side by side, as many as the host has room for; a number: at most
    that many; false: one at a time; true: the host's lanes run at the same time, whatever is compared, and changes of
    their step times are reported with a warning."""
    disk: Size | None = None
    """Maximum disk space for pulled images on the host: 60GiB."""
    container: model.ContainerKind | None = None
    """slurm: what starts images on the node; none: virtual environments. Default: none."""
    select: SelectEntry | None = None
    """slurm: the requirements on the node, and the account to charge."""
    nodes: Nodes | None = None
    """slurm: the number of equal nodes that share the rows, or the names of nodes; each named node is a separate host,
    HOST.NODE. Default: 1."""
    hold: HoldEntry | None = None
    """slurm: how long a node is held for the sweep, and how long the harness waits for one."""
    images: Text | None = None
    """slurm: a folder that this machine shares with the nodes, for environments and imported images. Default: the
    harness's cache folder."""
