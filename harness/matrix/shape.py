"""The shape of matrix.yaml: what keys there are and what each may hold. The JSON Schema is generated from it.

Every attribute's docstring is the key's description in the schema. What depends on more than one place (names that
must exist, scripts, versions) is checked later, in `series`, `scenarios` and `rules`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    model_validator,
)

from harness import model
from harness.matrix import values
from harness.matrix.fields import (
    BY_FORM,
    Anything,
    Arguments,
    Capability,
    Duration,
    Environment,
    Gpus,
    Images,
    Leak,
    Name,
    Names,
    ParamValues,
    Scalar,
    Share,
    Size,
    Text,
    Truth,
    Variable,
    Versions,
    Whole,
)


class Shape(BaseModel):
    """A mapping with known keys only."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


# ---------------------------------------------------------------- series


class AnySeries(Shape):
    environment: Environment = {}
    """Environment variables of these images, as a mapping or a list of NAME=value; {version} is filled in."""
    entrypoint: Truth = True
    """false: start without the image's own entrypoint."""


class TagRange(Shape):
    """Tags asked of the registry whenever the file is read, sorted by the version in them."""

    match: Text
    """What the tags look like; the version begins at the first wildcard (* ? [): "*-tf1-py3", "release-*"."""
    from_: Annotated[Text | None, Field(alias="from")] = None
    """The oldest version, itself included: "20.12"."""
    to: Text | None = None
    """The newest version, and all that begins with it: "23.03"."""


Tags = Annotated[
    Annotated[list[Text], Field(min_length=1), Tag("<list>")] | Annotated[TagRange, Tag("<mapping>")], BY_FORM
]


class Repository(AnySeries):
    """Tags of one repository of a registry, oldest first."""

    repository: Text
    """The repository, without a tag: nvcr.io/nvidia/tensorflow."""
    tags: Tags
    """The tags (or sha256 digests), oldest first; or which ones to ask the registry for."""


class Listed(AnySeries):
    """Any images, oldest first."""

    images: Images
    """References, oldest first: a list, or a mapping from a version's name to its reference."""


class Built(AnySeries):
    """One Dockerfile, built once a version."""

    build: Text
    """The folder of the Dockerfile, relative to the matrix file."""
    arg: Variable
    """The build arg that takes the version."""
    versions: Names
    """The versions, oldest first."""
    args: dict[Variable, Anything] = {}
    """Further build args, the same for all versions."""


class Installed(AnySeries):
    """Python packages laid over one base image, or into a virtual environment on a process host."""

    install: Names
    """Requirements to install, at least one with {version}: ["pandas=={version}", "numpy==1.26.4"]."""
    versions: Versions
    """The versions, oldest first, or a range asked of the package index: ">=2.0,<2.3"."""
    python: Text | None = None
    """The interpreter's version, such as "3.11"; default: the one that runs the harness."""
    base: Text | None = None
    """The image to install over; default: HARNESS_BASE if it is set, else python:{python}-slim-bookworm."""


SERIES_KINDS: dict[str, type[AnySeries]] = {
    "repository": Repository, "images": Listed, "build": Built, "install": Installed,
}  # fmt: skip


def _series_kind(value: Any) -> str | None:
    kinds = [kind for kind in SERIES_KINDS if isinstance(value, dict) and kind in value]
    return f"<{kinds[0]}>" if len(kinds) == 1 else None


Series = Annotated[
    Annotated[Repository, Tag("<repository>")]
    | Annotated[Listed, Tag("<images>")]
    | Annotated[Built, Tag("<build>")]
    | Annotated[Installed, Tag("<install>")],
    Discriminator(
        _series_kind,
        custom_error_type="series_kind",
        custom_error_message=f"exactly one of {', '.join(SERIES_KINDS)}",
    ),
]

# ---------------------------------------------------------------- hosts and scenarios


class Host(Shape):
    """One engine and its GPUs."""

    engine: Text
    """docker (the active context or DOCKER_HOST), process (no container), context:NAME, ssh://…, tcp://… or unix://…."""
    gpus: Gpus = "none"
    """none; all (one lane with all); each (a lane for each); or a list by index, UUID, MIG id or name, a lane each."""
    parallel: Truth = False
    """true: the host's lanes run side by side; step times are then marked."""
    disk: Size | None = None
    """The most that pulled images may take on the host: 60GiB."""


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
    step_time: Annotated[Share, Field(json_schema_extra={"default": "10%"})] = model.Limits().step_time
    """Longer steps than the version before: 10%."""
    peak_memory: Annotated[Share, Field(json_schema_extra={"default": "10%"})] = model.Limits().peak_memory
    """More memory at the peak than the version before: 10%."""
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


Positive = Annotated[Whole, Field(ge=1, le=10**6)]


class OpTrace(Shape):
    """What each operation takes, early against late; and a Chrome trace of each."""

    at: Annotated[list[Positive], Field(min_length=1, max_length=8)] = [10, 120]
    """The steps from which on operations are traced, first to last."""
    repeat: Annotated[Whole, Field(ge=1, le=100)] = 5
    """How many steps from each of them; the table has their medians."""


class Stepped(Shape):
    """A probe that only needs to know how many steps to make."""

    steps: Positive = 100
    """How many steps it makes."""


class Valgrind(Shape):
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

    optrace: OpTrace | None = None
    """Time and memory of each operation: {at: [10, 120], repeat: 5}."""
    lines: Stepped | None = None
    """Memory and time of each line of the function that the script calls `profile`: {steps: 100}."""
    valgrind: Valgrind | None = None
    """Leaks by kind and stack, by valgrind in the image: {steps: 3}."""
    artifacts: Stepped | None = None
    """Files that the script's `artifacts()` makes at the end: {steps: 100}."""
    largest: Largest | None = None
    """The largest size that fits: {param: batch}."""


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


class Trials(Shape):
    """How many launches a cell gets."""

    least: Annotated[Whole, Field(ge=1, le=1000)] = model.Trials().least
    """Launches that every cell gets."""
    most: Annotated[Whole, Field(ge=1, le=1000)] = model.Trials().most
    """The most that an undecided cell gets; at least `least`."""


class MatrixFile(Shape):
    """What to run, on what, and what counts as bad."""

    version: Annotated[Literal[1], BeforeValidator(values.whole, json_schema_input_type=Literal[1])]
    """The version of this format, always 1."""
    name: Text | None = None
    """The name of the matrix; default: the file's name without its ending."""
    series: Annotated[dict[Name, Series], Field(min_length=1)]
    """The histories: each a row of versions, oldest first."""
    hosts: Annotated[dict[Name, Host], Field(min_length=1)] | None = None
    """The machines; default: here, this machine without containers."""
    scenarios: Annotated[dict[Name, Scenario], Field(min_length=1)]
    """What is run on each version."""
    include: list[dict[str, Scalar]] = []
    """Further variants: a scenario and its params, one mapping each."""
    exclude: list[dict[str, Scalar]] = []
    """Cells to leave out: any of series, image, host, scenario and params, with an optional why."""
    baseline: dict[str, Text] = {}
    """By series, the version that all others are compared with; default: the version before."""
    trials: Trials = Trials()
    """How many launches a cell gets."""
