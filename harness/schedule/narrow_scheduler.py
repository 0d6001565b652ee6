"""Scheduler of `harness narrow`: makes and launches the hybrids that the search names, until it has its answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from harness.judge.cell.trial_verdict import JudgedTrial
from harness.model import Cell, Finding, Image
from harness.model.narrowed import Hybrid, HybridOutcome
from harness.narrow.search import ComponentSearch, NextHybrids
from harness.run.scheduler import Batch, BlockRun, CellRun, Turn
from harness.schedule.narrow_launches import HybridLaunches, outcomes


@dataclass(kw_only=True)
class NarrowScheduler:
    """One search. `like` is the cell of A: all hybrids run on its lane and with its variant.

    `image_of` gives a hybrid's image. `refused` says why no installer would make a hybrid, which is then not launched;
    `checked` looks into a hybrid after its first launch, and says why it is not what was asked for. Both return ""
    where nothing speaks against it. `log` gets what is decided without a launch.
    """

    search: ComponentSearch
    like: Cell
    finding: Finding
    image_of: Callable[[Hybrid], Image]
    refused: Callable[[Hybrid], str]
    checked: Callable[[Hybrid, CellRun], str]
    log: Callable[[Mapping[str, object]], None]
    runs: dict[Hybrid, CellRun] = field(default_factory=dict)
    found: NextHybrids | None = None
    _refusals: dict[Hybrid, str] = field(default_factory=dict)
    _checked: set[Hybrid] = field(default_factory=set)
    _judged: dict[int, JudgedTrial | None] = field(default_factory=dict)
    _rounds: dict[tuple[str, int], int] = field(default_factory=dict)

    @property
    def lazy(self) -> bool:
        return True

    def early(self) -> Sequence[Batch]:
        return ()

    def next(self) -> Batch:
        while True:
            self.found = found = self.search.decide(self.outcomes())
            if not found.launch:
                return Batch(runs=(), record={"kind": found.kind, "reason": found.reason})
            runs = tuple(run for hybrid in found.launch if (run := self._run(hybrid)) is not None)
            if len(runs) == len(found.launch):
                number = 1 + max((trial.round for run in self.runs.values() for trial in run.trials), default=-1)
                record = {"kind": found.kind, "reason": found.reason}
                return Batch(runs=runs, round=number, whole=True, record=record)

    def outcomes(self) -> tuple[HybridOutcome, ...]:
        """Return what all launches say so far."""
        measured = [self._measured(hybrid, run) for hybrid, run in self.runs.items()]
        scenario = self.like.variant.scenario
        ends, judged = (self.search.a, self.search.b), self._judged
        told = outcomes(measured, ends=ends, finding=self.finding, scenario=scenario, judged=judged)
        without = [
            HybridOutcome(hybrid=hybrid, state="unresolved", reason=why, lasting=True)
            for hybrid, why in self._refusals.items()
        ]
        return (*told, *without)

    def run_of_a(self) -> CellRun:
        """Return the run of A, which is launched in any case."""
        return self.runs.setdefault(self.search.a, CellRun(cell=self.like))

    def _run(self, hybrid: Hybrid) -> CellRun | None:
        """Return the hybrid's run; None if it is refused without a launch."""
        if hybrid not in self.runs and (why := self.refused(hybrid)):
            self._refusals[hybrid] = why
            self.log({"kind": "refused", "hybrid": sorted(hybrid.from_b), "base": hybrid.base, "reason": why})
            return None
        if hybrid not in self.runs:
            image = self.image_of(hybrid)
            self.runs[hybrid] = CellRun(cell=Cell(image=image, lane=self.like.lane, variant=self.like.variant))
        return self.runs[hybrid]

    def _measured(self, hybrid: Hybrid, run: CellRun) -> HybridLaunches:
        if run.measured and hybrid not in self._checked:
            self._checked.add(hybrid)
            run.problem = run.problem or self.checked(hybrid, run)
        trials = [] if run.problem else run.measured
        rounds = [self._rounds.setdefault((trial.run, trial.round), len(self._rounds)) for trial in trials]
        return HybridLaunches(hybrid=hybrid, trials=trials, rounds=rounds, problem=run.problem or run.incompatible)


@dataclass(kw_only=True)
class OneRow:
    """The row of a search as the only one of its host."""

    block: BlockRun
    _begun: bool = False
    _done: bool = False

    def take(self, worker: str, ready: Callable[[CellRun], bool]) -> Turn | None:
        """Return the next launches; at first, None for a batch: the row is prepared."""
        if self._done:
            return None
        begun, self._begun = self._begun, True
        return Turn(block=self.block, batch=self.block.scheduler.next() if begun else None)

    def put_back(self, block: BlockRun) -> None:
        """Do nothing: the search judges by itself."""

    def close(self, block: BlockRun) -> None:
        self._done = True

    def ahead(self, worker: str) -> Sequence[BlockRun]:
        return [] if self._done else [self.block]

    def claim(self, block: BlockRun, worker: str) -> bool:
        return True

    def again(self, block: BlockRun) -> None:
        """Do nothing: nothing is launched ahead of its turn."""

    def abandon(self, worker: str) -> None:
        """Do nothing: nobody shares the row."""

    def gives_way(self, block: BlockRun) -> bool:
        return False

    def stopped(self) -> bool:
        return False
