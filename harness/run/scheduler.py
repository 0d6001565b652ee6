"""What a host's run is told: which cells, whose judgement, and who says what is launched next."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from harness.model import Cell, Skip, Trace, Trial
from harness.run.engine import Prepared

SETUP_TRIES = 2


class Journal(Protocol):
    """Where trials are kept; the run's directory."""

    def known_trials(self, cell: Cell, key: str) -> tuple[Trial, ...]: ...

    def adopt(self, trial: Trial, cell: Cell, *, number: int) -> Trial: ...

    def write_trial(self, trial: Trial, cell: Cell) -> None: ...

    def write_decision(self, record: Mapping[str, Any]) -> None: ...


@dataclass(frozen=True, kw_only=True)
class Review:
    """A trial as what it is, after a look at what it left. `incompatible`: why its image can never run on this lane;
    `pause_s`: how long the lane rests before the next launch.
    """

    trial: Trial
    incompatible: str = ""
    pause_s: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Oracle:
    """What a lane asks of the judge about one cell. Passed in, so that nothing here knows statistics."""

    decide: Callable[[Cell, Trace, bool], str]
    """(cell, trace so far, whole budget wanted) -> "go" or "stop"."""
    needs_whole_budget: Callable[[Cell, Sequence[Trial]], bool]
    """Whether the cell's next trial has to run all its steps, whatever it looks like."""
    describe: Callable[[Cell, Trial], tuple[str, bool]]
    """A trial in a few words, and whether it looks bad."""
    cannot_run: Callable[[Cell, Prepared | None], str | None]
    """Why an image has no chance on the cell's lane, by its name alone or once it is there; None if it may have one."""
    review: Callable[[Cell, Trial], Review]


@dataclass
class CellRun:
    """What became of one cell. `problem` says why it could not run, if it could not; `incompatible` why its image never
    can on this lane; `skipped` why it did not need to.

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
    adopted: int = 0
    """How many of the trials are of earlier runs: the first ones."""

    @property
    def launched(self) -> int:
        """How many trials of this run there are."""
        return len(self.trials) - self.adopted

    @property
    def measured(self) -> list[Trial]:
        return [trial for trial in self.trials if trial.measured]

    @property
    def runnable(self) -> bool:
        """False once its image, its setup or its host has failed for good."""
        setups = sum(trial.end == "setup" for trial in self.trials)
        hindered = self.problem or self.incompatible or self.cell.excluded
        return not hindered and setups < SETUP_TRIES


@dataclass(frozen=True, kw_only=True)
class Batch:
    """What is launched next: one trial of each of `runs`, side by side, in an order that the lane draws.

    `whole`: none of them stops before its whole budget, however quiet it is. `only_known`: nothing is launched, but
    what earlier runs know of them is taken over. Without runs the block is done, and `skipped` says of the cells that
    were not launched why they did not need to be. `record` is what the log of decisions keeps of it: `kind`, `reason`,
    and whatever else led to it.
    """

    runs: tuple[CellRun, ...]
    round: int = 0
    whole: bool = False
    only_known: bool = False
    record: Mapping[str, Any] = field(default_factory=dict)
    skipped: Mapping[str, Skip] = field(default_factory=dict)


class Scheduler(Protocol):
    """What is launched next in one block, from what its trials show so far."""

    @property
    def lazy(self) -> bool:
        """Whether images are got only when they are launched, because most of them will not be."""

    def next(self) -> Batch:
        """The next batch. Every run of it must be runnable; each call follows the trials of the batch before."""

    def early(self) -> Sequence[Batch]:
        """What may be launched before its turn, one run a batch, while the lane has nothing to do but to wait for a
        pull, which spoils step times. Those of the lowest round are the first; none need be launched.
        """


@dataclass(frozen=True, kw_only=True)
class BlockRun:
    """The cells of one series, lane and variant, oldest image first, and who says what is launched next."""

    cells: tuple[CellRun, ...]
    scheduler: Scheduler
