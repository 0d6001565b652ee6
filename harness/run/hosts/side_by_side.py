"""Decides which launches of a host run side by side: their gate, what fits, and how a failure alongside others counts.

A launch whose times are compared runs alone. Others run side by side, as far as the host's processors, memory and GPUs
allow, which follows from their scenarios' limits and the memory that earlier launches took.

A failure alongside other launches, whose use of memory, processors, ports or files may have caused it, counts as
infrastructure at first, and its cell is launched alone from then on. If a launch alone fails in the same way, the
version caused the earlier failure too, which then counts against it.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from harness.errors import Interrupted
from harness.model import Cell, CellRun, End, Host, Trial

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
        """Wait until a visit may enter, and hold its slot during the block. Raises Interrupted if the run is stopped
        while it waits."""
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
        """Return whether it is this visit's turn and what it needs fits. A launch that waits for a GPU does not hold up
        launches on other GPUs.
        """
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


# ---------------------------------------------------------------- memory limit


SHARE = 0.9
"""Share of the memory of a host, or of a node's allocation, that such a trial may use."""


def default_bytes(total_bytes: object) -> int | None:
    """Return the limit in bytes on a machine that reports `total_bytes`; None if that is not a positive whole number.

    Without a limit, a trial that keeps growing would make the kernel kill other processes of the host, even the engine.
    """
    return int(total_bytes * SHARE) if isinstance(total_bytes, int) and total_bytes > 0 else None
