"""Asks the judge for the runner: decisions during a trial, and verdicts on cells and on the whole run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from harness import amounts
from harness.judge.cell import cell_verdict
from harness.judge.cell.trial_verdict import growths_of, judged_steps_of, mixes_shm, trace_alone
from harness.judge.comparison import slow_versions
from harness.judge.trace import stopping
from harness.judge.trace.gpu_memory import is_shared, with_gpu
from harness.model import (
    BAD,
    GOOD,
    SIGNALS,
    UNSURE,
    Cell,
    CellResult,
    CellVerdict,
    RunResult,
    RunVerdict,
    Steps,
    Trace,
    Trial,
)
from harness.reasons import TrialReason, ValueReason
from harness.run.run_interfaces import Batch, CellRun, Length, Oracle
from harness.schedule.compatibility import cannot_run, review

LEAST_MEMORY_S = 30.0
"""Least seconds in steps of the launch that examines the memory of a slow version."""
SLOW_LAUNCHES = 2
"""Launches of a slow version that show how slow it is; the next launch examines its memory."""


def oracle() -> Oracle:
    """Return the judge's functions that a lane calls while it runs."""
    return Oracle(
        decide=decide_at_look,
        length=length_of,
        describe=describe_trial,
        cannot_run=cannot_run,
        review=review,
        wants_alone=wants_alone,
    )


def decide_at_look(cell: Cell, trace: Trace, length: Length) -> str:
    """Return whether a launch goes on at a look: "go" or "stop"."""
    scenario = cell.variant.scenario
    if scenario.judge_exit:
        return "go"  # only how it ends counts
    answer = stopping.decide_at_look(trace, limits=scenario.limits, steps=scenario.steps, whole_budget=length.whole)
    if answer == "stop" or length.whole or length.usual_s is None:
        return answer
    is_slow = slow_versions.plainly_slow(trace, usual_s=length.usual_s, own_s=length.own_s, steps=scenario.steps)
    return "stop" if is_slow and not stopping.looks_bad(trace, limits=scenario.limits, steps=scenario.steps) else "go"


def length_of(run: CellRun, batch: Batch) -> Length:
    """Return the length of a version's next launch.

    If the other versions of the row show that it is slow, its first launches end once they have shown that. The
    launch that examines its memory has SLOW times the time of a usual version, but at least LEAST_MEMORY_S.
    """
    scenario, trials = run.cell.variant.scenario, run.measured
    limits, steps = scenario.limits, scenario.steps
    whole = batch.whole or cell_verdict.needs_whole_budget(
        trials, limits=limits, steps=steps, exit_only=scenario.judge_exit, depth=batch.depth
    )
    usual_s = slow_versions.usual_step_s([other.measured for other in batch.row_runs])
    if scenario.judge_exit or limits.of("step_time") is None or usual_s is None:
        return Length(whole=whole)
    own_s = slow_versions.own_step_s(trials)
    first_s = slow_versions.first_look_s(own_s, usual_s, steps)
    if first_s is None or (batch.whole and own_s is None):
        return Length(whole=whole)
    if own_s is not None and (batch.whole or (whole and len(trials) >= SLOW_LAUNCHES)):
        return Length(
            whole=True, job=_job(steps, last_s=max(LEAST_MEMORY_S, slow_versions.SLOW * usual_s * steps.budget))
        )
    return Length(whole=whole and own_s is None, job=_job(steps, first_s=first_s), usual_s=usual_s, own_s=own_s)


def _job(steps: Steps, *, first_s: float = math.inf, last_s: float = math.inf) -> Mapping[str, Any]:
    """Return the looks of a launch that has one more at `first_s`, or that ends after `last_s` seconds in steps."""
    times_s = [min(last_s, math.inf if at_s is None else at_s) for at_s in steps.look_times_s()]
    both = [(steps.looks()[0], first_s)] * (first_s < times_s[0]) + list(zip(steps.looks(), times_s, strict=True))
    return {
        "looks": [count for count, _ in both],
        "look_times_s": [at_s if at_s < math.inf else None for _, at_s in both],
    }


def judge_trials(cell: Cell, trials: Sequence[Trial]) -> CellVerdict:
    """Return the verdict on a cell by the limits of its scenario."""
    scenario = cell.variant.scenario
    return cell_verdict.judge_cell(trials, limits=scenario.limits, steps=scenario.steps, exit_only=scenario.judge_exit)


def judge_so_far(cell: Cell, trials: Sequence[Trial]) -> CellVerdict:
    """Return the verdict on a cell. It is flat if nothing is missing except a launch that runs the whole budget."""
    scenario, judged = cell.variant.scenario, judge_trials(cell, trials)
    is_quiet = judged.verdict == "inconclusive" and cell_verdict.quiet(
        trials, limits=scenario.limits, steps=scenario.steps, exit_only=scenario.judge_exit
    )
    return replace(judged, verdict="flat", verdicts=("flat",)) if is_quiet else judged


def row_fails_late(runs: Sequence[CellRun]) -> bool:
    """Return whether further launches of a row have to run their whole budget: one launch failed later than quiet
    launches stop, or returned NaN, and the others must get as far.
    """
    if any(trial.not_finite for run in runs for trial in run.measured):
        return True
    steps = runs[0].cell.variant.scenario.steps
    return any(cell_verdict.fails_late(run.measured, steps=steps) for run in runs)


def describe_trial(cell: Cell, trial: Trial) -> tuple[str, bool]:
    """Return a short description of a trial (its end, or what grows in it, its trace's verdict with the figures, and
    what it returned as NaN), and whether it is bad.
    """
    scenario = cell.variant.scenario
    if trial.trace is None or not trial.ended_well:
        return trial.after_end((trial.message.strip().splitlines() or [""])[-1]), trial.end in BAD
    if scenario.judge_exit:
        return "exit 0", False
    steps = judged_steps_of(trial, scenario.steps)
    alone = trace_alone(trial.trace, scenario.limits, steps)
    whole = with_gpu(alone, trial.trace, limits=scenario.limits, steps=steps, shared=is_shared(trial.facts))
    shown: str = whole.verdict
    if whole.verdict == "leak" and whole.rate_kib_per_step:
        shown = f"leak {amounts.in_unit(whole.rate_kib_per_step, 'KiB/step')}"
    if whole.verdict == "leak" and "leak" not in alone.verdicts:
        shown = TrialReason.ON_GPU(shown=shown)
    growths = growths_of(trial, limits=scenario.limits, steps=scenario.steps).values()
    grown = [f"{SIGNALS[each.signal].title} {each.pace}" for each in growths if each.state == "bad"]
    told = [f"growth: {', '.join(grown)}"] if grown else []
    if not (grown and whole.verdict in GOOD):
        told.append(shown)
    ignored = {limit.metric for limit in scenario.limits.metrics if limit.rule == "none"}
    names = ", ".join(sorted(trial.not_finite.keys() - ignored))
    nan = f"; {ValueReason.NOT_FINITE(name=names)}" if names else ""
    return f"{'; '.join(told)} to step {whole.steps}{nan}", bool(grown) or whole.verdict in BAD


def wants_alone(cell: Cell, trial: Trial) -> bool:
    """Return whether launches at the same time may have caused what a trial shows: its steps become slower, or
    /dev/shm, which they share, fills up.
    """
    scenario = cell.variant.scenario
    if trial.trace is None or trial.buffered or scenario.judge_exit:
        return False
    steps = judged_steps_of(trial, scenario.steps)
    slows = "slowdown" in trace_alone(trial.trace, scenario.limits, steps).verdicts
    return slows or (scenario.limits.of("shm") is not None and mixes_shm(trial))


def judge_run(run: CellRun, *, least: int) -> CellResult:
    """Return the verdict on a cell's run. With fewer than `least` trials, a good one is provisional or inconclusive."""
    cell, trials = run.cell, tuple(run.trials)
    if run.incompatible:
        judged = CellVerdict(verdict="incompatible", verdicts=("incompatible",), why=run.incompatible)
    elif not run.measured and (why := run.problem or (run.skipped.why if run.skipped else "")):
        judged = CellVerdict(verdict="untested", verdicts=("untested",), why=why, trials=len(trials))
    else:
        judged = judge_trials(cell, trials)
    problem = "" if cell.excluded else run.problem
    if problem and judged.verdict in GOOD and len(run.measured) < least:
        why = TrialReason.TOO_FEW_RAN(count=len(run.measured), least=least, why=judged.why)
        judged = replace(judged, verdict="inconclusive", verdicts=("inconclusive",), why=why)
    if not problem and len(run.measured) < least and run.measured:
        judged = judge_so_far(cell, trials)
    stopped = run.skipped.why if run.skipped is not None and run.skipped.by == "stop" else ""
    if not problem and judged.verdict in GOOD and len(run.measured) < least and (stopped or not run.skipped):
        count, why = len(run.measured), judged.why
        if stopped:
            why = TrialReason.SO_FAR_STOPPED(count=count, least=least, stopped=stopped, why=why)
        else:
            why = TrialReason.SO_FAR(count=count, least=least, why=why)
        judged = replace(judged, provisional=True, why=why)
    digest = run.prepared.digest if run.prepared else None
    return CellResult(
        cell=cell, cell_id=cell.id, verdict=judged, digest=digest, trials=trials, problem=problem, skipped=run.skipped
    )


def verdict_on_run(result: RunResult, *, interrupted: bool) -> RunVerdict:
    """Return the most severe result of the run, which its exit status reports."""
    stopped = [cell for cell in result.cells if cell.skipped is not None and cell.skipped.by == "stop"]
    asked = [cell.verdict for cell in result.cells if not (cell.cell.excluded or cell.skipped)]
    asked += [cell.verdict for cell in stopped if cell.verdict.trials]
    verdicts = {verdict.verdict for verdict in asked}
    if interrupted:
        return "interrupted"
    if verdicts & BAD or any(finding.kind != "first_fixed" for finding in result.findings):
        return "regression"
    problems = [cell.problem for cell in result.cells] + [host.problem for host in result.hosts]
    if "untested" in verdicts or any(problems):
        return "infrastructure"
    return "inconclusive" if stopped or verdicts & UNSURE or any(map(_is_open, asked)) else "ok"


def _is_open(verdict: CellVerdict) -> bool:
    """Return whether the verdict is provisional, a signal is blind, or something bad was seen but not confirmed."""
    return verdict.provisional or any(signal.seen in ("blind", "suspect", "bad") for signal in verdict.signals.values())
