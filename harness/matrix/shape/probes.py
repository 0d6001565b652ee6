"""The shape of a scenario's `probes`."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from harness.matrix.fields import Text, Whole
from harness.matrix.shape.base import Shape

Positive = Annotated[Whole, Field(ge=1, le=10**6)]


class OpTraceEntry(Shape):
    """What each operation takes, early against late; and a Chrome trace of each."""

    at: Annotated[list[Positive], Field(min_length=1, max_length=8)] = [10, 120]
    """The steps from which on operations are traced, first to last."""
    repeat: Annotated[Whole, Field(ge=1, le=100)] = 5
    """How many steps from each of them; the table has their medians."""


class Stepped(Shape):
    """A probe that only needs to know how many steps to make."""

    steps: Positive = 100
    """How many steps it makes."""


class ValgrindEntry(Shape):
    """Leak records of valgrind's memcheck; what a first step loses is subtracted."""

    steps: Annotated[Whole, Field(ge=2, le=1000)] = 3
    """How many steps it makes; the control makes one."""


class Largest(Shape):
    """The largest value of a param that fits in memory, each try in a launch of its own."""

    param: Text
    """The param whose largest value is looked for, among those that `params` gives."""
    steps: Positive = 3
    """How many steps must fit."""


class Probes(Shape):
    """Looks into a scenario from inside, by `harness probe`, in trials of their own that no verdict uses."""

    optrace: OpTraceEntry | None = None
    """Time and memory of each operation: {at: [10, 120], repeat: 5}."""
    lines: Stepped | None = None
    """Memory and time of each line of the function that the script calls `profile`: {steps: 100}."""
    valgrind: ValgrindEntry | None = None
    """Leaks by kind and stack, by valgrind in the image: {steps: 3}."""
    artifacts: Stepped | None = None
    """Files that the script's `artifacts()` makes at the end: {steps: 100}."""
    largest: Largest | None = None
    """The largest size that fits: {param: batch}."""
