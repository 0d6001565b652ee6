"""An engine whose launches are generated from measured figures, with a simulated clock: nothing runs, nothing waits.

It speaks the protocol of `harness/agent/__init__.py`, so that conversation, lanes and schedulers are the real ones.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks.replayed.histories import History, Made, launch
from harness.run.engine import Exit, LaunchRequest, Session
from tests.players.engines import DONE, EngineAtHand, framed

LOOK_S = 0.005
"""Seconds that a look takes, including the answer."""


@dataclass(frozen=True, kw_only=True)
class Ended:
    """One replayed launch: its cell and number, its steps, and the seconds that it would have taken."""

    cell: str
    number: int
    steps: int
    seconds: float


@dataclass(kw_only=True)
class Agent(Session):
    """The messages of an agent about a replayed launch, look by look, depending on the answers."""

    made: Made
    job: Mapping[str, Any]
    at: int = 0
    spent_s: float = 0.0
    over: bool = False
    out: list[bytes] = field(default_factory=list)

    def __post_init__(self) -> None:
        version = self.made.version
        self.spent_s = version.overhead_s + version.setup_s + version.first_step_s
        self._say(type="hello", protocol=1, agent="3", python="3.11.2", packages={})
        if len(self.made.step_s):
            self._say(type="ready", setup_s=version.setup_s, first_step_s=version.first_step_s)
        self._go()

    def send(self, data: bytes) -> None:
        if b'"stop"' in data:
            self._look(last=True)
            self._done("stopped")
        else:
            self._go()

    def receive(self, timeout_s: float) -> bytes | None:
        if not self.out:
            return None if self.over else b""
        said, self.out = b"".join(self.out), []
        return said

    def exit(self) -> Exit:
        return Exit(exit_code=0)

    def _go(self) -> None:
        """Make the steps up to the next look."""
        count, whole = self._next()
        fails = count > len(self.made.step_s)
        self._step(min(count, len(self.made.step_s)))
        if fails:
            self._done("crash", message=self.made.version.message)
            return
        self._look(last=whole)
        if whole:
            self._done("completed")

    def _next(self) -> tuple[int, bool]:
        """Return the step of the next look, due by steps or by time, and whether it is the last look."""
        looks = list(self.job["looks"])
        times = [
            float("inf") if time_s is None else time_s for time_s in self.job.get("look_times_s") or [None] * len(looks)
        ]
        spent = np.cumsum(self.made.step_s)
        due = [
            min(count, int(np.searchsorted(spent, until_s)) + 1) for count, until_s in zip(looks, times, strict=True)
        ]
        left = [count for count in due if count > self.at]
        return left[0], left[0] == due[-1]

    def _step(self, last: int) -> None:
        rows = slice(self.at, last)
        if last > self.at:
            columns = {
                "step": list(range(self.at + 1, last + 1)),
                "rss_kib": self.made.rss_kib[rows].tolist(),
                "step_s": np.round(self.made.step_s[rows], 9).tolist(),
            }
            self._say(type="samples", columns=columns)
        self.spent_s += float(self.made.step_s[rows].sum())
        self.at = last

    def _look(self, *, last: bool) -> None:
        kib = float(self.made.rss_kib[self.at - 1])
        peak = float(self.made.rss_kib[: self.at].max())
        self.spent_s += LOOK_S
        self._say(type="look", step=self.at, look={"rss_kib": kib, "rss_peak_kib": peak}, last=last)

    def _done(self, end: str, *, message: str = "") -> None:
        self.over = True
        self._say(**DONE | {"end": end, "message": message, "last_step": self.at})

    def _say(self, **message: Any) -> None:
        self.out.append(framed(self.job["marker"], message))


class Clock(threading.local):
    """The simulated time of each worker: the sum of its launches, because nothing else takes time."""

    ended_s = 0.0
    agent: Agent | None = None

    def monotonic(self) -> float:
        return self.ended_s + (self.agent.spent_s if self.agent else 0.0)

    def time(self) -> float:
        return time.time()


class ReplayingEngine(EngineAtHand):
    """A host that has every image. `ended` is called with each launch, in order; `clock` holds the simulated time."""

    def __init__(self, histories: Mapping[str, History], ended: Callable[[Ended], None], clock: Clock) -> None:
        self._clock = clock
        self.facts = {"engine": "replayed", "cpu": "none", "cpus": 2}
        self._histories, self._ended, self._lock = histories, ended, threading.Lock()

    @contextlib.contextmanager
    def launch(self, launch_: LaunchRequest) -> Iterator[Session]:
        history = self._histories[launch_.scenario.name]
        version = next(each for each in history.versions if each.name == launch_.prepared.image.version)
        cell, number = launch_.cell_id, launch_.number
        replicate = 1000 * ("replicate" in cell)
        agent = Agent(made=launch(history, version, number + replicate), job=launch_.payload.job)
        self._clock.agent = agent
        yield agent
        self._clock.agent, self._clock.ended_s = None, self._clock.ended_s + agent.spent_s
        with self._lock:
            self._ended(Ended(cell=cell, number=number, steps=agent.at, seconds=agent.spent_s))
