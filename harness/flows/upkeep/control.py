"""Runs the control of `harness doctor`: the same work, in the same image, on every machine of a pool.

It uses a processor and its memory but no GPU, because only the images under test contain frameworks. Nothing is pulled.
"""

from __future__ import annotations

import functools
import statistics
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from harness.errors import HarnessError, InfrastructureError, Interrupted
from harness.flows.parts.context import RunContext
from harness.flows.parts.hosts.machines import OpenHost
from harness.flows.parts.hosts.threads import in_threads
from harness.model import Scenario, Steps, Variant
from harness.run.engine import LaunchRequest, Prepared
from harness.run.process import leftovers
from harness.run.trial.conversation import run_trial
from harness.run.trial.payload import pack

SCRIPT = '''"""The control: a loop of Python, and a copy of 16 MiB."""
def setup():
    data = bytearray(16 << 20)
    def step():
        total = 0
        for number in range(40000):
            total += number & 3
        return {"ended": total + len(bytes(data))}
    return step
'''
STEPS = 150
LAUNCHES = 3
"""Launches per machine. The fastest one counts, because disturbances only make a launch slower."""
LEASE_WAIT_S = 30.0
Held = Mapping[str, Prepared]
"""The images that a machine has, by name."""


def measure(machines: Sequence[tuple[OpenHost, Held]], context: RunContext) -> dict[str, float | str]:
    """Return by machine the step time of the control in milliseconds, or why it could not be measured.

    The machines belong to one pool. A machine is leased while its control runs; the wait for a machine that is in use
    takes at most LEASE_WAIT_S.
    """
    name = _shared([held for _, held in machines])
    if name is None:
        return {each.host.machine: "no image is on all machines of the pool" for each, _ in machines}
    found: dict[str, float | str] = {}
    with leftovers.folder_for_files() as folder:
        script = folder / "control.py"
        script.write_text(SCRIPT)
        tasks = [functools.partial(_measure, each, held[name], script, found, context) for each, held in machines]
        in_threads(tasks, context.stopped)
    return found


def _shared(held: Sequence[Held]) -> str | None:
    """Return the name of the first image of the matrix that is the same on all machines; None if there is none."""
    return next(
        (name for name in held[0] if len({images[name].digest if name in images else None for images in held}) == 1),
        None,
    )


def _measure(
    each: OpenHost, prepared: Prepared, script: Path, found: dict[str, float | str], context: RunContext
) -> None:
    say = context.showing(lane=each.name, image="control")
    until_s = time.monotonic() + LEASE_WAIT_S
    assert each.engine is not None, "only machines that can be used are measured"
    try:
        with each.engine.lease(say, lambda: context.stopped.is_set() or time.monotonic() > until_s):
            found[each.host.machine] = min(_launch(each, prepared, script, context) for _ in range(LAUNCHES))
    except Interrupted:
        if context.stopped.is_set():
            raise
        found[each.host.machine] = "the machine is in use; run doctor again when it is free"
    except HarnessError as error:  # the other machines are still measured
        found[each.host.machine] = str(error)


def _launch(each: OpenHost, prepared: Prepared, script: Path, context: RunContext) -> float:
    """Return the median step time in milliseconds, without the first half of the steps, in which clocks speed up."""
    assert each.engine is not None
    steps = Steps(first=STEPS, budget=STEPS)
    scenario = Scenario(name="control", where=each.host.where, script=script, steps=steps, timeout_s=120.0)
    launch = LaunchRequest(
        prepared=prepared, scenario=scenario, payload=pack(Variant(scenario=scenario)),
        labels={"harness.run": "doctor", "harness.cell": "control", "harness.trial": "1"},
    )  # fmt: skip
    trial = run_trial(
        each.engine, launch, cell_id="control", number=1, key="", round=0, decide=lambda trace: "go",
        on_step=lambda step, rss_kib: None, cancelled=context.stopped.is_set,
    )  # fmt: skip
    if trial.end == "interrupted":
        raise Interrupted("interrupted")
    step_s = None if trial.trace is None else trial.trace.column("step_s")
    if trial.end != "completed" or step_s is None or not len(step_s):
        raise InfrastructureError(f"the control ended as {trial.end}: {trial.message or 'no step was timed'}")
    return 1000.0 * float(statistics.median(step_s[len(step_s) // 2 :].tolist()))
