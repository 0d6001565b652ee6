"""The keys of a host with `engine: slurm`."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, Tag

from harness import model
from harness.matrix.fields import BY_FORM, Duration, Text, Truth, Whole
from harness.matrix.keys.base import Shape

MOST_NODES = 64


class SelectEntry(Shape):
    """What the node must have, and on whose account: options of salloc by their long names, passed on as they are."""

    partition: Text | None = None
    """The partition, or several with commas between them."""
    gres: Text | None = None
    """Generic resources of the node: gpu:rtx3090:1."""
    gpus: Text | None = None
    """The number of GPUs: 1, rtx3090:1."""
    constraint: Text | None = None
    """Features that the node must have: driver535&nvlink."""
    exclude: Text | None = None
    """Nodes that are not wanted."""
    account: Text | None = None
    """Whose account is charged."""
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
    """By how much the sweep's priority in the queue is lowered."""


class HoldEntry(Shape):
    """How long a node is held for the sweep, and how long the harness waits for one."""

    time: Annotated[Duration, Field(ge=60, json_schema_extra={"default": "4h"})] = model.SlurmRequest.time_s
    """The time limit of an allocation; a sweep that takes longer asks for another one on the same node."""
    wait: Annotated[Duration, Field(json_schema_extra={"default": "24h"})] = model.SlurmRequest.wait_s
    """How long to wait in the queue before the host counts as lost."""
    exclusive: Truth = True
    """false: other jobs may run on the node at the same time, and may disturb what is measured."""


Nodes = Annotated[
    Annotated[Whole, Field(ge=1, le=MOST_NODES), Tag("<text>")]
    | Annotated[list[Text], Field(min_length=1), Tag("<list>")],
    BY_FORM,
]
