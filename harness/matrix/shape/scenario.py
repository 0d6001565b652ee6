"""The shape of `scenarios`: what is run, how long, and what counts as bad."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from harness import model
from harness.matrix import values
from harness.matrix.fields import (
    Arguments,
    Capability,
    Duration,
    Environment,
    Leak,
    Name,
    Names,
    ParamValues,
    Share,
    ShareOrNone,
    Size,
    Text,
    Truth,
    Whole,
)
from harness.matrix.shape.base import Shape
from harness.matrix.shape.probes import Probes


class Steps(Shape):
    """How many steps a trial makes."""

    first: Annotated[Whole, Field(ge=64)] = model.Steps().first
    """The step of the first look; each later look is at twice as many."""
    budget: Annotated[Whole, Field(ge=64, le=10**9)] = model.Steps().budget
    """The most steps of a trial; at least `first`."""


class Limits(Shape):
    """What counts as bad."""

    leak: Annotated[Leak, Field(json_schema_extra={"default": "0.5KiB"})] = model.Limits().leak_kib_per_step
    """Lost memory a step: 0.5KiB."""
    slowdown: Annotated[Share, Field(json_schema_extra={"default": "10%"})] = model.Limits().slowdown
    """Rise of the step time within a trial: 10%."""
    step_time: Annotated[ShareOrNone, Field(json_schema_extra={"default": "10%"})] = model.Limits().step_time
    """Longer steps than the version before: 10%; none: step times are not compared."""
    peak_memory: Annotated[ShareOrNone, Field(json_schema_extra={"default": "10%"})] = model.Limits().peak_memory
    """More memory at the peak than the version before: 10%; none: peaks are not compared."""
    setup: Literal["bad", "untested"] = "untested"
    """bad: a failure before the first step is a crash, not untested."""


class Ulimit(Shape):
    """A limit of the kernel; -1 is none."""

    soft: Annotated[Whole, Field(ge=-1, lt=2**63)]
    """The soft limit."""
    hard: Annotated[Whole, Field(ge=-1, lt=2**63)]
    """The hard limit, no less than the soft one."""

    @model_validator(mode="before")
    @classmethod
    def _one_number(cls, value: Any) -> Any:
        return value if isinstance(value, dict) else dict.fromkeys(("soft", "hard"), values.whole(value))


AnyUlimit = Annotated[
    Ulimit, BeforeValidator(lambda value: value, json_schema_input_type=Ulimit | Annotated[int, Field(ge=-1)])
]


class Scenario(Shape):
    """A script with setup(**params) that returns a step function, or a command."""

    script: Text | None = None
    """A Python script with setup(**params), relative to the matrix file. This or command."""
    command: Arguments | None = None
    """Any program, as a list of its arguments. This or script."""
    step_pattern: Text | None = None
    """For a command: a regular expression; each line of output that it matches is a step."""
    judge: Literal["exit"] | None = None
    """exit: the command's exit code alone decides: 0 good, 125 untested, else bad."""
    params: dict[str, ParamValues] = {}
    """The values of each parameter; every combination is a variant."""
    series: Names | None = None
    """The series to run it on; default: all."""
    hosts: Names | None = None
    """The hosts to run it on; default: all."""
    steps: Steps = Steps()
    """How many steps a trial makes."""
    limits: Limits = Limits()
    """What counts as bad."""
    timeout: Annotated[Duration, Field(json_schema_extra={"default": "20m"})] = model.Scenario.timeout_s
    """The most time for setup and all the steps of a trial: 20m, 90s, 1h30m, or seconds."""
    memory: Size | None = None
    """The most memory, swap included: 8GiB."""
    shm_size: Annotated[Size, Field(json_schema_extra={"default": "1GiB"})] = model.Scenario.shm_bytes
    """The size of /dev/shm: 1GiB."""
    ulimits: dict[Name, AnyUlimit] | None = None
    """Limits of the kernel, as Compose has them; default: memlock: -1, stack: 67108864."""
    environment: Environment = {}
    """Environment variables, as a mapping or a list of NAME=value; they win over the series' own."""
    files: list[Text] = []
    """Files and folders to copy in beside the script, relative to the matrix file."""
    network: Truth = False
    """true: the container has a network."""
    cap_add: list[Capability] = []
    """Capabilities to add, such as SYS_PTRACE."""
    probes: Probes = Probes()
    """Looks into it from inside, by `harness probe`."""
