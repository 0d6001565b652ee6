"""The shape of a scenario's `probes`."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from harness.matrix.fields import Text, Whole
from harness.matrix.keys.base import Shape

Positive = Annotated[Whole, Field(ge=1, le=10**6)]


class OpTraceEntry(Shape):
    """Time of each operation, at early and at late steps, and a Chrome trace of each."""

    at: Annotated[list[Positive], Field(min_length=1, max_length=8)] = [10, 120]
    """The steps at which tracing starts, in ascending order."""
    repeat: Annotated[Whole, Field(ge=1, le=100)] = 5
    """Number of steps traced from each of them; the table shows their medians."""


class Stepped(Shape):
    """A probe whose only setting is its number of steps."""

    steps: Positive = 100
    """Number of steps."""


class ValgrindEntry(Shape):
    """Leak records of valgrind's memcheck; the leaks of a control run of one step are subtracted."""

    steps: Annotated[Whole, Field(ge=2, le=1000)] = 3
    """Number of steps; the control run makes one."""


class Largest(Shape):
    """The largest value of a param that fits in memory; each attempt is a launch of its own."""

    param: Text
    """The param whose largest value is searched for, among its values in `params`."""
    steps: Positive = 3
    """Number of steps that must fit."""


class Probes(Shape):
    """Probes inside a scenario, run by `harness probe` in trials of their own that no verdict uses."""

    optrace: OpTraceEntry | None = None
    """Time and memory of each operation: {at: [10, 120], repeat: 5}."""
    lines: Stepped | None = None
    """Memory and time of each line of the function that the script names as `profile`: {steps: 100}."""
    valgrind: ValgrindEntry | None = None
    """Leaks by kind and stack, from valgrind in the image: {steps: 3}."""
    artifacts: Stepped | None = None
    """Files that the script's `artifacts()` makes at the end: {steps: 100}."""
    largest: Largest | None = None
    """The largest size that fits: {param: batch}."""
