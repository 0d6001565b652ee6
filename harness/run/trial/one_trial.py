"""Runs one trial: launches the agent, holds the conversation, and returns the result."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timezone

from harness.model import Trial
from harness.run.engine import Engine, LaunchRequest
from harness.run.trial.conversation import Clock, Conversation, Decide, OnFile, OnStep


def run_trial(
    engine: Engine,
    launch: LaunchRequest,
    *,
    cell_id: str,
    number: int,
    key: str,
    round: int,  # noqa: A002 - the field of Trial
    decide: Decide,
    on_step: OnStep,
    cancelled: Callable[[], bool],
    on_file: OnFile = lambda name, text: None,
    clock: Clock = time,
) -> Trial:
    """Run one trial to its end. `decide` answers each look but the last with "go" or "stop"; `on_step` is called about
    once a second; when `cancelled` returns true, the trial ends immediately as `interrupted`. `on_file` receives the
    results of a wrapping probe in parts: the name of a file and the next part of its text.

    Raises InfrastructureError if the trial could not be launched. Later problems are recorded in the Trial.
    """
    begun_s, started = clock.monotonic(), datetime.fromtimestamp(clock.time(), timezone.utc)
    gpus = {"gpus": [gpu.fingerprint for gpu in launch.gpus]} if launch.gpus else {}
    begun = Trial(
        cell_id=cell_id,
        number=number,
        key=key,
        end="interrupted",
        run=launch.labels.get("harness.run", ""),
        round=round,
        started=started.isoformat(timespec="microseconds"),
        image_digest=launch.prepared.digest,
        reference=launch.prepared.reference,
    )
    with engine.launch(launch) as session:
        trial = Conversation(
            session,
            launch,
            begun=begun,
            decide=decide,
            on_step=on_step,
            cancelled=cancelled,
            on_file=on_file,
            clock=clock,
        ).hold()
    return replace(trial, duration_s=clock.monotonic() - begun_s, fingerprint={**engine.facts, **gpus})
