"""Answers what a lane asks while it runs: how long the next launch is, whether a launch goes on, what it shows."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from harness import compat
from harness.judge.api import decide_at_look, describe_trial, wants_alone
from harness.judge.cell import fails_late, needs_whole_budget
from harness.judge.comparison import slow_versions
from harness.model import Cell, Pull, Steps, Trial
from harness.reasons import TrialReason
from harness.run.engine import Prepared
from harness.run.run_interfaces import Batch, CellRun, Length, Oracle, Review

LEAST_MEMORY_S = 30.0
"""Least seconds in steps of the launch that examines the memory of a slow version."""
SLOW_LAUNCHES = 2
"""Launches of a slow version that show how slow it is; the next launch examines its memory."""


def oracle() -> Oracle:
    """Return the judge's functions that a lane calls while it runs."""
    return Oracle(
        decide=lambda cell, trace, length: decide_at_look(
            cell, trace, whole=length.whole, usual_s=length.usual_s, own_s=length.own_s
        ),
        length=lambda run, batch: with_lines(length_of(run, batch), run, batch),
        describe=describe_trial,
        cannot_run=cannot_run,
        review=review,
        wants_alone=wants_alone,
    )


def length_of(run: CellRun, batch: Batch) -> Length:
    """Return the length of a version's next launch.

    If the other versions of the row show that it is slow, its first launches end once they have shown that. The
    launch that examines its memory has SLOW times the time of a usual version, but at least LEAST_MEMORY_S.
    """
    scenario, trials = run.cell.variant.scenario, run.measured
    limits, steps = scenario.limits, scenario.steps
    all_whole = batch.depth == "whole"
    whole = needs_whole_budget(trials, limits=limits, steps=steps, depth=batch.depth)
    usual_s = slow_versions.usual_step_s([other.measured for other in batch.row_runs]) if batch.shortens else None
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


def with_lines(length: Length, run: CellRun, batch: Batch) -> Length:
    """Return the length of a launch whose job also says which lines of output are steps: those of the oldest version
    that ran. What a newer version prints besides is no step; any line may be one if no version as old as this one ran.
    """
    as_old = itertools.takewhile(lambda other: other is not run, batch.row_runs)
    ran = [trial for other in (*as_old, run) for trial in other.measured if trial.told_steps]
    if not ran or not run.cell.variant.scenario.may_count_lines:
        return length
    return replace(length, job={**length.job, "lines": ran[0].facts["step_shape"] or ""})


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


# ---------------------------------------------------------------- what the machine decides


PAUSE_S = 30.0
"""Pause, in seconds, that lets a GPU cool down after its clocks were held down."""


PORT_IN_USE = re.compile(r"EADDRINUSE|address\s+already\s+in\s+use", re.IGNORECASE)
WITHOUT_SERVER = re.compile(r"could\s+not\s+start\s+gRPC\s+server", re.IGNORECASE)
"""The whole message of TensorFlow, which has printed the reason before."""


def cannot_run(cell: Cell, prepared: Prepared | None) -> str | None:
    """Return why the cell's image cannot run on its lane's GPUs; None if it can, or if this is unknown.

    `prepared` is the image itself, once it is prepared; before that, only its name is known.
    """
    source = cell.image.source
    facts = compat.DescribedImage(
        reference=source.reference if isinstance(source, Pull) else "",
        version=cell.image.version,
        environment={} if prepared is None else prepared.environment,
        labels={} if prepared is None else prepared.labels,
    )
    reasons = (compat.can_run(facts, gpu) for gpu in cell.lane.gpus)
    return next((reason for reason in reasons if reason is not None), None)


def review(cell: Cell, trial: Trial) -> Review:
    """Review a trial: reclassify a failure that is not the image's own, and mark step times that a GPU's reduced clock
    disturbed. Without a container, another program, or the launch before, may hold a port.
    """
    said = trial.output.tail if WITHOUT_SERVER.search(trial.message) else trial.message
    fails_early = trial.end in ("setup", "crash") and not trial.last_step
    if cell.lane.host.in_environments and fails_early and PORT_IN_USE.search(said):
        message = TrialReason.PORT_IN_USE(message=trial.message)
        return Review(trial=replace(trial, end="infrastructure", message=message))
    if cell.lane.gpu is None:
        return Review(trial=trial)
    held_down = compat.throttled(trial)
    if held_down is not None:
        return Review(trial=replace(trial, conditions=replace(trial.conditions, disturbed=held_down)), pause_s=PAUSE_S)
    failure = compat.explain_failure(trial)
    if failure is None:
        return Review(trial=trial)
    message = f"{failure.why}: {trial.message}" if trial.message else failure.why
    if failure.kind == "oom":
        return Review(trial=replace(trial, end="oom", message=message))
    incompatible = failure.why if failure.kind == "incompatible" else ""
    return Review(trial=replace(trial, end="infrastructure", message=message), incompatible=incompatible)
