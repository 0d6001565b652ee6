"""Checks which images cannot run on the GPUs of a lane, and which trials the machine disturbed."""

from __future__ import annotations

from dataclasses import replace

from harness import compat
from harness.model import Cell, Pull, Trial
from harness.run.engine import Prepared
from harness.run.run_interfaces import Review

PAUSE_S = 30.0
"""Pause, in seconds, that lets a GPU cool down after its clocks were held down."""


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
    """Review a trial on a GPU: reclassify a failure that is not the image's own, and mark throttled step times."""
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
