"""The records that flow through the harness, all frozen. The words are those of `docs/words.md`.

    matrix.yaml -> Matrix -> Plan (cells) -> Trial (journal) -> CellVerdict -> Finding -> report

Units are in the names: `_kib`, `_mib`, `_s`, `_ms`. Fractions are plain numbers (0.10 is 10 %).
A value that is not known is None. Nothing here imports another part of the harness.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Scalar = str | int | float | bool | None

# ---------------------------------------------------------------- what the user asked for (matrix)


@dataclass(frozen=True, kw_only=True)
class Where:
    """A place in a matrix file. `str()` is how every message about it begins: `matrix.yaml:14: hosts.new.gpus`."""

    file: str
    line: int
    key: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.key}"


@dataclass(frozen=True, kw_only=True)
class Pull:
    """An image of a registry, or one that is on the engine already: `repository:tag` or `repository@sha256:…`."""

    reference: str


@dataclass(frozen=True, kw_only=True)
class Build:
    """An image built from `context/Dockerfile` with build args."""

    context: Path
    args: tuple[tuple[str, str], ...]


@dataclass(frozen=True, kw_only=True)
class Install:
    """Packages laid over `base` (container engines) or into a virtual environment of `python` (process engine).

    `packages` are requirement strings with the version filled in; `python` is a version such as "3.7" or None
    for the interpreter that runs the harness.
    """

    base: str
    python: str | None
    packages: tuple[str, ...]


Source = Pull | Build | Install


@dataclass(frozen=True, kw_only=True)
class Image:
    """One version under test. `version` is its name within the series; its identity is the digest, known later."""

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


@dataclass(frozen=True, kw_only=True)
class Host:
    """One engine. `engine` is `docker`, `process`, `context:NAME`, `ssh://…` or `tcp://…`."""

    name: str
    engine: str
    gpus: Literal["none", "all", "each"] | tuple[str, ...]
    where: Where
    parallel: bool = False
    disk_bytes: int | None = None

    @property
    def is_process(self) -> bool:
        return self.engine == "process"


@dataclass(frozen=True, kw_only=True)
class Lane:
    """One host and one GPU selection on it (None: no GPU)."""

    host: Host
    gpu: str | None = None

    def __str__(self) -> str:
        return self.host.name if self.gpu is None else f"{self.host.name}/{self.gpu}"


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What counts as bad. `setup_bad`: a failure before the first step is a crash, not `untested`."""

    leak_kib_per_step: float = 0.5
    slowdown: float = 0.10
    step_time: float = 0.10
    peak_memory: float = 0.10
    setup_bad: bool = False


@dataclass(frozen=True, kw_only=True)
class Steps:
    """Looks are at `first`·2^j steps; a trial never runs more than `budget` steps."""

    first: int = 500
    budget: int = 4000

    def looks(self) -> tuple[int, ...]:
        """The step counts at which a trial is looked at; the last is the budget itself."""
        counts = []
        n = self.first
        while n < self.budget:
            counts.append(n)
            n *= 2
        return (*counts, self.budget)


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """A script with `setup(**params) -> step`, or a command. Exactly one of `script` and `command` is set.

    `params` maps a name to the values it takes. `step_pattern` counts a command's steps by a regular expression
    on its output. `judge_exit`: the command's exit code alone decides (0 good, 125 untested, else bad).
    """

    name: str
    where: Where
    title: str = ""
    script: Path | None = None
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


@dataclass(frozen=True, kw_only=True)
class Variant:
    """A scenario with its params fixed."""

    scenario: Scenario
    params: tuple[tuple[str, Scalar], ...] = ()

    def __str__(self) -> str:
        values = " ".join(f"{name}={value}" for name, value in self.params)
        return f"{self.scenario.name} {values}".rstrip()


@dataclass(frozen=True, kw_only=True)
class Excluded:
    """A cell that the matrix leaves out, with the reason that the report shows."""

    why: str


@dataclass(frozen=True, kw_only=True)
class Trials:
    least: int = 3
    most: int = 8


@dataclass(frozen=True, kw_only=True)
class Matrix:
    """A whole matrix file, checked. `exclude` are predicates as mappings from axis to value, with a `why`."""

    name: str
    path: Path
    series: tuple[Series, ...]
    hosts: tuple[Host, ...]
    scenarios: tuple[Scenario, ...]
    include: tuple[Mapping[str, Any], ...] = ()
    exclude: tuple[Mapping[str, Any], ...] = ()
    trials: Trials = Trials()


# ---------------------------------------------------------------- what will be run (plan)


@dataclass(frozen=True, kw_only=True)
class Cell:
    """image × lane × variant."""

    image: Image
    lane: Lane
    variant: Variant
    excluded: Excluded | None = None

    @property
    def id(self) -> str:
        """A name for files and labels: readable, unique, the same in every run. `[A-Za-z0-9._-]`, at most 100."""
        identity = json.dumps(
            [self.image.series, self.image.version, str(self.lane), self.variant.scenario.name, self.variant.params]
        )
        words = (self.image.series, self.image.version, str(self.lane), str(self.variant))
        readable = re.sub(r"[^A-Za-z0-9._]+", "-", "-".join(words)).strip("-.")[:90]
        return f"{readable}-{hashlib.sha256(identity.encode()).hexdigest()[:8]}"

    def __str__(self) -> str:
        return f"{self.image.series} {self.image.version} on {self.lane}: {self.variant}"


@dataclass(frozen=True, kw_only=True)
class Block:
    """All cells of one series, lane and variant, oldest image first: what one row of a table and one history is."""

    series: Series
    lane: Lane
    variant: Variant
    cells: tuple[Cell, ...]


@dataclass(frozen=True, kw_only=True)
class Plan:
    matrix: Matrix
    blocks: tuple[Block, ...]
    trials: Trials
    seed: int

    @property
    def cells(self) -> tuple[Cell, ...]:
        return tuple(cell for block in self.blocks for cell in block.cells)


# ---------------------------------------------------------------- what happened (trials)

End = Literal[
    "completed",  # ran all the steps of the budget (or the command ended with 0)
    "stopped",  # stopped at a look, or at its time limit with steps made: a valid, shorter trace
    "crash",  # a step raised, or the process died by a signal or by os._exit
    "oom",  # out of memory: by the cgroup's or engine's word, MemoryError, or the framework's error
    "hang",  # no progress past the timeout
    "setup",  # a failure before the first step: the scenario could not be asked
    "infrastructure",  # no image, lost connection, killed from outside: says nothing about the image
    "interrupted",  # Ctrl-C; never kept in the journal
]


@dataclass(frozen=True, kw_only=True)
class Look:
    """What was measured at a look, around gc.collect, after `step` steps. Memory in KiB; absent probes are None.

    `*_trimmed` follow malloc_trim(0), at the last look only.
    """

    step: int
    rss_before_kib: float | None = None
    rss_kib: float | None = None
    rss_trimmed_kib: float | None = None
    heap_before_kib: float | None = None
    heap_kib: float | None = None
    heap_trimmed_kib: float | None = None
    blocks_before: float | None = None
    blocks: float | None = None
    rss_anon_kib: float | None = None
    rss_file_kib: float | None = None
    rss_shmem_kib: float | None = None
    threads: float | None = None
    cgroup_kib: float | None = None


@dataclass(frozen=True, kw_only=True)
class Trace:
    """What one trial sampled. `step` is the 1-based number of the step after which row i was sampled, shape (n,).

    `columns` are arrays of the same shape: `rss_kib`, `heap_kib`, `blocks` (Python), `step_s` (duration of the
    step itself, seconds), and the scenario's own metrics. Missing samples are NaN.
    """

    step: Floats
    columns: Mapping[str, Floats]
    looks: tuple[Look, ...] = ()

    def column(self, name: str) -> Floats | None:
        return self.columns.get(name)


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One launch of a cell in a fresh container: the unit of all statistics.

    `facts` is what the agent said at `hello` (python, packages, libraries, cgroup limits, allowed environment).
    `image_digest` and `fingerprint` are part of `key`, the hash under which a later run may reuse this trial.
    """

    cell_id: str
    number: int
    key: str
    end: End
    message: str = ""
    round: int = 0
    signal: int | None = None
    exit_code: int | None = None
    last_step: int = 0
    steps_asked: int = 0
    started: str = ""
    duration_s: float = 0.0
    trace: Trace | None = None
    peak_rss_kib: float | None = None
    probe_cost: float | None = None
    output_tail: str = ""
    stacks: str = ""
    image_digest: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)
    fingerprint: Mapping[str, Any] = field(default_factory=dict)

    @property
    def measured(self) -> bool:
        """Whether it says anything about the image."""
        return self.end not in ("infrastructure", "interrupted")


# ---------------------------------------------------------------- what it means (judge)

VerdictName = Literal[
    "leak", "slowdown", "oom", "crash", "hang", "plateau", "flat",
    "suspect", "inconclusive", "incompatible", "untested",
]  # fmt: skip
BAD: frozenset[str] = frozenset({"leak", "slowdown", "oom", "crash", "hang"})
GOOD: frozenset[str] = frozenset({"plateau", "flat"})
UNSURE: frozenset[str] = frozenset({"suspect", "inconclusive"})

Interval = tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class TraceVerdict:
    """The verdict on one trace (`judge/trend.py`): what `harness judge` prints.

    `verdicts` lists all that hold, strongest first; `verdict` is the first of them. `steps` is how many steps it
    is based on: a flat one is only flat up to there. `early` marks `suspect (early)`.
    """

    verdict: VerdictName
    verdicts: tuple[VerdictName, ...]
    steps: int
    why: str
    rate_kib_per_step: float | None = None
    rate_ci: Interval | None = None
    excluded_kib_per_step: float | None = None
    plateau_mib: float | None = None
    step_ms: float | None = None
    step_drift: float | None = None
    peak_rss_mib: float | None = None
    layer: str | None = None
    early: bool = False
    metrics: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class CellVerdict:
    """The verdict on one cell, over its trials (`judge/verdict.py`); an entry of `summary.json`'s `cells`."""

    verdict: VerdictName
    verdicts: tuple[VerdictName, ...]
    why: str
    trials: int = 0
    failed: int = 0
    signal: int | None = None
    steps: int = 0
    layer: str | None = None
    plateau_mib: float | None = None
    rate_kib_per_step: float | None = None
    rate_ci: Interval | None = None
    excluded_kib_per_step: float | None = None
    step_ms: float | None = None
    step_ms_ci: Interval | None = None
    step_drift: float | None = None
    peak_rss_mib: float | None = None
    smallest_visible: Mapping[str, float] | None = None
    metrics: Mapping[str, Any] = field(default_factory=dict)


Metric = Literal["memory", "step_time", "peak_memory", "outcome"]
Kind = Literal["first_bad", "first_fixed", "bad_from_start"]


@dataclass(frozen=True, kw_only=True)
class Effect:
    value: float
    unit: str
    ci: Interval | None = None


@dataclass(frozen=True, kw_only=True)
class Change:
    """A change along one history (`judge/history.py`), by position in the series; `flows` makes a Finding of it.

    `before` is the position of the last image on the old side, `after` of the first on the new side (None before
    the start of the history); `untestable` are the positions between them that could not run.
    """

    metric: Metric
    kind: Kind
    before: int | None
    after: int
    untestable: tuple[int, ...] = ()
    effect: Effect | None = None
    p: float | None = None
    verdict: str = ""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What a series shows for one lane, variant and metric.

    `confirmed`: both sides of the boundary were measured in at least two fresh launches each, which agree.
    """

    series: str
    lane: Lane
    variant: Variant
    metric: Metric
    kind: Kind
    before: str | None
    after: str
    untestable: tuple[str, ...] = ()
    effect: Effect | None = None
    p: float | None = None
    verdict: str = ""
    confirmed: bool = False


@dataclass(frozen=True, kw_only=True)
class CellResult:
    """A cell with its trials and verdict: what reports are made of."""

    cell: Cell
    cell_id: str
    verdict: CellVerdict
    digest: str | None = None
    trials: tuple[Trial, ...] = ()


@dataclass(frozen=True, kw_only=True)
class HostState:
    """A host as the run found it: `problem` is the one line that says why it could not be used, or None."""

    host: Host
    problem: str | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)


RunVerdict = Literal["interrupted", "regression", "infrastructure", "inconclusive", "ok"]
EXIT_CODES: Mapping[str, int] = {
    "interrupted": 130, "regression": 1, "infrastructure": 3, "inconclusive": 4, "ok": 0,
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class RunResult:
    """Everything that a report is a pure function of."""

    matrix: str
    verdict: RunVerdict
    started: str
    duration_s: float
    hosts: tuple[HostState, ...]
    plan: Plan
    cells: tuple[CellResult, ...]
    findings: tuple[Finding, ...]
    directory: Path
    warnings: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        return EXIT_CODES[self.verdict]


# ---------------------------------------------------------------- who watches


class Watcher(Protocol):
    """What a run tells the person who watches it, from any thread. Implemented by `report/progress.py`."""

    def plan(self, *, trials: Mapping[str, int]) -> None:
        """How many trials are expected, by lane (`str(lane)`). May be called again when the number changes."""

    def preparing(self, *, lane: str, image: str, text: str) -> None:
        """What is being done to get an image: `pulling 120/900 MiB`, `installing numpy==2.0.0`."""

    def trial_started(self, *, lane: str, cell: str, number: int, steps: int) -> None: ...

    def step(self, *, lane: str, step: int, rss_kib: float | None) -> None:
        """About once a second while a trial runs."""

    def trial_ended(self, *, lane: str, cell: str, number: int, text: str, bad: bool, reused: bool = False) -> None:
        """`text` is the trial's own verdict in a few words: `leak 12.1 KiB/step`, `flat to step 500`."""

    def note(self, text: str) -> None:
        """One line that must not be lost: a warning, a host that is gone."""
