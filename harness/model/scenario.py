"""Defines records of what runs on each version: scenarios with their steps, limits and params."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Literal, TypeVar

from harness.model.signals import LIMITED, SIGNALS, TIMES, log_of

Scalar = str | int | float | bool | None
Key = TypeVar("Key")
Each = TypeVar("Each")


def grouped(pairs: Iterable[tuple[Key, Each]]) -> dict[Key, list[Each]]:
    """Return the second parts of pairs by their first parts, both in the order in which they come."""
    groups: dict[Key, list[Each]] = {}
    for key, each in pairs:
        groups.setdefault(key, []).append(each)
    return groups


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
        object.__setattr__(self, "signals", {name: self.signals.get(name, SIGNALS[name].limit) for name in LIMITED})
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
class Steps:
    """Looks are at `first`·2^j steps; a trial never runs more than `budget` steps, nor more than `time_s` seconds in
    steps (None: no limit). A look is due after its steps, or after its time if that comes first: its share of `time_s`,
    and at most FIRST_LOOK_S for the first, twice that for the second, and so on.
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


StepsAre = Literal[
    "auto", "torch", "keras", "tf1", "tf2", "jax", "lightning", "transformers", "lightgbm", "xgboost", "sklearn"
]
"""What can count as a program's steps, other than a named function."""


PYTHON_LAUNCHERS = ("torchrun", "accelerate", "deepspeed")
LAUNCHERS = (*PYTHON_LAUNCHERS, "mpirun", "mpiexec", "horovodrun", "srun")
"""Known launchers of ranks. The first ones start a Python program by themselves, the others any command."""
LAUNCHER_MODULES = ("torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch")


def starts_python(launcher: Sequence[str]) -> bool:
    """Return whether a launcher is given a Python program, and not the interpreter before it."""
    return launcher[0].rpartition("/")[2] in PYTHON_LAUNCHERS or "-m" in launcher[1:2]


@dataclass(frozen=True, kw_only=True)
class Program:
    """An unmodified Python program: a file, or a module that `python -m` would start. Exactly one of them is set.

    `steps_are` is a StepsAre, or a function as `module:name`. `launcher`: the words of what starts its ranks,
    such as `torchrun`; none if it starts them itself, or has only one.
    """

    path: Path | None = None
    module: str | None = None
    args: tuple[str, ...] = ()
    steps_are: str = "auto"
    launcher: tuple[str, ...] = ()

    @property
    def launched(self) -> tuple[str, ...]:
        """Return the words before the program: `{python}` stands for the interpreter, and `{gpus}` for the number of
        the trial's GPUs, 1 without any."""
        if not self.launcher or starts_python(self.launcher):
            return self.launcher
        return (*self.launcher, "{python}", "-u")


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """A script with `setup(**params) -> step`, a program, or a command. Exactly one of the three is set.

    `params` maps a name to its values. `step_pattern` is a regular expression that counts a command's steps in its
    output. `printed` maps the name of a metric to a pattern of the lines that print it; None: the numbers beside names
    are read. In a trial, the files below `folder` have the same places as there; None: the script's own folder.
    """

    name: str
    where: Where
    title: str = ""
    script: Path | None = None
    program: Program | None = None
    command: tuple[str, ...] = ()
    step_pattern: str | None = None
    printed: tuple[tuple[str, str], ...] | None = None
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
    folder: Path | None = None
    network: bool = False
    cap_add: tuple[str, ...] = ()
    probes: tuple[Probe, ...] = ()

    @property
    def file(self) -> Path | None:
        """Return the Python file that is started; None for a command, and for a program that is a module."""
        return self.program.path if self.program else self.script

    @property
    def compares_times(self) -> bool:
        """Return whether any time that its launches measure is compared between versions."""
        return not self.limits.exit_only and any(self.limits.of(name) is not None for name in TIMES)

    @property
    def may_count_lines(self) -> bool:
        """Return whether its steps may be lines of output that the agent finds by itself."""
        return self.program is not None and self.program.steps_are == "auto" and not self.limits.exit_only

    @property
    def file_place(self) -> str:
        """Return the path of that file in the folder in which a trial runs; "" without one."""
        return "" if self.file is None else str(self.place_of(self.file))

    def place_of(self, path: Path) -> PurePosixPath:
        """Return the path of one of its files in the folder in which a trial runs: its name, if it is not below the
        scenario's folder."""
        home, whole = _normal(self.folder or (self.file or path).parent), _normal(path)
        return PurePosixPath(whole.relative_to(home) if whole.is_relative_to(home) else whole.name)


def _normal(path: Path) -> Path:
    """Return the absolute path without `..`, which could lead out of the trial's folder. Links are not resolved."""
    return Path(os.path.normpath(path.absolute()))


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

    @property
    def launcher(self) -> tuple[str, ...]:
        """Return the words that start the program's ranks, filled in likewise."""
        return self._filled(self.scenario.program.launched if self.scenario.program else ())

    def _filled(self, parts: tuple[str, ...]) -> tuple[str, ...]:
        for name, value in self.params:
            parts = tuple(part.replace(f"{{{name}}}", str(value)) for part in parts)
        return parts

    def __str__(self) -> str:
        values = " ".join(f"{name}={value}" for name, value in self.params)
        return f"{self.scenario.name} {values}".rstrip()
