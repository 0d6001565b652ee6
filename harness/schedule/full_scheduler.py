"""Schedules a row that runs every version: in rounds of all versions, and in single launches that results require."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from harness.judge.api import judge_cell_of, judge_so_far
from harness.judge.cell import wants_more
from harness.judge.comparable import as_whole_runs, unlike_steps
from harness.judge.comparison.noise import noise_of
from harness.judge.comparison.which_launches import has_step_times
from harness.judge.history.flaky import always_fails
from harness.judge.history.precision import differs_late, wants_round
from harness.judge.history.transitions import wants_launches
from harness.judge.launches import AGREE, limits_of_version
from harness.judge.trace.stopping import is_brief
from harness.model import BAD, GOOD, CellVerdict, Depth, Noise, Scenario, Skip, Trial, Trials
from harness.reasons import LaunchReason, SkipReason
from harness.run.hosts.side_by_side import compares_times
from harness.run.run_interfaces import Batch, CellRun, next_round
from harness.schedule.oracle import row_fails_late

MANY_VERSIONS = 4
"""Fewest versions that show the noise themselves if their steps are brief."""


@dataclass(kw_only=True)
class AAReplicate:
    """The A/A replicate of one of `runs` (the versions, oldest first). `run` is None until a version is chosen."""

    runs: Sequence[CellRun]
    run: CellRun | None = None
    rounds: set[int] = field(default_factory=set)
    """Rounds of this run in which the image of the replicate took part."""

    @property
    def originals(self) -> list[CellRun]:
        """Return the runs of the image that the replicate copies."""
        return [run for run in self.runs if self.run is not None and run.cell.image == self.run.cell.image]

    def choose(self, may_go_on: Callable[[CellRun], bool]) -> None:
        """Choose the oldest version whose step times can be compared, if there are others to compare.

        The choice does not depend on the order in which images arrive, because it waits for older versions that are
        still to be measured.
        """
        able = [run for run in self.runs if run.runnable]
        if self.run is not None or len(able) < 2:
            return
        oldest = next((run for run in able if is_compared(run) or (not run.measured and may_go_on(run))), None)
        if oldest is None or not oldest.measured:
            return
        # Many versions show the noise themselves, if their steps are too brief for small changes to matter.
        is_short = all(is_brief(trial.trace) for trial in oldest.measured if trial.trace)
        if not (is_short and len(able) >= MANY_VERSIONS):
            self.run = CellRun(cell=replace(oldest.cell, replicate=True))

    def missing_round(self) -> int | None:
        """Return the first round that the original ran before the replicate was chosen; None if none is missing."""
        if self.run is None:
            return None
        ran = {trial.round for original in self.originals for trial in original.trials[original.adopted :]}
        missing = (self.rounds & ran) - {trial.round for trial in self.run.measured[self.run.adopted :]}
        return min(missing, default=None)

    def noise(self) -> Noise | None:
        """Return the A/A noise from all rounds that have both the image and its replicate, earlier runs included."""
        if self.run is None:
            return None
        by_round = {(trial.run, trial.round): trial for run in self.originals for trial in run.measured}
        pairs = [(by_round.get((trial.run, trial.round)), trial) for trial in self.run.measured]
        both = [(original, replicate) for original, replicate in pairs if original is not None]
        return noise_of(both, steps=self.run.cell.variant.scenario.steps)


def is_compared(run: CellRun) -> bool:
    """Return whether the step times of a version can be compared."""
    return any(has_step_times(trial) for trial in run.measured)


def to_confirm(cells: Sequence[CellVerdict], *, asked: Trials) -> tuple[int, ...]:
    """Return the positions of the versions to launch again for the first change that is not confirmed: the last good
    and the first bad version until two launches of the bad one agree, then the good one alone as often as it takes.

    For a leak, two launches of the good version are enough; for a failure, which it may have missed by luck, it needs
    `asked.least`. If that many launches of the bad version do not agree, the rounds of all versions decide. A row that
    is bad from the start has no good side. Return () if there is nothing to confirm.
    """
    good: int | None = None
    was_bad = False
    for place, cell in enumerate(cells):
        if not cell.trials:
            continue
        is_agreed = bool(BAD & set(cell.verdicts))
        is_bad = is_agreed or cell.failed > 0 or cell.verdict == "suspect"  # any launch was bad, by itself
        if is_bad and not was_bad:
            sides = (place,) if good is None else (good, place)
            if not is_agreed and cell.trials < asked.least:
                return sides
            wanted = asked.least if cell.failed else min(AGREE, asked.least)
            if is_agreed and good is not None and cells[good].trials < wanted:
                return (good,)
        was_bad = is_bad
        good = place if cell.verdict in GOOD else good
    return ()


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
        again = self.replicate.run
        if again is not None and again.prepared is None and again.runnable:
            return Batch(runs=(again,), only_known=True)
        able = [run for run in self.runs if self._may_go_on(run)]
        batch = self._catch_up() or self._confirm(able) or self._least(able) or self._more(able)
        if batch is None:
            counts = sorted({len(run.measured) for run in self.runs})
            trials = " to ".join(map(str, sorted({counts[0], counts[-1]})))
            skip = Skip(by="decide", why=SkipReason.NOT_TO_DECIDE())
            not_asked = [] if self.only is None else [run for run in self.runs if run.cell.id not in self.only]
            skipped = {run.cell.id: skip for run in not_asked if not run.trials}
            return Batch(runs=(), record=_record("done", LaunchReason.ENOUGH(trials=trials)), skipped=skipped)
        limits, steps, measured = self._scenario.limits, self._scenario.steps, [run.measured for run in self.runs]
        late = not limits.exit_only and differs_late(measured, limits=limits, steps=steps)
        depth = "whole" if late or row_fails_late(self.runs) else batch.depth
        return replace(batch, depth=depth, row_runs=self.runs, shortens=True)

    # ------------------------------------------------------------ batches

    def _confirm(self, able: Sequence[CellRun]) -> Batch | None:
        """Return the versions on both sides of the first change that a launch, bad by itself, makes likely.

        They form a separate round, which does not count for levels, because these are compared in rounds of all
        versions. `asked.least` launches are reserved for such rounds; if `asked.most` allows no others, the next round
        of all versions confirms the change.
        """
        if self.only is not None or self.asked.least < 2 or any(not run.measured for run in able):
            return None
        so_far = [judge_so_far(run.cell, run.trials, self._launches) for run in self.runs]
        sides = to_confirm(so_far, asked=self.asked)
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
        done = {run.cell.id: len(run.measured) - self._apart(run) for run in able}  # launches that count as rounds
        always = self._always_fail()
        behind = [run for run in able if done[run.cell.id] < self.asked.least and run.cell.id not in always]
        if not behind:
            return None
        number = min(done[run.cell.id] for run in behind)
        runs = [run for run in behind if done[run.cell.id] == number]
        beside = self._scenario.may_count_lines and not compares_times(self._scenario)
        if beside and not any(run.measured for run in self.runs):
            runs = runs[:1]  # the oldest version shows which lines are steps before others run beside it
        reason = LaunchReason.ROUND(number=number + 1, least=self.asked.least)
        labels = (label for label in itertools.count() if label not in self.extra)
        batch = self._round(runs, next(itertools.islice(labels, number, None)), reason=reason)
        return replace(batch, depth=self._depth(number))

    def _depth(self, number: int) -> Depth:
        """Return how far the launches of a round go: the first is a brief look at all versions before whole budgets."""
        return "brief" if not number and not self.lazy and self.asked.least > 1 else "usual"

    def _apart(self, run: CellRun) -> int:
        """Count the launches of this run that confirmed something, if levels are compared, which needs rounds of every
        version. A version that failed has nothing to compare, so its launches all count as rounds.
        """
        if not self._compares_levels or not all(trial.made_its_steps for trial in run.measured):
            return 0
        return sum(trial.measured and trial.round in self.extra for trial in run.trials[run.adopted :])

    def _more(self, able: Sequence[CellRun]) -> Batch | None:
        always = self._always_fail()
        reasons = {run.cell.id: reason for run in able if run.cell.id not in always and (reason := self._reason(run))}
        together = self._wants_round()
        if together is not None:
            # Peaks can be compared even if step times cannot.
            runs = [run for run in able if run.cell.id in reasons or any(trial.trace for trial in run.measured)]
            if runs:
                return self._round(runs, next_round(self.runs), reason=together)
        cells = [judge_cell_of(run.cell, run.trials, self._launches) for run in self.runs]
        flaky = wants_launches(cells, [run.measured for run in self.runs], trials_asked=self.asked)
        reasons = {self.runs[place].cell.id: reason for place, reason in flaky.items()} | reasons
        runs = [run for run in able if run.cell.id in reasons]
        if not runs:
            return None
        whys = "; ".join(f"{run.cell.image.version}: {reasons[run.cell.id]}" for run in runs)
        return Batch(runs=tuple(runs), round=next_round(self.runs), record=_record("repeat", whys))

    def _round(self, runs: Sequence[CellRun], number: int, *, reason: str) -> Batch:
        """Return a batch of versions side by side, with the A/A replicate if its original is among them."""
        again = self.replicate.run
        beside: tuple[CellRun, ...] = ()
        if any(run in self.replicate.originals for run in runs) or (again is None and self.measures_noise):
            self.replicate.rounds.add(number)
            beside = () if again is None or not self._may_go_on(again) else (again,)
        return Batch(runs=(*runs, *beside), round=number, record=_record("round", reason))

    def _catch_up(self) -> Batch | None:
        """Return the A/A replicate's part of a round that ran before the replicate was chosen."""
        again, number = self.replicate.run, self.replicate.missing_round()
        if again is None or number is None or not self._may_go_on(again):
            return None
        record = _record("replicate", LaunchReason.AA_NOISE_UNKNOWN())
        return Batch(runs=(again,), round=number, record=record, depth=self._depth(number))

    def _wants_round(self) -> str | None:
        scenario = self._scenario
        if scenario.limits.exit_only or self.only is not None:
            return None
        trials: Sequence[Sequence[Trial]] = [run.measured if run.runnable else [] for run in self.runs]
        if unlike_steps(trials, [run.cell.image.version for run in self.runs]):
            trials = [as_whole_runs(own) for own in trials]
        return wants_round(
            trials, limits=scenario.limits, steps=scenario.steps,
            trials_asked=self.asked, noise=self.noise(), rows=self.rows,
        )  # fmt: skip

    def _reason(self, run: CellRun) -> str | None:
        if run.doubted:
            return LaunchReason.FAILED_ALONGSIDE()
        limits = limits_of_version(run.trials, self._launches, self._scenario)
        return wants_more(run.measured, trials_asked=self.asked, limits=limits, steps=self._scenario.steps)

    def _always_fail(self) -> set[str]:
        """Return the ids of the cells that need no more launches to show that they always fail."""
        certain = always_fails(self._launches)
        return {run.cell.id for run, is_certain in zip(self.runs, certain, strict=True) if is_certain}

    @property
    def _launches(self) -> list[list[Trial]]:
        return [run.trials for run in self.runs]

    @property
    def _compares_levels(self) -> bool:
        return not self._scenario.limits.exit_only and (
            self._compares_steps or self._scenario.limits.of("peak_memory") is not None
        )

    @property
    def _compares_steps(self) -> bool:
        return not self._scenario.limits.exit_only and self._scenario.limits.of("step_time") is not None

    def noise(self) -> Noise | None:
        return self.replicate.noise()

    def _may_go_on(self, run: CellRun) -> bool:
        is_asked_for = self.only is None or run.cell.id in self.only
        return is_asked_for and run.runnable and len(run.measured) < self.asked.most


def _record(kind: str, reason: str) -> dict[str, Any]:
    return {"kind": kind, "reason": reason}
