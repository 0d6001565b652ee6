"""Decides which launches of a host run side by side: their gate, what fits, and how a failure alongside others counts;
and runs launches in slices.

A launch whose times are compared runs alone. Others run side by side, as far as the host's processors, memory and GPUs
allow, which follows from their scenarios' limits and the memory that earlier launches took.

A failure alongside other launches, whose use of memory, processors, ports or files may have caused it, counts as
infrastructure at first, and its cell is launched alone from then on. If a launch alone fails in the same way, the
version caused the earlier failure too, which then counts against it. So does SIGKILL, once it ended every launch of a
version and none of the others.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import random
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from harness.amounts import size
from harness.errors import Interrupted
from harness.model import Cell, CellRun, End, Host, Trial
from harness.run.trial.conversation import WITHOUT_END_S, Slice, Sliced

ASK_S = 0.2
"""Seconds between two checks of a waiting launch whether the run was stopped."""


@dataclass(kw_only=True, eq=False)
class Visit:
    """A launch or turn that waits at the gate or has passed it, and the resources of the host that it takes.

    `alone`: nothing else may be inside. `memory_bytes`: None if unknown; then it is alone, too. `gpus`: UUIDs.
    `others`: the largest number of other visits inside at the same time.
    """

    alone: bool = False
    memory_bytes: float | None = 0.0
    gpus: frozenset[str] = frozenset()
    others: int = 0


@dataclass(kw_only=True)
class Gate:
    """Admits the launches of one host in the order in which they arrive. Thread-safe.

    A launch that must be alone waits until all others have left, and no later launch overtakes it. `slots`: how many
    may be inside at the same time; `memory_bytes`: the memory for all of them together; None means no limit.
    """

    slots: int = 1
    memory_bytes: float | None = None
    stopped: Callable[[], bool] = lambda: False
    _inside: list[Visit] = field(default_factory=list)
    _queue: list[Visit] = field(default_factory=list)
    _changed: threading.Condition = field(default_factory=threading.Condition)

    @property
    def share_bytes(self) -> float:
        """Return the memory for one slot if all slots get the same share, in bytes; 0 without a limit."""
        return (self.memory_bytes or 0.0) / self.slots

    @contextlib.contextmanager
    def entered(self, visit: Visit) -> Iterator[Visit]:
        """Wait until a visit may enter; hold its slot during the block. Raises Interrupted if the run is stopped."""
        with self._changed:
            self._queue.append(visit)
            try:
                while not self._may_enter(visit):
                    if self.stopped():
                        raise Interrupted("interrupted")
                    self._changed.wait(ASK_S)
            finally:
                self._queue.remove(visit)
                self._changed.notify_all()
            self._inside.append(visit)
            for present in self._inside:
                present.others = max(present.others, len(self._inside) - 1)
        try:
            yield visit
        finally:
            with self._changed:
                self._inside.remove(visit)
                self._changed.notify_all()

    def _may_enter(self, visit: Visit) -> bool:
        """Return whether it is this visit's turn and it fits. One that waits for a GPU does not hold up other GPUs."""
        waiting = self._queue[: self._queue.index(visit)]
        if visit.alone:
            return not waiting and not self._inside
        if any(each.alone or not each.gpus or not visit.gpus or each.gpus & visit.gpus for each in waiting):
            return False
        if any(present.alone for present in self._inside):
            return False
        return fits(visit, self._inside, slots=self.slots, memory_bytes=self.memory_bytes)


# ---------------------------------------------------------------- what fits


MOST = 16
"""Largest number of launches that run at the same time on one host."""
MEMORY_SHARE = 0.8
"""Share of the host's memory that launches side by side may take together."""
MARGIN = 4.0
"""Factor by which a row without launches may need more memory than the other rows of its scenario."""
TRIES = 3
"""Number of consecutive infrastructure failures after which a cell counts as unable to run."""
DOUBTED: frozenset[End] = frozenset({"crash", "oom", "hang", "setup"})
"""Ends of a launch that others at the same time may have caused: they take memory, processors, ports and files."""


def slots_of(host: Host, facts: Mapping[str, Any], gpus: Iterable[str]) -> int:
    """Return how many launches may run at the same time on a host: the smallest of MOST, the number of its processors,
    `parallel` and, if its launches use GPUs, the number of `gpus` (UUIDs).

    Return 1 for a host whose lanes run at the same time in any case (`parallel: true`), for a machine of a pool, and
    for a node of a cluster.
    """
    if isinstance(host.parallel, bool) or host.machine or host.can.queues:
        return 1
    processors = facts.get("cpus")
    most = min(MOST, processors if isinstance(processors, int) and processors > 0 else 1)
    gpu_count = len(set(gpus))
    return max(1, min(most, gpu_count or most, host.parallel if isinstance(host.parallel, int) else most))


def visit_of(cell: Cell, row: Iterable[Trial], others: Iterable[Trial], *, share_bytes: float) -> Visit:
    """Return the visit of a launch of a cell, with what it is expected to take. Its memory is the largest peak of its
    `row` so far; before the row's first launch, MARGIN times the largest peak of the `others` of its scenario, but at
    least `share_bytes`. It is at most the scenario's memory limit.
    """
    gpus, limit = frozenset(gpu.uuid for gpu in cell.lane.gpus), cell.variant.scenario.memory_bytes
    expected, elsewhere = peak_bytes(row), peak_bytes(others)
    if expected is None and elsewhere is not None:
        expected = max(MARGIN * elsewhere, share_bytes)
    if limit is not None:
        expected = limit if expected is None else min(expected, limit)
    return Visit(memory_bytes=expected, gpus=gpus)


def peak_bytes(trials: Iterable[Trial]) -> float | None:
    """Return the largest peak resident set size of these launches, in bytes; None if none of them has one."""
    return max((1024 * trial.peak_rss_kib for trial in trials if trial.peak_rss_kib is not None), default=None)


def fits(new: Visit, running: Sequence[Visit], *, slots: int, memory_bytes: float | None) -> bool:
    """Return whether a launch may start while others run. `memory_bytes`: the memory for all of them together; None if
    the host does not report how much it has.
    """
    if not running:
        return True
    if len(running) >= slots or any(new.gpus & each.gpus for each in running):
        return False
    needs = [each.memory_bytes for each in (new, *running)]
    if any(need is None for need in needs):
        return False
    return memory_bytes is None or sum(need or 0.0 for need in needs) <= memory_bytes


# ---------------------------------------------------------------- failures alongside others


def add_trial(run: CellRun, trial: Trial, *, doubtful: bool) -> list[Trial]:
    """Add a trial to its run. Return the earlier failures that count now, because this trial failed in the same way
    alone, and then the trial itself, reclassified if necessary. `doubtful`: other launches may have caused what the
    trial shows.
    """
    if trial.conditions.others and trial.end in DOUBTED:
        run.doubted.append(trial)
        others = f"{trial.conditions.others} other launch{'es' if trial.conditions.others > 1 else ''}"
        doubt = f"{trial.end} alongside {others}, which may have caused it: the cell is launched again alone"
        trial = replace(trial, end="infrastructure", message=f"{trial.message}\n{doubt}".strip())
    elif trial.conditions.others and not trial.measured:
        run.alone = True
    run.alone = run.alone or bool(run.doubted) or doubtful or (trial.conditions.parked > 0 and not trial.took_turns)
    failure = (trial.end, trial.failure.signal)
    confirmed = (
        []
        if trial.conditions.others
        else [doubted for doubted in run.doubted if (doubted.end, doubted.failure.signal) == failure]
    )
    for doubted in confirmed:
        run.doubted.remove(doubted)
        run.trials[doubted.number - 1] = doubted
    run.trials.append(trial)
    return [*confirmed, trial]


def killed_alone(run: CellRun, row: Sequence[CellRun]) -> list[Trial]:
    """Return the launches of a version that count as crashes from now on, in their run, too: SIGKILL ended each of
    TRIES or more, as it did all launches or none of each other version of its `row`. What kills from outside chooses a
    time but no version, so at least two launches must have been measured meanwhile.
    """
    if len(run.trials) < TRIES or not all(map(_was_killed, run.trials)):
        return []
    killed = [[_was_killed(trial) for trial in other.trials] for other in row]
    spared = [other for other, own in zip(row, killed, strict=True) if not any(own)]
    if not all(any(own) == all(own) for own in killed if own):
        return []
    first = run.trials[0]
    beside = [trial for other in spared for trial in other.measured if trial.run == first.run]
    if sum(trial.started > first.started for trial in beside) < 2:
        return []
    why = f"all {len(run.trials)} launches of this version ended so, but not those of all versions"
    changed = [
        replace(trial, end="crash", message=f"{trial.message}; {why}") for trial in run.trials if not trial.measured
    ]
    for trial in changed:
        run.trials[trial.number - 1] = trial
    if changed:
        run.problem, run.failures = "", 0
    return changed


def _was_killed(trial: Trial) -> bool:
    return trial.failure.signal == signal.SIGKILL and trial.end in ("infrastructure", "crash")


# ---------------------------------------------------------------- launches in slices
#
# The launches of a round may run in slices: all of them are alive, and one of them makes steps at a time. The pace of a
# host may change from one second to the next, by more than the versions differ. Slices that follow each other within a
# second share its pace, so that pairs of them show what launches one after the other cannot. The order of the launches
# is random, and reversed in every second cycle (ABBA): a steady drift then cancels.


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
    version must have shown that it ends well, has steps, and how much memory it takes. Commands that run in place share
    the user's folder, and what they start elsewhere cannot be stopped, so that they never take turns."""
    if runs[0].cell.in_place or not runs[0].cell.variant.scenario.compares_times:
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


# ---------------------------------------------------------------- memory limit


SHARE = 0.9
"""Share of the memory of a host, or of a node's allocation, that such a trial may use."""


def default_bytes(total_bytes: object) -> int | None:
    """Return the limit in bytes on a machine that reports `total_bytes`; None if that is not a positive whole number.

    Without a limit, a trial that keeps growing would make the kernel kill other processes of the host, even the engine.
    """
    return int(total_bytes * SHARE) if isinstance(total_bytes, int) and total_bytes > 0 else None
