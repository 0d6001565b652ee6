"""Runs the launches of a round in slices: all of them are alive, and one of them makes steps at a time.

The pace of a host may change from one second to the next, by more than the versions differ. Slices that follow each
other within a second share its pace, so that pairs of them show what launches one after the other cannot. The order
of the launches is random, and reversed in every second cycle (ABBA): a steady drift then cancels.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from harness.model import Trial
from harness.run.hosts.side_by_side import compares_times, peak_bytes
from harness.run.run_interfaces import CellRun
from harness.run.trial.conversation import Slice, Sliced

SLICE_S = 0.05
"""Seconds of a slice. In longer ones, the pace of a virtual machine changes; in shorter ones, filling the caches again
takes too large a share (`benchmarks/paired_slices.py`)."""
LEAST_CYCLES = 16
"""Fewest slices that the shortest launch should have; they are shorter if it is over sooner."""
LONGEST_S = 1.0
WITHOUT_END_S = 1e6


def in_slices(runs: Sequence[CellRun], *, memory_bytes: float | None) -> list[CellRun]:
    """Return those of the runs of a round that can be alive together; [] if fewer than two can.

    The first launch of each version must have shown that it ends well, has steps, and how much memory it takes.
    `memory_bytes`: what they may take together; None if the host does not report how much it has.
    """
    if not compares_times(runs[0].cell.variant.scenario):
        return []
    able = [run for run in runs if not run.alone and all(trial.ended_well for trial in run.measured)]
    able = [run for run in able if peak_bytes(run.measured) and _busy_s(run.measured[-1])]
    needed_bytes = sum(peak_bytes(run.measured) or 0.0 for run in able)
    return able if len(able) > 1 and (memory_bytes is None or needed_bytes <= memory_bytes) else []


def _busy_s(trial: Trial) -> float:
    """Return the seconds that a trial spent in steps; 0 if they were not timed."""
    step_s = None if trial.trace is None or trial.output.buffered else trial.trace.column("step_s")
    if step_s is None or not np.isfinite(step_s).any():
        return 0.0
    return float(np.nanmean(step_s)) * trial.last_step


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
