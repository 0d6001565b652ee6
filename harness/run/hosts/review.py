"""Reviews what a launch shows about its machine: cards that it cannot use, and failures that are not its own."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from harness import compat
from harness.model import Cell, Prepared, Pull, Trial

PAUSE_S = 30.0
"""Pause, in seconds, that lets a GPU cool down after its clocks were held down."""
PORT_IN_USE = re.compile(r"EADDRINUSE|address\s+already\s+in\s+use", re.IGNORECASE)
WITHOUT_SERVER = re.compile(r"could\s+not\s+start\s+gRPC\s+server", re.IGNORECASE)
"""The whole message of TensorFlow, which has printed the reason before."""


@dataclass(frozen=True, kw_only=True)
class Review:
    """A trial, reclassified by what it shows about the machine. `incompatible`: why its image can never run on this
    lane; `pause_s`: seconds to wait before the next launch on this lane."""

    trial: Trial
    incompatible: str = ""
    pause_s: float = 0.0


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
    if cell.lane.host.can.sees_ports and fails_early and PORT_IN_USE.search(said):
        message = (
            "a port that the program needs is in use on this host, or two of its processes ask for the same one; "
            f"let it take a free one, as `torchrun --standalone` does: {trial.message}"
        )
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
