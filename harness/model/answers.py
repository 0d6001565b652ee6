"""Defines the records of what commands answer: `compare`, `judge --history`, `doctor`, `issue`, `repro` and `diff`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from harness.model.judged import CellVerdict, Change, Effect, Finding, Interval, Metric, Noise
from harness.model.matrix import Gpu, Host, Lane, Source
from harness.model.measured import Trial
from harness.model.planned import Cell, PredictedEffect
from harness.model.result import CellResult, RunResult
from harness.model.scenario import Variant

Standing = Literal["same", "more", "less", "both bad", "worse", "better", "unknown"]
"""State of the second column relative to the first: a higher or lower level; a fault in one or in both."""


@dataclass(frozen=True, kw_only=True)
class Column:
    """A lane of a run. `number` is the position of the run, from 0, and `run` its directory. `machine` is the
    description of host and GPU by its trials: equal for the same machine.
    """

    label: str
    number: int
    run: str
    lane: Lane
    machine: str
    started: str


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One signal of one cell in two columns: medians over trials, and for levels and leaks the interval of the ratio of
    the second to the first.

    `floor` is the relative difference of equal images on these lanes, from their own A/A launches; None if unknown.
    """

    metric: Metric
    one: float | None
    other: float | None
    ci: Interval | None = None
    floor: float | None = None
    standing: Standing

    @property
    def ratio(self) -> float | None:
        """Return the ratio of the second to the first; None if it has no interval."""
        return None if self.ci is None else math.sqrt(self.ci[0]) * math.sqrt(self.ci[1])


@dataclass(frozen=True, kw_only=True)
class Pair:
    """One cell in two columns. `refused`: the fields that differ although they must not, one line each."""

    series: str
    image: str
    variant: Variant
    one: Column
    other: Column
    verdicts: tuple[CellVerdict, CellVerdict]
    measured: tuple[Measured, ...] = ()
    refused: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class MachineChange:
    """A signal that is worse on a machine since its software changed. `before` and `after`: what changed, such as
    `driver 535.104.05`. `worse`: the cells in which it is; `alike`: those in which it certainly is not. `effects`: by
    how much, in the worse cells in which that is known.
    """

    before: tuple[str, ...]
    after: tuple[str, ...]
    metric: Metric
    worse: tuple[Pair, ...]
    alike: tuple[Pair, ...]
    effects: tuple[Effect, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Every column compared with the first. `together`: the attribution over all runs if machines differ, else None.
    `since`: what became worse on a machine whose software changed between two runs.
    """

    columns: tuple[Column, ...]
    pairs: tuple[Pair, ...]
    together: RunResult | None
    notes: tuple[str, ...]
    exit_code: int
    since: tuple[MachineChange, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Peak memory and throughput of one variant; on the frontier if no other variant is better in both."""

    name: str
    peak_mib: float
    items_a_s: float
    on_frontier: bool


# ---------------------------------------------------------------- judged figures


@dataclass(frozen=True, kw_only=True)
class SeriesVerdict:
    """The verdict on one history. `limit` is the smallest change that counts; `visible` is the minimum detectable
    effect of a level that `lasting` versions have; `noise` is the standard deviation between values of one version. All
    three are shares, or None if unknown.

    `alone`: there is one value per version, and the noise is estimated from neighbouring versions; `correlation` is
    then that of neighbours, which widens it, and `odd` are the outliers, versions far from both neighbours. `left_out`
    describes what was not used.
    """

    history: str
    versions: tuple[str, ...]
    rounds: int
    falls: bool
    limit: float
    changes: tuple[Change[int], ...]
    noise: float | None
    visible: float | None
    lasting: int
    alone: bool
    correlation: float = 0.0
    odd: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()

    @property
    def verdict(self) -> Literal["worse", "good", "inconclusive"]:
        """Return the verdict; `inconclusive`: nothing became worse, but a change of the limit might not have shown."""
        if any(change.kind not in ("first_fixed", "better") for change in self.changes):
            return "worse"
        return "good" if self.visible is not None and self.visible <= self.limit else "inconclusive"


# ---------------------------------------------------------------- doctor


@dataclass(frozen=True, kw_only=True)
class Room:
    """The file system where a host keeps its images."""

    free_bytes: int
    total_bytes: int


@dataclass(frozen=True, kw_only=True)
class HostCondition:
    """Records what an engine reports about itself; anything that it does not report is None.

    `api`: the version of its API in use; `gpu_way`: how it gives GPUs to containers. `holder`: who has its lease.
    `leftovers`: names of what killed runs left there. `kept_bytes`: size of the images and environments that the
    harness fetched and may remove. `memory_limit_bytes`: memory limit of a launch if the matrix sets none.
    """

    engine: str
    api: str | None = None
    gpu_way: str | None = None
    holder: str | None = None
    room: Room | None = None
    leftovers: tuple[str, ...] = ()
    kept_bytes: int | None = None
    memory_limit_bytes: int | None = None


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """The space that a matrix's images need on a host. `missing`: number of images not on the host; `missing_bytes`:
    size of their download, packed as in the registry, with shared layers counted once; `unpacked_bytes`: their
    approximate size on the host. `unknown`: images of unknown size, with the reason."""

    images: int
    missing: int
    missing_bytes: int
    unpacked_bytes: int
    unknown: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class HostCheck:
    """One host, or one machine of a pool. `problem` says why it cannot be used; all other fields may then be empty.

    `gpus` are those of its lanes. `noise` is the A/A noise that earlier runs measured there, by scenario; `predicted`:
    which changes will show, by these runs or by the control. `control_ms` is the step time of the control; `odd` says
    how it differs from that of the other machines of the pool, or why it is unknown. `missing`: a line for each path
    that a scenario mounts and that is not there.
    """

    host: Host
    problem: str | None = None
    condition: HostCondition | None = None
    gpus: tuple[Gpu, ...] = ()
    lanes: tuple[Lane, ...] = ()
    wanted: Wanted | None = None
    noise: Mapping[str, Noise] = field(default_factory=dict)
    predicted: tuple[PredictedEffect, ...] = ()
    control_ms: float | None = None
    odd: str = ""
    missing: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ImageFit:
    """One image on one GPU (None: without one). `bytes`: unpacked if `at_hand`, else packed; None: unknown."""

    host: str
    gpu: Gpu | None
    series: str
    version: str
    state: Literal["runs", "incompatible", "unknown"]
    why: str
    at_hand: bool
    bytes: int | None


@dataclass(frozen=True, kw_only=True)
class Checkup:
    """The whole result, in the order of the matrix."""

    matrix: str
    hosts: tuple[HostCheck, ...]
    fits: tuple[ImageFit, ...]

    @property
    def problems(self) -> tuple[str, ...]:
        return tuple(check.problem for check in self.hosts if check.problem is not None)


# ---------------------------------------------------------------- evidence


@dataclass(frozen=True, kw_only=True)
class Container:
    """A `docker run`. `client` is the command that reaches the engine: `docker`, or `docker --host ssh://…`.

    `image` is the launched image, by digest or id; `source` says how to get it on another engine. `options` are the
    flags without the environment.
    """

    client: tuple[str, ...]
    image: str
    source: Source
    options: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, kw_only=True)
class Machine:
    """An interpreter of a machine, with the packages of a cell. `python` is the interpreter that was launched, "" if
    unknown; `version` and `packages` (all of them, as `name==version`) suffice to recreate it."""

    python: str
    version: str
    packages: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class InPlace:
    """A command that runs on the machine as it is, in a folder that no run keeps."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Everything needed to launch a cell without the harness. `script` is the scenario's text, None for a command.

    `files` are the scenario's other files; `missing` are the paths of needed files that the run's directory lacks.
    `withheld` names variables that were set beside those of `environment`, but whose values are private. `mounts` has
    the place and the identity of each mount.
    """

    result: CellResult
    run: Container | Machine | InPlace
    environment: tuple[tuple[str, str], ...]
    script: str | None
    files: Mapping[str, bytes]
    missing: tuple[str, ...]
    steps: int
    withheld: tuple[str, ...] = ()
    mounts: tuple[tuple[str, str], ...] = ()

    @property
    def cell(self) -> Cell:
        return self.result.cell


@dataclass(frozen=True, kw_only=True)
class Changed:
    """One item before and after the change; None if it is absent."""

    name: str
    before: str | None
    after: str | None


@dataclass(frozen=True, kw_only=True)
class Section:
    """One kind of item: what changed, the number of unchanged items, and what is unknown (a sentence, or "")."""

    title: str
    changes: tuple[Changed, ...] = ()
    same: int = 0
    unknown: str = ""


@dataclass(frozen=True, kw_only=True)
class EnvironmentDifference:
    """The changes across a finding's boundary, from version `before` to version `after`."""

    finding: Finding
    before: str
    after: str
    sections: tuple[Section, ...]


@dataclass(frozen=True, kw_only=True)
class Issue:
    """The content of a bug report. `history` is the finding's row, oldest first; `bad` and `good` are the cells at its
    boundary.

    `trial` is one that shows the fault. `elsewhere` are the other cells of the bad version, with and without the fault.
    `causes` are the sentences of the attribution.
    """

    finding: Finding
    history: tuple[CellResult, ...]
    bad: CellResult
    good: CellResult | None
    trial: Trial | None
    recipe: Recipe | None
    difference: EnvironmentDifference | None
    elsewhere: tuple[CellResult, ...] = ()
    causes: tuple[str, ...] = ()
    system: Mapping[str, Any] = field(default_factory=dict)
    new_lines: tuple[str, ...] = ()
    """Output lines of the bad version that the good one does not print, without parts that vary between launches."""
    added: tuple[object, ...] = ()
    """The findings of later commands in the run, each a `Added` of the reports; `number`: that of the finding."""
    number: int = 0
    problem: str = ""
    """The reason why there is no recipe."""
    dockerfile: str = ""
    """Text of a built image's Dockerfile; "" if it is unknown."""
