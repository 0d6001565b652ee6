"""Defines the shape of matrix.yaml: its keys and their types. The JSON Schema is generated from it.

Every attribute's docstring is the key's description in the schema. Checks across several places (names that must exist,
scripts, versions) come later, in `series`, `scenarios` and `rules`.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from harness import model
from harness.matrix import values
from harness.matrix.fields import Duration, Name, ScalarValue, Shape, Text, Truth, Whole
from harness.matrix.keys.host_keys import HostEntry
from harness.matrix.keys.scenario_keys import ScenarioEntry
from harness.matrix.keys.series_keys import AnySeries


class TrialsEntry(Shape):
    """Number of launches per cell."""

    least: Annotated[Whole, Field(ge=1, le=model.MOST_TRIALS)] = model.Trials().least
    """Number of launches of every cell."""
    most: Annotated[Whole, Field(ge=1, le=model.MOST_TRIALS)] = model.Trials().most
    """Maximum number of launches of an undecided cell; at least `least`."""


class StopEntry(Shape):
    """End the sweep before every result is as certain as it can be, at whichever of these comes first."""

    until: Literal["first-bad"] | None = None
    """first-bad: end after the first confirmed finding."""
    quick: Truth = False
    """true: end after one round of every row and the launches that confirm what looks bad."""
    time: Duration | None = None
    """End after this time: 2h, 45m, or seconds. A running launch is not cut off."""


class MatrixFile(Shape):
    """A matrix file: the images, the hosts, the scenarios, and the limits by which they are judged."""

    version: Annotated[Literal[1], BeforeValidator(values.whole_number, json_schema_input_type=Literal[1])]
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
