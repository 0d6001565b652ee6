"""Answers those who run launches: whether a launch goes on, what a trial shows, and what a cell comes to. Each trace is
judged once, whoever asks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from harness.amounts import general
from harness.judge.cell import judge_cell, quiet
from harness.judge.comparison import slow_versions
from harness.judge.comparison.which_launches import per_of
from harness.judge.launches import growths_of, limits_of_version, shared_growths, whole_trace
from harness.judge.trace import stopping
from harness.judge.trace.counts import count_pace
from harness.model import BAD, GOOD, SIGNALS, Cell, CellVerdict, Trace, Trial, counted, unit_per
from harness.model.judged import is_small_growth


def decide_at_look(cell: Cell, trace: Trace, *, whole: bool, usual_s: float | None, own_s: float | None) -> str:
    """Return whether a launch goes on at a look: "go" or "stop". `whole`: it runs its whole budget; `usual_s` and
    `own_s` are the step times of the other versions of its row and of its own, if it may be slow.
    """
    scenario = cell.variant.scenario
    if scenario.limits.exit_only:
        return "go"  # only how it ends counts
    answer = stopping.decide_at_look(trace, limits=scenario.limits, steps=scenario.steps, whole_budget=whole)
    if answer == "stop" or whole or usual_s is None:
        return answer
    is_slow = slow_versions.plainly_slow(trace, usual_s=usual_s, own_s=own_s, steps=scenario.steps)
    return "stop" if is_slow and not stopping.looks_bad(trace, limits=scenario.limits, steps=scenario.steps) else "go"


def judge_cell_of(cell: Cell, trials: Sequence[Trial], row: Sequence[Sequence[Trial]]) -> CellVerdict:
    """Return the verdict on a cell. `row`: the trials of all versions of its row."""
    scenario = cell.variant.scenario
    return judge_cell(trials, limits=limits_of_version(trials, row, scenario), steps=scenario.steps)


def judge_so_far(cell: Cell, trials: Sequence[Trial], row: Sequence[Sequence[Trial]]) -> CellVerdict:
    """Return the verdict on a cell. It is flat if nothing is missing except a launch that runs the whole budget."""
    scenario, judged = cell.variant.scenario, judge_cell_of(cell, trials, row)
    is_quiet = judged.verdict == "inconclusive" and quiet(trials, limits=scenario.limits, steps=scenario.steps)
    return replace(judged, verdicts=("flat",)) if is_quiet else judged


def describe_trial(cell: Cell, trial: Trial) -> tuple[str, bool | None]:
    """Return a short description of a trial (its end, or what grows in it, its trace's verdict with the figures, and
    what it returned as NaN), and whether it is bad; None if it is good, but ended too early to contradict a bad one.
    """
    scenario = cell.variant.scenario
    if trial.trace is None or not trial.ended_well:
        return trial.after_end((trial.message.strip().splitlines() or [""])[-1]), trial.end in BAD
    if scenario.limits.exit_only:
        return "exit 0", False
    if trial.is_one_figure:
        return f"ended well after {general(trial.run_s or 0.0, 3)} s", False
    if trial.grows_by_design:
        return f"ended well after step {trial.last_step}", False
    whole = whole_trace(trial, trial.trace, limits=scenario.limits, steps=scenario.steps)
    per = per_of([trial])
    unit = unit_per(SIGNALS["memory"], per)
    memory = whole.growth
    rate = f" {memory.rate:.3g} {unit}" if whole.verdict == "leak" and memory.rate else ""
    is_certain = whole.verdict in GOOD and memory.interval is not None and memory.interval[0] > 0
    if is_certain and is_small_growth(memory.rate or 0.0, limit=scenario.limits.leak_kib_per_step):
        shown = f"small growth of {general(memory.rate or 0.0, 3)} {unit}"
    else:
        shown = f"{whole.verdict}{rate}"
    if whole.verdict == "leak" and memory.column in whole.beside:
        shown = f"{shown} of GPU memory"
    growths = growths_of(trial, limits=scenario.limits, steps=scenario.steps)
    grown = [
        f"{SIGNALS[name].title} {count_pace(name, growth, per)}"
        for name, growth in growths.items()
        if growth.verdict == "leak"
    ]
    told = [f"growth: {', '.join(grown)}"] if grown else []
    if not (grown and whole.verdict in GOOD):
        told.append(shown)
    ignored = {limit.metric for limit in scenario.limits.metrics if limit.rule == "none"}
    names = ", ".join(sorted(trial.not_finite.keys() - ignored))
    nan = f"; NaN or infinity in {names}" if names else ""
    is_bad = bool(grown) or whole.verdict in BAD
    is_short = trial.end == "stopped" and not trial.ended_early
    return f"{'; '.join(told)} to {counted(per)} {whole.steps}{nan}", None if is_short and not is_bad else is_bad


def wants_alone(cell: Cell, trial: Trial) -> bool:
    """Return whether launches at the same time may have caused what a trial shows: its steps become slower, or
    /dev/shm, which they share, fills up.
    """
    scenario = cell.variant.scenario
    is_judged = not (trial.output.buffered or trial.is_one_figure or trial.grows_by_design or scenario.limits.exit_only)
    if trial.trace is None or not is_judged:
        return False
    if shared_growths(trial, growths_of(trial, limits=scenario.limits, steps=scenario.steps)):
        return True
    whole = whole_trace(trial, trial.trace, limits=scenario.limits, steps=scenario.steps)
    return trial.conditions.beside > 0 and "slowdown" in whole.verdicts
