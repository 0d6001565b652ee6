"""Decides how long the next launch of a version is, and which lines of its output are steps."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from harness.judge.cell import fails_late, needs_whole_budget
from harness.judge.comparison import slow_versions
from harness.model import CellRun, Proposal, Steps

LEAST_MEMORY_S = 30.0
"""Least seconds in steps of the launch that examines the memory of a slow version."""
SLOW_LAUNCHES = 2
"""Launches of a slow version that show how slow it is; the next launch examines its memory."""


@dataclass(frozen=True, kw_only=True)
class Length:
    """The length of a launch. `whole`: it uses its whole budget, whatever its looks show. `job`: fields of job.json
    that replace the scenario's: the times of the looks, and which lines are steps. `usual_s` and `own_s`: the usual
    step time of the row and the step time of the version's earlier launches, in seconds, if the launch may end early
    because its steps are clearly slow.
    """

    whole: bool
    job: Mapping[str, Any] = field(default_factory=dict)
    usual_s: float | None = None
    own_s: float | None = None


def length_of(run: CellRun, row: Sequence[CellRun], proposal: Proposal) -> Length:
    """Return the length of a version's next launch, and which lines are its steps. `row`: all versions."""
    return _with_lines(_length(run, row, proposal), run, row)


def _length(run: CellRun, row: Sequence[CellRun], proposal: Proposal) -> Length:
    """Return the length of a version's next launch.

    If the other versions of the row show that it is slow, its first launches end once they have shown that. The
    launch that examines its memory has SLOW times the time of a usual version, but at least LEAST_MEMORY_S.
    """
    scenario, trials = run.cell.variant.scenario, run.measured
    limits, steps = scenario.limits, scenario.steps
    all_whole = proposal.depth == "whole"
    whole = needs_whole_budget(trials, limits=limits, steps=steps, depth=proposal.depth)
    usual_s = slow_versions.usual_step_s([other.measured for other in row]) if proposal.shortens else None
    if scenario.limits.exit_only or limits.of("step_time") is None or usual_s is None:
        return Length(whole=whole)
    own_s = slow_versions.own_step_s(trials)
    first_s = slow_versions.first_look_s(own_s, usual_s, steps)
    if first_s is None or (all_whole and own_s is None):
        return Length(whole=whole)
    if own_s is not None and (all_whole or (whole and len(trials) >= SLOW_LAUNCHES)):
        return Length(
            whole=True, job=_job(steps, last_s=max(LEAST_MEMORY_S, slow_versions.SLOW * usual_s * steps.budget))
        )
    return Length(whole=whole and own_s is None, job=_job(steps, first_s=first_s), usual_s=usual_s, own_s=own_s)


def _with_lines(length: Length, run: CellRun, row: Sequence[CellRun]) -> Length:
    """Return the length of a launch whose job also says which lines of output are steps: those of the oldest version
    that ran. What a newer version prints besides is no step; any line may be one if no version as old as this one ran.
    """
    as_old = itertools.takewhile(lambda other: other is not run, row)
    ran = [trial for other in (*as_old, run) for trial in other.measured if trial.facts.told_steps]
    if not ran or not run.cell.variant.scenario.may_count_lines:
        return length
    return replace(length, job={**length.job, "lines": ran[0].facts.step_shape or ""})


def _job(steps: Steps, *, first_s: float = math.inf, last_s: float = math.inf) -> Mapping[str, Any]:
    """Return the looks of a launch that has one more at `first_s`, or that ends after `last_s` seconds in steps."""
    times_s = [min(last_s, math.inf if at_s is None else at_s) for at_s in steps.look_times_s()]
    both = [(steps.looks()[0], first_s)] * (first_s < times_s[0]) + list(zip(steps.looks(), times_s, strict=True))
    return {
        "looks": [count for count, _ in both],
        "look_times_s": [at_s if at_s < math.inf else None for _, at_s in both],
    }


def row_fails_late(runs: Sequence[CellRun]) -> bool:
    """Return whether further launches of a row have to run their whole budget: one launch failed later than quiet
    launches stop, or returned NaN, and the others must get as far.
    """
    if any(trial.not_finite for run in runs for trial in run.measured):
        return True
    steps = runs[0].cell.variant.scenario.steps
    return any(fails_late(run.measured, steps=steps) for run in runs)
