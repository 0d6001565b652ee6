"""Runs the launches of a round in slices: all of them are alive, and one of them makes steps at a time.

The pace of a host may change from one second to the next, by more than the versions differ. Slices that follow each
other within a second share its pace, so that pairs of them show what launches one after the other cannot. The order
of the launches is random, and reversed in every second cycle (ABBA): a steady drift then cancels.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from harness.amounts import size
from harness.model import CellRun, Host, Trial
from harness.run.hosts.side_by_side import MEMORY_SHARE, MOST, peak_bytes
from harness.run.trial.conversation import WITHOUT_END_S, Slice, Sliced

SLICE_S = 0.05
"""Seconds of a slice. In longer ones, the pace of a virtual machine changes; in shorter ones, filling the caches again
takes too large a share (`benchmarks/paired_slices.py`)."""
OFF = "HARNESS_SLICES"
"""The environment variable that lets every launch run alone if it is `off`."""
LEAST_CYCLES = 16
"""Fewest slices that the shortest launch should have; they are shorter if it is over sooner."""
LONGEST_S = 1.0


def takes_turns(host: Host, environ: Mapping[str, str]) -> bool:
    """Return whether launches of a host may be alive together."""
    return environ.get(OFF) != "off" and host.disk_bytes is None and not host.can.spans_machines


def able(runs: Sequence[CellRun]) -> list[CellRun]:
    """Return those of the runs of a round that may take turns; [] if fewer than two may. The first launch of each
    version must have shown that it ends well, has steps, and how much memory it takes."""
    if not runs[0].cell.variant.scenario.compares_times:
        return []
    good = [run for run in runs if all(trial.ended_well for trial in run.measured)]
    timed = [run for run in good if run.measured and _busy_s(run.measured[-1])]
    return timed if len(timed) > 1 and all(peak_bytes(run.measured) for run in timed) else []


def why_apart(runs: Sequence[CellRun], *, memory_bytes: float | None) -> str:
    """Return why these runs cannot be alive together; "" if they can. If the steps of one would be compared although it
    must run alone, all do. `memory_bytes`: what they may take together; None if the host does not report how much it
    has."""
    for run in (each for each in runs if each.alone):
        told = [line for trial in run.trials if trial.conditions.others for line in trial.message.splitlines()[-1:]]
        return ": ".join([f"one after the other: {run.cell.image.version} runs alone", *told[-1:]])
    if len(runs) > MOST:
        return f"one after the other: of {len(runs)} launches, at most {MOST} may be alive together"
    gpus = runs[0].cell.lane.gpus if runs else ()
    needs = [(sum(peak_bytes(run.measured) or 0.0 for run in runs), memory_bytes or math.inf)]
    if gpus:
        gpu_bytes = sum(MEMORY_SHARE * 2**20 * (gpu.memory_mib or 0) for gpu in gpus)
        needs.append((sum(_gpu_peak_bytes(run.measured) for run in runs), gpu_bytes))
    for needed, most in needs:
        if needed > most:
            what = size(needed) if needed < math.inf else "an unknown amount of GPU memory"
            return f"one after the other: together they need {what}, and may use {size(most)}"
    return ""


def _gpu_peak_bytes(trials: Sequence[Trial]) -> float:
    """Return the largest amount of GPU memory in use after a step of these launches."""
    traces = [trial.trace for trial in trials if trial.trace is not None]
    columns = [
        trace.columns[name] for trace in traces for name in ("gpu_process_kib", "gpu_kib") if name in trace.columns
    ]
    return 1024 * max((float(np.nanmax(own)) for own in columns if np.isfinite(own).any()), default=math.inf)


def _busy_s(trial: Trial) -> float:
    """Return the seconds that a trial spent in steps; 0 if they were not timed."""
    step_s = None if trial.output.buffered else trial.figures("step_s")
    return 0.0 if step_s is None else float(np.nanmean(step_s)) * trial.last_step


def slice_s(runs: Sequence[CellRun]) -> float:
    """Return the seconds of a slice of these runs, from their last launches."""
    shortest_s = min(_busy_s(run.measured[-1]) for run in runs)
    return min(SLICE_S, shortest_s / LEAST_CYCLES)


def take_turns(
    launches: Sequence[Callable[[], Sliced[None]]], *, seconds: float, cycles: Iterator[int], rng: random.Random
) -> None:
    """Run launches in slices to their ends. Each is started, up to its first step, while the others are parked. If the
    changes of turn take longer than the slices, as over a slow network, the slices become longer."""
    with contextlib.ExitStack() as ends:
        alive: list[Sliced[None]] = []
        for start in launches:
            launch = start()
            ends.callback(launch.close)
            with contextlib.suppress(StopIteration):
                next(launch)
                alive.append(launch)
        for number in itertools.count():
            if not alive:
                return
            begun_s, wanted_s = time.monotonic(), seconds * len(alive)
            alive = alive[::-1] if number % 2 else rng.sample(alive, len(alive))
            own = Slice(cycle=next(cycles), seconds=seconds if len(alive) > 1 else WITHOUT_END_S)
            alive = [launch for launch in alive if _goes_on(launch, own)]
            if time.monotonic() - begun_s > 2 * wanted_s and seconds < LONGEST_S:
                seconds *= 2


def _goes_on(launch: Sliced[None], own: Slice) -> bool:
    try:
        launch.send(own)
    except StopIteration:
        return False
    return True
