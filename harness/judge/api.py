"""Answers those who run launches: how long the next launch is, whether a launch goes on, what a trial shows, and what a
cell comes to. Each trace is judged once, whoever asks.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from harness.amounts import general
from harness.judge.cell import fails_late, judge_cell, needs_whole_budget
from harness.judge.comparison import which_launches
from harness.judge.comparison.which_launches import per_of
from harness.judge.launches import NONE_ALIKE, SAMPLES_A_SECOND, Alike, judge_launches, limits_of_version, whole_trace
from harness.judge.trace import trace_verdict
from harness.judge.trace.counts import count_pace
from harness.model import (
    BAD,
    GOOD,
    SIGNALS,
    Cell,
    CellRun,
    CellVerdict,
    Proposal,
    Steps,
    Trace,
    Trial,
    counted,
    unit_per,
)
from harness.model.judged import is_small_growth
from harness.model.measured import NOT_FINITE


def decide_at_look(cell: Cell, trace: Trace, *, whole: bool, usual_s: float | None, own_s: float | None) -> str:
    """Return whether a launch goes on at a look: "go" or "stop". `whole`: it runs its whole budget; `usual_s` and
    `own_s` are the step times of the other versions of its row and of its own, if it may be slow.
    """
    scenario = cell.variant.scenario
    if scenario.limits.exit_only:
        return "go"  # only how it ends counts
    answer = trace_verdict.decide_at_look(trace, limits=scenario.limits, steps=scenario.steps, whole_budget=whole)
    if answer == "stop" or whole or usual_s is None:
        return answer
    if not which_launches.plainly_slow(trace, usual_s=usual_s, own_s=own_s, steps=scenario.steps):
        return "go"
    # A launch whose memory grows, or may grow, has to be followed further.
    verdict = trace_verdict.judge_trace(trace, limits=scenario.limits, steps=scenario.steps)
    return "go" if {"leak", "suspect"} & set(verdict.verdicts) else "stop"


def judge_cell_of(
    cell: Cell,
    trials: Sequence[Trial],
    row: Sequence[Sequence[Trial]],
    *,
    so_far: bool = False,
    alike: Alike = NONE_ALIKE,
) -> CellVerdict:
    """Return the verdict on a cell, `so_far` or as a whole, without growth that is `alike`. `row`: the trials of all
    versions of its row."""
    limits, steps = limits_of_version(trials, row, cell.variant.scenario), cell.variant.scenario.steps
    return judge_cell(trials, limits=limits, steps=steps, so_far=so_far, alike=alike)


def describe_trial(cell: Cell, trial: Trial) -> tuple[str, bool | None]:
    """Return a short description of a trial (its end, or what grows in it, its trace's verdict with the figures, and
    what it returned as NaN), and whether it is bad; None if it is good, but ended too early to contradict a bad one.
    """
    scenario = cell.variant.scenario
    if scenario.limits.exit_only and trial.ended_well:
        return "exit 0", False
    if trial.trace is None or not trial.ended_well:
        return trial.after_end((trial.gist.strip().splitlines() or [""])[-1]), trial.end in BAD
    (launch,) = judge_launches([trial], limits=scenario.limits, steps=scenario.steps)
    if not launch.is_traced:
        lasted = f"{general(trial.run_s or 0.0, 3)} s" if trial.is_one_figure else f"step {trial.last_step}"
        return f"ended well after {lasted}", False
    whole, memory, per = launch.trace_verdict, launch.memory, per_of([trial])
    unit = unit_per(SIGNALS["memory"], per)
    rate = f" {general(memory.rate, 3)} {unit}" if whole.verdict == "leak" and memory.rate else ""
    is_certain = whole.verdict in GOOD and memory.interval is not None and memory.interval[0] > 0
    if is_certain and is_small_growth(memory.rate or 0.0, limit=scenario.limits.leak_kib_per_step):
        shown = f"small growth of {general(memory.rate or 0.0, 3)} {unit}"
    else:
        shown = f"{whole.verdict}{rate}"
    if whole.verdict == "leak" and memory.column in whole.beside:
        shown = f"{shown} of GPU memory"
    grown = [
        f"{SIGNALS[name].title} {count_pace(name, growth, per)}"
        for name, growth in launch.growths.items()
        if growth.verdict == "leak"
    ]
    told = [f"growth: {', '.join(grown)}"] if grown else []
    if not (grown and whole.verdict in GOOD):
        told.append(shown)
    ignored = {limit.metric for limit in scenario.limits.metrics if limit.rule == "none"}
    names = ", ".join(sorted(trial.not_finite.keys() - ignored))
    nan = f"; {NOT_FINITE} in {names}" if names else ""
    is_bad = bool(grown) or whole.verdict in BAD
    is_short = trial.end == "stopped" and not trial.ended_early
    return f"{'; '.join(told)} to {counted(per)} {whole.steps}{nan}", None if is_short and not is_bad else is_bad


def wants_alone(cell: Cell, trial: Trial) -> bool:
    """Return whether launches at the same time may have caused what a trial shows: its steps become slower, or
    /dev/shm, which they share, fills up.
    """
    scenario = cell.variant.scenario
    judged = [each for each in judge_launches([trial], limits=scenario.limits, steps=scenario.steps) if each.is_traced]
    if trial.trace is None or trial.output.buffered or not judged:
        return False
    whole = whole_trace(trial, trial.trace, limits=scenario.limits, steps=scenario.steps)
    return judged[0].mixed or (trial.conditions.beside > 0 and "slowdown" in whole.verdicts)


# ---------------------------------------------------------------- how long the next launch is

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
    """Return the length of a version's next launch. `row`: all versions.

    Its job also says which lines of output are steps: those of the oldest version that ran. What a newer version prints
    besides is no step; any line may be one if no version as old as this one ran.
    """
    length = _length(run, row, proposal)
    as_old = itertools.takewhile(lambda other: other is not run, row)
    ran = [trial for other in (*as_old, run) for trial in other.measured if trial.facts.told_steps]
    if not ran or not run.cell.variant.scenario.may_count_lines:
        return length
    return replace(length, job={**length.job, "lines": ran[0].facts.step_shape or ""})


def _length(run: CellRun, row: Sequence[CellRun], proposal: Proposal) -> Length:
    """Return the length of a version's next launch.

    A command without steps that ends by itself, as far as its launches show, is compared by its whole run, so that each
    launch has to make it, and is sampled until then. If the other versions of the row show that this one is slow, its
    first launches end once they have shown that. The launch that examines its memory has SLOW times the time of a usual
    version, but at least LEAST_MEMORY_S.
    """
    scenario, trials = run.cell.variant.scenario, run.measured
    limits, steps = scenario.limits, scenario.steps
    all_whole, ran = proposal.depth == "whole", [one for each in row for one in each.measured if one.ended_well]
    if scenario.is_sampled and (not ran or any(trial.ran_to_its_end for trial in ran)):
        as_long = math.ceil(scenario.timeout_s * SAMPLES_A_SECOND)
        return Length(whole=True, job=_job(replace(steps, budget=max(steps.budget, as_long))))
    whole = needs_whole_budget(trials, limits=limits, steps=steps, depth=proposal.depth)
    usual_s = which_launches.usual_step_s([other.measured for other in row]) if proposal.shortens else None
    if limits.exit_only or limits.of("step_time") is None or usual_s is None:
        return Length(whole=whole)
    own_s = which_launches.own_step_s(trials)
    first_s = which_launches.first_look_s(own_s, usual_s, steps)
    if first_s is None or (all_whole and own_s is None):
        return Length(whole=whole)
    if own_s is not None and (all_whole or (whole and len(trials) >= SLOW_LAUNCHES)):
        last_s = max(LEAST_MEMORY_S, which_launches.SLOW * usual_s * steps.budget)
        return Length(whole=True, job=_job(steps, last_s=last_s))
    return Length(whole=whole and own_s is None, job=_job(steps, first_s=first_s), usual_s=usual_s, own_s=own_s)


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
