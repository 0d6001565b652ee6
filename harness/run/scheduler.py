"""Defines what a host's run shares with the rest: its cells, the judge's oracle, the scheduler and the journal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from harness.model import Cell, Depth, Skip, Trace, Trial
from harness.run.engine import Prepared

SETUP_TRIES = 2
"""Failed setups after which a cell is not launched again."""


class Journal(Protocol):
    """The run's directory, where trials are kept."""

    def known_trials(self, cell: Cell, key: str) -> tuple[Trial, ...]:
        """Return the trials of a cell with this key from all runs of the matrix, oldest first."""

    def adopt(self, trial: Trial, cell: Cell, *, number: int) -> Trial:
        """Take a known trial over into this run, as its `number`."""

    def write_trial(self, trial: Trial, cell: Cell) -> None:
        """Write a trial's file. Raises InfrastructureError."""

    def write_decision(self, record: Mapping[str, Any]) -> None:
        """Append to the log of decisions. Raises InfrastructureError."""


@dataclass(frozen=True, kw_only=True)
class Review:
    """A trial, reclassified by what it shows about the machine. `incompatible`: why its image can never run on this
    lane; `pause_s`: the seconds for which the lane rests before the next launch."""

    trial: Trial
    incompatible: str = ""
    pause_s: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Length:
    """The length of a launch. `whole`: it uses up its budget, whatever its looks show. `job`: the fields of job.json
    that give its looks other times than its scenario does. `usual_s` and `own_s`: the usual step time of the row and
    that of the version's earlier launches, in seconds, if the launch may end once its steps are plainly slow.
    """

    whole: bool
    job: Mapping[str, Any] = field(default_factory=dict)
    usual_s: float | None = None
    own_s: float | None = None


@dataclass(frozen=True, kw_only=True)
class Oracle:
    """The judge's answers about one cell. They are passed in as functions, so that `run` contains no statistics."""

    decide: Callable[[Cell, Trace, Length], str]
    """Return "go" or "stop", by the trace so far and the length of the launch."""
    length: Callable[[CellRun, Batch], Length]
    """Return the length of the next launch."""
    describe: Callable[[Cell, Trial], tuple[str, bool]]
    """Return a trial in a few words, and whether it looks bad."""
    cannot_run: Callable[[Cell, Prepared | None], str | None]
    """Return why an image cannot run on the cell's lane, by its name or, once it is there, by itself; None if it
    may."""
    review: Callable[[Cell, Trial], Review]
    """Return the trial, reclassified by what it shows about the machine."""
    wants_alone: Callable[[Cell, Trial], bool]
    """Return whether launches beside a trial may have caused what it shows."""


@dataclass
class CellRun:
    """A cell and its launches. `problem`: why it could not run; `incompatible`: why its image never can on this lane;
    `skipped`: why it was not launched.

    `at_hand`: its image was on the host before this run; `image_bytes`: what the image takes there.
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
    """Launches that failed beside others, as they were before they counted as infrastructure."""
    alone: bool = False
    """Whether the next launches run alone, because launches beside an earlier one may have caused what it showed."""
    adopted: int = 0
    """Number of trials taken over from earlier runs; they come first in `trials`."""

    @property
    def launched(self) -> int:
        """Return the number of trials launched in this run."""
        return len(self.trials) - self.adopted

    @property
    def measured(self) -> list[Trial]:
        """Return the trials that are evidence about the image."""
        return [trial for trial in self.trials if trial.measured]

    @property
    def runnable(self) -> bool:
        """Return whether it may still run: its image, its setup and its host have not failed for good."""
        setups = sum(SETUP_TRIES if trial.stepless else trial.end == "setup" for trial in self.trials)
        hindered = self.problem or self.incompatible or self.cell.excluded
        return not hindered and setups < SETUP_TRIES


def next_round(runs: Iterable[CellRun]) -> int:
    """Return a round number that no trial of a block has yet: only trials launched together share one."""
    return 1 + max((trial.round for run in runs for trial in run.trials), default=-1)


@dataclass(frozen=True, kw_only=True)
class Batch:
    """The launches to make next: one trial of each of `runs`, in a random order.

    `whole`: none of them may stop before its whole budget. `depth`: which of them use it up anyway. `only_known`:
    nothing is launched; only trials of earlier runs are taken over. A batch without runs ends the block; its `skipped`
    then gives the reason for each cell that was not launched. `record` goes to the log of decisions: `kind`, `reason`,
    and the figures behind the decision. `row`: all versions of a row whose slow ones may have shorter launches.
    """

    runs: tuple[CellRun, ...]
    row: Sequence[CellRun] = ()
    round: int = 0
    whole: bool = False
    depth: Depth = "usual"
    only_known: bool = False
    record: Mapping[str, Any] = field(default_factory=dict)
    skipped: Mapping[str, Skip] = field(default_factory=dict)


class Scheduler(Protocol):
    """Decides what is launched next in one block, from its trials so far."""

    @property
    def lazy(self) -> bool:
        """Return whether images are prepared only when they are launched, because most of them will not be."""

    def next(self) -> Batch:
        """Return the next batch. All its runs must be runnable. It is called again when the batch's trials are done."""

    def early(self) -> Sequence[Batch]:
        """Return what may be launched before its turn, one run a batch, while the lane only waits for a pull, which
        spoils step times. Batches of the lowest round come first; none need be launched."""


@dataclass(frozen=True, kw_only=True, eq=False)
class BlockRun:
    """The cells of one series, lane and variant, oldest image first, and their scheduler."""

    cells: tuple[CellRun, ...]
    scheduler: Scheduler


@dataclass(frozen=True, kw_only=True)
class Turn:
    """The next task of a worker: to launch the `batch` of a row, or, if it is None, to prepare a row that nobody has
    begun.

    `single`: the batch is one launch of a row whose launches may run side by side. `urgency` and `why` say why this row
    comes before the others.
    """

    block: BlockRun
    batch: Batch | None
    single: bool = False
    urgency: str = ""
    why: str = ""


class Rows(Protocol):
    """The rows that a worker may work on: those of its host, or those that equal machines share."""

    def take(self, worker: str, ready: Callable[[CellRun], bool]) -> Turn | None:
        """Return the most urgent turn, and make its row the worker's own; None if nothing is left for the worker. Among
        single launches, one that is `ready` comes first."""

    def put_back(self, block: BlockRun) -> None:
        """End the turn of a row: judge it, and ask its scheduler for the next batch."""

    def close(self, block: BlockRun) -> None:
        """End a row, so that nobody takes it again."""

    def ahead(self, worker: str) -> Sequence[BlockRun]:
        """Return the rows that a worker has or may begin, the most urgent first."""

    def claim(self, block: BlockRun, worker: str) -> bool:
        """Make a row the worker's own ahead of its turn; return False if another worker has begun it or works on it."""

    def again(self, block: BlockRun) -> None:
        """Give back a row that was claimed, after its launch."""

    def abandon(self, worker: str) -> None:
        """Note that a worker of this name has ended early and will not put its turns back."""

    def gives_way(self, block: BlockRun) -> bool:
        """Return whether the rest of a turn waits for other rows, because its first launches were costly."""

    def stopped(self) -> bool:
        """Return whether nothing more is to be launched, not even the rest of a batch that was begun."""
