"""Schedules a row that runs every version: in rounds of all versions, and in single launches that results require."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from harness.judge.cell import cell_verdict
from harness.judge.comparison.equivalence import may_hold
from harness.judge.comparison.round_tables import FEWEST_ROUNDS, step_time_launches
from harness.judge.history.flaky import always_fails
from harness.judge.history.transitions import wants_launches
from harness.judge.history.wants_round import differs_late, wants_round
from harness.model import Depth, Noise, Scenario, Skip, Trials
from harness.reasons import LaunchReason, SkipReason
from harness.run.run_interfaces import Batch, CellRun, next_round
from harness.schedule.aa_replicate import AAReplicate, is_compared
from harness.schedule.confirming import to_confirm
from harness.schedule.oracle import judge_so_far, judge_trials, row_fails_late

REFERENCES = 2
"""Launches that the oldest version that waited for images has in its turn, without waiting, as a reference."""


@dataclass(kw_only=True)
class FullScheduler:
    """One row, oldest image first. A round is one trial of every version. After the first round, a version that looks
    bad and the last good one before it are launched until this is confirmed or refuted. After `asked.least` rounds

    - all versions whose step times are compared go on together, as long as the comparison is too imprecise;
    - a version goes on alone while its own trials disagree, or could settle where a flaky failure began.

    `measures_noise`: one image is launched twice in every round, under two names (`replicate`), once its step times
    turn out to be comparable. The difference between the two is the smallest that can be seen between two versions.
    """

    runs: Sequence[CellRun]
    asked: Trials
    measures_noise: bool = False
    replicate: AAReplicate = field(init=False)
    extra: set[int] = field(default_factory=set)
    """Rounds of this run that have only the versions on both sides of a change, to confirm it."""
    only: frozenset[str] | None = None
    """Ids of the cells that may be launched; for the others, only the trials of earlier runs count. None means all."""
    rows: int = 1
    """Number of rows of the scenario, which share the chance of a false alarm."""

    def __post_init__(self) -> None:
        self.replicate = AAReplicate(runs=self.runs)

    @property
    def _scenario(self) -> Scenario:
        return self.runs[0].cell.variant.scenario

    @property
    def lazy(self) -> bool:
        return self.only is not None

    def next(self) -> Batch:
        self.extra &= {trial.round for run in self.runs for trial in run.trials}  # a batch may not have been launched
        if self.measures_noise and self._compares_steps:
            self.replicate.choose(self._may_go_on)
        twin = self.replicate.run
        if twin is not None and twin.prepared is None and twin.runnable:
            return Batch(runs=(twin,), only_known=True)
        able = [run for run in self.runs if self._may_go_on(run)]
        batch = self._catch_up() or self._confirm(able) or self._least(able) or self._more(able)
        if batch is None:
            return Batch(runs=(), record=self._done(), skipped=self._skipped())
        return replace(batch, whole=row_fails_late(self.runs) or self._differs_late(), row_runs=self.runs)

    def early(self) -> list[Batch]:
        """Return the launches to make while images are prepared. If step times are compared, enough launches are left
        for rounds in which every version has its turn; once those rounds are needed, only the first launch of each
        version is made, which runs the whole budget.
        """
        if self.only is not None:
            return []
        enough = self.asked.least
        if self._compares_steps:
            enough = min(enough if self._may_be_equivalent() else 1, self.asked.most - self.asked.least)
        return [
            Batch(
                runs=(run,),
                round=self._label(self._rounds_of(run)),
                record=_record("round", LaunchReason.WAITING_FOR_IMAGE(number=len(run.trials) + 1)),
            )
            for run in self.runs
            if run.runnable and len(run.trials) < enough and not (run.measured and self._has_to_confirm(run))
        ]

    # ------------------------------------------------------------ batches

    def _confirm(self, able: Sequence[CellRun]) -> Batch | None:
        """Return the versions on both sides of the first change that a launch, bad by itself, makes likely.

        They form a separate round, which does not count for levels, because these are compared in rounds of all
        versions. `asked.least` launches are reserved for such rounds; if `asked.most` allows no others, the next round
        of all versions confirms the change.
        """
        if self.only is not None or self.asked.least < 2 or any(not run.measured for run in able):
            return None
        sides = to_confirm([judge_so_far(run.cell, run.trials) for run in self.runs], asked=self.asked)
        if not sides or self.runs[sides[-1]] not in able:
            return None
        spare = self.asked.most - self.asked.least
        runs = [run for run in (self.runs[place] for place in sides) if run in able and self._apart(run) < spare]
        if not runs or runs[-1] is not self.runs[sides[-1]]:
            return None
        number = next_round(self.runs)
        self.extra.add(number)
        versions = " and ".join(run.cell.image.version for run in runs)
        record = _record("confirm", LaunchReason.CHANGE_UNCONFIRMED(versions=versions))
        return Batch(runs=tuple(runs), round=number, record=record)

    def _least(self, able: Sequence[CellRun]) -> Batch | None:
        done = {run.cell.id: self._rounds_of(run) for run in able}
        always = self._always_fail()
        behind = [run for run in able if done[run.cell.id] < self.asked.least and run.cell.id not in always]
        if not behind:
            return None
        number = min(done[run.cell.id] for run in behind)
        runs = [run for run in behind if done[run.cell.id] == number]
        if number and self._has_waited:
            if not self._may_be_equivalent():
                return self._round(able, next_round(self.runs), reason=LaunchReason.STEP_TIMES_DIFFER())
            runs = [*self._reference(able, runs), *runs]
        reason = LaunchReason.ROUND(number=number + 1, least=self.asked.least)
        batch = self._round(runs, self._label(number), reason=reason)
        return replace(batch, depth=self._depth(number))

    def _depth(self, number: int) -> Depth:
        """Return how far the launches of a round go: the first is a brief look at all versions before whole budgets."""
        return "brief" if not number and not self.lazy and self.asked.least > 1 else "usual"

    def _rounds_of(self, run: CellRun) -> int:
        """Count the launches of a version that count as rounds."""
        return len(run.measured) - self._apart(run)

    def _apart(self, run: CellRun) -> int:
        """Count the launches of this run that confirmed something, if levels are compared, which needs rounds of every
        version. A version that failed has nothing to compare, so its launches all count as rounds.
        """
        if not self._compares_levels or not all(trial.made_its_steps for trial in run.measured):
            return 0
        return sum(trial.measured and trial.round in self.extra for trial in run.trials[run.adopted :])

    def _label(self, number: int) -> int:
        """Return the number under which the trials of a round are kept; the numbers in `extra` are already taken."""
        return next(itertools.islice((label for label in itertools.count() if label not in self.extra), number, None))

    def _reference(self, able: Sequence[CellRun], runs: Sequence[CellRun]) -> list[CellRun]:
        """Return the oldest version that waited for images, to launch it again, if no such version had its turn yet:
        this shows how waiting affects step times. Once it has had all its launches, no other version replaces it.
        """
        compared = [run for run in self.runs if run.runnable and is_compared(run)]
        waited = [run for run in compared if _awaited(run)]
        if not waited or len(compared) < 2 or self.asked.least < FEWEST_ROUNDS:
            return []
        had_its_turn = any(len(run.measured) - _awaited(run) >= REFERENCES for run in waited)
        return [] if had_its_turn or waited[0] in runs or waited[0] not in able else waited[:1]

    @property
    def _has_waited(self) -> bool:
        """Return whether step times are to be compared although launches waited for images."""
        return self.only is None and self._compares_steps and any(_awaited(run) for run in self.runs)

    def _may_be_equivalent(self) -> bool:
        """Return whether launches that waited for images may still show equivalence, which makes rounds needless."""
        trials = [run.measured if run.runnable else [] for run in self.runs]
        launches = step_time_launches(trials, steps=self._scenario.steps)
        return may_hold(launches, limit=self._scenario.limits.of("step_time") or 0.0, wanted=self.asked.least)

    def _more(self, able: Sequence[CellRun]) -> Batch | None:
        reference = self._reference(able, []) if self._has_waited else []
        if reference and self._may_be_equivalent():
            return self._round(reference, next_round(self.runs), reason=LaunchReason.WAITING_UNKNOWN())
        always = self._always_fail()
        reasons = {run.cell.id: reason for run in able if run.cell.id not in always and (reason := self._reason(run))}
        together = self._wants_round()
        if together is not None:
            runs = [run for run in able if run.cell.id in reasons or _is_measured(run)]
            if runs:
                return self._round(runs, next_round(self.runs), reason=together)
        reasons = self._intermittent(able) | reasons
        runs = [run for run in able if run.cell.id in reasons]
        if not runs:
            return None
        whys = "; ".join(f"{run.cell.image.version}: {reasons[run.cell.id]}" for run in runs)
        return Batch(runs=tuple(runs), round=next_round(self.runs), record=_record("repeat", whys))

    def _round(self, runs: Sequence[CellRun], number: int, *, reason: str) -> Batch:
        """Return a batch of versions side by side, with the A/A replicate if its original is among them."""
        twin = self.replicate.run
        beside: tuple[CellRun, ...] = ()
        if any(run in self.replicate.originals for run in runs) or (twin is None and self.measures_noise):
            self.replicate.rounds.add(number)
            beside = () if twin is None or not self._may_go_on(twin) else (twin,)
        return Batch(runs=(*runs, *beside), round=number, record=_record("round", reason))

    def _catch_up(self) -> Batch | None:
        """Return the A/A replicate's part of a round that ran before the replicate was chosen."""
        twin, number = self.replicate.run, self.replicate.missing_round()
        if twin is None or number is None or not self._may_go_on(twin):
            return None
        record = _record("twin", LaunchReason.AA_NOISE_UNKNOWN())
        return Batch(runs=(twin,), round=number, record=record, depth=self._depth(number))

    def _wants_round(self) -> str | None:
        scenario = self._scenario
        if scenario.judge_exit or self.only is not None:
            return None
        trials = [run.measured if run.runnable else [] for run in self.runs]
        return wants_round(
            trials, limits=scenario.limits, steps=scenario.steps,
            trials_asked=self.asked, noise=self.noise(), rows=self.rows,
        )  # fmt: skip

    def _has_to_confirm(self, run: CellRun) -> bool:
        """Return whether the next launch must run the whole budget again; it then waits for its turn."""
        scenario = self._scenario
        return not scenario.judge_exit and cell_verdict.needs_whole_budget(
            run.measured, limits=scenario.limits, steps=scenario.steps
        )

    def _reason(self, run: CellRun) -> str | None:
        if run.doubted:
            return LaunchReason.FAILED_ALONGSIDE()
        limits, steps, exit_only = self._scenario.limits, self._scenario.steps, self._scenario.judge_exit
        return cell_verdict.wants_more(
            run.measured, trials_asked=self.asked, limits=limits, steps=steps, exit_only=exit_only
        )

    def _intermittent(self, able: Sequence[CellRun]) -> dict[str, str]:
        cells = [judge_trials(run.cell, run.trials) for run in self.runs]
        wanted = wants_launches(cells, [run.measured for run in self.runs], trials_asked=self.asked)
        return {self.runs[place].cell.id: reason for place, reason in wanted.items() if self.runs[place] in able}

    def _always_fail(self) -> set[str]:
        """Return the ids of the cells that need no more launches to show that they always fail."""
        certain = always_fails([run.trials for run in self.runs])
        return {run.cell.id for run, is_certain in zip(self.runs, certain, strict=True) if is_certain}

    def _done(self) -> dict[str, Any]:
        counts = [len(run.measured) for run in self.runs]
        trials = " to ".join(map(str, sorted({min(counts), max(counts)})))
        return _record("done", LaunchReason.ENOUGH(trials=trials))

    def _skipped(self) -> dict[str, Skip]:
        not_asked = [] if self.only is None else [run for run in self.runs if run.cell.id not in self.only]
        skip = Skip(by="decide", why=SkipReason.NOT_TO_DECIDE())
        return {run.cell.id: skip for run in not_asked if not run.trials}

    def _differs_late(self) -> bool:
        scenario, trials = self._scenario, [run.measured for run in self.runs]
        return not scenario.judge_exit and differs_late(trials, limits=scenario.limits, steps=scenario.steps)

    @property
    def _compares_levels(self) -> bool:
        return not self._scenario.judge_exit and (
            self._compares_steps or self._scenario.limits.of("peak_memory") is not None
        )

    @property
    def _compares_steps(self) -> bool:
        return not self._scenario.judge_exit and self._scenario.limits.of("step_time") is not None

    def noise(self) -> Noise | None:
        return self.replicate.noise()

    def _may_go_on(self, run: CellRun) -> bool:
        is_asked_for = self.only is None or run.cell.id in self.only
        return is_asked_for and run.runnable and len(run.measured) < self.asked.most


def _is_measured(run: CellRun) -> bool:
    """Return whether the peaks of a run can be compared, even if its step times cannot."""
    return any(trial.trace is not None for trial in run.measured)


def _awaited(run: CellRun) -> int:
    """Return how many launches waited for images."""
    return sum(trial.pulled == "awaited" for trial in run.measured)


def _record(kind: str, reason: str) -> dict[str, Any]:
    return {"kind": kind, "reason": reason}
