"""Lets the launches of a host start: alone where times are compared, else beside others."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from harness.errors import Interrupted
from harness.run.hosts.beside import Load, fits

ASK_S = 0.2
"""Seconds after which a waiting launch asks again whether the run was stopped."""


@dataclass(kw_only=True, eq=False)
class Visit:
    """One launch, or one turn, that passes the gate. `load`: None if it must be alone. `others`: the largest number of
    others that were inside at the same time."""

    load: Load | None
    others: int = 0


@dataclass(kw_only=True)
class Gate:
    """Lets the launches of one host in, in the order in which they came. Thread-safe.

    A launch that must be alone waits until all others are out, and no later one goes before it. `slots`: how many may
    be inside at the same time; `memory_bytes`: the memory for all of them, None for no limit.
    """

    slots: int = 1
    memory_bytes: float | None = None
    stopped: Callable[[], bool] = lambda: False
    _inside: list[Visit] = field(default_factory=list)
    _queue: list[Visit] = field(default_factory=list)
    _changed: threading.Condition = field(default_factory=threading.Condition)

    @property
    def share_bytes(self) -> float:
        """Return an equal share of the memory, in bytes; 0 without a limit."""
        return (self.memory_bytes or 0.0) / self.slots

    @contextlib.contextmanager
    def entered(self, load: Load | None) -> Iterator[Visit]:
        """Wait for a place, and hold it during the block; without a `load`, alone. Raises Interrupted if the run is
        `stopped` while it waits.
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
        """Return whether it is this visit's turn and there is room. A launch that waits for a GPU holds up no launch on
        another GPU.
        """
        waiting = [earlier.load for earlier in self._queue[: self._queue.index(visit)]]
        if visit.load is None:
            return not waiting and not self._inside
        if any(load is None or not load.gpus or not visit.load.gpus or load.gpus & visit.load.gpus for load in waiting):
            return False
        running = [present.load for present in self._inside if present.load is not None]
        if len(running) < len(self._inside):  # one that must be alone
            return False
        return fits(visit.load, running, slots=self.slots, memory_bytes=self.memory_bytes)
