"""Defines the records that fill while a plan runs: a cell with its launches, a row, and what is to be launched next."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, field
from typing import Literal

from harness.model.judged import CellVerdict
from harness.model.matrix import Image, Trials
from harness.model.measured import REPLICATE, Trial
from harness.model.planned import Cell, Skip, VersionRow
from harness.model.result import CellResult, JudgedRow
from harness.model.scenario import Depth, Scenario

SETUP_TRIES = 2
"""Number of failed setups after which a cell is not launched again."""


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """An image that is ready to launch on one engine.

    `reference` is what the engine launches (an image id, or the interpreter's path). `digest` identifies the image: its
    digest or id, or, for a virtual environment, a hash of the interpreter and of everything installed. `labels` and
    `environment` are those that the image itself defines. `has_entrypoint`: it may start something before the agent.
    `foreign`: why its processor is another than the host's. `lacks_python`: it has no Python, so that only commands and
    servers run in it.
    """

    image: Image
    reference: str
    digest: str
    labels: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    has_entrypoint: bool = False
    foreign: str = ""
    lacks_python: bool = False


@dataclass
class CellRun:
    """A cell and its launches. `problem`: why it could not run; `incompatible`: why its image can never run on this
    lane; `skipped`: why it was not launched.

    `at_hand`: its image was on the host before this run; `image_bytes`: the disk space that the image takes there.
    """

    cell: Cell
    prepared: Prepared | None = None
    key: str = ""
    trials: list[Trial] = field(default_factory=list)
    problem: str = ""
    incompatible: str = ""
    skipped: Skip | None = None
    failures: int = 0
    at_hand: bool = False
    image_bytes: int | None = None
    doubted: list[Trial] = field(default_factory=list)
    """Launches that failed while others ran on the host, before they were reclassified as infrastructure."""
    alone: bool = False
    """True if the next launches run alone, because other launches may have caused what an earlier one showed."""
    other_data: str = ""
    """The difference between its mounted data and those of earlier runs."""
    adopted: int = 0
    """Number of trials taken over from earlier runs; they are the first of `trials`."""

    @property
    def own(self) -> list[Trial]:
        """Return the trials that were launched in this run."""
        return self.trials[self.adopted :]

    @property
    def measured(self) -> list[Trial]:
        """Return the trials that are evidence about the image."""
        return [trial for trial in self.trials if trial.measured]

    @property
    def result(self) -> CellResult:
        """Return the cell with its launches, which the judge has not judged: `untested`, or `incompatible`."""
        verdict = CellVerdict(verdicts=("incompatible",), why=self.incompatible)
        if not self.incompatible:
            why = "" if self.measured else self.problem or (self.skipped.why if self.skipped else "")
            verdict = CellVerdict(verdicts=("untested",), why=why, trials=len(self.measured))
        return CellResult(
            cell=self.cell,
            verdict=verdict,
            digest=self.prepared.digest if self.prepared else None,
            trials=tuple(self.trials),
            problem="" if self.cell.excluded else self.problem,
            skipped=self.skipped,
        )

    @property
    def runnable(self) -> bool:
        """Return whether the cell may run: it is not excluded, and neither its image nor its setup failed for good."""
        setups = sum(SETUP_TRIES if trial.stepless else trial.end == "setup" for trial in self.trials)
        hindered = self.problem or self.incompatible or self.cell.excluded
        return not hindered and setups < SETUP_TRIES


def next_round(runs: Iterable[CellRun]) -> int:
    """Return a round number that no trial of these runs has yet. Only trials of the same proposal share a round."""
    return 1 + max((trial.round for run in runs for trial in run.trials), default=-1)


# ---------------------------------------------------------------- what is launched next


ProposalKind = Literal[
    "round", "replicate", "repeat", "end", "halve", "confirm", "compare", "done",
    "ends", "isolate", "partner", "prove", "sham",
]  # fmt: skip
"""The reason why launches are proposed. `round`: all versions side by side; `replicate`: the A/A replicate alone;
`repeat`: versions whose own launches leave a question open; `confirm`: both sides of a change. In a search, `end`: the
outermost versions; `halve`: a version between them; `compare`: versions whose levels are compared. `done`: nothing is
left. The others are those of `harness narrow`."""


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """The launches that a row needs next: one of each of `runs`, in random order, and why.

    `depth`: which launches use their whole budget. `only_known`: nothing is launched; only trials of earlier runs are
    taken over. A proposal without runs ends the row; its `skipped` then gives the reason for each cell that was not
    launched. `shortens`: slow versions may have shorter launches. `figures` are those behind it, for the log.
    """

    kind: ProposalKind
    reason: str = ""
    runs: tuple[CellRun, ...] = ()
    round: int = 0
    shortens: bool = False
    depth: Depth = "usual"
    only_known: bool = False
    figures: Mapping[str, object] = field(default_factory=dict)
    skipped: Mapping[str, Skip] = field(default_factory=dict)


Urgency = Literal["finish", "first", "confirm", "near", "good"]
NEAR = 0.5
"""Share of a limit from which a row counts as near it."""


@dataclass(frozen=True, kw_only=True)
class RowStanding:
    """The standing of a row among the rows of its host, by its launches so far and by what it proposes.

    `group`: all rows of a lower group come before it. `suspect`: something looks bad and is not confirmed. `confirmed`:
    the row has a confirmed finding. `nearness`: the largest share of a limit that any of its signals reaches; 1 is at
    the limit. `finishes`: its proposal completes a round of this run, or costs no launch. `first`: a version has had no
    launch yet. `confirms`: its proposal confirms something. `launches`: the number of proposed launches; `next_s`:
    their expected seconds, None before the row's first launch; `spent_s`: the seconds of the row's launches so far.
    """

    group: int = 0
    suspect: bool = False
    confirmed: bool = False
    nearness: float = 0.0
    finishes: bool = False
    first: bool = False
    confirms: bool = False
    launches: int = 0
    next_s: float | None = None
    spent_s: float = 0.0

    def takes_s(self, launch_s: float) -> float:
        """Return the seconds of the proposed launches. `launch_s`: those of one launch, if the row had none yet."""
        return self.launches * launch_s if self.next_s is None else self.next_s

    @property
    def urgency(self) -> Urgency:
        """Return how urgent the proposed launches are."""
        if self.finishes:
            return "finish"
        if self.first:
            return "first"
        if self.confirms or self.suspect:
            return "confirm"
        return "near" if self.nearness >= NEAR else "good"


# ---------------------------------------------------------------- a row


@dataclass(kw_only=True, eq=False)
class RowRun:
    """The cells of one series, lane and variant, oldest image first, while they are launched and judged.

    `planned`: the row in the plan; in a pool, `cells` belong to the machine that runs it. `propose` returns what to
    launch next; all runs of a proposal are runnable. `lazy`: each image is prepared only just before its launch,
    because most will not be launched.

    `asked`: how often a version is launched. `only`: the ids of the cells that may be launched; None: all. `rows`: the
    number of rows of its scenario, which share the chance of a false alarm. `searched`: a bisection chooses the
    launches. `measures_noise`: one image is launched twice in every round, under two names (`replicate`), once its step
    times turn out to be comparable. `kinds`: the kind of each round that was proposed.
    """

    planned: VersionRow
    cells: tuple[CellRun, ...]
    propose: Callable[[RowRun], Proposal]
    lazy: bool = False
    asked: Trials = field(default_factory=Trials)
    only: frozenset[str] | None = None
    rows: int = 1
    searched: bool = False
    measures_noise: bool = False
    replicate: CellRun | None = None
    kinds: dict[int, ProposalKind] = field(default_factory=dict)
    beside: tuple[tuple[int, ...], Set[str], Set[str]] | None = None
    """How many launches of each version come from earlier runs and, by them, the ids of the cells that are new and of
    those that run beside them (`judge/beside.py`); None until that is known."""
    proposal: Proposal | None = None
    """The launches that it proposes next, None until it is begun."""
    standing: RowStanding = field(default_factory=RowStanding)
    worker: str | None = None
    """The worker that began it, and is the only one that continues it."""
    busy: bool = False
    left: list[CellRun] = field(default_factory=list)
    """The launches of the proposal that were not handed out yet, if they run side by side."""
    turns: int = 0
    """The number of turns in progress."""
    judged: JudgedRow | None = None
    """The newest verdict."""
    seen: tuple[object, ...] = ()
    """The evidence on which the verdict rests."""
    again: tuple[str, ...] = ()
    """The reason for each time that the row started again."""
    finished: bool = False
    """True if nothing more is launched."""
    final: bool = False
    """True if the verdict is the last one, and the full traces are gone."""

    def __str__(self) -> str:
        return str(self.planned)

    @property
    def place(self) -> tuple[str, str, str]:
        """Return the names of the series, the lane and the variant."""
        cell = self.cells[0].cell
        return cell.image.series, str(cell.lane), str(cell.variant)

    @property
    def scenario(self) -> Scenario:
        return self.planned.variant.scenario

    @property
    def trials(self) -> list[list[Trial]]:
        """Return the launches of each version, with those of its A/A replicate, which is the same image."""
        again = {} if self.replicate is None else {self.replicate.cell.id: self.replicate.trials}
        return [[*run.trials, *again.get(f"{run.cell.id}{REPLICATE}", ())] for run in self.cells]

    @property
    def measured(self) -> list[list[Trial]]:
        """Return the launches of each version that are evidence about the image."""
        return [[trial for trial in version if trial.measured] for version in self.trials]

    @property
    def is_bisected(self) -> bool:
        """Return whether a bisection chooses its launches. `--decide` names the cells itself."""
        return self.searched and self.only is None

    @property
    def least(self) -> int:
        """Return how many trials a good cell needs."""
        return 1 if self.searched else self.asked.least

    @property
    def runs(self) -> tuple[CellRun, ...]:
        """Return everything that is launched for the row: its cells, and the A/A replicate if it has one."""
        return (*self.cells, *([] if self.replicate is None else [self.replicate]))
