"""Judges all rows of a plan while they run: after each turn of a row, and finally when the row is finished."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from harness.assess.findings import Findings, find
from harness.assess.row_verdicts import JudgedRow, to_be_continued
from harness.assess.running_row import RunningRow, running_rows
from harness.assess.standing import standing_of
from harness.flows.running.early_end import Ending
from harness.flows.running.open_rows import OpenRows
from harness.model import Host, Noise, Plan, Skip
from harness.reasons import Remedy
from harness.run.run_interfaces import CellRun, RowRun
from harness.schedule.full_scheduler import FullScheduler
from harness.schedule.priority import RowStanding
from harness.store import RunDirectory


@dataclass(kw_only=True)
class RunningRows:
    """The rows of a plan. Safe for threads that work on different rows.

    `only`: the ids of the cells that may be launched; None: all. `ending` is informed of confirmed findings. `so_far`
    is called after each turn of a row with a function that returns the findings so far, from any thread, one call at a
    time.
    """

    plan: Plan
    journal: RunDirectory
    ending: Ending
    only: frozenset[str] | None = None
    so_far: Callable[[Callable[[], Findings]], None] = lambda found: None
    open_rows: OpenRows = field(init=False)
    _rows: dict[RowRun, RunningRow] = field(init=False)
    """The rows in the plan's order."""
    _noises: dict[tuple[str, ...], Noise | None] = field(default_factory=dict)
    """A/A noise by lane, scenario and machine."""
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _to_go_on: str = Remedy.SAME_SWEEP()
    """The remedy that reports give for unfinished rows."""

    def __post_init__(self) -> None:
        self.open_rows = OpenRows(read=self.journal.read_back, runs_of=self.runs_of)
        self._rows = {each.row: each for each in running_rows(self.plan, only=self.only)}

    def on(self, host: Host) -> list[RowRun]:
        """Return the rows of a host, in the plan's order."""
        return [each.row for each in self._rows.values() if each.planned.lane.host == host]

    def is_done(self, row: RowRun) -> bool:
        return self._rows[row].finished

    def runs_of(self, row: RowRun) -> list[CellRun]:
        """Return everything that is launched for a row: its cells, and the A/A replicate if it has one."""
        return [*row.cells, *self._rows[row].replicates]

    def judged(self) -> list[JudgedRow]:
        """Return the verdicts on all rows, in the plan's order. An unfinished row has the verdict so far."""
        rows = [(each.finished, self._newest(each)) for each in self._rows.values()]
        return [row if is_finished else to_be_continued(row, self._to_go_on) for is_finished, row in rows]

    def mark_unfinished(self, why: str) -> None:
        """Record why each version that lacks launches gets no more."""
        self._to_go_on = Remedy.SWEEP_WITHOUT_STOP(why=why)
        for each in self._rows.values():
            for run in () if each.finished else each.lacking:
                if run.runnable:
                    run.skipped = Skip(by="stop", why=why)

    def give_up(self, rows: Iterable[RowRun], problem: str) -> None:
        """Record the problem of a lost host in each cell that lacks launches."""
        for run in (run for row in rows for run in self._rows[row].lacking):
            run.problem = run.problem or problem

    def choose_noise(self, row: RowRun) -> None:
        """Let the first row of a scenario that a machine begins measure the machine's noise."""
        running = self._rows[row]
        with self._lock:
            others = [each for each in self._alike(running) if each is not running]
            if isinstance(running.scheduler, FullScheduler):
                running.scheduler.measures_noise = not any(other.measures_noise for other in others)

    def again(self, row: RowRun, why: str) -> RowRun:
        """Restart a row and set its trials aside, because those of another machine cannot be compared."""
        old = self._rows[row]
        new = old.anew(why)
        for trial in (trial for run in self.runs_of(row) for trial in run.trials):
            self.journal.set_aside(trial)
        with self._lock:
            rows = [new if each is old else each for each in self._rows.values()]
            self._rows = {each.row: each for each in rows}
        self.open_rows.forget(row)
        return new.row

    def _alike(self, running: RunningRow) -> list[RunningRow]:
        """Return the rows that share their A/A noise with a row, itself included."""
        return [each for each in self._rows.values() if each.noise_place == running.noise_place]

    def standing(self, row: RowRun) -> RowStanding:
        """Judge a row after its turn, and return its standing."""
        standing = standing_of(self._rows[row].judge(self._noises), asked=self.plan.trials)
        self.open_rows.put_down(row)
        with self._lock:
            rows = [each.judged for each in self._rows.values()]
            found = functools.cache(lambda: find(rows))
            if standing.confirmed and any(one.confirmed and one.kind != "first_fixed" for one in found().findings):
                self.ending.found()
            self.so_far(found)
        return standing

    def finish(self, row: RowRun) -> None:
        """Judge a row for the last time, because its launches are done, and release its traces.

        The verdict needs the A/A noise of the lane and scenario, so it waits until the row that measures this is done.
        """
        running = self._rows[row]
        running.finished = True
        with self._lock:
            alike = self._alike(running)
            if not running.measures_noise and any(each.measures_noise and not each.finished for each in alike):
                self.open_rows.put_down(row)
                return
            for each in (each for each in alike if each.finished and not each.final):
                self.open_rows.recall(each.row)
                judged = each.judge(self._noises)
                each.final = True
                for run, cell in zip(each.row.cells, judged.cells, strict=True):
                    run.trials[:] = cell.trials
                self.open_rows.forget(each.row)

    def _newest(self, running: RunningRow) -> JudgedRow:
        """Return the verdict on a row from all its launches, including those of an interrupted turn."""
        if not running.final and (running.seen != running.evidence or running.finished):
            self.open_rows.recall(running.row)
            running.judge(self._noises)
            self.open_rows.put_down(running.row)
        return running.judged
