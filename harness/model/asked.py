"""What the user requested: a matrix file, checked."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from harness.model.gpus import Gpu
from harness.model.signals import SIGNALS

Scalar = str | int | float | bool | None


def written(value: Scalar) -> str:
    """Return a param's value as the matrix file writes it: `true`, not `True`."""
    return json.dumps(value) if value is None or isinstance(value, bool) else str(value)


@dataclass(frozen=True, kw_only=True)
class Where:
    """A place in a matrix file, or a whole file if `key` is "". `str()` begins every message about it:
    `matrix.yaml:14: hosts.new.gpus`."""

    file: str
    line: int
    key: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.key}" if self.key else self.file


@dataclass(frozen=True, kw_only=True)
class Pull:
    """An image of a registry, or one that is already on the engine: `repository:tag` or `repository@sha256:…`."""

    reference: str


@dataclass(frozen=True, kw_only=True)
class Graft(Pull):
    """An image of the engine (`reference`, its id) with parts of `other`, which is another one of it.

    `remove`: files and folders that go before. `copy`: (place in `other`, place in the new image) of files and folders.
    `libraries`: files of `other` that are copied into LIBRARIES under each name that they have beside them there;
    `environment` is that of the new image, whole.
    """

    other: str
    remove: tuple[str, ...] = ()
    copy: tuple[tuple[str, str], ...] = ()
    libraries: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()


LIBRARIES = "/.harness-libraries"
"""The folder of a Graft's libraries; LD_LIBRARY_PATH of its environment begins with it if there are any."""


@dataclass(frozen=True, kw_only=True)
class Build:
    """An image built from `context/Dockerfile` with build args."""

    context: Path
    args: tuple[tuple[str, str], ...]


@dataclass(frozen=True, kw_only=True)
class Install:
    """Packages laid over `base` (container engines) or into a virtual environment of `python` (process engine).

    `packages` are requirement strings with the version filled in; `python` is a version such as "3.7" or None
    for the interpreter that runs the harness. `exact`: nothing but these is installed, whatever they require.
    """

    base: str
    python: str | None
    packages: tuple[str, ...]
    exact: bool = False


Source = Pull | Build | Install


@dataclass(frozen=True, kw_only=True)
class Image:
    """One version under test. `version` is its name within the series; its identity is the digest, determined later."""

    series: str
    version: str
    source: Source
    where: Where
    keep_entrypoint: bool = True
    yanked: bool = False
    environment: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Series:
    """Images of one history, oldest first."""

    name: str
    images: tuple[Image, ...]
    where: Where
    baseline: str | None = None


ContainerKind = Literal["none", "docker", "podman", "enroot", "pyxis", "apptainer"]


@dataclass(frozen=True, kw_only=True)
class SlurmRequest:
    """The node that a host with `engine: slurm` asks of the queue, and how a trial is started on it.

    `container` is what starts images there, `none` for virtual environments. `select` are options of salloc by their
    long names. `node`: this one alone. `time_s`: how long an allocation may last; `wait_s`: how long the harness waits
    for one. `images`: a folder that this machine shares with the nodes. `place`: which of the nodes of a pool is meant,
    from 1; `preferred`: the node that is asked for first, because it measured rows before.
    """

    container: ContainerKind
    select: tuple[tuple[str, str], ...] = ()
    node: str | None = None
    time_s: float = 4 * 3600.0
    wait_s: float = 24 * 3600.0
    exclusive: bool = True
    images: Path | None = None
    place: int = 0
    preferred: str | None = None


@dataclass(frozen=True, kw_only=True)
class Host:
    """One engine. `engine` is `docker`, `process`, `slurm`, `context:NAME`, `ssh://…` or `tcp://…`.

    `slurm` is there for `slurm` alone. `in_environments`: its images are virtual environments, not containers.

    Or a pool: several equal machines, which share the rows. `pool` holds their engines, and `engine` all of them in
    words. `machine`: the name of the machine, where one of a pool is meant; of a node that the queue chooses, `node 1`
    until it is known.

    `parallel`: launches whose times are not compared run side by side, as many as the host has room for (`auto`), or
    so many at most; False: one at a time; True: all lanes at the same time, whatever is compared.
    """

    name: str
    engine: str
    gpus: Literal["none", "all", "each"] | tuple[str, ...]
    where: Where
    parallel: bool | int | Literal["auto"] = "auto"
    disk_bytes: int | None = None
    slurm: SlurmRequest | None = None
    pool: tuple[str, ...] = ()
    machine: str = ""

    @property
    def machines(self) -> tuple[Host, ...]:
        """Return each machine as a host of its own; a host that is no pool is one machine."""
        if not self.pool:
            return (self,)
        if self.slurm is not None:
            return tuple(
                replace(self, pool=(), machine=f"node {place}", slurm=replace(self.slurm, place=place))
                for place in range(1, len(self.pool) + 1)
            )
        return tuple(replace(self, engine=one, pool=(), machine=machine_name(one)) for one in self.pool)

    @property
    def is_process(self) -> bool:
        return self.engine == "process"

    @property
    def in_environments(self) -> bool:
        return self.is_process or (self.slurm is not None and self.slurm.container == "none")


def machine_name(engine: str) -> str:
    """Return the name of a pool's machine, by the address of its engine: `gpu1` for `ssh://root@gpu1`."""
    name = engine.removeprefix("context:").rpartition("://")[2].rpartition("@")[2]
    return name if name.startswith("/") else name.partition("/")[0]


@dataclass(frozen=True, kw_only=True)
class Lane:
    """One host and one GPU selection on it (None: no GPU).

    `gpu` is the selection's name in messages and reports. `gpus` are the GPUs that it selects; empty until the host has
    listed its GPUs.
    """

    host: Host
    gpu: str | None = None
    gpus: tuple[Gpu, ...] = ()

    def __str__(self) -> str:
        return self.host.name if self.gpu is None else f"{self.host.name}/{self.gpu}"


MetricRule = Literal["equal", "change", "drop", "rise", "none"]


@dataclass(frozen=True, kw_only=True)
class MetricLimit:
    """What is bad about a metric of the scenario, compared with the preceding version: any difference (`equal`), or
    a relative difference above `limit` in either direction (`change`), down or up. `none`: nothing is bad, not even
    NaN."""

    metric: str
    rule: MetricRule
    limit: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What counts as bad. `setup_bad`: a failure before the first step is a crash, not `untested`.

    `step_time` and `peak_memory` are compared between versions; None: they are not compared, and no launches are made
    for that. `others` are the limits of the other signals that the matrix file sets, by name; None: that signal is off.
    """

    leak_kib_per_step: float = 0.5
    slowdown: float = 0.10
    step_time: float | None = 0.10
    peak_memory: float | None = 0.10
    setup_bad: bool = False
    others: tuple[tuple[str, float | None], ...] = ()
    metrics: tuple[MetricLimit, ...] = ()

    def of(self, signal: str) -> float | None:
        """Return the limit of a signal in its own unit; None if it has none, or is off."""
        own = {"memory": self.leak_kib_per_step, "step_time": self.step_time, "peak_memory": self.peak_memory}
        known = {**{name: each.limit for name, each in SIGNALS.items()}, **own, **dict(self.others)}
        return known[signal]


FIRST_LOOK_S = 10.0
"""Seconds in steps after which the first look at a trial is due at the latest. Later ones are twice as late each: where
the steps are so few that they show nothing yet, the trial goes on."""


@dataclass(frozen=True, kw_only=True)
class Steps:
    """Looks are at `first`·2^j steps; a trial never runs more than `budget` steps, nor more than `time_s` seconds in
    steps (None: as long as they take). A look is due after its steps, or after its time if that comes first: its share
    of `time_s`, and FIRST_LOOK_S for the first, twice as long for the next.
    """

    first: int = 500
    budget: int = 4000
    time_s: float | None = None

    def looks(self) -> tuple[int, ...]:
        """Return the step counts of the looks; the last is the budget itself."""
        counts = []
        n = max(1, self.first)
        while n < self.budget:
            counts.append(n)
            n *= 2
        return (*counts, self.budget)

    def look_times_s(self) -> tuple[float | None, ...]:
        """Return the seconds in steps after which each look is due at the latest; None: its steps alone decide."""
        counts, time_s = self.looks(), self.time_s
        early = [FIRST_LOOK_S * 2.0**number for number in range(len(counts) - 1)]
        shares = [
            early_s if time_s is None else min(early_s, time_s * count / self.budget)
            for early_s, count in zip(early, counts, strict=False)
        ]
        return (*shares, time_s)

    def ended_at(self, step: int) -> Steps:
        """Return the settings of a trial whose time ended at `step`: as many looks, and `step` is the budget."""
        if step >= self.budget:
            return self
        return Steps(first=math.ceil(step * self.first / self.budget), budget=max(1, step))

    def __str__(self) -> str:
        return f"{self.budget} steps" if self.time_s is None else f"{self.budget} steps or {self.time_s:g} s"


Depth = Literal["brief", "usual", "thorough"]
"""How far launches go. `brief`: a later one runs the whole budget. `usual`: after one that was not good they run it
until two agree. `thorough`: then they always do, for a search, which counts every launch by itself.
"""
ProbeName = Literal["optrace", "lines", "valgrind", "artifacts", "largest"]


@dataclass(frozen=True, kw_only=True)
class Probe:
    """A measurement inside a scenario, in trials of its own. `settings` are passed to the agent."""

    name: ProbeName
    steps: int
    settings: tuple[tuple[str, Any], ...] = ()


StepsAre = Literal["auto", "torch", "keras", "tf1", "jax", "lightning", "transformers"]
"""What can be a program's steps, beside a named function."""


@dataclass(frozen=True, kw_only=True)
class Program:
    """An unmodified Python program: a file, or a module that `python -m` would start. Exactly one of them is set.

    `steps_are` is a StepsAre, or a function as `module:name`. `printed` maps the name of a metric to a pattern of the
    lines that print it.
    """

    path: Path | None = None
    module: str | None = None
    args: tuple[str, ...] = ()
    steps_are: str = "auto"
    printed: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """A script with `setup(**params) -> step`, a program, or a command. Exactly one of the three is set.

    `params` maps a name to its values. `step_pattern` is a regular expression that counts a command's steps in its
    output. `judge_exit`: only the command's exit code decides (0 good, 125 untested, else bad).
    """

    name: str
    where: Where
    title: str = ""
    script: Path | None = None
    program: Program | None = None
    command: tuple[str, ...] = ()
    step_pattern: str | None = None
    judge_exit: bool = False
    params: tuple[tuple[str, tuple[Scalar, ...]], ...] = ()
    series: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    steps: Steps = Steps()
    limits: Limits = Limits()
    timeout_s: float = 1200.0
    memory_bytes: int | None = None
    shm_bytes: int = 1 << 30
    ulimits: tuple[tuple[str, int, int], ...] = (("memlock", -1, -1), ("stack", 67108864, 67108864))
    environment: tuple[tuple[str, str], ...] = ()
    files: tuple[Path, ...] = ()
    network: bool = False
    cap_add: tuple[str, ...] = ()
    probes: tuple[Probe, ...] = ()

    @property
    def file(self) -> Path | None:
        """Return the Python file that is started; None for a command, and for a program that is a module."""
        return self.program.path if self.program else self.script


@dataclass(frozen=True, kw_only=True)
class Variant:
    """A scenario with its params fixed."""

    scenario: Scenario
    params: tuple[tuple[str, Scalar], ...] = ()

    @property
    def command(self) -> tuple[str, ...]:
        """Return the scenario's command with `{name}` filled in for every param; empty for a script or a program."""
        return self._filled(self.scenario.command)

    @property
    def program_args(self) -> tuple[str, ...]:
        """Return the program's arguments, filled in likewise; empty without a program."""
        return self._filled(self.scenario.program.args if self.scenario.program else ())

    def _filled(self, parts: tuple[str, ...]) -> tuple[str, ...]:
        for name, value in self.params:
            parts = tuple(part.replace(f"{{{name}}}", str(value)) for part in parts)
        return parts

    def __str__(self) -> str:
        values = " ".join(f"{name}={value}" for name, value in self.params)
        return f"{self.scenario.name} {values}".rstrip()


@dataclass(frozen=True, kw_only=True)
class Excluded:
    """A cell that the matrix leaves out, with the reason that the report shows."""

    why: str


MOST_TRIALS = 1000
"""Most launches of one cell that a matrix file or `--trials` may request."""


@dataclass(frozen=True, kw_only=True)
class Trials:
    least: int = 3
    most: int = 8


@dataclass(frozen=True, kw_only=True)
class Stop:
    """When a sweep ends before every result is as certain as it can be. `first_bad`: after the first finding that is
    confirmed. `quick`: after one round and what confirms things that look bad. `time_s`: after this time; a launch that
    goes on is not cut off.
    """

    first_bad: bool = False
    quick: bool = False
    time_s: float | None = None


@dataclass(frozen=True, kw_only=True)
class Matrix:
    """A whole matrix file, checked. `exclude` are predicates: mappings from axis to value, with a `why`."""

    name: str
    path: Path
    series: tuple[Series, ...]
    hosts: tuple[Host, ...]
    scenarios: tuple[Scenario, ...]
    include: tuple[Mapping[str, Any], ...] = ()
    exclude: tuple[Mapping[str, Any], ...] = ()
    trials: Trials = Trials()
    stop: Stop = Stop()
