"""Judges all rows of a plan while they run: after each turn of a row, and finally when the row is finished."""

from __future__ import annotations

import functools
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from harness.assess.findings import Findings, find
from harness.assess.row_verdicts import (
    JudgedRow,
    baseline_of,
    judge_row,
    noise_place_of,
    shown_rows,
    to_be_continued,
)
from harness.assess.standing import standing_of
from harness.flows.running.early_end import Ending
from harness.flows.running.open_rows import OpenRows
from harness.flows.running.work import Work
from harness.model import Host, Noise, Plan, Skip, VersionRow
from harness.reasons import Remedy, RowWarning
from harness.run.run_interfaces import CellRun, RowRun
from harness.schedule.bisect_scheduler import BisectScheduler
from harness.schedule.compatibility import cannot_run
from harness.schedule.full_scheduler import FullScheduler
from harness.schedule.priority import RowStanding
from harness.store import RunDirectory
from harness.store.journal import ASIDE

FAILED = ("crash", "oom", "hang")


@dataclass(kw_only=True)
class Works:
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
    _rows: Counter[str] = field(init=False)
    """Number of rows of each scenario, by name."""
    _works: dict[RowRun, Work] = field(default_factory=dict)
    """The rows by their RowRun; a row that started again comes last."""
    _noises: dict[tuple[str, ...], Noise] = field(default_factory=dict)
    """A/A noise by lane, scenario and machine."""
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _to_go_on: str = Remedy.SAME_SWEEP()
    """The remedy that reports give for unfinished rows."""

    def __post_init__(self) -> None:
        """Make every row with its scheduler. One row of each scenario and lane measures the noise; in a pool, one row
        per machine, which is chosen when the machine begins it.
        """
        self._rows = Counter(row.variant.scenario.name for row in self.plan.rows)
        self.open_rows = OpenRows(read=self.journal.read_back, runs_of=self.runs_of)
        measuring: set[tuple[str, str]] = set()
        for row in self.plan.rows:
            work = self._work(row, noise=not row.lane.host.pool and noise_place_of(row) not in measuring)
            self._works[work.run] = work
            if isinstance(work.scheduler, FullScheduler):
                measuring.add(noise_place_of(row))

    # ------------------------------------------------------------ what a run asks

    def on(self, host: Host) -> list[RowRun]:
        """Return the rows of a host, in the plan's order."""
        with self._lock:
            return [work.run for work in self._works.values() if work.row.lane.host == host]

    def is_done(self, run: RowRun) -> bool:
        return self._works[run].finished

    def twin_of(self, run: RowRun) -> list[CellRun]:
        """Return the A/A replicate of a row, if it has one."""
        scheduler = self._works[run].scheduler
        twin = scheduler.replicate.run if isinstance(scheduler, FullScheduler) else None
        return [] if twin is None else [twin]

    def runs_of(self, run: RowRun) -> list[CellRun]:
        """Return everything that is launched for a row: its cells, and the A/A replicate if it has one."""
        return [*run.cells, *self.twin_of(run)]

    def judged(self) -> list[JudgedRow]:
        """Return the verdicts on all rows, in the plan's order. An unfinished row has the verdict so far."""
        rows = [(work, self._newest(work)) for work in self._in_order()]
        return [row if work.finished else to_be_continued(row, self._to_go_on) for work, row in rows]

    def mark_unfinished(self, why: str) -> None:
        """Record why each version that lacks launches gets no more."""
        self._to_go_on = Remedy.SWEEP_WITHOUT_STOP(why=why)
        for work in self._works.values():
            for run in () if work.finished else work.run.cells:
                if run.runnable and run.skipped is None and len(run.measured) < self.plan.least(work.row):
                    run.skipped = Skip(by="stop", why=why)

    def give_up(self, rows: Iterable[RowRun], problem: str) -> None:
        """Record the problem of a lost host in each cell that lacks launches."""
        for work in (self._works[row] for row in rows):
            for run in work.run.cells:
                if not run.problem and run.skipped is None and len(run.measured) < self.plan.least(work.row):
                    run.problem = problem

    def choose_noise(self, run: RowRun) -> None:
        """Let the first row of a scenario that a machine begins measure the machine's noise."""
        work = self._works[run]
        with self._lock:
            others = [
                each for each in self._works.values() if each is not work and each.noise_place == work.noise_place
            ]
            if isinstance(work.scheduler, FullScheduler):
                work.scheduler.measures_noise = not any(other.measures_noise for other in others)

    def again(self, run: RowRun, why: str) -> RowRun:
        """Restart a row and set its trials aside, because those of another machine cannot be compared."""
        old = self._works[run]
        runs = self.runs_of(run)
        failed = [each.cell.image.version for each in runs for trial in each.trials if trial.end in FAILED]
        for trial in (trial for each in runs for trial in each.trials):
            self.journal.set_aside(trial)
        warning = RowWarning.STARTED_AGAIN(row=old, why=why, folder=ASIDE)
        if failed:
            versions = ", ".join(dict.fromkeys(failed))
            warning = RowWarning.STARTED_AGAIN_AFTER_FAILURES(row=old, why=why, versions=versions, folder=ASIDE)
        work = self._work(old.row, noise=False)
        work.again = (*old.again, warning)
        with self._lock:
            del self._works[run]
            self._works[work.run] = work
        self.open_rows.forget(run)
        return work.run

    # ------------------------------------------------------------ after a turn

    def standing(self, run: RowRun) -> RowStanding:
        """Judge a row after its turn, and return its standing."""
        standing = standing_of(self._judge(self._works[run]), asked=self.plan.trials)
        self.open_rows.put_down(run)
        with self._lock:
            rows = [self._known(work) for work in self._in_order()]
            found = functools.cache(lambda: find(rows))
            if standing.confirmed and any(one.confirmed and one.kind != "first_fixed" for one in found().findings):
                self.ending.found()
            self.so_far(found)
        return standing

    def finish(self, run: RowRun) -> None:
        """Judge a row for the last time, because its launches are done, and release its traces.

        The verdict needs the A/A noise of the lane and scenario, so it waits until the row that measures this is done.
        """
        work = self._works[run]
        work.finished = True
        with self._lock:
            if not work.measures_noise and self._measures(work.noise_place):
                self.open_rows.put_down(run)
                return
            waiting = [each for each in self._works.values() if each.finished and not each.final]
            ready = [each for each in waiting if each.noise_place == work.noise_place]
            for each in ready:
                self.open_rows.recall(each.run)
                judged = self._judge(each)
                each.final = True
                for cell, result in zip(each.run.cells, judged.cells, strict=True):
                    cell.trials[:] = result.trials
                self.open_rows.forget(each.run)

    def _measures(self, place: tuple[str, ...]) -> bool:
        """Return whether a row that is not finished measures the noise of this lane and scenario."""
        works = self._works.values()
        return any(work.measures_noise and not work.finished and work.noise_place == place for work in works)

    # ------------------------------------------------------------ verdicts

    def _in_order(self) -> list[Work]:
        works = {work.row.cells[0].id: work for work in self._works.values()}
        return [works[row.cells[0].id] for row in self.plan.rows]

    def _newest(self, work: Work) -> JudgedRow:
        """Return the verdict on a row from all its launches, including those of an interrupted turn."""
        if work.judged is None or (not work.final and (work.seen != work.evidence or work.finished)):
            self.open_rows.recall(work.run)
            self._judge(work)
            self.open_rows.put_down(work.run)
        assert work.judged is not None, "it was judged"
        return work.judged

    def _known(self, work: Work) -> JudgedRow:
        """Return the verdict on a row as of its last turn, or the blank verdict before its first turn."""
        if work.judged is None and work.blank is None:
            fresh = [CellRun(cell=cell) for cell in work.row.cells]
            work.blank = judge_row(work.row, fresh, least=self.plan.trials.least, seed=self.plan.seed)
        judged = work.judged or work.blank
        assert judged is not None, "one of them is known"
        return judged

    def _judge(self, work: Work) -> JudgedRow:
        place = work.noise_place
        noise = work.scheduler.noise()
        if noise is not None:
            self._noises[place] = noise
        judged = judge_row(
            work.row,
            work.run.cells,
            least=self.plan.least(work.row),
            seed=self.plan.seed,
            noise=self._noises.get(place),
            searched=self._search(work.row, work.run.cells) if self.plan.searched(work.row) else None,
            trace_rows=shown_rows(len(self.plan.cells) * self.plan.trials.least),
            rows=self._rows[work.row.variant.scenario.name],
        )
        unfound = () if judged.changes else work.conclusion()
        cells = tuple(replace(each, cell=cell) for each, cell in zip(judged.cells, work.row.cells, strict=True))
        warnings = (*judged.warnings, *unfound, *work.again)
        replicates = sum(twin.launched for twin in self.twin_of(work.run))
        work.judged = replace(judged, cells=cells, warnings=warnings, replicates=replicates)
        work.seen = work.evidence
        return work.judged

    # ------------------------------------------------------------ schedulers

    def _work(self, row: VersionRow, *, noise: bool) -> Work:
        runs = tuple(
            CellRun(cell=cell, incompatible="" if cell.excluded else cannot_run(cell, None) or "") for cell in row.cells
        )
        if self.plan.searched(row) and self.only is None:
            scheduler: FullScheduler | BisectScheduler = self._search(row, runs)
        else:
            scheduler = FullScheduler(
                runs=runs, asked=self.plan.trials, only=self.only, measures_noise=noise,
                rows=self._rows[row.variant.scenario.name],
            )  # fmt: skip
        return Work(row=row, scheduler=scheduler, run=RowRun(cells=runs, scheduler=scheduler))

    def _search(self, row: VersionRow, runs: Sequence[CellRun]) -> BisectScheduler:
        """Return a bisection of a row. It chooses launches, or only judges those of an earlier bisection and of
        `--decide`.
        """
        return BisectScheduler(runs=runs, asked=self.plan.trials, baseline=baseline_of(row))
