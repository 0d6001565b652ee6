"""Compatibility checks of a lane: images that cannot run on its GPUs, and trials that the machine disturbed."""

from __future__ import annotations

from dataclasses import replace

from harness import compat
from harness.model import Cell, Pull, Trial
from harness.run.engine import Prepared
from harness.run.scheduler import Review

PAUSE_S = 30.0
"""Pause, in seconds, that lets a GPU cool down after its clocks were held down."""


def cannot_run(cell: Cell, prepared: Prepared | None) -> str | None:
    """Return why the cell's image cannot run on its lane's GPUs, or None; something unknown is no reason.

    `prepared` is the image itself, once it is there; before, only its name can be looked up.
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
    """Review a trial on a GPU: a failure that was not the image's own is reclassified, and step times that were
    measured while a clock was held down are marked.
    """
    if cell.lane.gpu is None:
        return Review(trial=trial)
    held_down = compat.throttled(trial)
    if held_down is not None:
        return Review(trial=replace(trial, disturbed=held_down), pause_s=PAUSE_S)
    found = compat.explain(trial)
    if found is None:
        return Review(trial=trial)
    message = f"{found.why}: {trial.message}" if trial.message else found.why
    if found.kind == "oom":
        return Review(trial=replace(trial, end="oom", message=message))
    incompatible = found.why if found.kind == "incompatible" else ""
    return Review(trial=replace(trial, end="infrastructure", message=message), incompatible=incompatible)
