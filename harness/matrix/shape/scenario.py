"""The shape of `scenarios`: what is run, how long, and what counts as bad."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator, Field, Tag, create_model, model_validator

from harness import model
from harness.matrix import values
from harness.matrix.fields import (
    BY_FORM,
    Arguments,
    Capability,
    CountOrNone,
    Duration,
    Environment,
    Leak,
    LeakOrNone,
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


class StepsEntry(Shape):
    """How many steps a trial makes."""

    first: Annotated[Whole, Field(ge=64)] = model.Steps().first
    """The step of the first look; each later look is at twice as many."""
    budget: Annotated[Whole, Field(ge=64, le=10**9)] = model.Steps().budget
    """The most steps of a trial; at least `first`."""


class _OwnLimits(Shape):
    """The limits that are more than an entry in the table of signals."""

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


OWN = {"memory", "step_time", "peak_memory"}
"""The signals whose limits are written out above."""
_UNITS: dict[str, Any] = {"share": ShareOrNone, "size a step": LeakOrNone, "count a step": CountOrNone}


def _limit_field(signal: model.Signal) -> Any:
    """A key of `limits`, made from the table of signals."""
    assert signal.limit is not None, "only signals with a limit have a key"
    written = {"share": f"{signal.limit:.0%}", "size a step": f"{signal.limit:g}KiB", "count a step": signal.limit}
    what = f"{signal.title[:1].upper()}{signal.title[1:]}: {signal.help}; none: not judged."
    shown: dict[str, Any] = {"default": written[signal.limit_unit]}
    return Annotated[_UNITS[signal.limit_unit], Field(description=what, json_schema_extra=shown)], signal.limit


if TYPE_CHECKING:
    Limits = _OwnLimits
else:
    Limits = create_model(
        "Limits",
        __base__=_OwnLimits,
        __doc__="What counts as bad.",
        **{name: _limit_field(model.SIGNALS[name]) for name in model.LIMITED if name not in OWN},
    )


class MetricLimitEntry(Shape):
    """What is bad about a number that the scenario returns. Exactly one of change, drop and rise."""

    change: Share | None = None
    """It differs from the version before by more than this, either way: 1%."""
    drop: Share | None = None
    """It is lower by more than this: 5%."""
    rise: Share | None = None
    """It is higher by more than this: 5%."""

    @model_validator(mode="after")
    def _one_of_them(self) -> MetricLimitEntry:
        given = [name for name in ("change", "drop", "rise") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError("give exactly one of change, drop and rise, such as {drop: 5%}")
        return self


def _metric_form(value: Any) -> Any:
    if isinstance(value, dict | MetricLimitEntry) or value in ("equal", "none"):
        return value
    raise ValueError(f"{values.kind(value)} is not allowed; write equal, none, or such as {{drop: 5%}}")


AnyMetricLimit = Annotated[
    Annotated[MetricLimitEntry, Tag("<mapping>")] | Annotated[Literal["equal", "none"], Tag("<text>")],
    BY_FORM,
    BeforeValidator(_metric_form, json_schema_input_type=MetricLimitEntry | Literal["equal", "none"]),
]


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


class ScenarioEntry(Shape):
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
    steps: StepsEntry = StepsEntry()
    """How many steps a trial makes."""
    limits: Limits = Limits()
    """What counts as bad."""
    metrics: dict[Text, AnyMetricLimit] = {}
    """What is bad about the numbers that the scenario returns: {loss: {change: 1%}, items: {drop: 5%}, sum: equal}."""
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
