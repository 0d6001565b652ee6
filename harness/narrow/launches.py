"""Launches the hybrids that the search names, and judges each launch: it shows the fault of B, it shows no fault, or it
is unresolved.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from statistics import median

import numpy as np

from harness.judge.comparison.level_rules import RULES, launch_figure_of, usable
from harness.judge.launches import JudgedTrial, judge_launches
from harness.model import FAILURES, GOOD, Cell, Finding, Image, Scenario, Trial
from harness.model.measured import TRACEBACK
from harness.model.narrowed import Hybrid, HybridOutcome, HybridState
from harness.narrow.search import ComponentSearch
from harness.reasons import NarrowReason
from harness.run.run_interfaces import Batch, CellRun, next_round


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


# ---------------------------------------------------------------- the state of each launch


RAISED = re.compile(r"^(?:\w+\.)*(\w+)(?:: |$)", re.MULTILINE)
"""The line that ends a traceback; all lines before it are indented."""
EXCEPTION = re.compile(r"^(?:\w+\.)*(\w*(?:Error|Exception|Interrupt|Exit|Warning))\b", re.MULTILINE)
NEAR = 0.25
"""A value within this share of the distance from A's to B's counts as A's; likewise at B's end."""
Reading = tuple[HybridState | None, str]
"""The state by one launch, and the reason."""


@dataclass(frozen=True, kw_only=True)
class HybridLaunches:
    """The launches of one hybrid, oldest first, with their rounds. `problem`: why it could not be made or launched."""

    hybrid: Hybrid
    trials: Sequence[Trial] = ()
    rounds: Sequence[int] = ()
    problem: str = ""


def hybrid_outcomes(
    measured: Sequence[HybridLaunches],
    *,
    ends: tuple[Hybrid, Hybrid],
    finding: Finding,
    scenario: Scenario,
    judged: dict[Trial, JudgedTrial | None] | None = None,
) -> tuple[HybridOutcome, ...]:
    """Return an outcome for each launch, and one for each hybrid that could not be launched.

    `ends` are A and B; `judged` keeps the verdict on each launch, from one call to the next.
    """
    a, b = ends
    trials = {launches.hybrid: launches.trials for launches in measured}
    reader = _Reader(
        finding=finding,
        scenario=scenario,
        a=trials.get(a, ()),
        b=trials.get(b, ()),
        judged={} if judged is None else judged,
    )
    figures = _figures(measured, finding=finding, scenario=scenario)
    several = (_of_hybrid(launches, reader, figures, is_b=launches.hybrid == b) for launches in measured)
    return tuple(chain.from_iterable(several))


def _of_hybrid(
    launches: HybridLaunches, reader: _Reader, figures: Mapping[Trial, float] | None, *, is_b: bool
) -> Iterator[HybridOutcome]:
    setups = sum(trial.end == "setup" for trial in launches.trials)
    for trial, number in zip(launches.trials, launches.rounds, strict=True):
        figure = None if figures is None else figures.get(trial)
        state, reason = reader.read(trial, is_b=is_b) if figure is None else (None, "")
        if figures is not None and figure is None and state in (None, "good"):
            state, reason = "unresolved", NarrowReason.NO_FIGURE()
        yield HybridOutcome(
            hybrid=launches.hybrid,
            state=state,
            reason=reason,
            figure=figure,
            round=number,
            lasting=state == "unresolved" and trial.end == "setup" and setups > 1,
        )
    if launches.problem:
        yield HybridOutcome(hybrid=launches.hybrid, state="unresolved", reason=launches.problem, lasting=True)


def fault_counts(trials: Sequence[Trial], *, finding: Finding, scenario: Scenario) -> tuple[int, int]:
    """Return how many launches of B showed the fault in the finding's run, and how many did not. (0, 0) for a level."""
    if is_level(finding):
        return 0, 0
    b = Hybrid(base="B")
    measured = [trial for trial in trials if trial.measured]
    launches = HybridLaunches(hybrid=b, trials=measured, rounds=range(len(measured)))
    outcomes = hybrid_outcomes([launches], ends=(Hybrid(base="A"), b), finding=finding, scenario=scenario)
    states = [outcome.state for outcome in outcomes]
    return states.count("bad"), states.count("good")


def level_size(finding: Finding) -> float | None:
    """Return the size of the change from A to B in the log of the level; None if the finding is not of a level, or its
    size is unknown.
    """
    effect = finding.effect
    if not is_level(finding) or effect is None or effect.unit != "ratio" or effect.value <= 0:
        return None
    return abs(math.log(effect.value))


def is_level(finding: Finding) -> bool:
    """Return whether the finding is of a level: a launch shows it only in comparison with those of A and B."""
    return finding.metric in RULES and finding.verdict != "slowdown"


def _figures(
    measured: Sequence[HybridLaunches], *, finding: Finding, scenario: Scenario
) -> Mapping[Trial, float] | None:
    """Return the figure of each launch over the steps that all have; None if no level is compared."""
    if not is_level(finding):
        return None
    launches = usable(finding.metric, [each.trials for each in measured], steps=scenario.steps)
    figure = launch_figure_of(finding.metric, launches)
    figures = {trial: figure(trial) for version in launches for trial in version}
    return {trial: value for trial, value in figures.items() if value is not None}


@dataclass(frozen=True, kw_only=True)
class _Reader:
    """Judges single launches; `a` and `b` are the launches of A and B."""

    finding: Finding
    scenario: Scenario
    a: Sequence[Trial]
    b: Sequence[Trial]
    judged: dict[Trial, JudgedTrial | None]

    def read(self, trial: Trial, *, is_b: bool) -> Reading:
        """Return the state by one launch, and the reason."""
        judged = self._judged(trial)
        if judged is None:
            return "unresolved", _last_line(trial) or NarrowReason.NO_STEP()
        if judged.failure is not None:
            return self._failed(trial, is_b=is_b)
        return self._measured(trial, judged)

    def _measured(self, trial: Trial, judged: JudgedTrial) -> Reading:
        metric = self.finding.metric
        if metric == "outcome":
            return "good", ""
        if metric.startswith("metrics."):
            return self._value(trial, metric.removeprefix("metrics."))
        verdict = {"memory": "leak", "step_time": "slowdown"}.get(metric)
        return self._growth(judged, metric) if verdict is None else self._verdict(judged, verdict)

    def _judged(self, trial: Trial) -> JudgedTrial | None:
        if trial not in self.judged:
            launches = judge_launches([trial], limits=self.scenario.limits, steps=self.scenario.steps)
            self.judged[trial] = next(iter(launches), None)
        return self.judged[trial]

    def _failed(self, trial: Trial, *, is_b: bool) -> Reading:
        """Judge a failed launch. It is bad only if it fails as B does, because hybrids may fail in other ways, too."""
        of_b = {failure_signature(each) for each in self.b if each.end in (*FAILURES, "setup")}
        if is_b or failure_signature(trial) in of_b:
            if self.finding.metric == "outcome":
                return "bad", _last_line(trial)
            return "unresolved", NarrowReason.FAILED(line=_last_line(trial))
        return "unresolved", NarrowReason.FAILED_OTHERWISE(line=_last_line(trial))

    def _verdict(self, judged: JudgedTrial, name: str) -> Reading:
        trace = judged.trace_verdict
        if name in judged.verdicts:
            return "bad", trace.why if trace else ""
        if trace is not None and judged.whole(self.scenario.steps) and GOOD & set(trace.verdicts):
            return "good", ""
        return "unresolved", trace.why if trace else NarrowReason.NO_SAMPLES()

    def _growth(self, judged: JudgedTrial, name: str) -> Reading:
        growth = judged.growths.get(name)
        if growth is None or growth.state not in ("bad", "good"):
            return "unresolved", NarrowReason.NOT_WHOLE() if growth is None else str(growth)
        return ("bad", str(growth)) if growth.state == "bad" else ("good", "")

    def _value(self, trial: Trial, name: str) -> Reading:
        """Compare what the scenario returned with what it returned in A and in B."""
        if self.finding.verdict == "nan" or any(name in each.not_finite for each in self.b):
            return ("bad", NarrowReason.NOT_FINITE(name=name)) if name in trial.not_finite else ("good", "")
        own, a, b = _level(trial, name), _levels(self.a, name), _levels(self.b, name)
        if own is None or not a or not b or (min(a) <= max(b) and min(b) <= max(a)):
            return "unresolved", NarrowReason.VALUES_OVERLAP(name=name)
        way = (own - median(a)) / (median(b) - median(a))
        if NEAR < way < 1 - NEAR:
            return "unresolved", NarrowReason.VALUE_OF_NEITHER(name=name, value=own)
        return ("bad", NarrowReason.VALUE_OF_B(name=name, value=own)) if way >= 1 - NEAR else ("good", "")


def failure_signature(trial: Trial) -> tuple[object, ...]:
    """Return a key that two launches share if they fail in the same way."""
    return trial.end, trial.failure.signal, trial.failure.exit_code, _exception(f"{trial.output.tail}\n{trial.message}")


def _exception(text: str) -> str:
    """Return the name of the exception that a text ends with; "" if it names none."""
    _, traceback, rest = text.rpartition(f"{TRACEBACK}:")
    raised = RAISED.search(rest.lstrip("\n")) if traceback else None
    named = EXCEPTION.findall(text)
    return raised[1] if raised else named[-1] if named else ""


def _last_line(trial: Trial) -> str:
    return (trial.told.strip().splitlines() or [""])[-1]


def _levels(trials: Sequence[Trial], name: str) -> list[float]:
    return [value for trial in trials if (value := _level(trial, name)) is not None]


def _level(trial: Trial, name: str) -> float | None:
    column = None if trial.trace is None else trial.trace.column(name)
    finite = np.empty(0) if column is None else column[np.isfinite(column)]
    return float(np.median(finite)) if len(finite) else None
