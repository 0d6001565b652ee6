"""Defines the shape of matrix.yaml: its keys and their types. The JSON Schema is generated from it.

Every attribute's docstring is the key's description in the schema. Checks across several places (names that must exist,
scripts, versions) come later, in the modules `read_…`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from packaging.requirements import InvalidRequirement, Requirement
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    StringConstraints,
    Tag,
    ValidationInfo,
    WithJsonSchema,
    create_model,
    field_validator,
    model_validator,
)

from harness import model
from harness.matrix import values
from harness.matrix.problems import shown
from harness.registry.image_references import is_bound

# ---------------------------------------------------------------- the types of keys


class Shape(BaseModel):
    """A mapping with known keys only."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


def _json(kind: str | list[str], **more: Any) -> WithJsonSchema:
    return WithJsonSchema({"type": kind, **more})


LETTERS = "A-Za-z0-9\u00c0-\u1fff\u3040-\ud7a3"
"""Letters and digits of names, of any living script, as a regular expression of Python and of JSON Schema has them."""
NAME = rf"^[{LETTERS}][{LETTERS}_.-]{{0,63}}$"
VARIABLE = r"^[^=\s\x00]{1,256}$"

Text = Annotated[str, BeforeValidator(values.plain_text), _json(["string", "number"])]
Anything = Annotated[str, BeforeValidator(values.anything), _json(["string", "number"])]
Name = Annotated[str, StringConstraints(pattern=NAME)]


def fits(pattern: str, text: str) -> AfterValidator:
    """Return a check that a text matches a whole pattern; `text` says what is wrong with one that does not."""

    def checked(value: str) -> str:
        if not re.fullmatch(pattern, value):
            raise ValueError(f"{shown(value)} {text}")
        return value

    return AfterValidator(checked)


Variable = Annotated[str, StringConstraints(pattern=VARIABLE)]
VersionName = Annotated[str, BeforeValidator(values.plain_text), StringConstraints(max_length=200)]
Whole = Annotated[int, BeforeValidator(values.whole_number), _json("integer")]
Parallel = Annotated[
    bool | int | Literal["auto"],
    BeforeValidator(values.parallel, json_schema_input_type=bool | Annotated[int, Field(ge=1)] | Literal["auto"]),
]
Truth = Annotated[bool, BeforeValidator(values.truth), _json("boolean")]
Size = Annotated[int, BeforeValidator(values.whole_bytes), _json("string", examples=["8GiB", "512MB"])]
LeakLimit = Annotated[float, BeforeValidator(values.leak_kib), _json("string", examples=["0.5KiB", "80B"])]
Share = Annotated[float, BeforeValidator(values.fraction), _json(["string", "number"], examples=["10%", 0.1])]
ShareOrNone = Annotated[
    float | None,
    BeforeValidator(values.or_none(values.fraction)),
    _json(["string", "number"], examples=["10%", 0.1, "none"]),
]
LeakOrNone = Annotated[
    float | None, BeforeValidator(values.or_none(values.leak_kib)), _json("string", examples=["0.5KiB", "none"])
]
CountOrNone = Annotated[
    float | None,
    BeforeValidator(values.or_none(values.amount_per_step)),
    _json(["string", "number"], examples=[0.01, "none"]),
]
Duration = Annotated[float, BeforeValidator(values.seconds), _json(["string", "number"], examples=["20m", "1h30m", 90])]
ScalarValue = Annotated[
    model.Scalar, BeforeValidator(values.scalar), _json(["string", "number", "boolean", "null"])
]  # fmt: skip


BY_FORM = Discriminator(
    lambda value: "<mapping>" if isinstance(value, dict) else "<list>" if isinstance(value, list) else "<text>"
)
"""The form of a key's value. The <> distinguish it from the keys in the path of an error."""


def _environment(value: Any) -> Any:
    """Accept Compose's two forms: a mapping, or a list of NAME=value."""
    if not isinstance(value, list):
        return value
    result: dict[str, str] = {}
    for item in value:
        name, equals, content = item.partition("=") if isinstance(item, str) else ("", "", "")
        if not equals:
            raise ValueError(
                f"{values.kind(item)} is not NAME=value; write NAME=value, or NAME=${{NAME}} to pass it on"
            )
        if name in result:
            raise ValueError(f"{name} appears twice; keep one")
        result[name] = content
    return result


def word_or(*words: str, form: type, remedy: str) -> Callable[[Any], Any]:
    """Return a check that a value is one of `words`, or has the other form: a mapping (`form` is its Shape) or a list.
    `remedy` ends the message."""

    def checked(value: Any) -> Any:
        if isinstance(value, (form, list if form is list else dict)) or value in words:
            return value
        raise ValueError(f"{values.kind(value)} is not allowed; {remedy}")

    return checked


Environment = Annotated[
    dict[Variable, Anything], BeforeValidator(_environment, json_schema_input_type=dict[Variable, Anything] | list[str])
]
Reference = Annotated[
    Text,
    fits(r"[A-Za-z0-9][A-Za-z0-9._:/@-]{0,400}", "is not an image; write repository:tag or repository@sha256:…"),
]
Images = Annotated[
    Annotated[list[Reference], Field(min_length=1), Tag("<list>")]
    | Annotated[dict[VersionName, Reference], Field(min_length=1), Tag("<mapping>")],
    BY_FORM,
]
Versions = Annotated[
    Annotated[list[Text], Field(min_length=1), Tag("<list>")] | Annotated[Text, Tag("<text>")], BY_FORM
]
Address = Annotated[Text, AfterValidator(values.engine_address)]
Engines = Annotated[
    Annotated[Address, Tag("<text>")] | Annotated[list[Address], Field(min_length=1), Tag("<list>")], BY_FORM
]
Gpus = Annotated[
    Annotated[Literal["none", "all", "each"], Tag("<text>")]
    | Annotated[list[Text], Field(min_length=1), Tag("<list>")],
    BY_FORM,
    BeforeValidator(
        word_or("none", "all", "each", form=list, remedy='allowed: none, all, each, or a list such as ["RTX 3090"]'),
        json_schema_input_type=Literal["none", "all", "each"] | list[Text],
    ),
]
ParamValues = Annotated[
    list[ScalarValue],
    Field(min_length=1),
    BeforeValidator(
        lambda value: value if isinstance(value, list) else [value],
        json_schema_input_type=ScalarValue | list[ScalarValue],
    ),
]
Arguments = Annotated[list[Anything], Field(min_length=1)]
Capability = Annotated[
    Text,
    fits(r"[A-Z][A-Z_]{1,40}", "is not a capability; write one such as SYS_PTRACE"),
    _json("string", examples=["SYS_PTRACE"]),
]
NameList = Annotated[list[Text], Field(min_length=1)]


# ---------------------------------------------------------------- hosts


MOST_NODES = 64


Option = Annotated[Text, fits(r"[\w:.,=&|*()\[\]!+@/%-]{1,500}", "has characters that salloc does not accept")]


class SelectEntry(Shape):
    """The node to request, and the account to charge: options of salloc by their long names, passed on unchanged."""

    partition: Option | None = None
    """The partition, or several, separated by commas."""
    gres: Option | None = None
    """Generic resources of the node: gpu:rtx3090:1."""
    gpus: Option | None = None
    """The number of GPUs: 1, rtx3090:1."""
    constraint: Option | None = None
    """Features that the node must have: driver535&nvlink."""
    exclude: Option | None = None
    """Nodes to avoid."""
    account: Option | None = None
    """The account to charge."""
    qos: Option | None = None
    """The quality of service."""
    reservation: Option | None = None
    """A reservation to use."""
    mem: Option | None = None
    """The node's memory for the sweep; default: all of it if the hold is exclusive."""
    cpus_per_task: Annotated[Option | None, Field(alias="cpus-per-task")] = None
    """The number of CPUs; default: all of the node's if the hold is exclusive."""
    licenses: Option | None = None
    """Licenses that the sweep needs."""
    nice: Option | None = None
    """The amount by which the sweep's priority in the queue is lowered."""


class HoldEntry(Shape):
    """The time for which a node is held for the sweep, and the time to wait for one."""

    time: Annotated[Duration, Field(ge=60, json_schema_extra={"default": "4h"})] = model.NodeRequest.time_s
    """The time limit of an allocation; a sweep that takes longer requests another one on the same node."""
    wait: Annotated[Duration, Field(json_schema_extra={"default": "24h"})] = model.NodeRequest.wait_s
    """How long to wait in the queue before the host counts as lost."""
    exclusive: Truth = True
    """false: other jobs may run on the node at the same time, and may disturb what is measured."""


NodeName = Annotated[
    Text, fits(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}", "is not the name of a node; write one name, not a range")
]
Nodes = Annotated[
    Annotated[Whole, Field(ge=1, le=MOST_NODES), Tag("<text>")]
    | Annotated[list[NodeName], Field(min_length=1), Tag("<list>")],
    BY_FORM,
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
    """auto: launches whose times are not compared run side by side, as many as the host has room for; a number: at most
    that many; false: one at a time; true: the host's lanes run at the same time, whatever is compared, and changes of
    their step times are reported with a warning."""
    disk: Size | None = None
    """Maximum disk space for pulled images on the host: 60GiB."""
    container: model.ContainerKind | None = None
    """slurm: what starts images on the node; none: virtual environments. Default: none."""
    select: SelectEntry | None = None
    """slurm: the requirements on the node, and the account to charge."""
    nodes: Nodes | None = None
    """slurm: the number of equal nodes that share the rows, or the names of nodes; each named node is a separate host,
    HOST.NODE. Default: 1."""
    nodes_per_trial: Annotated[Whole, Field(ge=1, le=MOST_NODES)] | None = None
    """slurm: the number of nodes on which each launch runs at the same time, with container: none. Default: 1."""
    hold: HoldEntry | None = None
    """slurm: how long a node is held for the sweep, and how long the harness waits for one."""
    images: Text | None = None
    """slurm: a folder that this machine shares with the nodes, for environments and imported images. Default: the
    harness's cache folder."""


# ---------------------------------------------------------------- series: one class for each way to name images


class SeriesEntry(Shape):
    environment: Environment = {}
    """Environment variables of these images, as a mapping or a list of NAME=value; {version} is replaced by the
    version."""
    entrypoint: Truth = True
    """false: start without the image's own entrypoint."""


def _bound(text: str) -> str:
    if not is_bound(text):
        raise ValueError(f"{shown(text)} is not a version; write one such as 20.12 or 2.1.0rc1, not the whole tag")
    return text


Bound = Annotated[Text, AfterValidator(_bound)]


class TagRange(Shape):
    """The tags that the registry has when the file is read, sorted by the version in them."""

    match: Text
    """Pattern of the tags; the version begins at the first wildcard (* ? [): "*-tf1-py3", "release-*"."""
    from_: Annotated[Bound | None, Field(alias="from")] = None
    """The oldest version, inclusive: "20.12"."""
    to: Bound | None = None
    """The newest version, including all that begin with it: "23.03"."""


TagName = Annotated[
    Text,
    fits(
        r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}|sha256:[0-9a-f]{64}", "is not a tag; letters, digits, _ . and - are allowed"
    ),
]
Tags = Annotated[
    Annotated[list[TagName], Field(min_length=1), Tag("<list>")] | Annotated[TagRange, Tag("<mapping>")], BY_FORM
]


class Repository(SeriesEntry):
    """Tags of one repository of a registry, oldest first."""

    repository: Annotated[
        Text,
        fits(
            r"[A-Za-z0-9.-]+(?::[0-9]+)?(?:/[a-z0-9._-]+)*",
            "is not a repository; write it without a tag, such as nvcr.io/nvidia/tensorflow",
        ),
    ]
    """The repository, without a tag: nvcr.io/nvidia/tensorflow."""
    tags: Tags
    """The tags (or sha256 digests), oldest first; or a range of the registry's tags."""


class Listed(SeriesEntry):
    """Any images, listed oldest first."""

    images: Images
    """References, oldest first: a list, or a mapping from a version's name to its reference."""


class Built(SeriesEntry):
    """One Dockerfile, built once per version."""

    build: Text
    """The folder of the Dockerfile, relative to the matrix file."""
    arg: Variable
    """The build arg that takes the version."""
    versions: NameList
    """The versions, oldest first."""
    args: dict[Variable, Anything] = {}
    """Other build args, the same for all versions."""


class OverBase(SeriesEntry):
    """A series of environments on top of one base image, or of virtual environments on a process host."""

    python: (
        Annotated[Text, fits(r"3\.[0-9]{1,2}(?:\.[0-9]{1,2})?", "is not a version of Python 3, such as 3.11")] | None
    ) = None
    """The interpreter's version, such as "3.11"; default: the one that runs the harness."""
    base: Text | None = None
    """The image to install on top of; default: HARNESS_BASE if it is set, else python:{python}-slim-bookworm."""


VERSION = "{version}"


def _requirement(text: str) -> str:
    try:
        Requirement(text.replace(VERSION, "1.0"))
    except InvalidRequirement as error:
        problem = f"{shown(text)} is not a requirement; write one such as numpy=={VERSION} or numpy==1.26.4"
        raise ValueError(problem) from error
    return text


class Installed(OverBase):
    """Python packages installed on top of one base image, or in a virtual environment on a process host."""

    install: Annotated[list[Annotated[Text, AfterValidator(_requirement)]], Field(min_length=1)]
    """Requirements to install, at least one with {version}: ["pandas=={version}", "numpy==1.26.4"]."""
    versions: Versions
    """The versions, oldest first, or a range of the package index: ">=2.0,<2.3"."""

    @field_validator("install")
    @classmethod
    def _varies(cls, install: list[str]) -> list[str]:
        if not any(VERSION in item for item in install):
            raise ValueError(
                f"no requirement has {VERSION}: all versions would be the same; write one such as numpy=={VERSION}"
            )
        return install


class Locks(OverBase):
    """Requirement or lock files, each with everything that one version installs."""

    locks: dict[VersionName, Text] = Field(min_length=1)
    """The files, oldest first: a mapping from a version's name to its file, relative to the matrix file."""


SERIES_KINDS: dict[str, type[SeriesEntry]] = {
    "repository": Repository, "images": Listed, "build": Built, "install": Installed,
    "locks": Locks,
}  # fmt: skip


def _series_kind(value: Any) -> str | None:
    kinds = [kind for kind in SERIES_KINDS if isinstance(value, dict) and kind in value]
    return f"<{kinds[0]}>" if len(kinds) == 1 else None


AnySeries = Annotated[
    Annotated[Repository, Tag("<repository>")]
    | Annotated[Listed, Tag("<images>")]
    | Annotated[Built, Tag("<build>")]
    | Annotated[Installed, Tag("<install>")]
    | Annotated[Locks, Tag("<locks>")],
    Discriminator(
        _series_kind, custom_error_type="series_kind", custom_error_message=f"exactly one of {', '.join(SERIES_KINDS)}"
    ),
]


# ---------------------------------------------------------------- scenarios


def _at_least(other: str) -> Callable[[int, ValidationInfo], int]:
    """Return a check that a number is not less than the key `other` of the same mapping."""

    def checked(number: int, info: ValidationInfo) -> int:
        least = info.data.get(other, number)
        if number < least:
            raise ValueError(f"{number} is less than {other} ({least}); give at least as many")
        return number

    return checked


class StepsEntry(Shape):
    """Number of steps of a trial."""

    first: Annotated[Whole, Field(ge=64)] = model.Steps().first
    """The step of the first look; each later look comes after twice as many steps."""
    budget: Annotated[Whole, Field(ge=64, le=10**9)] = model.Steps().budget
    """Maximum number of steps of a trial; at least `first`."""
    time: Duration | None = None
    """Maximum time in steps: 5m. A look comes after its steps or its share of this time, whichever is first."""

    _budget = field_validator("budget")(_at_least("first"))


class _OtherLimits(Shape):
    """The limits that are of no signal."""

    slowdown: Annotated[Share, Field(json_schema_extra={"default": f"{model.Limits.slowdown:.0%}"})] = (
        model.Limits.slowdown
    )
    """Rise of the step time within a trial: 10%."""
    setup: Literal["bad", "untested"] | None = None
    """bad: a failure before the first step counts as a crash, not as untested. The default is untested for scripts, and
    bad for programs and commands that another version runs."""


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
    """Limit of a number that the scenario returns or prints. Exactly one of change, drop, rise and reproducible."""

    change: Share | None = None
    """Difference from the preceding version, in either direction: 1%."""
    drop: Share | None = None
    """Fall below the preceding version: 5%."""
    rise: Share | None = None
    """Rise over the preceding version: 5%."""
    reproducible: Literal[True] | None = None
    """true: launches that differ are bad if those of the preceding version agreed; the usual limits apply."""

    @model_validator(mode="after")
    def _one_of_them(self) -> MetricLimitEntry:
        given = [name for name in ("change", "drop", "rise", "reproducible") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError("give exactly one of change, drop, rise and reproducible, such as {drop: 5%}")
        if self.drop is not None and self.drop >= 1:
            raise ValueError("drop: a value cannot fall by 100 % or more; write less, such as {drop: 5%}")
        return self


AnyMetricLimit = Annotated[
    Annotated[MetricLimitEntry, Tag("<mapping>")] | Annotated[Literal["equal", "none"], Tag("<text>")],
    BY_FORM,
    BeforeValidator(
        word_or("equal", "none", form=MetricLimitEntry, remedy="write equal, none, or a limit such as {drop: 5%}"),
        json_schema_input_type=MetricLimitEntry | Literal["equal", "none"],
    ),
]


Printed = Annotated[
    dict[Text, Text],
    BeforeValidator(
        lambda value: {} if value == "off" else value, json_schema_input_type=dict[Text, Text] | Literal["off"]
    ),
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

    function: Text
    """The function, as module:name or module:Class.name, such as mypkg.loop:train_one; __main__ is the program."""


KINDS_OF_STEPS: tuple[str, ...] = get_args(model.StepsAre)
AnyStepsAre = Annotated[
    Annotated[StepsFunction, Tag("<mapping>")] | Annotated[model.StepsAre, Tag("<text>")],
    BY_FORM,
    BeforeValidator(
        word_or(
            *KINDS_OF_STEPS,
            form=StepsFunction,
            remedy=f'write {", ".join(KINDS_OF_STEPS)}, or {{function: "module:name"}}',
        ),
        json_schema_input_type=StepsFunction | model.StepsAre,
    ),
]


Positive = Annotated[Whole, Field(ge=1, le=10**6)]


class OpTraceEntry(Shape):
    """Time of each operation, at early and at late steps, and a Chrome trace of each."""

    at: Annotated[list[Positive], Field(min_length=1, max_length=8)] = [10, 120]
    """The steps at which tracing starts, in ascending order."""
    repeat: Annotated[Whole, Field(ge=1, le=100)] = 5
    """Number of steps traced from each of these; the table shows their medians."""

    @property
    def steps(self) -> int:
        """Return the last step that is traced."""
        return max(self.at) + self.repeat - 1


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
    launcher: Text | None = None
    """For a program: the command that starts its ranks, such as torchrun --nproc-per-node {gpus}; {gpus} is the number
    of the lane's GPUs, 1 without any; {nodes}, {node}, {address} and {port} are for several nodes."""
    steps_are: AnyStepsAre | None = None
    """For a program: what counts as its steps; auto, the default: those of the first framework that makes one."""
    printed: Printed | None = None
    """For a program or a command: the numbers that it prints, such as {loss: "loss: {}"}, where {} is the number; off:
    none. Default: all numbers beside a name."""
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
    """Limits of the numbers that it returns or prints: {loss: {change: 1%}, items: {drop: 5%}, sum: equal}."""
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
    folder: Text | None = None
    """For a program or a command: the folder to start it in, relative to the matrix file; the files keep their places
    below it. Default: the program's own folder."""
    network: Truth = False
    """true: the container has a network."""
    cap_add: list[Capability] = []
    """Capabilities to add, such as SYS_PTRACE."""
    probes: Probes = Probes()
    """Probes inside the scenario, run by `harness probe`."""

    @field_validator("step_pattern")
    @classmethod
    def _is_expression(cls, pattern: str | None) -> str | None:
        try:
            re.compile(pattern or "")
        except (re.error, OverflowError, RecursionError) as error:
            raise ValueError(f"is not a regular expression: {error}") from error
        return pattern


# ---------------------------------------------------------------- the file


class TrialsEntry(Shape):
    """Number of launches per cell."""

    least: Annotated[Whole, Field(ge=1, le=model.MOST_TRIALS)] = model.Trials().least
    """Number of launches of every cell."""
    most: Annotated[Whole, Field(ge=1, le=model.MOST_TRIALS)] = model.Trials().most
    """Maximum number of launches of an undecided cell; at least `least`."""

    _most = field_validator("most")(_at_least("least"))


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


# ---------------------------------------------------------------- the JSON Schema


DIALECT = "https://json-schema.org/draft/2020-12/schema"


def schema() -> dict[str, Any]:
    """Return the schema of matrix.yaml as plain data."""
    generated = _tidy(MatrixFile.model_json_schema())
    return {"$schema": DIALECT, **generated, "title": "matrix.yaml"}


def _tidy(value: Any) -> Any:
    """Remove what does not apply to the file, but only to the records: nulls, and defaults in the records' units."""
    if isinstance(value, list):
        return [_tidy(item) for item in value]
    if not isinstance(value, dict):
        return value
    unwritten = (type(None), dict, list)  # no user would write null or a whole record as a default
    kept = {key: _tidy(item) for key, item in value.items() if key != "default" or not isinstance(item, unwritten)}
    choices = [choice for choice in kept.get("anyOf", []) if choice != {"type": "null"}]
    if len(choices) == 1:
        kept = {**{key: item for key, item in kept.items() if key != "anyOf"}, **choices[0]}
    if "patternProperties" in kept:
        kept["additionalProperties"] = False
    return kept
