"""Keeps the traces of open rows in memory up to a limit, and reads the others back from trial files."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from harness.assess.row_verdicts import LEAST_SHOWN_ROWS, thinned_trial
from harness.model import Trial
from harness.run.run_interfaces import CellRun, RowRun

HELD_BYTES = 256 << 20
"""Most bytes of memory for the traces of all open rows together. A trace of 4,000 rows takes about 160 KiB."""


@dataclass(kw_only=True)
class OpenRows:
    """Bounds the memory of rows that take turns. Thread-safe. A row that a thread works on keeps its traces.

    `read`: reads a trial back from its file. `runs_of`: returns the cells of a row and its A/A replicate.
    """

    read: Callable[[Trial], Trial]
    runs_of: Callable[[RowRun], list[CellRun]]
    held_bytes: int = HELD_BYTES
    _rows: dict[RowRun, int] = field(default_factory=dict)
    """Rows with their traces in memory, and the size of the traces in bytes; the row put down last comes last."""
    _away: set[RowRun] = field(default_factory=set)
    _busy: set[RowRun] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def recall(self, row: RowRun) -> None:
        """Read the traces of a row back, and keep them until `put_down`. Raises UsageError if a file is gone."""
        with self._lock:
            self._busy.add(row)
            is_away = row in self._away
            self._away.discard(row)
        if is_away:
            for run in self.runs_of(row):
                run.trials[:] = [trial if trial.trace is None else self.read(trial) for trial in run.trials]

    def put_down(self, row: RowRun) -> None:
        """End the work on a row. If the traces exceed the limit, drop those of the longest-waiting rows."""
        taken_bytes = sum(_bytes(trial) for run in self.runs_of(row) for trial in run.trials)
        with self._lock:
            self._busy.discard(row)
            self._rows.pop(row, None)
            self._rows[row] = taken_bytes
            total_bytes = sum(self._rows.values())
            for other, size in list(self._rows.items()):
                if total_bytes <= self.held_bytes:
                    return
                if other not in self._busy:
                    self._send_away(other)
                    total_bytes -= size

    def forget(self, row: RowRun) -> None:
        """Forget a row that has ended; its traces were thinned for the reports."""
        with self._lock:
            for known in (self._busy, self._away):
                known.discard(row)
            self._rows.pop(row, None)

    def _send_away(self, row: RowRun) -> None:
        del self._rows[row]
        self._away.add(row)
        for run in self.runs_of(row):
            run.trials[:] = [thinned_trial(trial, rows=LEAST_SHOWN_ROWS) for trial in run.trials]


def _bytes(trial: Trial) -> int:
    trace = trial.trace
    if trace is None:
        return 0
    counts = sum(values.nbytes for values in trace.counts.values())
    return trace.step.nbytes + counts + sum(values.nbytes for values in trace.columns.values())
