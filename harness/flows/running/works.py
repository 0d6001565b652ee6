"""Judges all rows of a plan while they run: after each turn of a row, and finally when the row is finished."""

from __future__ import annotations

import functools
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from harness.assess.findings import Findings, find
from harness.assess.row_verdicts import (
    JudgedBlock,
    baseline_of,
    judge_block,
    noise_place_of,
    shown_rows,
    to_be_continued,
)
from harness.assess.standing import standing_of
from harness.flows.running.ending import Ending
from harness.flows.running.open_rows import OpenRows
from harness.flows.running.work import Work
from harness.model import Block, Host, Noise, Plan, Skip
from harness.reasons import Remedy, RowWarning
from harness.run.scheduler import BlockRun, CellRun
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
    _blocks: Counter[str] = field(init=False)
    """Number of blocks of each scenario, by name."""
    _works: dict[BlockRun, Work] = field(default_factory=dict)
    """The rows by their BlockRun; a row that started again comes last."""
    _noises: dict[tuple[str, ...], Noise] = field(default_factory=dict)
    """A/A noise by lane, scenario and machine."""
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _to_go_on: str = Remedy.SAME_SWEEP()
    """The remedy that reports give for unfinished rows."""

    def __post_init__(self) -> None:
        """Make every row with its scheduler. One row of each scenario and lane measures the noise; in a pool, one row
        per machine, which is chosen when the machine begins it.
        """
        self._blocks = Counter(block.variant.scenario.name for block in self.plan.blocks)
        self.open_rows = OpenRows(read=self.journal.read_back, others=self.twin_of)
        measuring: set[tuple[str, str]] = set()
        for block in self.plan.blocks:
            work = self._work(block, noise=not block.lane.host.pool and noise_place_of(block) not in measuring)
            self._works[work.run] = work
            if isinstance(work.scheduler, FullScheduler):
                measuring.add(noise_place_of(block))

    # ------------------------------------------------------------ what a run asks

    def on(self, host: Host) -> list[BlockRun]:
        """Return the rows of a host, in the plan's order."""
        with self._lock:
            return [work.run for work in self._works.values() if work.block.lane.host == host]

    def is_done(self, run: BlockRun) -> bool:
        return self._works[run].finished

    def twin_of(self, run: BlockRun) -> list[CellRun]:
        """Return the A/A replicate of a row, if it has one."""
        scheduler = self._works[run].scheduler
        twin = scheduler.replicate.run if isinstance(scheduler, FullScheduler) else None
        return [] if twin is None else [twin]

    def judged(self) -> list[JudgedBlock]:
        """Return the verdicts on all blocks, in the plan's order. An unfinished block has the verdict so far."""
        blocks = [(work, self._newest(work)) for work in self._in_order()]
        return [block if work.finished else to_be_continued(block, self._to_go_on) for work, block in blocks]

    def mark_unfinished(self, why: str) -> None:
        """Record why each version that lacks launches gets no more."""
        self._to_go_on = Remedy.SWEEP_WITHOUT_STOP(why=why)
        for work in self._works.values():
            least = 1 if self.plan.searched(work.block) else self.plan.trials.least
            for run in () if work.finished else work.run.cells:
                if run.runnable and run.skipped is None and len(run.measured) < least:
                    run.skipped = Skip(by="stop", why=why)

    def choose_noise(self, run: BlockRun) -> None:
        """Let the first row of a scenario that a machine begins measure the machine's noise."""
        work = self._works[run]
        with self._lock:
            others = [each for each in self._works.values() if each is not work and each.place == work.place]
            if isinstance(work.scheduler, FullScheduler):
                work.scheduler.measures_noise = not any(other.measures_noise for other in others)

    def again(self, run: BlockRun, why: str) -> BlockRun:
        """Restart a row and set its trials aside, because those of another machine cannot be compared."""
        old = self._works[run]
        runs = (*run.cells, *self.twin_of(run))
        failed = [each.cell.image.version for each in runs for trial in each.trials if trial.end in FAILED]
        for trial in (trial for each in runs for trial in each.trials):
            self.journal.set_aside(trial)
        warning = RowWarning.STARTED_AGAIN(row=old, why=why, folder=ASIDE)
        if failed:
            versions = ", ".join(dict.fromkeys(failed))
            warning = RowWarning.STARTED_AGAIN_AFTER_FAILURES(row=old, why=why, versions=versions, folder=ASIDE)
        work = self._work(old.block, noise=False)
        work.again = (*old.again, warning)
        with self._lock:
            del self._works[run]
            self._works[work.run] = work
        self.open_rows.forget(run)
        return work.run

    # ------------------------------------------------------------ after a turn

    def standing(self, run: BlockRun) -> RowStanding:
        """Judge a row after its turn, and return its standing."""
        standing = standing_of(self._judge(self._works[run]), asked=self.plan.trials)
        self.open_rows.put_down(run)
        with self._lock:
            blocks = [self._known(work) for work in self._in_order()]
            found = functools.cache(lambda: find(blocks))
            if standing.confirmed and any(one.confirmed and one.kind != "first_fixed" for one in found().findings):
                self.ending.found()
            self.so_far(found)
        return standing

    def finish(self, run: BlockRun) -> None:
        """Judge a row for the last time, because its launches are done, and release its traces.

        The verdict needs the A/A noise of the lane and scenario, so it waits until the row that measures this is done.
        """
        work = self._works[run]
        work.finished = True
        with self._lock:
            if not work.measures_noise and self._measures(work.place):
                self.open_rows.put_down(run)
                return
            waiting = [each for each in self._works.values() if each.finished and not each.final]
            ready = [each for each in waiting if each.place == work.place]
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
        return any(work.measures_noise and not work.finished and work.place == place for work in works)

    # ------------------------------------------------------------ verdicts

    def _in_order(self) -> list[Work]:
        works = {work.block.cells[0].id: work for work in self._works.values()}
        return [works[block.cells[0].id] for block in self.plan.blocks]

    def _newest(self, work: Work) -> JudgedBlock:
        """Return the verdict on a block from all its launches, including those of an interrupted turn."""
        if work.judged is None or (not work.final and (work.seen != work.evidence or work.finished)):
            self.open_rows.recall(work.run)
            self._judge(work)
            self.open_rows.put_down(work.run)
        assert work.judged is not None, "it was judged"
        return work.judged

    def _known(self, work: Work) -> JudgedBlock:
        """Return the verdict on a block as of its last turn, or the blank verdict before its first turn."""
        if work.judged is None and work.blank is None:
            fresh = [CellRun(cell=cell) for cell in work.block.cells]
            work.blank = judge_block(work.block, fresh, least=self.plan.trials.least, seed=self.plan.seed)
        judged = work.judged or work.blank
        assert judged is not None, "one of them is known"
        return judged

    def _judge(self, work: Work) -> JudgedBlock:
        place = work.place
        noise = work.scheduler.noise()
        if noise is not None:
            self._noises[place] = noise
        least = 1 if self.plan.searched(work.block) else self.plan.trials.least
        judged = judge_block(
            work.block,
            work.run.cells,
            least=least,
            seed=self.plan.seed,
            noise=self._noises.get(place),
            searched=self._search(work.block, work.run.cells) if self.plan.searched(work.block) else None,
            trace_rows=shown_rows(len(self.plan.cells) * self.plan.trials.least),
            blocks=self._blocks[work.block.variant.scenario.name],
        )
        unfound = () if judged.changes else work.conclusion()
        cells = tuple(replace(each, cell=cell) for each, cell in zip(judged.cells, work.block.cells, strict=True))
        warnings = (*judged.warnings, *unfound, *work.again)
        replicates = sum(twin.launched for twin in self.twin_of(work.run))
        work.judged = replace(judged, cells=cells, warnings=warnings, replicates=replicates)
        work.seen = work.evidence
        return work.judged

    # ------------------------------------------------------------ schedulers

    def _work(self, block: Block, *, noise: bool) -> Work:
        runs = tuple(
            CellRun(cell=cell, incompatible="" if cell.excluded else cannot_run(cell, None) or "")
            for cell in block.cells
        )
        if self.plan.searched(block) and self.only is None:
            scheduler: FullScheduler | BisectScheduler = self._search(block, runs)
        else:
            scheduler = FullScheduler(
                runs=runs, asked=self.plan.trials, only=self.only, measures_noise=noise,
                blocks=self._blocks[block.variant.scenario.name],
            )  # fmt: skip
        return Work(block=block, scheduler=scheduler, run=BlockRun(cells=runs, scheduler=scheduler))

    def _search(self, block: Block, runs: Sequence[CellRun]) -> BisectScheduler:
        """Return a bisection of a block. It chooses launches, or only judges those of an earlier bisection and of
        `--decide`.
        """
        return BisectScheduler(runs=runs, asked=self.plan.trials, baseline=baseline_of(block))
