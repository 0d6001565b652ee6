"""Defines the shape of `scenarios`: the program to run, its duration, the limits, and its probes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from pydantic import BeforeValidator, Field, Tag, create_model, model_validator

from harness import model
from harness.matrix import values
from harness.matrix.fields import (
    BY_FORM,
    Anything,
    Arguments,
    Capability,
    CountOrNone,
    Duration,
    Environment,
    LeakLimit,
    LeakOrNone,
    Name,
    NameList,
    ParamValues,
    Shape,
    Share,
    ShareOrNone,
    Size,
    Text,
    Truth,
    Whole,
)


class StepsEntry(Shape):
    """Number of steps of a trial."""

    first: Annotated[Whole, Field(ge=64)] = model.Steps().first
    """The step of the first look; each later look comes after twice as many steps."""
    budget: Annotated[Whole, Field(ge=64, le=10**9)] = model.Steps().budget
    """Maximum number of steps of a trial; at least `first`."""
    time: Duration | None = None
    """Maximum time in steps: 5m. A look comes after its steps or its share of this time, whichever is first."""


class _OtherLimits(Shape):
    """The limits that are of no signal."""

    slowdown: Annotated[Share, Field(json_schema_extra={"default": f"{model.Limits.slowdown:.0%}"})] = (
        model.Limits.slowdown
    )
    """Rise of the step time within a trial: 10%."""
    setup: Literal["bad", "untested"] = "untested"
    """bad: a failure before the first step counts as a crash, not as untested."""


def _limit_field(signal: model.Signal) -> Any:
    """Return a key of `limits`, made from the table of signals."""
    assert signal.limit is not None, "only signals with a limit have a key"
    unit, never_off = signal.limit_unit, signal.name == "memory"
    kinds: dict[str, Any] = {"share": ShareOrNone, "size a step": LeakOrNone, "count a step": CountOrNone}
    written = {"share": f"{signal.limit:.0%}", "size a step": f"{signal.limit:g}KiB", "count a step": signal.limit}
    what = f"{signal.title[:1].upper()}{signal.title[1:]}: {signal.help}{'' if never_off else '; none: not judged'}."
    shown: dict[str, Any] = {"default": written[unit]}
    kind = LeakLimit if never_off else kinds[unit]
    return Annotated[kind, Field(description=what, json_schema_extra=shown)], signal.limit


KEYS_OF_LIMITS: dict[str, str] = {"leak" if name == "memory" else name: name for name in model.LIMITED}
"""The signal of each key."""
if TYPE_CHECKING:
    Limits = _OtherLimits
else:
    Limits = create_model(
        "Limits",
        __base__=_OtherLimits,
        __doc__="What counts as bad.",
        **{key: _limit_field(model.SIGNALS[name]) for key, name in KEYS_OF_LIMITS.items()},
    )


class MetricLimitEntry(Shape):
    """Limit of a number that the scenario returns. Exactly one of change, drop and rise."""

    change: Share | None = None
    """Difference from the preceding version, in either direction: 1%."""
    drop: Share | None = None
    """Fall below the preceding version: 5%."""
    rise: Share | None = None
    """Rise over the preceding version: 5%."""

    @model_validator(mode="after")
    def _one_of_them(self) -> MetricLimitEntry:
        given = [name for name in ("change", "drop", "rise") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError("give exactly one of change, drop and rise, such as {drop: 5%}")
        if self.drop is not None and self.drop >= 1:
            raise ValueError("drop: a value cannot fall by 100 % or more; write less, such as {drop: 5%}")
        return self


def _metric_form(value: Any) -> Any:
    if isinstance(value, dict | MetricLimitEntry) or value in ("equal", "none"):
        return value
    raise ValueError(f"{values.kind(value)} is not allowed; write equal, none, or a limit such as {{drop: 5%}}")


AnyMetricLimit = Annotated[
    Annotated[MetricLimitEntry, Tag("<mapping>")] | Annotated[Literal["equal", "none"], Tag("<text>")],
    BY_FORM,
    BeforeValidator(_metric_form, json_schema_input_type=MetricLimitEntry | Literal["equal", "none"]),
]


class Ulimit(Shape):
    """A kernel limit; -1 means unlimited."""

    soft: Annotated[Whole, Field(ge=-1, lt=2**63)]
    """The soft limit."""
    hard: Annotated[Whole, Field(ge=-1, lt=2**63)]
    """The hard limit, not less than the soft one."""

    @model_validator(mode="before")
    @classmethod
    def _one_number(cls, value: Any) -> Any:
        return value if isinstance(value, dict) else dict.fromkeys(("soft", "hard"), values.whole_number(value))


AnyUlimit = Annotated[
    Ulimit, BeforeValidator(lambda value: value, json_schema_input_type=Ulimit | Annotated[int, Field(ge=-1)])
]


class StepsFunction(Shape):
    """A function whose calls are the steps of a program."""

    function: Text
    """The function, as module:name or module:Class.name, such as mypkg.loop:train_one; __main__ is the program."""


KINDS_OF_STEPS: tuple[str, ...] = get_args(model.StepsAre)


def _steps_form(value: Any) -> Any:
    if isinstance(value, dict | StepsFunction) or value in KINDS_OF_STEPS:
        return value
    given = repr(value) if isinstance(value, str) else values.kind(value)
    raise ValueError(f'{given} is not allowed; write {", ".join(KINDS_OF_STEPS)}, or {{function: "module:name"}}')


AnyStepsAre = Annotated[
    Annotated[StepsFunction, Tag("<mapping>")] | Annotated[model.StepsAre, Tag("<text>")],
    BY_FORM,
    BeforeValidator(_steps_form, json_schema_input_type=StepsFunction | model.StepsAre),
]


Positive = Annotated[Whole, Field(ge=1, le=10**6)]


class OpTraceEntry(Shape):
    """Time of each operation, at early and at late steps, and a Chrome trace of each."""

    at: Annotated[list[Positive], Field(min_length=1, max_length=8)] = [10, 120]
    """The steps at which tracing starts, in ascending order."""
    repeat: Annotated[Whole, Field(ge=1, le=100)] = 5
    """Number of steps traced from each of these; the table shows their medians."""


class Stepped(Shape):
    """A probe whose only setting is its number of steps."""

    steps: Positive = 100
    """Number of steps."""


class ValgrindEntry(Shape):
    """Leak records of valgrind's memcheck; the leaks of a control run of one step are subtracted."""

    steps: Annotated[Whole, Field(ge=2, le=1000)] = 3
    """Number of steps; the control run makes one."""


class Largest(Shape):
    """The largest value of a param that fits in memory; each attempt is a separate launch."""

    param: Text
    """The param to maximise, over its values in `params`."""
    steps: Positive = 3
    """Number of steps that must fit."""


class Probes(Shape):
    """Probes inside a scenario, run by `harness probe` in separate trials that no verdict uses."""

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


class ScenarioEntry(Shape):
    """A script with setup(**params) that returns a step function, an unmodified Python program, or a command."""

    script: Text | None = None
    """A Python script with setup(**params), relative to the matrix file. Give this, program, module or command."""
    program: Text | None = None
    """An unmodified Python program, such as train.py, relative to the matrix file; measured from inside."""
    module: Text | None = None
    """An unmodified Python program that is a module, run as by python -m."""
    args: list[Anything] = []
    """For a program: its arguments; a param replaces its name in braces."""
    steps_are: AnyStepsAre | None = None
    """For a program: what counts as its steps; auto, the default: those of the first framework that makes one."""
    printed: dict[Text, Text] = {}
    """For a program: metrics in the lines that it prints, such as {loss: "loss: {}"}, where {} is the number."""
    command: Arguments | None = None
    """Any other program, as a list of its arguments, measured from outside. Give this, script, program or module."""
    step_pattern: Text | None = None
    """For a command: a regular expression; each line of output that matches it is a step."""
    judge: Literal["exit"] | None = None
    """exit: only the command's exit code decides: 0 good, 125 untested, else bad."""
    params: dict[str, ParamValues] = {}
    """The values of each parameter; every combination is a variant."""
    series: NameList | None = None
    """The series to run it on; default: all."""
    hosts: NameList | None = None
    """The hosts to run it on; default: all."""
    steps: StepsEntry = StepsEntry()
    """Number of steps of a trial."""
    limits: Limits = Limits()
    """What counts as bad."""
    metrics: dict[Text, AnyMetricLimit] = {}
    """Limits of the numbers that the scenario returns: {loss: {change: 1%}, items: {drop: 5%}, sum: equal}."""
    timeout: Annotated[Duration, Field(json_schema_extra={"default": "20m"})] = model.Scenario.timeout_s
    """Time limit for setup and all the steps of a trial: 20m, 90s, 1h30m, or seconds."""
    memory: Size | None = None
    """Memory limit, swap included: 8GiB."""
    shm_size: Annotated[Size, Field(json_schema_extra={"default": "1GiB"})] = model.Scenario.shm_bytes
    """The size of /dev/shm: 1GiB."""
    ulimits: dict[Name, AnyUlimit] | None = None
    """Kernel limits, as in Compose; default: memlock: -1, stack: 67108864."""
    environment: Environment = {}
    """Environment variables, as a mapping or a list of NAME=value; they override the series' own."""
    files: list[Text] = []
    """Files and folders to copy next to the script, relative to the matrix file."""
    network: Truth = False
    """true: the container has a network."""
    cap_add: list[Capability] = []
    """Capabilities to add, such as SYS_PTRACE."""
    probes: Probes = Probes()
    """Probes inside the scenario, run by `harness probe`."""
