"""The main job: plan, run what is not yet known, judge, and hand back what every report is made of."""

from __future__ import annotations

import functools
import json
import random
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from harness.errors import HarnessError, Interrupted, UsageError
from harness.flows import findings, inputs, judging
from harness.flows.blocks import JudgedBlock, baseline_of, judge_block, place_of, shown_rows
from harness.flows.hosts import OpenHost, at_once, images_on, open_hosts, side_by_side
from harness.flows.needs import disk_of
from harness.flows.registries import open_registries
from harness.flows.rounds import Rounds
from harness.flows.searching import Searching
from harness.flows.world import World
from harness.judge.attribution import attribute, deciding_cells
from harness.matrix import load_matrix
from harness.model import Block, Host, Lane, Matrix, Noise, Plan, RunResult, SearchMode, Trials
from harness.plan import including, make_plan, most_launches, to_json
from harness.run.disk import Disk
from harness.run.engine import Engine, Lease
from harness.run.fetching import Images
from harness.run.lanes import HostRun
from harness.run.payload import payload_hash
from harness.run.policy import BlockRun, CellRun
from harness.store import RunDirectory


@dataclass(frozen=True, kw_only=True)
class SweepOptions:
    """What the command line may change about a matrix's sweep."""

    only: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    series: tuple[str, ...] = ()
    trials: Trials | None = None
    search: SearchMode = "full"
    seed: int | None = None
    decide: bool = False
    fresh: bool = False
    out: Path = Path("reports")

    def plan(self, matrix: Matrix, *, seed: int, lanes: Mapping[str, Sequence[Lane]] | None = None) -> Plan:
        """`lanes`: of the hosts, by name, that were asked for their GPUs."""
        return make_plan(
            matrix,
            seed=seed,
            only=self.only,
            hosts=self.hosts,
            series=self.series,
            trials=self.trials,
            search=self.search,
            lanes=lanes,
        )


def plan_sweep(matrix: Path, options: SweepOptions, environ: Mapping[str, str]) -> Plan:
    """Read a matrix and plan its sweep. Touches nothing but the files that the matrix names and the package index."""
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(2**31)
    return options.plan(load_matrix(matrix, environ=environ), seed=seed)


def sweep(plan: Plan, options: SweepOptions, world: World) -> tuple[RunResult, RunDirectory]:
    """Run what is not yet known, judge, and return the result with the directory that holds its journal.

    The result is of whatever was run, also when it was interrupted or hosts were lost.
    """
    began, clock = world.now(), time.monotonic()
    directory = RunDirectory.create(out=options.out, matrix=plan.matrix.name, now=began)
    opened = open_hosts(plan, world)
    plan = with_lanes(plan, opened, options)
    only = None
    if options.decide:
        plan, only = _deciding(_Sweep(plan=plan, hosts=opened, journal=directory, world=world, only=frozenset()))
        opened = open_hosts(plan, world)
    kept = functools.partial(inputs.keep, directory=directory.path)
    directory.write("plan.json", json.dumps(to_json(plan, payload=payload_hash, inputs=kept), indent=1))
    directory.point_latest()
    running = _Sweep(plan=plan, hosts=opened, journal=directory, world=world, reuse=not options.fresh, only=only)
    running.run()
    blocks = running.judged()
    cells = tuple(cell for block in blocks for cell in block.cells)
    found = findings.find(blocks)
    result = RunResult(
        matrix=plan.matrix.name,
        verdict="ok",
        started=began.isoformat(timespec="seconds"),
        duration_s=round(time.monotonic() - clock, 1),
        hosts=tuple(each.state for each in opened),
        plan=plan,
        cells=cells,
        findings=found,
        attribution=attribute(plan, cells, found),
        directory=directory.path,
        warnings=tuple(warning for block in blocks for warning in block.warnings),
    )
    return replace(result, verdict=judging.run_verdict(result, interrupted=world.stopped.is_set())), directory


def with_lanes(plan: Plan, opened: Sequence[OpenHost], options: SweepOptions) -> Plan:
    """The plan with the lanes that the hosts were found to have."""
    lanes = {each.host.name: each.lanes for each in opened if each.lanes}
    return replace(options, trials=plan.trials, search=plan.search).plan(plan.matrix, seed=plan.seed, lanes=lanes)


def _deciding(known: _Sweep) -> tuple[Plan, frozenset[str]]:
    """The cells that would settle an undecided cause, by what is known without a launch; what the matrix leaves out
    is among them if only that tells, and is left out no longer. One of these may be known already, from the last time:
    then it counts, and the next one is asked for.
    """
    known.run()
    if known.world.stopped.is_set():
        return known.plan, frozenset()
    blocks = known.judged()
    cells = tuple(cell for block in blocks for cell in block.cells)
    if not any(cell.trials for cell in cells):
        shutil.rmtree(known.journal.path)
        raise UsageError(
            "--decide: nothing that earlier runs measured is of this plan any more (script, settings, images or hosts "
            "changed since); sweep it without --decide first"
        )
    wanted = {cell.id for cell in deciding_cells(attribute(known.plan, cells, findings.find(blocks)))}
    plan = including(known.plan, wanted)
    if plan != known.plan:
        hosts = open_hosts(plan, known.world)
        return _deciding(replace(known, plan=plan, hosts=hosts, works={}, noises={}))
    told = ", ".join(str(cell.cell) for cell in cells if cell.cell_id in wanted)
    known.world.watcher.note(f"to be decided: {told}" if told else "nothing to decide: no cause is undecided")
    return plan, frozenset(wanted)


# ---------------------------------------------------------------- running


@dataclass(kw_only=True)
class _Work:
    """A block on its way: who decides its launches, what became of its cells, and the verdict once they are done."""

    block: Block
    policy: Rounds | Searching
    run: BlockRun
    judged: JudgedBlock | None = None

    def conclusion(self) -> tuple[str, ...]:
        """What a search came to, for those who would otherwise take "not launched" for "good"."""
        found = self.policy.conclusion
        place = f"{self.block.series.name} on {self.block.lane}, {self.block.variant}"
        return (f"{place}: searched: {found}",) if found else ()


@dataclass(frozen=True, kw_only=True)
class _Sweep:
    """A plan being run: a thread for every host, so that a slow or lost one holds up no other."""

    plan: Plan
    hosts: Sequence[OpenHost]
    journal: RunDirectory
    world: World
    reuse: bool = True
    only: frozenset[str] | None = None
    """The cells that may be launched; None: all."""
    works: dict[int, _Work] = field(default_factory=dict)
    """By the identity of their BlockRun, in the plan's order."""
    noises: dict[tuple[str, str], Noise] = field(default_factory=dict)
    """A/A noise by lane and scenario."""

    def run(self) -> None:
        self.works.update({id(work.run): work for work in self._works()})
        trials, searched = self.plan.trials, any(map(self.plan.searched, self.plan.blocks))
        exact = trials.least == trials.most and not searched
        self.world.watcher.plan(most=most_launches(self.plan, self.only), exact=exact)
        side_by_side([functools.partial(self._run_host, each) for each in self.hosts], self.world.stopped)

    def judged(self) -> list[JudgedBlock]:
        """Every block, in the plan's order; those that were not finished as far as they came."""
        return [work.judged or self._judge(work) for work in self.works.values()]

    def _works(self) -> list[_Work]:
        """Every block with its policy. One block of each scenario and lane measures the noise."""
        works = []
        measuring: set[tuple[str, str]] = set()
        for block in self.plan.blocks:
            runs = tuple(CellRun(cell=cell) for cell in block.cells)
            if self.plan.searched(block) and self.only is None:
                policy: Rounds | Searching = Searching(runs=runs, asked=self.plan.trials, baseline=baseline_of(block))
            else:
                noise = place_of(block) not in measuring
                policy = Rounds(runs=runs, asked=self.plan.trials, only=self.only, measures_noise=noise)
                measuring.add(place_of(block))
            works.append(_Work(block=block, policy=policy, run=BlockRun(cells=runs, policy=policy)))
        return works

    def _finish(self, run: BlockRun) -> None:
        """Judge a block whose launches are done, and let go of its traces."""
        work = self.works[id(run)]
        work.judged = self._judge(work)
        for each, result in zip(run.cells, work.judged.cells, strict=True):
            each.trials[:] = result.trials

    def _judge(self, work: _Work) -> JudgedBlock:
        place = place_of(work.block)
        noise = work.policy.noise()
        if noise is not None:
            self.noises[place] = noise
        least = 1 if self.plan.searched(work.block) else self.plan.trials.least
        judged = judge_block(
            work.block,
            work.run.cells,
            least=least,
            seed=self.plan.seed,
            noise=self.noises.get(place),
            searched=work.policy if isinstance(work.policy, Searching) else None,
            rows=shown_rows(len(self.plan.cells) * self.plan.trials.least),
        )
        unfound = () if judged.changes else work.conclusion()
        return replace(judged, warnings=(*judged.warnings, *unfound))

    def _run_host(self, each: OpenHost) -> None:
        runs = [work.run for work in self.works.values() if work.block.lane.host == each.host]
        try:
            if each.engine is not None and each.problem is None:
                self._use(each.engine, each.host, runs)
        except Interrupted:
            raise
        except HarnessError as error:  # the other hosts go on, and what is known is reported
            each.problem = str(error)
        finally:
            each.close()
        if each.problem is not None:
            _give_up(runs, each.problem, least=self.plan.trials.least)
            self.world.watcher.note(each.problem)

    def _use(self, engine: Engine, host: Host, blocks: Sequence[BlockRun]) -> None:
        def say(text: str) -> None:
            self.world.watcher.preparing(lane=host.name, image="lease", text=text)

        with engine.lease(say, self.world.stopped.is_set) as lease:
            removed = engine.remove_leftovers()
            if removed:
                self.world.watcher.note(f"{host.name}: removed {removed} left behind by a run that was killed")
            self._run_lanes(engine, host, lease, blocks)

    def _run_lanes(self, engine: Engine, host: Host, lease: Lease, blocks: Sequence[BlockRun]) -> None:
        """One trial at a time; on a host with `parallel: true` one on each lane, each with a connection of its own."""
        lanes: dict[str, list[BlockRun]] = {}
        for block in blocks:
            lanes.setdefault(str(block.cells[0].cell.lane) if host.parallel else host.name, []).append(block)
        disk = disk_of(
            host,
            engine,
            images_on(self.plan, host),
            registry=functools.partial(open_registries, self.world.environ, self.world.stopped),
            note=self.world.watcher.note,
        )
        first, *others = lanes.values()
        opened = [self.world.open_engine(host, environ=self.world.environ, say=_unheard) for _ in others]
        try:
            at_once(
                [
                    functools.partial(self._host_run(each, host, lease, disk).run, lane)
                    for each, lane in zip([engine, *opened], [first, *others], strict=True)
                ]
            )
        finally:
            for each in opened:
                each.close()

    def _host_run(self, engine: Engine, host: Host, lease: Lease, disk: Disk) -> HostRun:
        images = Images(
            engine=engine,
            open_another=functools.partial(self.world.open_engine, host, environ=self.world.environ, say=_unheard),
            watcher=self.world.watcher,
            stopped=self.world.stopped.is_set,
            disk=disk,
        )
        return HostRun(
            engine=engine,
            lease=lease,
            images=images,
            run_id=self.journal.id,
            trials=self.plan.trials,
            rng=random.Random(f"{self.plan.seed} {host.name}"),
            referee=judging.referee(),
            journal=self.journal,
            watcher=self.world.watcher,
            stopped=self.world.stopped.is_set,
            reuse=self.reuse,
            finished=self._finish,
        )


def _unheard(text: str) -> None:
    """A second connection to an engine that has answered already has nothing to tell."""


def _give_up(blocks: Sequence[BlockRun], problem: str, *, least: int) -> None:
    """The host is gone: every cell of it that lacks trials says why."""
    for run in (run for block in blocks for run in block.cells):
        if not run.problem and len(run.measured) < least:
            run.problem = problem
