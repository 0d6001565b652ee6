"""Proposes the launches of a row that is bisected: the version at which it changes is found with the fewest launches.

`docs/method.md` describes the method and when it is right. `decide.py` decides by the evidence for each version, which
this module makes from its trials.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace

from harness.judge.api import judge_cell_of, row_fails_late
from harness.judge.comparison.round_tables import level_columns
from harness.judge.comparison.which_launches import limits_of_run
from harness.judge.history.changepoints import Changepoint, Levels
from harness.judge.history.changes import level_changes, with_slowdowns
from harness.judge.history.flaky import Evidence
from harness.judge.history.returned_values import without_nan
from harness.judge.history.transitions import usual_failures, usual_rate
from harness.judge.launches import JudgedTrial, judge_launches, limits_of_version
from harness.judge.next.bisect_records import STATE_METRICS, Decision, Rules, VersionEvidence
from harness.judge.next.decide import conclude, decide, not_needed
from harness.model import (
    BAD,
    GOOD,
    SIGNALS,
    CellRun,
    CellVerdict,
    Change,
    Limits,
    Metric,
    Proposal,
    RowRun,
    Skip,
    Trial,
    next_round,
)


def propose_search(row: RowRun) -> Proposal:
    """Return what a row that is bisected launches next. Its images are pulled or built only when they are launched. The
    reason of a proposal without launches is the result in one sentence."""
    rules, baseline = rules_of(row), row.planned.baseline
    versions = _versions(row, rules.level)
    doubted = _doubted_baseline(row, rules)
    if doubted is not None:
        return doubted
    decision = decide(versions, rules=rules)
    launches, testable = (sum(each) for each in ([v.launches for v in versions], [v.testable for v in versions]))
    if decision.kind == "compare" and launches >= row.asked.least * testable:
        # A comparison of levels has cost as much as running every version would have.
        reason = f"searching further would cost more than running every version (--search full); {decision.reason}"
        decision = replace(decision, launch=(), kind="done", reason=reason)
    if decision.launch:
        return _proposal(row, decision, rules)
    if baseline is not None and any(change.metric == rules.level for change in conclude(versions, rules=rules)):
        version = row.cells[baseline].cell.image.version
        reason = f"{decision.reason}; only a version that is worse than the baseline, {version}, is bad"
        decision = replace(decision, reason=reason)
    needless = not_needed(versions, rules=rules)
    skipped = {row.cells[index].cell.id: Skip(by="search", why=why) for index, why in needless.items()}
    return replace(_proposal(row, decision, rules), skipped=skipped)


def _proposal(row: RowRun, decision: Decision, rules: Rules) -> Proposal:
    """Return the launches of a decision, and the figures behind it, with versions in place of positions."""
    names, whole = [run.cell.image.version for run in row.cells], decision.whole or rules.whole
    figures = {
        "metric": decision.metric,
        "whole": whole,
        "bracket": None if decision.bracket is None else tuple(names[index] for index in decision.bracket),
        "posterior": {names[index]: chance for index, chance in decision.posterior},
    }
    return Proposal(
        kind=decision.kind,
        reason=decision.reason,
        runs=tuple(row.cells[index] for index in decision.launch),
        round=next_round(row.cells),
        depth="whole" if whole else "thorough",
        figures=figures,
    )


def rules_of(row: RowRun) -> Rules:
    """Return the rules by which a row is bisected."""
    limits = limits_of_run(row.scenario.limits, row.measured)
    level = _level_of(row, limits)
    return Rules(
        least=row.asked.least,
        most=row.asked.most,
        level=level,
        level_limit=limits.log_of(level),
        baseline=row.planned.baseline,
        whole=row_fails_late(row.cells),
    )


def searched_changes(row: RowRun, rules: Rules) -> tuple[Change[int], ...]:
    """Return the changes that the bisection of a row by these rules found so far."""
    return conclude(_versions(row, rules.level), rules=rules)


def _doubted_baseline(row: RowRun, rules: Rules) -> Proposal | None:
    """Return another launch of a baseline that showed something bad: only what its launches agree on is usual."""
    if rules.baseline is None:
        return None
    run = row.cells[rules.baseline]
    launches = _launches(run, row.measured)
    bad = {name for launch in launches for name in launch.verdicts if name in BAD}
    enough = min(rules.agree, rules.most)
    if not bad or len(launches) >= enough or not run.runnable or len(run.measured) >= rules.most:
        return None
    verdicts = " and ".join(sorted(bad))
    version = run.cell.image.version
    reason = f"{version}, the baseline, showed {verdicts}: launching it again to see whether that is usual"
    return _proposal(row, Decision(launch=(rules.baseline,), kind="confirm", reason=reason), rules)


# ---------------------------------------------------------------- the evidence for each version


def _versions(row: RowRun, level: Metric) -> list[VersionEvidence]:
    figures, measured, usual, baseline = _figures(row, level), row.measured, None, row.planned.baseline
    if baseline is not None:  # its own problems do not count as bad in other versions
        run = row.cells[baseline]
        usual = judge_cell_of(run.cell, run.measured, measured)
    return [
        VersionEvidence(
            name=run.cell.image.version,
            testable=run.runnable,
            at_hand=run.at_hand or run.prepared is not None,
            launches=len(launches),
            states={
                metric: _evidence(launches, metric, usual, timed=metric == "outcome" and not row.scenario.command)
                for metric in STATE_METRICS
            },
            figures=figures.get(index, {}),
        )
        for index, run in enumerate(row.cells)
        for launches in [_launches(run, measured)]
    ]


def _launches(run: CellRun, measured: Sequence[Sequence[Trial]]) -> Sequence[JudgedTrial]:
    """Return the judged launches of a version, beside those `measured` of all versions of its row."""
    scenario = run.cell.variant.scenario
    limits = limits_of_version(run.measured, measured, scenario)
    return judge_launches(run.measured, limits=limits, steps=scenario.steps)


OF_RUNS = ("run_time", "cpu_time", "peak_memory", "gpu_peak")
"""The level signals of which one is searched for if launches are judged as a whole."""


def _level_of(row: RowRun, limits: Limits) -> Metric:
    """Return the level signal whose changes are searched for: the step time or, if launches are judged as a whole, the
    signal by which the oldest and the newest version that ran differ most, measured by its limit."""
    if not any(trial.is_one_figure for trial in itertools.chain(*row.measured)):
        return "step_time"
    sizes = dict[Metric, float]()
    for name in OF_RUNS:
        ends = [[*own.values()] for own in _figures(row, name).values() if own]
        old, new = (statistics.median(ends[index]) if ends else 0.0 for index in (0, -1))
        if (limit := limits.log_of(name)) and abs(math.exp(new) - math.exp(old)) >= SIGNALS[name].least:
            sizes[name] = abs(new - old) / limit
    return max(sizes, key=sizes.__getitem__, default="run_time")


def _figures(row: RowRun, level: Metric) -> Mapping[int, Mapping[int, float]]:
    """Return the logs of comparable figures of a level signal by position and by the number of the round."""
    scenario = row.scenario
    if scenario.limits.exit_only:
        return {}
    launches = without_nan(row.measured, scenario.limits)
    columns = level_columns(level, launches, steps=scenario.steps)
    rounds = sorted({key for column in columns.values() for key in column})
    numbers = {key: number for number, key in enumerate(rounds)}
    return {
        index: {numbers[key]: math.log(value) for key, value in column.items()} for index, column in columns.items()
    }


def _evidence(launches: Sequence[JudgedTrial], metric: str, usual: CellVerdict | None, *, timed: bool) -> Evidence:
    """Return what launches show by a metric and, if `timed`, when: one failed in the step after its last complete
    one."""
    shown = [(_shows(launch, metric, usual), launch.trial.last_step) for launch in launches]
    states = [state for state, _ in shown]
    return Evidence(
        good=states.count("good"),
        bad=states.count("bad"),
        unsure=states.count("unsure"),
        failed_at=tuple(steps + 1 for state, steps in shown if timed and state == "bad"),
        survived=tuple(steps for state, steps in shown if timed and state == "good"),
    )


def _shows(launch: JudgedTrial, metric: str, usual: CellVerdict | None) -> str | None:
    """Return the state that one launch shows, if any. A failed launch shows no state of memory unless it leaked."""
    if metric == "outcome":
        return "good" if launch.failure is None or launch.failure in usual_failures(usual) else "bad"
    if metric == "memory" and "leak" in launch.verdicts:
        return "good" if (launch.memory.rate or 0.0) <= usual_rate(usual) else "bad"
    if metric == "slowdown" and "slowdown" in launch.verdicts:
        return "good" if usual is not None and "slowdown" in usual.verdicts else "bad"
    if launch.failure is not None:
        return None
    if metric == "slowdown":
        return "good" if launch.trace_verdict.step_drift is not None else None
    return "good" if GOOD & set(launch.verdicts) else "unsure"


# ---------------------------------------------------------------- changes of a bisected row


def with_searched(
    changes: Sequence[Change[int]], searched: Sequence[Change[int]], *, cells: Sequence[CellVerdict], rules: Rules
) -> tuple[Change[int], ...]:
    """Return the changes of a row that was bisected; `searched` are those that the bisection found.

    Changes of levels come from the bisection, because a history compares full rounds and a bisection has none. Every
    other change spans the versions that the bisection left open, since good launches may have missed a flaky failure.
    """
    widened = (_widened(change, searched) for change in changes if change.metric != rules.level)
    slowdowns = [change for change in changes if change.metric == rules.level and change.p is None]
    levels = with_slowdowns(_levels(searched, cells=cells, rules=rules), slowdowns)
    return (*(change for change in widened if change is not None), *levels)


def _widened(change: Change[int], searched: Sequence[Change[int]]) -> Change[int] | None:
    """Return a change that spans the versions that the bisection left open. If no version before it is certainly good,
    the change becomes `bad_from_start`. Return None for a fix without a version that is certainly good after it.
    """
    one = next(filter(change.meets, searched), None)
    if one is None or change.before is None:
        return change
    if one.before is None:
        return replace(change, kind="bad_from_start", before=None, after=one.after, p=None)
    if one.kind == "first_fixed" and not one.confirmed:
        return None
    return replace(change, before=min(change.before, one.before), after=max(change.after, one.after))


def _levels(searched: Sequence[Change[int]], *, cells: Sequence[CellVerdict], rules: Rules) -> list[Change[int]]:
    """Return the steps that are findings, by the rule of every history of levels."""
    if rules.level_limit is None:
        return []
    shifts = [
        Changepoint(
            first=step.after, stretch=(0, len(cells)), before=step.begin, after=step.after, p=step.p,
            interval=(math.log(step.effect.bounds[0]), math.log(step.effect.bounds[1])),
            size=math.log(step.effect.value),
        )
        for step in searched
        if step.metric == rules.level and step.effect is not None and step.p is not None
    ]  # fmt: skip
    has_baseline = rules.baseline is not None and cells[rules.baseline].trials
    levels, baseline = Levels(shifts=tuple(shifts)), rules.baseline if has_baseline else None
    found = level_changes(rules.level, range(len(cells)), levels, least=rules.level_limit, baseline=baseline)
    return [change for _, change in found]
