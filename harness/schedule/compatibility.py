"""What a lane is told about images and GPUs: what cannot run there, and what a trial shows of the machine instead."""

from __future__ import annotations

from dataclasses import replace

from harness import compat
from harness.model import Cell, Pull, Trial
from harness.run.engine import Prepared
from harness.run.scheduler import Review

PAUSE_S = 30.0
"""How long a GPU whose clocks were held down gets to cool."""


def cannot_run(cell: Cell, prepared: Prepared | None) -> str | None:
    """Why the cell's image has no chance on its lane's GPUs, or None; what is not known is no reason.

    `prepared`: the image itself, once it is there. Before, only its name can be looked up.
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
    """A trial on a GPU as what it is: a failure that was not the image's own is taken from it, and step times from a
    clock that was held down are marked.
    """
    if cell.lane.gpu is None:
        return Review(trial=trial)
    held_down = compat.throttled(trial)
    if held_down is not None:
        return Review(trial=replace(trial, disturbed=held_down), pause_s=PAUSE_S)
    found = compat.explain(trial)
    if found is None:
        return Review(trial=trial)
    told = f"{found.why}: {trial.message}" if trial.message else found.why
    if found.kind == "oom":
        return Review(trial=replace(trial, end="oom", message=told))
    incompatible = found.why if found.kind == "incompatible" else ""
    return Review(trial=replace(trial, end="infrastructure", message=told), incompatible=incompatible)
