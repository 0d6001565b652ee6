"""Decides whether a sweep has reached what its user asked for, and says why it launches nothing more."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from harness.model import Stop
from harness.schedule.priority import RowState

FIRST_BAD = "stopped by --until first-bad"
QUICK = "stopped by --quick"
FIRST_LOOK = "stopped after a first look"
TIME = "stopped by --time"


@dataclass(kw_only=True)
class Ending:
    """Ends the launches of all hosts. Once `reason` is given it stays; it is safe to set from any thread."""

    asked: Stop
    clock: Callable[[], float] = time.monotonic
    reason: str = ""
    began_s: float = field(init=False)

    def __post_init__(self) -> None:
        self.began_s = self.clock()

    def found(self) -> None:
        """Note that a finding is confirmed."""
        if self.asked.first_bad:
            self.reason = self.reason or FIRST_BAD

    def why(self, state: RowState | None) -> str:
        """Return why no more of a row with this standing is launched, or "". None stands for a turn that was begun."""
        if self.asked.time_s is not None and self.clock() - self.began_s >= self.asked.time_s:
            self.reason = self.reason or TIME
        if self.reason:
            return self.reason
        is_over = self.asked.quick and state is not None and state.urgency in ("near", "good")
        return self._quick if is_over else ""

    @property
    def reached(self) -> str:
        """Return why rows are not finished, if hosts and Ctrl-C are not the reason; "" if nothing asks for an early
        end.
        """
        return self.reason or (self._quick if self.asked.quick else "")

    @property
    def _quick(self) -> str:
        return FIRST_LOOK if self.asked.first_look else QUICK
