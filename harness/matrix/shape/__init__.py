"""The shape of matrix.yaml: what keys there are and what each may hold. The JSON Schema is generated from it.

Every attribute's docstring is the key's description in the schema. What depends on more than one place (names that
must exist, scripts, versions) is checked later, in `series`, `scenarios` and `rules`.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from harness import model
from harness.matrix import values
from harness.matrix.fields import Gpus, Name, Scalar, Size, Text, Truth, Whole
from harness.matrix.shape.base import Shape
from harness.matrix.shape.probes import Largest, Probes
from harness.matrix.shape.scenario import OWN, AnyMetricLimit, Limits, MetricLimitEntry, ScenarioEntry
from harness.matrix.shape.series import (
    SERIES_KINDS,
    AnySeries,
    Built,
    Installed,
    Listed,
    Repository,
    Series,
    TagRange,
)

__all__ = [
    "OWN",
    "SERIES_KINDS",
    "AnyMetricLimit",
    "AnySeries",
    "Built",
    "HostEntry",
    "Installed",
    "Largest",
    "Limits",
    "Listed",
    "MatrixFile",
    "MetricLimitEntry",
    "Probes",
    "Repository",
    "ScenarioEntry",
    "TagRange",
]


class HostEntry(Shape):
    """One engine and its GPUs."""

    engine: Text
    """docker (the active context or DOCKER_HOST), process (no container), context:NAME, ssh://…, tcp://… or unix://…."""
    gpus: Gpus = "none"
    """none; all (one lane with all); each (a lane for each); or a list by index, UUID, MIG id or name, a lane each."""
    parallel: Truth = False
    """true: the host's lanes run side by side; step times are then marked."""
    disk: Size | None = None
    """The most that pulled images may take on the host: 60GiB."""


class TrialsEntry(Shape):
    """How many launches a cell gets."""

    least: Annotated[Whole, Field(ge=1, le=model.MOST_TRIALS)] = model.Trials().least
    """Launches that every cell gets."""
    most: Annotated[Whole, Field(ge=1, le=model.MOST_TRIALS)] = model.Trials().most
    """The most that an undecided cell gets; at least `least`."""


class MatrixFile(Shape):
    """What to run, on what, and what counts as bad."""

    version: Annotated[Literal[1], BeforeValidator(values.whole, json_schema_input_type=Literal[1])]
    """The version of this format, always 1."""
    name: Text | None = None
    """The name of the matrix; default: the file's name without its ending."""
    series: Annotated[dict[Name, Series], Field(min_length=1)]
    """The histories: each a row of versions, oldest first."""
    hosts: Annotated[dict[Name, HostEntry], Field(min_length=1)] | None = None
    """The machines; default: here, this machine without containers."""
    scenarios: Annotated[dict[Name, ScenarioEntry], Field(min_length=1)]
    """What is run on each version."""
    include: list[dict[str, Scalar]] = []
    """Further variants: a scenario and its params, one mapping each."""
    exclude: list[dict[str, Scalar]] = []
    """Cells to leave out: any of series, image, host, scenario and params, with an optional why."""
    baseline: dict[str, Text] = {}
    """By series, the version that all others are compared with; default: the version before."""
    trials: TrialsEntry = TrialsEntry()
    """How many launches a cell gets."""
