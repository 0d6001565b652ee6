"""Defines the interfaces of a host's run to other parts: cells, the judge's oracle, scheduler and journal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from harness.model import Cell, CellResult, CellVerdict, Depth, Skip, Trace, Trial
from harness.run.engine import Prepared

SETUP_TRIES = 2
"""Number of failed setups after which a cell is not launched again."""


class Journal(Protocol):
    """The run's directory, where trials are kept."""

    def known_trials(self, cell: Cell, key: str) -> tuple[Trial, ...]:
        """Return the trials of a cell with this key from all runs of the matrix, oldest first."""

    def adopt(self, trial: Trial, cell: Cell, *, number: int) -> Trial:
        """Take a trial of an earlier run over into this run, under this `number`."""

    def write_trial(self, trial: Trial, cell: Cell) -> None:
        """Write a trial's file. Raises InfrastructureError."""

    def write_decision(self, record: Mapping[str, Any]) -> None:
        """Append a record to the log of decisions. Raises InfrastructureError."""


@dataclass(frozen=True, kw_only=True)
class Review:
    """A trial, reclassified by what it shows about the machine. `incompatible`: why its image can never run on this
    lane; `pause_s`: seconds to wait before the next launch on this lane."""

    trial: Trial
    incompatible: str = ""
    pause_s: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Length:
    """The length of a launch. `whole`: it uses its whole budget, whatever its looks show. `job`: fields of job.json
    that replace the scenario's: the times of the looks, and which lines are steps. `usual_s` and `own_s`: the usual
    step time of the row and the step time of the version's earlier launches, in seconds, if the launch may end early
    because its steps are clearly slow.
    """

    whole: bool
    job: Mapping[str, Any] = field(default_factory=dict)
    usual_s: float | None = None
    own_s: float | None = None


@dataclass(frozen=True, kw_only=True)
class Oracle:
    """The judge's answers about cells and trials. They are passed in as functions, so that `run` contains no
    statistics."""

    decide: Callable[[Cell, Trace, Length], str]
    """Return "go" or "stop", given the trace so far and the length of the launch."""
    length: Callable[[CellRun, Batch], Length]
    """Return the length of the next launch."""
    describe: Callable[[Cell, Trial], tuple[str, bool | None]]
    """Return a short description of a trial, and whether it looks bad."""
    cannot_run: Callable[[Cell, Prepared], str | None]
    """Return why an image cannot run on the cell's lane; None if nothing prevents it."""
    review: Callable[[Cell, Trial], Review]
    """Return the trial, reclassified by what it shows about the machine."""
    wants_alone: Callable[[Cell, Trial], bool]
    """Return whether other launches on the host at the same time may have caused what a trial shows."""


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
    """Launches that failed while others ran on the host, in their form before they were reclassified as
    infrastructure."""
    alone: bool = False
    """Whether the next launches run alone, because other launches may have caused what an earlier one showed."""
    adopted: int = 0
    """Number of trials taken over from earlier runs; they are the first of `trials`."""

    @property
    def launched(self) -> int:
        """Return the number of trials launched in this run."""
        return len(self.trials) - self.adopted

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
            verdict = CellVerdict(verdicts=("untested",), why=why, trials=len(self.trials))
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
        """Return whether the cell may still run: it is not excluded, and neither its image nor its setup has failed for
        good."""
        setups = sum(SETUP_TRIES if trial.stepless else trial.end == "setup" for trial in self.trials)
        hindered = self.problem or self.incompatible or self.cell.excluded
        return not hindered and setups < SETUP_TRIES


def next_round(runs: Iterable[CellRun]) -> int:
    """Return a round number that no trial of these runs has yet. Only trials of the same batch share a round."""
    return 1 + max((trial.round for run in runs for trial in run.trials), default=-1)


@dataclass(frozen=True, kw_only=True)
class Batch:
    """The launches to make next: one trial of each of `runs`, in random order.

    `depth`: which launches use their whole budget. `only_known`: nothing is launched; only trials of earlier runs are
    taken over. A batch without runs ends the row; its `skipped` then gives the reason for each cell that was not
    launched. `record` goes to the log of decisions: `kind`, `reason`, and the figures behind the decision. `row_runs`:
    all versions of the row, oldest first. `shortens`: slow ones may have shorter launches.
    """

    runs: tuple[CellRun, ...]
    row_runs: Sequence[CellRun] = ()
    round: int = 0
    shortens: bool = False
    depth: Depth = "usual"
    only_known: bool = False
    record: Mapping[str, Any] = field(default_factory=dict)
    skipped: Mapping[str, Skip] = field(default_factory=dict)


class Scheduler(Protocol):
    """Decides what is launched next in one row, from its trials so far."""

    @property
    def lazy(self) -> bool:
        """Return whether each image is prepared only just before its launch, because most will not be launched."""

    def next(self) -> Batch:
        """Return the next batch, whose runs are all runnable. Call it again when the trials of the batch are done."""


@dataclass(frozen=True, kw_only=True, eq=False)
class RowRun:
    """The cells of one series, lane and variant, oldest image first, and their scheduler."""

    cells: tuple[CellRun, ...]
    scheduler: Scheduler

    @property
    def place(self) -> tuple[str, str, str]:
        """Return the names of the series, the lane and the variant."""
        cell = self.cells[0].cell
        return cell.image.series, str(cell.lane), str(cell.variant)


@dataclass(frozen=True, kw_only=True)
class Turn:
    """The next task of a worker: to launch the `batch` of a row or, if `batch` is None, to prepare a row that no worker
    has begun.

    `single`: the batch is one launch of a row whose launches may run side by side. `urgency` and `why` explain why this
    row comes before the others.
    """

    row: RowRun
    batch: Batch | None
    single: bool = False
    urgency: str = ""
    why: str = ""


class Queue(Protocol):
    """The rows that a worker may work on: those of its host, or those that the machines of a pool share."""

    def take(self, worker: str, ready: Callable[[CellRun], bool]) -> Turn | None:
        """Return the most urgent turn and assign its row to the worker; None if nothing is left for the worker. Among
        single launches, those whose run is `ready` come first."""

    def put_back(self, row: RowRun) -> None:
        """End the turn of a row: judge it, and ask its scheduler for the next batch."""

    def close(self, row: RowRun) -> None:
        """End a row, so that no worker takes it again."""

    def ahead(self, worker: str) -> Sequence[RowRun]:
        """Return the rows that a worker has begun or may begin, most urgent first."""

    def abandon(self, worker: str) -> None:
        """Record that a worker of this name has ended early and will not put its turns back."""

    def gives_way(self, row: RowRun) -> bool:
        """Return whether other rows go before the rest of this row's turn, because its first launches were costly."""

    def stopped(self) -> bool:
        """Return whether nothing more may be launched, not even the rest of a batch that was begun."""
