"""Defines what a matrix file writes in a form that is not that of the model: limits, probes, lists of engines.

Only the reading of a file imports this module, since pydantic is slow to import.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    create_model,
    model_validator,
)

from harness.model import forms
from harness.model.matrix import GpuWord, engine_address
from harness.model.scenario import Cache, Limits, MetricLimit, MetricRule, Mount, Probe, ProbeName
from harness.model.signals import LIMITED, SIGNALS, TIMES, Signal
from harness.model.step_kinds import installed_hooks, words_for_steps


class Shape(BaseModel):
    """A mapping with known keys only. Every attribute's docstring is the key's description in the schema."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, defer_build=True)


# ---------------------------------------------------------------- hosts


Address = Annotated[forms.Text, AfterValidator(engine_address)]
Engines = Annotated[
    Annotated[Address, AfterValidator(lambda engine: [engine]), Tag("<text>")]
    | Annotated[list[Address], forms.Within(items=1), Tag("<list>")],
    forms.BY_FORM,
]
Gpus = Annotated[
    Annotated[GpuWord, Tag("<text>")] | Annotated[tuple[forms.Text, ...], forms.Within(items=1), Tag("<list>")],
    forms.BY_FORM,
    BeforeValidator(
        forms.word_or(
            "none", "all", "each", form=list, remedy='allowed: none, all, each, or a list such as ["RTX 3090"]'
        ),
        json_schema_input_type=GpuWord | list[forms.Text],
    ),
]


# ---------------------------------------------------------------- limits


class WrittenMetricLimit(Shape):
    """Limit of a number that the scenario returns or prints. Exactly one of change, drop, rise and reproducible."""

    change: forms.Share | None = None
    """Difference from the preceding version, in either direction: 1%."""
    drop: forms.Share | None = None
    """Fall below the preceding version: 5%."""
    rise: forms.Share | None = None
    """Rise over the preceding version: 5%."""
    reproducible: Literal[True] | None = None
    """true: launches that differ are bad if those of the preceding version agreed; the usual limits apply."""

    @model_validator(mode="after")
    def _one_of_them(self) -> WrittenMetricLimit:
        given = [name for name, value in self if value is not None]
        if len(given) != 1:
            raise ValueError("give exactly one of change, drop, rise and reproducible, such as {drop: 5%}")
        if self.drop is not None and self.drop >= 1:
            raise ValueError("drop: a value cannot fall by 100 % or more; write less, such as {drop: 5%}")
        return self


AnyMetricLimit = Annotated[
    Annotated[WrittenMetricLimit, Tag("<mapping>")] | Annotated[Literal["equal", "none"], Tag("<text>")],
    forms.BY_FORM,
    BeforeValidator(
        forms.word_or("equal", "none", form=dict, remedy="write equal, none, or a limit such as {drop: 5%}"),
        json_schema_input_type=WrittenMetricLimit | Literal["equal", "none"],
    ),
]


def metric_limits(written: Mapping[str, AnyMetricLimit]) -> tuple[MetricLimit, ...]:
    """Return the limits of metrics as a matrix file writes them."""
    limits = []
    for metric, limit in written.items():
        if isinstance(limit, WrittenMetricLimit):
            rule: MetricRule = next(rule for rule in get_args(MetricRule) if getattr(limit, rule, None) is not None)
            value = 0.0 if rule == "reproducible" else getattr(limit, rule)
            limits.append(MetricLimit(metric=metric, rule=rule, limit=value))
        else:
            limits.append(MetricLimit(metric=metric, rule=limit))
    return tuple(limits)


class _OtherLimits(Shape):
    """The limits that are of no signal."""

    slowdown: Annotated[forms.Share, Field(json_schema_extra={"default": f"{Limits.slowdown:.0%}"})] = Limits.slowdown
    """Rise of the step time within a trial: 10%."""
    setup: Literal["bad", "untested"] | None = None
    """bad: a failure before the first step counts as a crash, not as untested. The default is untested for scripts, and
    bad for programs and commands that another version runs."""


def _limit_key(signal: Signal) -> Any:
    """Return a key of `limits`, made from the table of signals."""
    assert signal.limit is not None, "only signals with a limit have a key"
    unit, never_off = signal.limit_unit, signal.name == "memory"
    kinds: dict[str, tuple[Any, Any, Any]] = {
        "share": (forms.fraction, forms.SHARE, f"{100 * signal.limit:g}%"),
        "size a step": (forms.leak_kib, {"type": "string", "examples": ["0.5KiB", "80B"]}, f"{signal.limit:g}KiB"),
        "count a step": (forms.amount_per_step, {"type": ["string", "number"], "examples": [0.01]}, signal.limit),
    }
    read, schema, written = kinds[unit]
    if not never_off:
        read, schema = forms.or_none(read), {**schema, "examples": [*schema["examples"], "none"]}
    what = f"{signal.title[:1].upper()}{signal.title[1:]}: {signal.help}{'' if never_off else '; none: not judged'}."
    field = Field(description=what, json_schema_extra={"default": written})
    return Annotated[float | None, forms.written_as(schema, read), field], signal.limit


KEYS_OF_LIMITS: dict[str, str] = {"leak" if name == "memory" else name: name for name in LIMITED}
"""The signal of each key."""
WrittenLimits: type[BaseModel] = create_model(
    "Limits",
    __base__=_OtherLimits,
    __doc__="What counts as bad.",
    **{key: _limit_key(SIGNALS[name]) for key, name in KEYS_OF_LIMITS.items()},
)
"""The limits as a matrix file writes them."""


def limits_of(written: Any) -> Limits:
    """Return a matrix file's limits. Without step times, other times are compared only if they have limits."""
    given = {name: getattr(written, key) for key, name in KEYS_OF_LIMITS.items() if key in written.model_fields_set}
    off = TIMES if given.get("step_time", 0.0) is None else ()
    return Limits(
        signals={**dict.fromkeys(off), **given},
        slowdown=written.slowdown,
        setup_bad=None if written.setup is None else written.setup == "bad",
    )


# ---------------------------------------------------------------- probes and steps


Positive = Annotated[forms.Whole, forms.Within(least=1, most=10**6)]


class OptraceKeys(Shape):
    """Time of each operation, at early and at late steps, and a Chrome trace of each."""

    at: Annotated[tuple[Positive, ...], Field(min_length=1, max_length=8)] = (10, 120)
    """The steps at which tracing starts, in ascending order."""
    repeat: Annotated[forms.Whole, forms.Within(least=1, most=100)] = 5
    """Number of steps traced from each of these; the table shows their medians."""

    @property
    def steps(self) -> int:
        """Return the last step that is traced."""
        return max(self.at) + self.repeat - 1


class SteppedKeys(Shape):
    """A probe whose only setting is its number of steps."""

    steps: Positive = 100
    """Number of steps."""


class ValgrindKeys(Shape):
    """Leak records of valgrind's memcheck; the leaks of a control run of one step are subtracted."""

    steps: Annotated[forms.Whole, forms.Within(least=2, most=1000)] = 3
    """Number of steps; the control run makes one."""


class LargestKeys(Shape):
    """The largest value of a param that fits in memory; each attempt is a separate launch."""

    param: forms.Text
    """The param to maximise, over its values in `params`."""
    steps: Positive = 3
    """Number of steps that must fit."""


class Probes(Shape):
    """Probes inside a scenario, run by `harness probe` in separate trials that no verdict uses."""

    optrace: OptraceKeys | None = None
    """Time and memory of each operation: {at: [10, 120], repeat: 5}."""
    lines: SteppedKeys | None = None
    """Memory and time of each line of the function that the script names as `profile`: {steps: 100}."""
    valgrind: ValgrindKeys | None = None
    """Leaks by kind and stack, from valgrind in the image: {steps: 3}."""
    artifacts: SteppedKeys | None = None
    """Files that the script's `artifacts()` makes at the end: {steps: 100}."""
    largest: LargestKeys | None = None
    """The largest size that fits: {param: batch}."""

    @property
    def chosen(self) -> tuple[Probe, ...]:
        """Return the probes that are given."""
        probes = []
        for name in get_args(ProbeName):
            if (probe := getattr(self, name)) is not None:
                settings = {
                    key: tuple(sorted(value)) if key == "at" else value for key, value in probe if key != "steps"
                }
                probes.append(Probe(name=name, steps=probe.steps, settings=tuple(settings.items())))
        return tuple(probes)


Bound = Annotated[int, Field(ge=-1, lt=2**63), forms.written_as({"type": "integer"}, forms.whole_number)]


class Ulimit(Shape):
    """A kernel limit; -1 means unlimited."""

    soft: Bound
    """The soft limit."""
    hard: Bound
    """The hard limit, not less than the soft one."""

    @model_validator(mode="before")
    @classmethod
    def _one_number(cls, value: Any) -> Any:
        return value if isinstance(value, dict) else dict.fromkeys(("soft", "hard"), forms.whole_number(value))

    @model_validator(mode="after")
    def _in_order(self) -> Ulimit:
        if self.hard != -1 and (self.soft > self.hard or self.soft == -1):
            raise ValueError(f"soft ({self.soft}) is more than hard ({self.hard})")
        return self


AnyUlimit = Annotated[
    Ulimit, BeforeValidator(lambda value: value, json_schema_input_type=Ulimit | Annotated[int, Field(ge=-1)])
]


class StepsFunction(Shape):
    """A function whose calls are the steps of a program."""

    function: forms.Text
    """The function, as module:name or module:Class.name, such as mypkg.loop:train_one; __main__ is the program."""


def _steps_are(value: Any) -> Any:
    """Check what steps are: the packages that bring hooks are looked for only if a matrix file names a kind."""
    if value == "auto" or isinstance(value, dict):
        return value
    words = words_for_steps()
    remedy = "; ".join([f'write {", ".join(words)}, or {{function: "module:name"}}', *installed_hooks()[1].values()])
    return forms.word_or(*words, form=dict, remedy=remedy)(value)


def _name_words(schema: dict[str, Any]) -> None:
    schema["enum"] = list(words_for_steps())


AnyStepsAre = Annotated[
    Annotated[StepsFunction, Tag("<mapping>")] | Annotated[str, Tag("<text>")],
    forms.BY_FORM,
    BeforeValidator(
        _steps_are, json_schema_input_type=StepsFunction | Annotated[str, Field(json_schema_extra=_name_words)]
    ),
]


def _kind_of_mount(value: Any) -> str:
    is_cache = "cache" in value if isinstance(value, dict) else isinstance(value, Cache)
    return "<cache>" if is_cache else "<from>"


AnyMount = Annotated[Annotated[Mount, Tag("<from>")] | Annotated[Cache, Tag("<cache>")], Discriminator(_kind_of_mount)]


ONE_OR_MORE = BeforeValidator(lambda value: [value] if isinstance(value, dict) else value)
"""Marks a list that may be written as its only item, a mapping."""


AnyClient = Annotated[
    Annotated[Path, forms.LOCATED, Tag("<text>")]
    | Annotated[tuple[forms.Anything, ...], forms.Within(items=1), Tag("<list>")],
    forms.BY_FORM,
]


def json_text(value: Any) -> str:
    """Return a value of a matrix file as JSON. Raises ValueError."""
    try:
        return json.dumps(value, allow_nan=False, ensure_ascii=False)
    except (TypeError, ValueError) as error:
        raise ValueError(f"cannot be written as JSON: {error}") from error


def launcher_words(text: Any) -> tuple[str, ...]:
    """Return the words of a launcher; none if a quote is left open."""
    try:
        return tuple(shlex.split(forms.plain_text(text)))
    except ValueError:
        return ()


def _compiles(pattern: str) -> str:
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"is not a regular expression: {error}") from error
    return pattern


Expression = Annotated[forms.Text, AfterValidator(_compiles)]
Params = Annotated[
    tuple[
        tuple[
            str,
            Annotated[
                tuple[forms.ScalarValue, ...],
                forms.Within(items=1),
                BeforeValidator(
                    lambda value: value if isinstance(value, list) else [value],
                    json_schema_input_type=forms.ScalarValue | list[forms.ScalarValue],
                ),
            ],
        ],
        ...,
    ],
    forms.Pairs(),
]
Printed = Annotated[
    tuple[tuple[forms.Text, forms.Text], ...],
    forms.Pairs(),
    BeforeValidator(
        lambda value: {} if value == "off" else value,
        json_schema_input_type=dict[forms.Text, forms.Text] | Literal["off"],
    ),
]
Capability = Annotated[
    forms.Text, forms.fits(r"[A-Z][A-Z_]{1,40}", "is not a capability; write one such as SYS_PTRACE")
]
Ulimits = tuple[tuple[str, int, int], ...]
