"""Decides whether a sweep has reached the early end that its user asked for, and says why it launches nothing more."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from harness.model import Stop
from harness.reasons import SkipReason
from harness.schedule.priority import RowState


@dataclass(kw_only=True)
class Ending:
    """Ends the launches on all hosts. Once set, `reason` does not change; any thread may set it."""

    asked: Stop
    clock: Callable[[], float] = time.monotonic
    reason: str = ""
    began_s: float = field(init=False)

    def __post_init__(self) -> None:
        self.began_s = self.clock()

    def found(self) -> None:
        """Record that a finding is confirmed."""
        if self.asked.first_bad:
            self.reason = self.reason or SkipReason.STOPPED_AT_FIRST_BAD()

    def why(self, state: RowState | None) -> str:
        """Return why a row in this state gets no more launches, or "". `state` is None in the middle of a turn."""
        if self.asked.time_s is not None and self.clock() - self.began_s >= self.asked.time_s:
            self.reason = self.reason or SkipReason.STOPPED_BY_TIME()
        if self.reason:
            return self.reason
        is_over = self.asked.quick and state is not None and state.urgency in ("near", "good")
        return self._quick if is_over else ""

    @property
    def reached(self) -> str:
        """Return why rows are unfinished, apart from lost hosts and Ctrl-C; "" if no early end was asked for."""
        return self.reason or (self._quick if self.asked.quick else "")

    @property
    def _quick(self) -> str:
        return SkipReason.STOPPED_BY_QUICK()
