"""The shape of matrix.yaml: its keys and their types. The JSON Schema is generated from it.

Every attribute's docstring is the key's description in the schema. Checks across several places (names that must exist,
scripts, versions) come later, in `series`, `scenarios` and `rules`.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from harness import model
from harness.matrix import values
from harness.matrix.fields import Duration, Engines, Gpus, Name, Parallel, ScalarValue, Size, Text, Truth, Whole
from harness.matrix.keys.base import Shape
from harness.matrix.keys.probes import Largest, Probes
from harness.matrix.keys.scenario import OWN, AnyMetricLimit, Limits, MetricLimitEntry, ScenarioEntry, StepsFunction
from harness.matrix.keys.series import (
    SERIES_KINDS,
    AnySeries,
    Built,
    Installed,
    Listed,
    Locks,
    Repository,
    SeriesEntry,
    TagRange,
)
from harness.matrix.keys.slurm import HoldEntry, Nodes, SelectEntry

__all__ = [
    "OWN",
    "SERIES_KINDS",
    "AnyMetricLimit",
    "Built",
    "HoldEntry",
    "HostEntry",
    "Installed",
    "Largest",
    "Limits",
    "Listed",
    "Locks",
    "MatrixFile",
    "MetricLimitEntry",
    "Probes",
    "Repository",
    "ScenarioEntry",
    "SeriesEntry",
    "StepsFunction",
    "TagRange",
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
    """auto: launches whose times are not compared run side by side, as many as the host has room for; a number: so many
    at most; false: one at a time; true: the host's lanes run at the same time, whatever is compared; changes of their
    step times are reported with a warning."""
    disk: Size | None = None
    """Maximum disk space for pulled images on the host: 60GiB."""
    container: model.ContainerKind | None = None
    """slurm: what starts images on the node; none: virtual environments. Default: none."""
    select: SelectEntry | None = None
    """slurm: what the node must have, and on whose account."""
    nodes: Nodes | None = None
    """slurm: how many equal nodes share the rows at a time, or the names of nodes; each named node is a host of its
    own, HOST.NODE. Default: 1."""
    hold: HoldEntry | None = None
    """slurm: how long a node is held for the sweep, and how long the harness waits for one."""
    images: Text | None = None
    """slurm: a folder that this machine shares with the nodes, for environments and imported images. Default: the
    harness's cache folder."""


class TrialsEntry(Shape):
    """Number of launches per cell."""

    least: Annotated[Whole, Field(ge=1, le=model.MOST_TRIALS)] = model.Trials().least
    """Number of launches of every cell."""
    most: Annotated[Whole, Field(ge=1, le=model.MOST_TRIALS)] = model.Trials().most
    """Maximum number of launches of an undecided cell; at least `least`."""


class StopEntry(Shape):
    """End the sweep before every result is as certain as it can be, at whichever of these comes first."""

    until: Literal["first-bad"] | None = None
    """first-bad: end after the first finding that is confirmed."""
    quick: Truth = False
    """true: end after one round of every row and the launches that confirm what looks bad."""
    time: Duration | None = None
    """End after this time: 2h, 45m, or seconds. A launch that goes on is not cut off."""


class MatrixFile(Shape):
    """What to run, on what, and what counts as bad."""

    version: Annotated[Literal[1], BeforeValidator(values.whole, json_schema_input_type=Literal[1])]
    """The version of this format, always 1."""
    name: Text | None = None
    """The name of the matrix; default: the file's name without its extension."""
    series: Annotated[dict[Name, AnySeries], Field(min_length=1)]
    """The histories: each is a list of versions, oldest first."""
    hosts: Annotated[dict[Name, HostEntry], Field(min_length=1)] | None = None
    """The machines; default: `local`, which is this machine without containers."""
    scenarios: Annotated[dict[Name, ScenarioEntry], Field(min_length=1)]
    """The scenarios to run on each version."""
    include: list[dict[str, ScalarValue]] = []
    """Additional variants: a scenario and its params, one mapping per variant."""
    exclude: list[dict[str, ScalarValue]] = []
    """Cells to leave out: any of series, image, host, scenario and params, with an optional why."""
    baseline: dict[str, Text] = {}
    """For each series, the version that all others are compared with; default: the preceding version."""
    trials: TrialsEntry = TrialsEntry()
    """Number of launches per cell."""
    stop: StopEntry = StopEntry()
    """When to end early; default: when every row is done."""
