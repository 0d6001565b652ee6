"""Schedules `harness narrow`: makes and launches the hybrids that the search names, until it has its answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from harness.judge.cell.trial_verdict import JudgedTrial
from harness.model import Cell, Finding, Image, Trial
from harness.model.answers.narrowed import Hybrid, HybridOutcome
from harness.narrow.search import ComponentSearch
from harness.run.run_interfaces import Batch, CellRun, next_round
from harness.schedule.narrow_launches import HybridLaunches, hybrid_outcomes


@dataclass(kw_only=True)
class NarrowScheduler:
    """One search. `like` is the cell of A: all hybrids run on its lane and with its variant.

    `image_of` returns a hybrid's image. `refused` returns why no installer would make a hybrid, which is then not
    launched; `checked` inspects a hybrid after its first launch, and returns how it differs from what was requested.
    Both return "" for a correct hybrid. `log` records the decisions without a launch.
    """

    lazy = True
    search: ComponentSearch
    like: Cell
    finding: Finding
    image_of: Callable[[Hybrid], Image]
    refused: Callable[[Hybrid], str]
    checked: Callable[[Hybrid, CellRun], str]
    log: Callable[[Mapping[str, object]], None]
    runs: dict[Hybrid, CellRun] = field(default_factory=dict)
    _refusals: dict[Hybrid, str] = field(default_factory=dict)
    _checked: set[Hybrid] = field(default_factory=set)
    _judged: dict[Trial, JudgedTrial | None] = field(default_factory=dict)
    _rounds: dict[tuple[str, int], int] = field(default_factory=dict)

    def early(self) -> Sequence[Batch]:
        return ()

    def next(self) -> Batch:
        while True:
            decision = self.search.decide(self.outcomes())
            runs = tuple(run for hybrid in decision.launch if (run := self._run(hybrid)) is not None)
            if len(runs) == len(decision.launch):
                record = {"kind": decision.kind, "reason": decision.reason}
                return Batch(runs=runs, round=next_round(self.runs.values()), whole=True, record=record)

    def outcomes(self) -> tuple[HybridOutcome, ...]:
        """Return the outcomes of all launches so far, and those of the hybrids that were refused."""
        measured = [self._measured(hybrid, run) for hybrid, run in self.runs.items()]
        refused = [HybridLaunches(hybrid=hybrid, problem=why) for hybrid, why in self._refusals.items()]
        return hybrid_outcomes(
            [*measured, *refused],
            ends=(self.search.a, self.search.b),
            finding=self.finding,
            scenario=self.like.variant.scenario,
            judged=self._judged,
        )

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
