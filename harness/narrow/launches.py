"""Launches the hybrids that the search names, and judges each launch: it shows the fault of B, it shows no fault, or it
is unresolved.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median

import numpy as np

from harness.amounts import general
from harness.judge.comparison.level_rules import RULES, launch_figure_of, usable
from harness.judge.history.exact_values import late_value
from harness.judge.launches import JudgedTrial, judge_launches
from harness.model import FAILURES, GOOD, Cell, CellRun, Finding, Image, Proposal, RowRun, Scenario, Trial, next_round
from harness.model.measured import NOT_FINITE, TRACEBACK
from harness.narrow.records import Hybrid, HybridOutcome, HybridState
from harness.narrow.search import ComponentSearch


@dataclass(kw_only=True)
class NarrowScheduler:
    """One search. `like` is the cell of A: all hybrids run on its lane and with its variant.

    `image_of` returns a hybrid's image. `checked` inspects a hybrid after its first launch, and returns how it differs
    from what was requested, "" for a correct one.
    """

    search: ComponentSearch
    like: Cell
    finding: Finding
    image_of: Callable[[Hybrid], Image]
    checked: Callable[[Hybrid, CellRun], str]
    runs: dict[Hybrid, CellRun] = field(default_factory=dict)
    _checked: set[Hybrid] = field(default_factory=set)
    _judged: dict[Trial, JudgedTrial | None] = field(default_factory=dict)

    def propose(self, row: RowRun) -> Proposal:
        """Return the next hybrids to launch. They become the cells of the row, first A, which is launched first."""
        decision = self.search.decide(self.outcomes())
        for hybrid in decision.launch:
            if hybrid not in self.runs:
                self.runs[hybrid] = CellRun(cell=replace(self.like, image=self.image_of(hybrid)))
        runs = tuple(self.runs[hybrid] for hybrid in decision.launch)
        made = row.cells = tuple(self.runs.values())
        return Proposal(
            kind=decision.kind, reason=decision.reason, runs=runs, round=next_round(made), depth="whole"
        )  # fmt: skip

    def outcomes(self) -> tuple[HybridOutcome, ...]:
        """Return the outcomes of all launches so far."""
        problems: dict[Hybrid, str] = {}
        for hybrid, run in self.runs.items():
            if run.measured and hybrid not in self._checked:
                self._checked.add(hybrid)
                run.problem = run.problem or self.checked(hybrid, run)
            problems |= {hybrid: why} if (why := run.problem or run.incompatible) else {}
        return hybrid_outcomes(
            {hybrid: () if run.problem else run.measured for hybrid, run in self.runs.items()},
            problems,
            ends=(self.search.a, self.search.b),
            finding=self.finding,
            scenario=self.like.variant.scenario,
            judged=self._judged,
        )

    def run_of_a(self) -> CellRun:
        """Return the run of A, which is launched in any case."""
        return self.runs.setdefault(self.search.a, CellRun(cell=self.like))


# ---------------------------------------------------------------- the state of each launch


RAISED = re.compile(r"^(?:\w+\.)*(\w+)(?:: |$)", re.MULTILINE)
"""The line that ends a traceback; all lines before it are indented."""
EXCEPTION = re.compile(r"^(?:\w+\.)*(\w*(?:Error|Exception|Interrupt|Exit|Warning))\b", re.MULTILINE)
NEAR = 0.25
"""A value within this share of the distance from A's to B's counts as A's; likewise at B's end."""
Reading = tuple[HybridState | None, str]
"""The state by one launch, and the reason."""


def hybrid_outcomes(
    launches: Mapping[Hybrid, Sequence[Trial]],
    problems: Mapping[Hybrid, str],
    *,
    ends: tuple[Hybrid, Hybrid],
    finding: Finding,
    scenario: Scenario,
    judged: dict[Trial, JudgedTrial | None] | None = None,
) -> tuple[HybridOutcome, ...]:
    """Return an outcome for each launch, and one for each hybrid that could not be made or launched: `problems` says
    why. `launches` are oldest first, and `ends` are A and B; `judged` keeps the verdict on each launch, from one call
    to the next.
    """
    a, b = (launches.get(end, ()) for end in ends)
    reader = _Reader(finding=finding, scenario=scenario, a=a, b=b, judged={} if judged is None else judged)
    figures = _figures(tuple(launches.values()), finding=finding, scenario=scenario)
    rounds: dict[tuple[str, int], int] = {}
    outcomes = []
    for hybrid, trials in launches.items():
        setups = sum(trial.end == "setup" for trial in trials)
        for trial in trials:
            figure = None if figures is None else figures.get(trial)
            state, reason = reader.read(trial, is_b=hybrid == ends[1]) if figure is None else (None, "")
            if figures is not None and figure is None and state in (None, "good"):
                state, reason = "unresolved", "this launch has no figure that could be compared"
            outcomes.append(
                HybridOutcome(
                    hybrid=hybrid,
                    state=state,
                    reason=reason,
                    figure=figure,
                    round=rounds.setdefault((trial.run, trial.round), len(rounds)),
                    lasting=state == "unresolved" and trial.end == "setup" and setups > 1,
                )
            )
        if hybrid in problems:
            outcomes.append(HybridOutcome(hybrid=hybrid, state="unresolved", reason=problems[hybrid], lasting=True))
    return tuple(outcomes)


def fault_counts(trials: Sequence[Trial], *, finding: Finding, scenario: Scenario) -> tuple[int, int]:
    """Return how many launches of B showed the fault in the finding's run, and how many did not. (0, 0) for a level."""
    if is_level(finding):
        return 0, 0
    a, b = Hybrid(base="A"), Hybrid(base="B")
    measured = [trial for trial in trials if trial.measured]
    outcomes = hybrid_outcomes({b: measured}, {}, ends=(a, b), finding=finding, scenario=scenario)
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
    versions: Sequence[Sequence[Trial]], *, finding: Finding, scenario: Scenario
) -> Mapping[Trial, float] | None:
    """Return the figure of each launch over the steps that all have; None if no level is compared."""
    if not is_level(finding):
        return None
    launches = usable(finding.metric, versions, steps=scenario.steps)
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
        if trial not in self.judged:
            limits = self.scenario.limits
            if limits.setup_bad is None:  # the finding says that other versions run
                limits = replace(limits, setup_bad=self.scenario.script is None)
            launches = judge_launches([trial], limits=limits, steps=self.scenario.steps)
            self.judged[trial] = next(iter(launches), None)
        judged, metric, line = self.judged[trial], self.finding.metric, (trial.told.strip().splitlines() or [""])[-1]
        if judged is None:
            return "unresolved", line or "it failed before its first step"
        if judged.failure is not None:  # it is bad only if it fails as B does: hybrids may fail in other ways, too
            of_b = {failure_signature(each) for each in self.b if each.end in (*FAILURES, "setup")}
            if not is_b and failure_signature(trial) not in of_b:
                return "unresolved", f"it fails in a way that B does not: {line}"
            return ("bad", line) if metric == "outcome" else ("unresolved", f"it failed: {line}")
        return ("good", "") if metric == "outcome" else self._measured(trial, judged, metric)

    def _measured(self, trial: Trial, judged: JudgedTrial, metric: str) -> Reading:
        if metric.startswith("metrics."):
            return self._value(trial, metric.removeprefix("metrics."))
        verdict = {"memory": "leak", "step_time": "slowdown"}.get(metric)
        if verdict is not None:
            return self._verdict(judged, verdict)
        growth = judged.growths.get(metric)
        if growth is None or growth.verdict not in ("leak", "flat"):
            return "unresolved", "it was not measured over a whole launch" if growth is None else growth.why
        return ("bad", growth.why) if growth.verdict == "leak" else ("good", "")

    def _verdict(self, judged: JudgedTrial, name: str) -> Reading:
        trace = judged.trace_verdict
        if name in judged.verdicts:
            return "bad", trace.why
        if judged.is_whole and GOOD & set(trace.verdicts):
            return "good", ""
        return "unresolved", trace.why if judged.is_traced else "it has no samples"

    def _value(self, trial: Trial, name: str) -> Reading:
        """Compare what the scenario returned with what it returned in A and in B."""
        if self.finding.verdict == "nan" or any(name in each.not_finite for each in self.b):
            return ("bad", f"{name} is {NOT_FINITE}") if name in trial.not_finite else ("good", "")
        own = self._level(trial, name)
        if self.finding.verdict == "vanished":
            return ("good", "") if own is not None else ("bad", f"this version gave no `{name}`")
        a, b = ([value for each in side if (value := self._level(each, name)) is not None] for side in (self.a, self.b))
        if self.finding.verdict == "varies" and own is not None and a:
            return ("good", "") if own in a else ("bad", f"{name} is {general(own, 6)}, unlike in all launches of A")
        if own is None or not a or not b or (min(a) <= max(b) and min(b) <= max(a)):
            return "unresolved", f"{name} does not distinguish A from B"
        way = (own - median(a)) / (median(b) - median(a))
        if NEAR < way < 1 - NEAR:
            return "unresolved", f"{name} is {general(own, 6)}, which is neither A's nor B's"
        return ("bad", f"{name} is {general(own, 6)}") if way >= 1 - NEAR else ("good", "")

    def _level(self, trial: Trial, name: str) -> float | None:
        """Return the median of the numbers, of those at the end if that is where the finding is."""
        column = trial.figures(name)
        finite = np.empty(0) if column is None else column[np.isfinite(column)]
        if not len(finite):
            return None
        return late_value(finite) if self.finding.verdict == "late" else float(np.median(finite))


def failure_signature(trial: Trial) -> tuple[object, ...]:
    """Return a key that two launches share if they fail in the same way: with an exception of the same name, if any."""
    text = f"{trial.output.tail}\n{trial.message}"
    _, traceback, rest = text.rpartition(f"{TRACEBACK}:")
    raised = RAISED.search(rest.lstrip("\n")) if traceback else None
    named = EXCEPTION.findall(text)
    exception = raised[1] if raised else named[-1] if named else ""
    return trial.end, trial.failure.signal, trial.failure.exit_code, exception
