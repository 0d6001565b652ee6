"""What is launched next where a change is searched for: trials become what `harness.search` sees of each version."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from harness import search
from harness.judge.launches import Launch, judge_launches
from harness.judge.tables import level_figures
from harness.model import GOOD, Trials
from harness.run.policy import Batch, CellRun

TOO_DEAR = "to search on would cost more than to run every version (--search full)"


@dataclass(kw_only=True)
class Searching:
    """One block, oldest image first. Images are got only when they are launched.

    `baseline`: the place of the image that bad is measured against.
    """

    runs: Sequence[CellRun]
    asked: Trials
    baseline: int | None = None
    lazy: bool = True
    conclusion: str = ""
    """What was found, in a sentence; empty until the search is over."""

    def next(self) -> Batch:
        spots = self._spots()
        decision = search.decide(spots, rules=self.rules)
        if decision.kind == "compare" and self._spent(spots):
            decision = replace(decision, launch=(), kind="done", reason=f"{TOO_DEAR}; {decision.reason}")
        needless = search.not_needed(spots, rules=self.rules) if not decision.launch else {}
        self.conclusion = "" if decision.launch else decision.reason
        return Batch(
            runs=tuple(self.runs[place] for place in decision.launch),
            round=1 + max((trial.round for run in self.runs for trial in run.trials), default=-1),
            record=self._record(decision),
            skipped={self.runs[place].cell.id: why for place, why in needless.items()},
        )

    @property
    def rules(self) -> search.Rules:
        limits = self.runs[0].cell.variant.scenario.limits
        return search.Rules(
            least=self.asked.least,
            most=self.asked.most,
            limits={"step_time": math.log1p(limits.step_time)},  # peaks are compared, but not searched for
            baseline=self.baseline,
        )

    def boundaries(self) -> tuple[search.Boundary, ...]:
        """What is found so far."""
        return search.conclude(self._spots(), rules=self.rules)

    def noise(self) -> None:
        """A search measures none."""

    def _spent(self, spots: Sequence[search.Spot]) -> bool:
        """Whether a comparison of levels has cost as much as running every version would have."""
        return sum(spot.launches for spot in spots) >= self.asked.least * sum(spot.testable for spot in spots)

    def _record(self, decision: search.Decision) -> Mapping[str, object]:
        """Positions are told as versions."""
        versions = [run.cell.image.version for run in self.runs]
        return {
            "kind": decision.kind,
            "reason": decision.reason,
            "metric": decision.metric,
            "bracket": None if decision.bracket is None else [versions[place] for place in decision.bracket],
            "posterior": {versions[place]: chance for place, chance in decision.posterior},
        }

    def _spots(self) -> list[search.Spot]:
        levels = self._levels()
        return [
            self._spot(run, {metric: by_place.get(place, {}) for metric, by_place in levels.items()})
            for place, run in enumerate(self.runs)
        ]

    def _spot(self, run: CellRun, levels: Mapping[str, Mapping[int, float]]) -> search.Spot:
        scenario = run.cell.variant.scenario
        launches = judge_launches(
            run.measured, limits=scenario.limits, steps=scenario.steps, exit_only=scenario.judge_exit
        )
        return search.Spot(
            name=run.cell.image.version,
            testable=run.runnable,
            at_hand=run.at_hand or run.prepared is not None,
            launches=len(launches),
            states={metric: _evidence(launches, metric) for metric in ("outcome", "memory", "slowdown")},
            levels=levels,
        )

    def _levels(self) -> Mapping[str, Mapping[int, Mapping[int, float]]]:
        """By metric and place: the logs of what can be compared, by a number for each round that was run."""
        scenario = self.runs[0].cell.variant.scenario
        if scenario.judge_exit:
            return {}
        figures = level_figures([run.measured for run in self.runs], steps=scenario.steps)
        rounds = {key for columns in figures.values() for column in columns.values() for key in column}
        numbers = {key: number for number, key in enumerate(sorted(rounds))}
        return {
            metric: {
                place: {numbers[key]: math.log(value) for key, value in column.items()}
                for place, column in columns.items()
            }
            for metric, columns in figures.items()
        }


def _evidence(launches: Sequence[Launch], metric: str) -> search.Evidence:
    told = [_shows(launch, metric) for launch in launches]
    return search.Evidence(good=told.count("good"), bad=told.count("bad"), unsure=told.count("unsure"))


def _shows(launch: Launch, metric: str) -> str | None:
    """What one launch says by one metric; a launch that failed says nothing of memory, unless it leaked before."""
    if metric == "outcome":
        return "good" if launch.failure is None else "bad"
    name = "leak" if metric == "memory" else "slowdown"
    if name in launch.verdicts:
        return "bad"
    if launch.failure is not None:
        return None
    if metric == "slowdown":
        timed = launch.found is not None and launch.found.step_drift is not None
        return "good" if timed else None
    return "good" if GOOD & set(launch.verdicts) else "unsure"
