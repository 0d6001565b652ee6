"""Judges one launch of a hybrid: it shows the fault of B, none, or nothing that can be told."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from harness.judge.cell.trial_verdict import JudgedTrial, judge_launches
from harness.judge.comparison.launch_figures import RULES, figure_of, usable
from harness.model import FAILURES, GOOD, Finding, Scenario, Trial
from harness.model.narrowed import Hybrid, HybridOutcome, HybridState

TRACEBACK = "Traceback (most recent call last):"
RAISED = re.compile(r"^(?:\w+\.)*(\w+)(?:: |$)", re.MULTILINE)
"""The line that ends a traceback; all lines before it are indented."""
EXCEPTION = re.compile(r"^(?:\w+\.)*(\w*(?:Error|Exception|Interrupt|Exit|Warning))\b", re.MULTILINE)
NEAR = 0.25
"""A value within this share of the way from A's to B's is A's; the same at B's end."""
Told = tuple[HybridState | None, str]
"""The state by one launch, and the reason."""


@dataclass(frozen=True, kw_only=True)
class HybridLaunches:
    """The launches of one hybrid, oldest first, with the number of the round of each. `problem`: why it could not be
    made or launched; "" if it could."""

    hybrid: Hybrid
    trials: Sequence[Trial]
    rounds: Sequence[int]
    problem: str = ""


def outcomes(
    measured: Sequence[HybridLaunches],
    *,
    ends: tuple[Hybrid, Hybrid],
    finding: Finding,
    scenario: Scenario,
    judged: dict[int, JudgedTrial | None] | None = None,
) -> tuple[HybridOutcome, ...]:
    """Return an outcome for each launch, and one for each hybrid that could not be launched.

    `ends` are A and B; `judged` keeps the verdict on each launch, by its id, from one call to the next.
    """
    a, b = ends
    known = {each.hybrid: each.trials for each in measured}
    reader = _Reader(
        finding=finding,
        scenario=scenario,
        a=known.get(a, ()),
        b=known.get(b, ()),
        judged={} if judged is None else judged,
    )
    figures = _figures(measured, finding=finding, scenario=scenario)
    return tuple(one for each in measured for one in _of_hybrid(each, reader, figures, is_b=each.hybrid == b))


def _of_hybrid(
    each: HybridLaunches, reader: _Reader, figures: Mapping[int, float] | None, *, is_b: bool
) -> Iterator[HybridOutcome]:
    setups = sum(trial.end == "setup" for trial in each.trials)
    for trial, number in zip(each.trials, each.rounds, strict=True):
        figure = None if figures is None else figures.get(id(trial))
        state, reason = reader.told(trial, is_b=is_b) if figure is None else (None, "")
        if figures is not None and figure is None and state in (None, "good"):
            state, reason = "unresolved", "this launch has no figure that could be compared"
        yield HybridOutcome(
            hybrid=each.hybrid,
            state=state,
            reason=reason,
            figure=figure,
            round=number,
            lasting=state == "unresolved" and trial.end == "setup" and setups > 1,
        )
    if each.problem:
        yield HybridOutcome(hybrid=each.hybrid, state="unresolved", reason=each.problem, lasting=True)


def seen(trials: Sequence[Trial], *, finding: Finding, scenario: Scenario) -> tuple[int, int]:
    """Return how many launches of B showed the fault in the finding's run, and how many did not. (0, 0) for a level."""
    if is_level(finding):
        return 0, 0
    b = Hybrid(base="B")
    measured = [trial for trial in trials if trial.measured]
    launches = HybridLaunches(hybrid=b, trials=measured, rounds=range(len(measured)))
    told = [one.state for one in outcomes([launches], ends=(Hybrid(base="A"), b), finding=finding, scenario=scenario)]
    return told.count("bad"), told.count("good")


def size_of(finding: Finding) -> float | None:
    """Return by how much the log of a level grew from A to B; None if no level decides, or it is not known."""
    effect = finding.effect
    if not is_level(finding) or effect is None or effect.unit != "ratio" or effect.value <= 0:
        return None
    return abs(math.log(effect.value))


def is_level(finding: Finding) -> bool:
    """Return whether figures of launches are compared with those of A and B, because no launch shows the fault by
    itself.
    """
    return finding.metric in RULES and finding.verdict != "slowdown"


def _figures(measured: Sequence[HybridLaunches], *, finding: Finding, scenario: Scenario) -> Mapping[int, float] | None:
    """Return the figure of each launch (by its id) over the steps that all have; None where no level decides."""
    if not is_level(finding):
        return None
    launches = usable(finding.metric, [each.trials for each in measured], steps=scenario.steps)
    figure = figure_of(finding.metric, launches)
    found = {id(trial): figure(trial) for version in launches for trial in version}
    return {key: value for key, value in found.items() if value is not None}


@dataclass(frozen=True, kw_only=True)
class _Reader:
    """Reads launches by themselves; `a` and `b` are those of A and B."""

    finding: Finding
    scenario: Scenario
    a: Sequence[Trial]
    b: Sequence[Trial]
    judged: dict[int, JudgedTrial | None]

    def told(self, trial: Trial, *, is_b: bool) -> Told:
        judged = self._judged(trial)
        if judged is None:
            return "unresolved", _last_line(trial) or "it failed before its first step"
        if judged.failure is not None:
            return self._failed(trial, is_b=is_b)
        return self._measured(trial, judged)

    def _measured(self, trial: Trial, judged: JudgedTrial) -> Told:
        metric = self.finding.metric
        if metric == "outcome":
            return "good", ""
        if metric.startswith("metrics."):
            return self._value(trial, metric.removeprefix("metrics."))
        verdict = {"memory": "leak", "step_time": "slowdown"}.get(metric)
        return self._growth(judged, metric) if verdict is None else self._verdict(judged, verdict)

    def _judged(self, trial: Trial) -> JudgedTrial | None:
        if id(trial) not in self.judged:
            exit_only, limits = self.scenario.judge_exit, self.scenario.limits
            found = judge_launches([trial], limits=limits, steps=self.scenario.steps, exit_only=exit_only)
            self.judged[id(trial)] = next(iter(found), None)
        return self.judged[id(trial)]

    def _failed(self, trial: Trial, *, is_b: bool) -> Told:
        """Return what a failed launch shows. Another failure than B's shows nothing: a mixture has its own."""
        own = {signature(each) for each in self.b if each.end in (*FAILURES, "setup")}
        if is_b or signature(trial) in own:
            wanted = self.finding.metric == "outcome"
            return ("bad", _last_line(trial)) if wanted else ("unresolved", f"it failed: {_last_line(trial)}")
        return "unresolved", f"it fails in a way that B does not: {_last_line(trial)}"

    def _verdict(self, judged: JudgedTrial, name: str) -> Told:
        found = judged.found
        if name in judged.verdicts:
            return "bad", found.why if found else ""
        if found is not None and judged.whole(self.scenario.steps) and GOOD & set(found.verdicts):
            return "good", ""
        return "unresolved", found.why if found else "it has no samples"

    def _growth(self, judged: JudgedTrial, name: str) -> Told:
        growth = judged.growths.get(name)
        if growth is None or growth.state not in ("bad", "good"):
            return "unresolved", "it was not counted in a whole launch" if growth is None else str(growth)
        return ("bad", str(growth)) if growth.state == "bad" else ("good", "")

    def _value(self, trial: Trial, name: str) -> Told:
        """Compare what the scenario returned with what it returned in A and in B."""
        if self.finding.verdict == "nan" or any(name in each.not_finite for each in self.b):
            return ("bad", f"{name} is not finite") if name in trial.not_finite else ("good", "")
        own, a, b = _level(trial, name), _levels(self.a, name), _levels(self.b, name)
        if own is None or not a or not b or (min(a) <= max(b) and min(b) <= max(a)):
            return "unresolved", f"{name} does not tell A and B apart"
        way = (own - median(a)) / (median(b) - median(a))
        if NEAR < way < 1 - NEAR:
            return "unresolved", f"{name} is {own:.6g}, which is neither A's nor B's"
        return ("bad", f"{name} is {own:.6g}") if way >= 1 - NEAR else ("good", "")


def signature(trial: Trial) -> tuple[object, ...]:
    """Return what two launches that fail in the same way have in common."""
    return trial.end, trial.signal, trial.exit_code, _exception(f"{trial.output_tail}\n{trial.message}")


def _exception(text: str) -> str:
    """Return the name of the exception that a text ends with; "" if it tells of none."""
    _, traceback, rest = text.rpartition(TRACEBACK)
    raised = RAISED.search(rest.lstrip("\n")) if traceback else None
    named = EXCEPTION.findall(text)
    return raised[1] if raised else named[-1] if named else ""


def _last_line(trial: Trial) -> str:
    return (trial.message.strip().splitlines() or [""])[-1]


def _levels(trials: Sequence[Trial], name: str) -> list[float]:
    return [value for trial in trials if (value := _level(trial, name)) is not None]


def _level(trial: Trial, name: str) -> float | None:
    column = None if trial.trace is None else trial.trace.column(name)
    finite = np.empty(0) if column is None else column[np.isfinite(column)]
    return float(np.median(finite)) if len(finite) else None
