"""The main job: plan, run what is not yet known, judge, and hand back what every report is made of."""

from __future__ import annotations

import json
import random
import re
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path

from harness.errors import HarnessError, InfrastructureError, Interrupted
from harness.flows import findings, judging
from harness.matrix import load_matrix
from harness.model import Host, HostState, Plan, RunResult, Trials, Watcher
from harness.plan import make_plan, to_json
from harness.run import open_engine
from harness.run.engine import Engine
from harness.run.lanes import CellRun, HostRun
from harness.store import RunDirectory

REMOVAL_S = 30.0
"""How long an interrupted sweep waits for its hosts to remove what they started."""


@dataclass(frozen=True, kw_only=True)
class SweepOptions:
    """What the command line may change about a matrix's sweep."""

    only: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    series: tuple[str, ...] = ()
    trials: Trials | None = None
    seed: int | None = None
    fresh: bool = False
    out: Path = Path("reports")


@dataclass(frozen=True, kw_only=True)
class World:
    """What a flow takes from outside."""

    environ: Mapping[str, str]
    watcher: Watcher
    stopped: threading.Event
    open_engine: Callable[..., Engine] = open_engine
    now: Callable[[], datetime] = lambda: datetime.now(timezone.utc)


def plan_sweep(matrix: Path, options: SweepOptions, environ: Mapping[str, str]) -> Plan:
    """Read a matrix and plan its sweep. Touches nothing but the files that the matrix names and the package index."""
    return make_plan(
        load_matrix(matrix, environ=environ),
        seed=options.seed if options.seed is not None else random.SystemRandom().randrange(2**31),
        only=options.only,
        hosts=options.hosts,
        series=options.series,
        trials=options.trials,
    )


def sweep(plan: Plan, options: SweepOptions, world: World) -> tuple[RunResult, RunDirectory]:
    """Run what is not yet known, judge, and return the result with the directory that holds its journal.

    The result is of whatever was run, also when it was interrupted or hosts were lost.
    """
    began, clock = world.now(), time.monotonic()
    directory = RunDirectory.create(out=options.out, matrix=plan.matrix.name, now=began)
    directory.write("plan.json", json.dumps(to_json(plan), indent=1))
    directory.point_latest()
    running = _Sweep(plan=plan, journal=directory, world=world, reuse=not options.fresh)
    hosts = running.run()
    cells = tuple(judging.judge_run(running.cells[cell.id], least=plan.trials.least) for cell in plan.cells)
    by_id = {cell.cell_id: cell for cell in cells}
    result = RunResult(
        matrix=plan.matrix.name,
        verdict="ok",
        started=began.isoformat(timespec="seconds"),
        duration_s=round(time.monotonic() - clock, 1),
        hosts=hosts,
        plan=plan,
        cells=cells,
        findings=findings.find(plan, by_id),
        directory=directory.path,
        warnings=findings.warnings(plan, by_id),
    )
    return replace(result, verdict=judging.run_verdict(result, interrupted=world.stopped.is_set())), directory


# ---------------------------------------------------------------- running


@dataclass(frozen=True, kw_only=True)
class _Sweep:
    """A plan being run: a thread for every host, so that a slow or lost one holds up no other."""

    plan: Plan
    journal: RunDirectory
    world: World
    reuse: bool
    cells: dict[str, CellRun] = field(default_factory=dict)

    def run(self) -> tuple[HostState, ...]:
        self.cells.update({cell.id: CellRun(cell=cell) for cell in self.plan.cells})
        lanes = [str(cell.lane) for cell in self.plan.cells if not cell.excluded]
        expected = {lane: lanes.count(lane) * self.plan.trials.least for lane in dict.fromkeys(lanes)}
        self.world.watcher.plan(trials=expected)
        hosts = list({block.lane.host.name: block.lane.host for block in self.plan.blocks}.values())
        states: dict[str, HostState] = {}
        failures: list[BaseException] = []

        def work(host: Host) -> None:
            try:
                states[host.name] = self._run_host(host)
            except BaseException as error:  # noqa: BLE001 - raised again below: a thread must not lose it
                failures.append(error)
                self.world.stopped.set()

        _join([threading.Thread(target=work, args=(host,), daemon=True) for host in hosts], self.world.stopped)
        for error in failures:
            if not isinstance(error, Interrupted):
                raise error
        return tuple(states.get(host.name, HostState(host=host)) for host in hosts)

    def _run_host(self, host: Host) -> HostState:
        blocks = [
            [self.cells[cell.id] for cell in block.cells] for block in self.plan.blocks if block.lane.host == host
        ]
        facts: Mapping[str, object] = {}
        try:
            engine = self.world.open_engine(host, environ=self.world.environ, say=self._say(host))
            facts = engine.facts
            try:
                _check_gpus(host, {run.cell.lane.gpu for block in blocks for run in block} - {None})
                self._use(engine, host, blocks)
            finally:
                engine.close()
        except Interrupted:
            raise
        except HarnessError as error:  # the other hosts go on, and what is known is reported
            _give_up(blocks, str(error), least=self.plan.trials.least)
            self.world.watcher.note(str(error))
            return HostState(host=host, problem=str(error), facts=facts)
        return HostState(host=host, facts=facts)

    def _say(self, host: Host) -> Callable[[str], None]:
        return lambda text: self.world.watcher.preparing(lane=host.name, image="engine", text=text)

    def _use(self, engine: Engine, host: Host, blocks: Sequence[Sequence[CellRun]]) -> None:
        removed = engine.remove_leftovers()
        if removed:
            self.world.watcher.note(f"{host.name}: removed {removed} left behind by a run that was killed")
        HostRun(
            engine=engine,
            run_id=self.journal.id,
            trials=self.plan.trials,
            rng=random.Random(f"{self.plan.seed} {host.name}"),
            referee=judging.referee(self.plan.trials),
            journal=self.journal,
            watcher=self.world.watcher,
            stopped=self.world.stopped.is_set,
            reuse=self.reuse,
        ).run(blocks)


def _check_gpus(host: Host, gpus: Collection[str | None]) -> None:
    """A GPU that is not surely the one asked for is not used: figures of another card would be a wrong accusation."""
    unsure = [str(gpu) for gpu in gpus if not re.fullmatch(r"all|\d+|(GPU|MIG)-.+", str(gpu))]
    if gpus and (host.is_process or unsure):
        named = f"{host.where}.gpus: {', '.join(map(str, gpus))}"
        raise InfrastructureError(
            f"{named}: cannot be told apart on this host yet; "
            "on a container engine name GPUs by index or UUID, or use all"
        )


def _join(threads: Sequence[threading.Thread], stopped: threading.Event) -> None:
    """Run the hosts' threads to their end; once stopped, wait no longer than removing what they started may take."""
    for thread in threads:
        thread.start()
    deadline = float("inf")
    while any(thread.is_alive() for thread in threads) and time.monotonic() < deadline:
        for thread in threads:
            thread.join(0.1)
        if stopped.is_set():
            deadline = min(deadline, time.monotonic() + REMOVAL_S)


def _give_up(blocks: Sequence[Sequence[CellRun]], problem: str, *, least: int) -> None:
    """The host is gone: every cell of it that lacks trials says why."""
    for run in (run for block in blocks for run in block):
        if not run.problem and len(run.measured) < least:
            run.problem = problem
