"""Decides when each launch of a host may start: alone if its times are compared, else side by side with others."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from harness.errors import Interrupted
from harness.run.hosts.beside import Load, fits

ASK_S = 0.2
"""Seconds between two checks of a waiting launch whether the run was stopped."""


@dataclass(kw_only=True, eq=False)
class Visit:
    """A launch or turn that waits at the gate or has passed it. `load`: None if it must be alone. `others`: the largest
    number of other visits inside at the same time."""

    load: Load | None
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
    def entered(self, load: Load | None) -> Iterator[Visit]:
        """Wait until the launch may enter, and hold its slot during the block; a launch without a `load` is alone
        there. Raises Interrupted if the run is stopped while it waits.
        """
        visit = Visit(load=load)
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
        """Return whether it is this visit's turn and its load fits. A launch that waits for a GPU does not hold up
        launches on other GPUs.
        """
        waiting = [earlier.load for earlier in self._queue[: self._queue.index(visit)]]
        if visit.load is None:
            return not waiting and not self._inside
        if any(load is None or not load.gpus or not visit.load.gpus or load.gpus & visit.load.gpus for load in waiting):
            return False
        running = [present.load for present in self._inside if present.load is not None]
        if len(running) < len(self._inside):  # a launch that must be alone is inside
            return False
        return fits(visit.load, running, slots=self.slots, memory_bytes=self.memory_bytes)
