"""Defines records of what runs on each version: scenarios with their steps, limits, params, data and caches."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import InitVar, dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Annotated, Any, Literal

from harness.agent.serving.asked import request_of
from harness.model.from_file import ById, FromFile, Later, Scalar, Where
from harness.model.servers import Request, WhenReady, rate_of
from harness.model.signals import LIMITED, SIGNALS, STAND_INS, TIMES, in_words, log_of

if TYPE_CHECKING:
    from harness.model import file_keys, forms
else:
    file_keys, forms = Later("harness.model.file_keys"), Later("harness.model.forms")


MetricRule = Literal["equal", "change", "drop", "rise", "reproducible", "none"]


@dataclass(frozen=True, kw_only=True)
class MetricLimit:
    """The change of a scenario's metric that is bad, compared with the preceding version: any difference (`equal`), or
    a relative difference above `limit` in either direction (`change`), down or up; `reproducible`: the usual limits
    apply, and launches that differ are bad if those of the version before did not. `none`: nothing is bad, not even
    NaN."""

    metric: str
    rule: MetricRule
    limit: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The limits beyond which a change counts as bad.

    `signals` maps each signal to its limit, in the signal's unit (None: it is off, and no launches are made for it); a
    signal that is not given has the default of the table of signals. `slowdown` is the rise of the step time within a
    launch, a share. `setup_bad`: whether a failure before the first step is bad, and not `untested`; None: that of a
    program or a command is, if another version runs. `exit_only`: only how the launches end counts, by the command's
    exit code (0 good, 125 untested, else bad). Raises ValueError for a limit that is not above zero.
    """

    signals: Mapping[str, float | None] = field(default_factory=dict, hash=False)
    slowdown: float = 0.10
    setup_bad: bool | None = None
    exit_only: bool = False
    metrics: tuple[MetricLimit, ...] = ()

    def __post_init__(self) -> None:
        own = {name: self.signals.get(name, SIGNALS[name].limit) for name in LIMITED}
        own |= {name: self.signals.get(name, own[level]) for name, level in STAND_INS.items()}
        object.__setattr__(self, "signals", own)
        for limit in (*self.signals.values(), self.slowdown):
            if limit is not None and not limit > 0:
                raise ValueError(f"a limit is above zero, not {limit:g}")

    def of(self, signal: str) -> float | None:
        """Return the limit of a signal in the signal's unit; None if the signal has none, or is off."""
        return self.signals.get(signal)

    def log_of(self, signal: str) -> float | None:
        """Return the limit of a level as the log of a ratio, which is what levels are compared by."""
        limit = self.of(signal)
        return None if limit is None else log_of(signal, limit)

    @property
    def leak_kib_per_step(self) -> float:
        """Return the limit of the signal `memory`, which cannot be switched off."""
        return self.of("memory") or SIGNALS["memory"].limit or 0.0

    @property
    def changed(self) -> frozenset[str]:
        """Return the signals whose limits are not the default."""
        return frozenset(name for name, limit in self.signals.items() if limit != SIGNALS[name].limit)


FIRST_LOOK_S = 10.0
"""Seconds in steps after which the first look at a trial is due at the latest. Each further look is due after twice the
time: if a look has too few steps to show anything, the trial goes on."""


@dataclass(frozen=True, kw_only=True)
class Steps(FromFile):
    """Number of steps of a trial.

    Looks are at `first`·2^j steps; a trial never runs more than `budget` steps, nor more than `time_s` seconds in
    steps (None: no limit). A look is due after its steps, or after its time if that comes first: its share of `time_s`,
    and at most FIRST_LOOK_S for the first, twice that for the second, and so on.
    """

    first: Annotated[forms.Whole, forms.Within(least=64)] = 500
    """The step of the first look; each later look comes after twice as many steps."""
    budget: Annotated[forms.Whole, forms.Within(least=64, most=10**9), forms.at_least("first")] = 4000
    """Maximum number of steps of a trial; at least `first`."""
    time_s: Annotated[forms.Duration | None, forms.key("time")] = None
    """Maximum time in steps: 5m. A look comes after its steps or its share of this time, whichever is first."""

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
        """Return the settings of a trial whose time ended at `step`: the same number of looks, and `step` as budget."""
        if step >= self.budget:
            return self
        return Steps(first=math.ceil(step * self.first / self.budget), budget=max(1, step))

    def __str__(self) -> str:
        return f"{self.budget} steps" if self.time_s is None else f"{self.budget} steps or {self.time_s:g} s"


Depth = Literal["brief", "usual", "thorough", "whole"]
"""When launches may stop early. `brief`: while all launches are good, since a later launch runs the whole budget.
`usual`: once a launch has run the whole budget; after a launch that was not good, once two agree. `thorough`: as
`usual`, but never after a launch that was not good, since a search counts every launch by itself. `whole`: never.
"""
ProbeName = Literal["optrace", "lines", "valgrind", "artifacts", "largest"]


@dataclass(frozen=True, kw_only=True)
class Probe:
    """A measurement inside a scenario, in separate trials. `settings` are passed to the agent."""

    name: ProbeName
    steps: int
    settings: tuple[tuple[str, Any], ...] = ()


PYTHON_LAUNCHERS = ("torchrun", "accelerate", "deepspeed")
LAUNCHERS = (*PYTHON_LAUNCHERS, "mpirun", "mpiexec", "horovodrun", "srun")
"""Known launchers of ranks. The first ones start a Python program by themselves, the others any command."""
LAUNCHER_MODULES = ("torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch")


def starts_python(launcher: Sequence[str]) -> bool:
    """Return whether a launcher is given a Python program, and not the interpreter before it."""
    return launcher[0].rpartition("/")[2] in PYTHON_LAUNCHERS or "-m" in launcher[1:2]


Identity = Literal["files", "content", "name"]
"""What tells mounted data apart: names, sizes and times of all files, their content, or only the path's name."""


@dataclass(frozen=True, kw_only=True)
class Mount(FromFile):
    """A file or folder of the host that each launch sees, read-only and without a copy."""

    source: Annotated[Path, forms.LOCATED, forms.key("from")]
    """The file or folder on each host that runs the scenario; relative to the matrix file."""
    at: forms.Text
    """Its path in a launch: absolute, or relative to the folder in which the program runs."""
    identity: Identity = "files"
    """What makes launches new if it changes: files (names, sizes and times), content, or name. Default: files."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "source", normal_path(self.source))

    @property
    def is_absolute(self) -> bool:
        """Return whether it is at its path itself: a link in the trial's own folder leads to any other."""
        return self.at.startswith("/")


@dataclass(frozen=True, kw_only=True)
class Cache(FromFile):
    """A folder in which each launch can write, and of which no other launch sees what it wrote."""

    name: Annotated[forms.Name, forms.key("cache")]
    """The name of a cache, such as hub."""
    at: forms.Text
    """Its path in a launch: absolute, relative to the folder in which the program runs, or in its home (~/.cache)."""
    start: Literal["warm", "cold"] = "warm"
    """warm: each launch begins with a copy of what one launch of the same version, which is not counted, left in it;
    cold: with an empty folder. Default: warm."""

    @property
    def is_absolute(self) -> bool:
        """Return whether no link leads to it."""
        return self.at.startswith("/")

    @property
    def is_warm(self) -> bool:
        return self.start == "warm"


def normal_path(path: Path) -> Path:
    """Return the absolute path without `..`, which could lead out of the trial's folder. Links are not resolved."""
    return Path(os.path.normpath(path.absolute()))


@dataclass(frozen=True, kw_only=True)
class Scenario(FromFile):
    """A script with setup(**params) that returns a step function, an unmodified Python program, a command, or a server.

    Exactly one of `script`, `program`, `module`, `command` and `serve` is set. `steps_are` is one of `words_for_steps`,
    or a function as `module:name`. In a trial, the files below `folder` have the same places as there; None: the
    script's own folder. `secrets` are the variables of `env_file`: only a launch gets them; files of a run have their
    `secret_names`.
    """

    name: Annotated[str, forms.NotInFile()]
    where: Annotated[Where, forms.NotInFile(), forms.UNTOLD]
    title: Annotated[str, forms.NotInFile()] = ""
    script: Annotated[Path | None, forms.LOCATED] = None
    """A Python script with setup(**params), relative to the matrix file. Give this, program, module or command."""
    program: Annotated[Path | None, forms.LOCATED] = None
    """An unmodified Python program, such as train.py, relative to the matrix file; measured from inside."""
    module: forms.Text | None = None
    """An unmodified Python program that is a module, run as by python -m."""
    args: Annotated[tuple[forms.Anything, ...], forms.MASKED_WORDS] = ()
    """For a program: its arguments; a param replaces its name in braces."""
    launcher: Annotated[
        tuple[str, ...], forms.written_as(forms.TEXT, file_keys.launcher_words), forms.MASKED_WORDS
    ] = ()
    """For a program: the command that starts its ranks, such as torchrun --nproc-per-node {gpus}; {gpus} is the number
    of the lane's GPUs, 1 without any; {nodes}, {node}, {address} and {port} are for several nodes."""
    steps_are: Annotated[
        str,
        forms.InFile(
            form=file_keys.AnyStepsAre, then=lambda asked: asked if isinstance(asked, str) else asked.function
        ),
    ] = "auto"
    """For a program: what counts as its steps; auto, the default: those of the first framework that makes one."""
    printed: file_keys.Printed | None = None
    """For a program, a command or a load generator: the numbers that it prints, such as {loss: "loss: {}"}, where {} is
    the number; off: none. Default: all numbers beside a name."""
    command: Annotated[tuple[forms.Anything, ...], forms.Within(items=1), forms.MASKED_WORDS] = ()
    """Any other program, as a list of its arguments, measured from outside. Give this, script, program or module."""
    serve: Annotated[tuple[forms.Anything, ...], forms.Within(items=1), forms.MASKED_WORDS] = ()
    """A server, as a list of its arguments, to which the harness sends requests; {port} is the port that it is to
    listen on. The params concurrency (requests at a time; default: 1) and rate (requests a second, such as 20/s) are
    those of the client."""
    port: Annotated[forms.Whole | None, forms.Within(least=1, most=65535)] = None
    """For a server: the port that it listens on, if its arguments have no {port}."""
    tls: forms.Truth = False
    """true: the server speaks TLS (https). Its certificate is not checked."""
    ready: WhenReady = WhenReady()
    """For a server: when it is ready."""
    request: Annotated[tuple[Request, ...], file_keys.ONE_OR_MORE] = ()
    """For a server: the request, or a list of several: {post: /generate, json: {prompt: hello}}."""
    requests: Annotated[Path | None, forms.LOCATED] = None
    """For a server, in place of request: a file of JSON lines, of which each is one."""
    client: Annotated[Path | tuple[str, ...] | None, forms.InFile(form=file_keys.AnyClient), forms.MASKED_WORDS] = None
    """For a server, in place of request: a script with setup(url) that returns request(), which sends one; or a load
    generator, as a list of its arguments, in which {url}, {host} and {port} are the server's."""
    request_timeout_s: Annotated[forms.Duration, forms.key("request_timeout", default="1m")] = 60.0
    """For a server: the time after which a request without a reply has failed."""
    step_pattern: file_keys.Expression | None = None
    """For a command: a regular expression; each line of output that matches it is a step."""
    results: forms.Text | None = None
    """For a command or a load generator: the file that it writes, such as out.json or out.csv, whose numbers are
    results."""
    stop: Annotated[tuple[forms.Anything, ...], forms.MASKED_WORDS] = ()
    """For a command of a varied series: what ends what it starts outside its own processes, such as [docker, rm, -f,
    bench]. It runs after every launch, also after one that was killed."""
    judge: InitVar[Literal["exit"] | None] = None
    """exit: only the command's exit code decides: 0 good, 125 untested, else bad."""
    params: file_keys.Params = ()
    """The values of each parameter; every combination is a variant."""
    series: forms.Names = ()
    """The series to run it on; default: all."""
    hosts: forms.Names = ()
    """The hosts to run it on; default: all."""
    steps: Steps = Steps()
    """Number of steps of a trial."""
    limits: Annotated[Limits, forms.InFile(form=file_keys.WrittenLimits, then=file_keys.limits_of)] = Limits()
    """What counts as bad."""
    metrics: InitVar[
        Annotated[
            tuple[MetricLimit, ...],
            forms.InFile(form=dict[forms.Text, file_keys.AnyMetricLimit], then=file_keys.metric_limits),
        ]
    ] = ()
    """Limits of the numbers that it returns or prints: {loss: {change: 1%}, items: {drop: 5%}, sum: equal}."""
    timeout_s: Annotated[forms.Duration, forms.key("timeout", default="20m")] = 1200.0
    """Time limit for setup and all the steps of a trial: 20m, 90s, 1h30m, or seconds."""
    memory_bytes: Annotated[forms.Size | None, forms.key("memory")] = None
    """Memory limit, swap included: 8GiB."""
    shm_bytes: Annotated[forms.Size, forms.key("shm_size", default="1GiB")] = 1 << 30
    """The size of /dev/shm: 1GiB."""
    ulimits: Annotated[
        file_keys.Ulimits,
        forms.InFile(
            form=dict[forms.Name, file_keys.AnyUlimit],
            then=lambda limits: tuple((name, limit.soft, limit.hard) for name, limit in limits.items()),
        ),
    ] = (("memlock", -1, -1), ("stack", 67108864, 67108864))
    """Kernel limits, as in Compose; default: memlock: -1, stack: 67108864."""
    environment: forms.Environment = ()
    """Environment variables, as a mapping or a list of NAME=value; they override the series' own."""
    env_file: Annotated[Path | None, forms.LOCATED] = None
    """A file of NAME=value lines, as for docker run --env-file, whose values are never written; the keys environment
    override them."""
    secrets: Annotated[tuple[tuple[str, str], ...], forms.NotInFile(), forms.UNTOLD] = field(default=(), repr=False)
    secret_names: Annotated[tuple[str, ...], forms.NotInFile()] = ()
    files: Annotated[tuple[Annotated[Path, forms.LOCATED], ...], forms.UNTOLD] = ()
    """Files and folders to copy next to the script, relative to the matrix file."""
    mounts: tuple[file_keys.AnyMount, ...] = ()
    """Files and folders of the host that a launch sees read-only, [{from: /data/imagenet, at: /data}], and caches,
    [{cache: hub, at: /root/.cache/huggingface}]."""
    folder: Annotated[Path | None, forms.LOCATED] = None
    """For a program or a command: the folder to start it in, relative to the matrix file; the files keep their places
    below it. Default: the program's own folder."""
    network: forms.Truth = False
    """true: the container has a network."""
    cap_add: tuple[file_keys.Capability, ...] = ()
    """Capabilities to add, such as SYS_PTRACE."""
    probes: Annotated[
        tuple[Probe, ...], forms.InFile(form=file_keys.Probes, then=lambda probes: probes.chosen), forms.UNTOLD
    ] = ()
    """Probes inside the scenario, run by `harness probe`."""

    def __post_init__(self, judge: Literal["exit"] | None, metrics: tuple[MetricLimit, ...]) -> None:
        if judge or metrics:
            object.__setattr__(self, "limits", replace(self.limits, exit_only=judge == "exit", metrics=metrics))

    @property
    def data(self) -> tuple[Mount, ...]:
        """Return the mounts that are data of the host."""
        return tuple(mount for mount in self.mounts if isinstance(mount, Mount))

    @property
    def caches(self) -> tuple[Cache, ...]:
        return tuple(mount for mount in self.mounts if isinstance(mount, Cache))

    @property
    def is_program(self) -> bool:
        """Return whether it is an unmodified Python program: a file, or a module that `python -m` would start."""
        return self.program is not None or self.module is not None

    @property
    def file(self) -> Path | None:
        """Return the Python file that is started; None for a command, and for a program that is a module."""
        return self.program or self.script

    @property
    def client_script(self) -> Path | None:
        """Return the script that sends the requests to a server; None without one."""
        return self.client if isinstance(self.client, Path) else None

    @property
    def generator(self) -> tuple[str, ...]:
        """Return the words of the load generator that sends the requests to a server; () without one."""
        return self.client if isinstance(self.client, tuple) else ()

    def in_words(self, text: str, name: str) -> str:
        """Return the words of a signal for this scenario."""
        return in_words(text, name, "request" if self.serve and not self.generator else "step")

    @property
    def carried(self) -> tuple[Path, ...]:
        """Return the files and folders that are copied into each trial."""
        own = (self.file, self.client_script, self.requests)
        return (*(path for path in own if path is not None), *self.files)

    @property
    def needs_python(self) -> bool:
        """Return whether the image's own Python runs it."""
        return self.script is not None or self.is_program

    @property
    def is_sampled(self) -> bool:
        """Return whether it is a command without steps, of which samples are taken."""
        return bool(self.command) and self.step_pattern is None

    @property
    def compares_times(self) -> bool:
        """Return whether any time that its launches measure is compared between versions."""
        return not self.limits.exit_only and any(self.limits.of(name) is not None for name in TIMES)

    @property
    def may_count_lines(self) -> bool:
        """Return whether its steps may be lines of output that the agent finds by itself."""
        return self.is_program and self.steps_are == "auto" and not self.limits.exit_only

    @property
    def file_place(self) -> str:
        """Return the path of that file in the folder in which a trial runs; "" without one."""
        return "" if self.file is None else str(self.place_of(self.file))

    def place_of(self, path: Path) -> PurePosixPath:
        """Return a file's path in the folder of a trial: its name, if it is not below the scenario's folder."""
        home, whole = normal_path(self.folder or (self.file or path).parent), normal_path(path)
        return PurePosixPath(whole.relative_to(home) if whole.is_relative_to(home) else whole.name)


@dataclass(frozen=True, kw_only=True)
class Variant(ById):
    """A scenario with its params fixed."""

    scenario: Scenario
    params: tuple[tuple[str, Scalar], ...] = ()

    @property
    def id(self) -> str:
        """Return a text that no other variant of a plan has, whatever the types of the params: `signal {"n": 1}`."""
        return f"{self.scenario.name} {json.dumps(dict(self.params))}"

    @property
    def command(self) -> tuple[str, ...]:
        """Return the scenario's command, or its server's, with `{name}` filled in for params; () without one."""
        return self.filled(self.scenario.command or self.scenario.serve)

    @property
    def program_args(self) -> tuple[str, ...]:
        """Return the program's arguments, filled in likewise; empty without a program."""
        return self.filled(self.scenario.args)

    @property
    def launcher(self) -> tuple[str, ...]:
        """Return the words that start the program's ranks, filled in likewise: `{python}` stands for the interpreter,
        and `{gpus}` for the number of the trial's GPUs, 1 without any."""
        words = self.scenario.launcher
        return self.filled(words if not words or starts_python(words) else (*words, "{python}", "-u"))

    @property
    def load(self) -> tuple[int, float | None]:
        """Return how many requests to a server are on their way at a time, and how many come in a second: None if each
        comes after another one has ended. The params of a load generator are its own."""
        params = {} if self.scenario.generator else dict(self.params)
        rate = params.get("rate")
        return int(params.get("concurrency") or 1), None if rate is None else rate_of(rate)

    @property
    def requests(self) -> tuple[Mapping[str, Any], ...]:
        """Return what is sent to a server, filled in likewise."""
        return tuple(request_of(each.written, dict(self.params)) for each in self.scenario.request)

    def filled(self, parts: Sequence[str]) -> tuple[str, ...]:
        """Return words with `{name}` replaced by the value of every param."""
        for name, value in self.params:
            parts = [part.replace(f"{{{name}}}", str(value)) for part in parts]
        return tuple(parts)

    def __str__(self) -> str:
        values = " ".join(f"{name}={value}" for name, value in self.params)
        return f"{self.scenario.name} {values}".rstrip()
