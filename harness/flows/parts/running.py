"""A plan being run: a thread for every host, whose rows take turns. Each row is judged after each of its turns."""

from __future__ import annotations

import functools
import random
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from harness.assess.estimate import estimate
from harness.assess.findings import find
from harness.assess.row_verdicts import JudgedBlock, baseline_of, judge_block, place_of, shown_rows
from harness.assess.standing import standing_of
from harness.errors import HarnessError, Interrupted
from harness.flows.parts.context import RunContext
from harness.flows.parts.ending import Ending
from harness.flows.parts.hosts.machine_progress import MachineProgress
from harness.flows.parts.hosts.machines import OpenHost, images_on
from harness.flows.parts.hosts.pool_run import PoolRun
from harness.flows.parts.hosts.threads import at_once, side_by_side
from harness.flows.parts.needs import disk_of
from harness.flows.parts.open_rows import OpenRows
from harness.flows.parts.registries import open_registries
from harness.model import Block, Host, Noise, Plan, Skip
from harness.plan import most_launches, typical_launches
from harness.run.engine import Engine, Lease
from harness.run.hosts import other_sweeps
from harness.run.hosts.lanes import HostRun
from harness.run.images.disk_budget import Disk
from harness.run.images.prefetch import HostImages
from harness.run.scheduler import BlockRun, CellRun
from harness.schedule import oracle
from harness.schedule.bisect_scheduler import BisectScheduler
from harness.schedule.full_scheduler import FullScheduler
from harness.schedule.priority import Standing
from harness.schedule.row_queue import RowQueue
from harness.store import RunDirectory
from harness.store.journal import ASIDE

FAILED = ("crash", "oom", "hang")


@dataclass(kw_only=True)
class _Work:
    """A block on its way: who decides its launches, what became of its cells, and the verdict so far.

    `finished`: nothing more is launched. `final`: the verdict is the last one, and the traces are gone.
    """

    block: Block
    scheduler: FullScheduler | BisectScheduler
    run: BlockRun
    judged: JudgedBlock | None = None
    blank: JudgedBlock | None = None
    """The verdict while nothing was launched."""
    seen: tuple[object, ...] = ()
    """What the verdict rests on."""
    finished: bool = False
    final: bool = False
    again: tuple[str, ...] = ()
    """Why it started again, for each time that it did."""

    @property
    def place(self) -> tuple[str, ...]:
        """Where its A/A noise was measured: the lane and the scenario, and the machine where the host is a pool."""
        return (*place_of(self.block), self.run.cells[0].cell.lane.host.machine)

    @property
    def evidence(self) -> tuple[object, ...]:
        return tuple((len(run.trials), run.problem, run.incompatible, run.skipped) for run in self.run.cells)

    @property
    def measures_noise(self) -> bool:
        return isinstance(self.scheduler, FullScheduler) and self.scheduler.measures_noise

    def conclusion(self) -> tuple[str, ...]:
        """What a search came to, for those who would otherwise take "not launched" for "good"."""
        found = self.scheduler.conclusion
        place = f"{self.block.series.name} on {self.block.lane}, {self.block.variant}"
        return (f"{place}: searched: {found}",) if found else ()


@dataclass(frozen=True, kw_only=True)
class Running:
    """A plan being run on hosts that are open: a thread for each, so that a slow or lost one holds up no other."""

    plan: Plan
    hosts: Sequence[OpenHost]
    journal: RunDirectory
    context: RunContext
    reuse: bool = True
    only: frozenset[str] | None = None
    """The cells that may be launched; None: all."""
    works: dict[int, _Work] = field(default_factory=dict)
    """By the identity of their BlockRun, in the plan's order."""
    noises: dict[tuple[str, ...], Noise] = field(default_factory=dict)
    """A/A noise by lane, scenario and machine."""
    so_far: Callable[[Sequence[JudgedBlock]], None] = lambda blocks: None
    """Hears every block as it stands, after each turn of a row. From any thread, one at a time."""
    ending: Ending = field(init=False)
    open_rows: OpenRows = field(init=False)
    lock: threading.RLock = field(default_factory=threading.RLock)

    def __post_init__(self) -> None:
        rows = OpenRows(read=self.journal.read_back, others=self._twin_of)
        object.__setattr__(self, "open_rows", rows)
        object.__setattr__(self, "ending", Ending(asked=self.plan.stop))

    def run(self) -> None:
        """Launch what is not known yet. Returns early once the world is stopped; a host that is lost has a problem."""
        self.works.update({id(work.run): work for work in self._works()})
        trials, searched = self.plan.trials, any(map(self.plan.searched, self.plan.blocks))
        exact = trials.least == trials.most and not searched
        self.context.progress.plan(most=most_launches(self.plan, self.only), exact=exact, about=self._about())
        hosts = dict.fromkeys(each.part_of for each in self.hosts)
        machines = [[each for each in self.hosts if each.part_of == host] for host in hosts]
        side_by_side([functools.partial(self._run_host, each) for each in machines], self.context.stopped)
        if self.ending.reached and self.only != frozenset() and not self.context.stopped.is_set():
            self._mark_unfinished(self.ending.reached)

    def _about(self) -> Mapping[str, int]:
        """How many launches each lane will probably have: as in earlier runs, else as many as clear results take."""
        if self.only is not None:
            return {}
        known = estimate(self.journal.path.parent, self.plan) if self.reuse else None
        return typical_launches(self.plan) if known is None else known.launches

    def _mark_unfinished(self, why: str) -> None:
        """Say of each version that lacks launches why it has no more."""
        for work in self.works.values():
            least = 1 if self.plan.searched(work.block) else self.plan.trials.least
            for run in () if work.finished else work.run.cells:
                if run.runnable and run.skipped is None and len(run.measured) < least:
                    run.skipped = Skip(by="stop", why=why)

    def judged(self) -> list[JudgedBlock]:
        """Every block, in the plan's order; those that were not finished as far as they came."""
        return [self._newest(work) for work in self._in_order()]

    def _in_order(self) -> list[_Work]:
        """In the plan's order: a row that started again comes last in `works`."""
        works = {id(work.block): work for work in self.works.values()}
        return [works[id(block)] for block in self.plan.blocks]

    def _newest(self, work: _Work) -> JudgedBlock:
        """The verdict on a block by all its launches, also those of a turn that was interrupted."""
        if work.judged is None or (not work.final and (work.seen != work.evidence or work.finished)):
            self.open_rows.recall(work.run)
            self._judge(work)
            self.open_rows.put_down(work.run)
        assert work.judged is not None, "it was judged"
        return work.judged

    def _works(self) -> list[_Work]:
        """Every block with its policy. One block of each scenario and lane measures the noise; in a pool, one of each
        machine, which is chosen when the machine begins it.
        """
        works = []
        measuring: set[tuple[str, str]] = set()
        for block in self.plan.blocks:
            works.append(self._work(block, noise=not block.lane.host.pool and place_of(block) not in measuring))
            if isinstance(works[-1].scheduler, FullScheduler):
                measuring.add(place_of(block))
        return works

    def _work(self, block: Block, *, noise: bool) -> _Work:
        runs = tuple(CellRun(cell=cell) for cell in block.cells)
        if self.plan.searched(block) and self.only is None:
            scheduler: FullScheduler | BisectScheduler = self._search(block, runs)
        else:
            scheduler = FullScheduler(
                runs=runs, asked=self.plan.trials, only=self.only, measures_noise=noise, blocks=self._blocks(block)
            )
        return _Work(block=block, scheduler=scheduler, run=BlockRun(cells=runs, scheduler=scheduler))

    def _twin_of(self, run: BlockRun) -> list[CellRun]:
        """The A/A replicate of a row, if it has one."""
        scheduler = self.works[id(run)].scheduler
        return [scheduler.twin] if isinstance(scheduler, FullScheduler) and scheduler.twin is not None else []

    def _search(self, block: Block, runs: Sequence[CellRun]) -> BisectScheduler:
        """What chooses the launches of a block, or judges those that another search left and `--decide` added to."""
        return BisectScheduler(runs=runs, asked=self.plan.trials, baseline=baseline_of(block))

    def _blocks(self, block: Block) -> int:
        """How many blocks the scenario of this one has."""
        name = block.variant.scenario.name
        return sum(other.variant.scenario.name == name for other in self.plan.blocks)

    def _finish(self, run: BlockRun) -> None:
        """Judge a block whose launches are done for the last time, and let go of its traces.

        It needs the A/A noise of its lane and scenario: until the block that measures it is done, the others wait.
        """
        work = self.works[id(run)]
        work.finished = True
        with self.lock:
            if not work.measures_noise and self._measures(work.place):
                self.open_rows.put_down(run)
                return
            waiting = [each for each in self.works.values() if each.finished and not each.final]
            ready = [each for each in waiting if each.place == work.place]
            for each in ready:
                self._finish_for_good(each)

    def _measures(self, place: tuple[str, ...]) -> bool:
        """Whether a block that is not finished measures the noise of this lane and scenario."""
        works = self.works.values()
        return any(work.measures_noise and not work.finished and work.place == place for work in works)

    def _finish_for_good(self, work: _Work) -> None:
        self.open_rows.recall(work.run)
        judged = self._judge(work)
        work.final = True
        for each, result in zip(work.run.cells, judged.cells, strict=True):
            each.trials[:] = result.trials
        self.open_rows.forget(work.run)

    def _standing(self, run: BlockRun) -> Standing:
        """How a row stands after its turn."""
        standing = standing_of(self._judge(self.works[id(run)]), asked=self.plan.trials)
        self.open_rows.put_down(run)
        with self.lock:
            blocks = [self._known(work) for work in self._in_order()]
            if standing.confirmed and any(one.confirmed and one.kind != "first_fixed" for one in find(blocks).findings):
                self.ending.found()
            self.so_far(blocks)
        return standing

    def _known(self, work: _Work) -> JudgedBlock:
        """The verdict on a block as of its last turn; nothing is known of one that had none."""
        if work.judged is None and work.blank is None:
            fresh = [CellRun(cell=cell) for cell in work.block.cells]
            work.blank = judge_block(work.block, fresh, least=self.plan.trials.least, seed=self.plan.seed)
        found = work.judged or work.blank
        assert found is not None, "one of them is known"
        return found

    def _judge(self, work: _Work) -> JudgedBlock:
        place = work.place
        noise = work.scheduler.noise()
        if noise is not None:
            self.noises[place] = noise
        least = 1 if self.plan.searched(work.block) else self.plan.trials.least
        judged = judge_block(
            work.block,
            work.run.cells,
            least=least,
            seed=self.plan.seed,
            noise=self.noises.get(place),
            searched=self._search(work.block, work.run.cells) if self.plan.searched(work.block) else None,
            rows=shown_rows(len(self.plan.cells) * self.plan.trials.least),
            blocks=self._blocks(work.block),
        )
        unfound = () if judged.changes else work.conclusion()
        cells = tuple(replace(each, cell=cell) for each, cell in zip(judged.cells, work.block.cells, strict=True))
        warnings = (*judged.warnings, *unfound, *work.again)
        work.judged, work.seen = replace(judged, cells=cells, warnings=warnings), work.evidence
        return work.judged

    def _run_host(self, machines: Sequence[OpenHost]) -> None:
        """Run the rows of a host, or of a pool of several machines."""
        each, *_ = machines
        with self.lock:
            runs = [work.run for work in self.works.values() if work.block.lane.host == each.part_of]
        if each.part_of.pool:
            self._pool(machines).run(runs)
            return
        try:
            if each.usable:
                self._use(each, self._rows(each.host, runs), self.context.stopped.is_set)
        except Interrupted:
            raise
        except HarnessError as error:  # the other hosts go on, and what is known is reported
            each.problem = str(error)
        if each.problem is not None:
            _give_up(runs, each.problem, least=self.plan.trials.least)
            self.context.progress.note(each.problem)

    def _pool(self, machines: Sequence[OpenHost]) -> PoolRun:
        return PoolRun(
            machines=machines,
            context=self.context,
            rows=functools.partial(self._rows, machines[0].part_of),
            use=self._use,
            is_done=lambda block: self.works[id(block)].finished,
            begun=self._choose_noise,
            again=self._again,
            runs_of=lambda block: (*block.cells, *self._twin_of(block)),
            note_broken=lambda trial, run: self.journal.write_trial(trial, run.cell),
            homes=self.journal.machines() if self.reuse else {},
            images=images_on(self.plan, machines[0].part_of),
        )

    def _choose_noise(self, run: BlockRun) -> None:
        """Let the first row of a scenario that a machine begins measure the machine's noise."""
        work = self.works[id(run)]
        with self.lock:
            others = [each for each in self.works.values() if each is not work and each.place == work.place]
            if isinstance(work.scheduler, FullScheduler):
                work.scheduler.measures_noise = not any(other.measures_noise for other in others)

    def _again(self, run: BlockRun, why: str) -> BlockRun:
        """Start a row anew: on another machine nothing of it can be compared. What it measured is set aside."""
        old = self.works[id(run)]
        runs = (*run.cells, *self._twin_of(run))
        failed = [each.cell.image.version for each in runs for trial in each.trials if trial.end in FAILED]
        for trial in (trial for each in runs for trial in each.trials):
            self.journal.set_aside(trial)
        there = f"; there, {', '.join(dict.fromkeys(failed))} had failed" if failed else ""
        place = f"{old.block.series.name} on {old.block.lane}, {old.block.variant}"
        work = self._work(old.block, noise=False)
        work.again = (*old.again, f"{place}: started again on another machine: {why}{there} (see {ASIDE}/)")
        with self.lock:
            del self.works[id(run)]
            self.works[id(work.run)] = work
        self.open_rows.forget(run)
        return work.run

    def _use(self, each: OpenHost, rows: RowQueue, over: Callable[[], bool]) -> None:
        """Hold a machine and run rows on it; `over`: nothing is to be waited for any more."""
        engine, host = each.engine, each.host
        assert engine is not None

        def say(text: str) -> None:
            self.context.progress.preparing(lane=each.name, image="lease", text=text)

        announced = other_sweeps.announced(
            host.name, engine.facts, is_process=host.is_process, note=self.context.progress.note
        )
        with engine.lease(say, over) as lease, announced:
            removed = engine.remove_leftovers()
            if removed:
                self.context.progress.note(f"{each.name}: removed {removed} left behind by a run that was killed")
            self._run_lanes(engine, each, lease, rows)

    def _run_lanes(self, engine: Engine, machine: OpenHost, lease: Lease, rows: RowQueue) -> None:
        """One trial at a time; on a host with `parallel: true` one on each lane, each with a connection of its own."""
        host = machine.host
        blocks = [block for block in self.plan.blocks if block.lane.host == host] if host.parallel else []
        lanes = list(dict.fromkeys(str(block.lane) for block in blocks)) or [host.machine or host.name]
        disk = disk_of(
            host,
            engine,
            images_on(self.plan, machine.part_of),
            registry=functools.partial(open_registries, self.context.environ, self.context.stopped),
            note=self.context.progress.note,
        )
        opened = [self.context.open_engine(host, environ=self.context.environ, say=_unheard) for _ in lanes[1:]]
        try:
            at_once(
                [
                    functools.partial(self._host_run(each, host, lease, disk, worker=lane).run, rows)
                    for each, lane in zip([engine, *opened], lanes, strict=True)
                ]
            )
        finally:
            for each in opened:
                each.close()

    def _rows(self, host: Host, blocks: Sequence[BlockRun]) -> RowQueue:
        """The rows of a host. Where room for images is limited, one series comes after the other: taking turns, they
        would pull their images again in each round.
        """
        rows = RowQueue(
            standing=self._standing,
            recall=self.open_rows.recall,
            stop=self.ending.why,
            may=lambda worker, block: not host.parallel or worker == _lane_of(block),
        )
        series = list(dict.fromkeys(block.cells[0].cell.image.series for block in blocks))
        for block in blocks:
            limited = host.disk_bytes is not None
            rows.add(block, group=series.index(block.cells[0].cell.image.series) if limited else 0)
        return rows

    def _host_run(self, engine: Engine, host: Host, lease: Lease, disk: Disk, *, worker: str) -> HostRun:
        progress = MachineProgress(self.context.progress, host.machine) if host.machine else self.context.progress
        images = HostImages(
            engine=engine,
            open_another=functools.partial(self.context.open_engine, host, environ=self.context.environ, say=_unheard),
            progress=progress,
            stopped=self.context.stopped.is_set,
            disk=disk,
        )
        return HostRun(
            worker=worker,
            engine=engine,
            lease=lease,
            images=images,
            run_id=self.journal.id,
            trials=self.plan.trials,
            rng=random.Random(" ".join(filter(None, (str(self.plan.seed), host.name, host.machine)))),
            oracle=oracle.oracle(),
            journal=self.journal,
            progress=progress,
            stopped=self.context.stopped.is_set,
            reuse=self.reuse,
            finished=self._finish,
        )


def _lane_of(block: BlockRun) -> str:
    return str(block.cells[0].cell.lane)


def _unheard(text: str) -> None:
    """A second connection to an engine that has answered already has nothing to tell."""


def _give_up(blocks: Sequence[BlockRun], problem: str, *, least: int) -> None:
    """The host is gone: every cell of it that lacks trials says why."""
    for run in (run for block in blocks for run in block.cells):
        if not run.problem and len(run.measured) < least:
            run.problem = problem
