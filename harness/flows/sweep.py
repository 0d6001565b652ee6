"""Plans a sweep, runs the missing trials, judges them, and returns the result from which every report is made."""

from __future__ import annotations

import functools
import json
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

from harness.assess.estimate import estimate
from harness.assess.findings import Findings, find, observations
from harness.errors import HarnessError, Interrupted
from harness.flows import deciding
from harness.flows.context import RunContext
from harness.flows.hosts import OpenHost, in_threads, lanes_of, states_of, troubles_of, using_hosts
from harness.flows.pool import PoolRun
from harness.flows.running import Ending, MachineRun, RunningRows
from harness.judge.api import run_verdict
from harness.judge.attribution.cause import attribute
from harness.matrix import load_matrix
from harness.model import Explanation, Host, Matrix, Plan, RunResult, RunVerdict, SearchMode, Stop, Trials
from harness.plan.cells import Selection, make_plan, select
from harness.plan.explain import explain, most_launches, typical_launches
from harness.run.hosts.side_by_side import compares_times
from harness.run.run_interfaces import RowRun
from harness.run.trial.payload import payload_hash
from harness.schedule.row_queue import RowQueue
from harness.store import RunDirectory, inputs
from harness.store.plan_file import plan_to_json


@dataclass(frozen=True, kw_only=True)
class SweepOptions:
    """The settings of a sweep that the command line may change."""

    only: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    series: tuple[str, ...] = ()
    trials: Trials | None = None
    search: SearchMode = "full"
    seed: int | None = None
    decide: bool = False
    stop: Stop | None = None
    """When to end early, in place of the matrix's own setting."""
    fresh: bool = False
    out: Path = Path("reports")

    def select(self, matrix: Matrix) -> Selection:
        return select(
            matrix,
            seed=self.seed if self.seed is not None else random.SystemRandom().randrange(2**31),
            only=self.only,
            hosts=self.hosts,
            series=self.series,
            trials=self.trials,
            search=self.search,
            stop=self.stop,
        )


def selected(matrix: Path, options: SweepOptions, environ: Mapping[str, str]) -> Selection:
    """Read a matrix and return what to sweep. Apart from the files that the matrix names, only the package index is
    read.
    """
    return options.select(load_matrix(matrix, environ=environ))


def explained(selection: Selection, options: SweepOptions) -> Explanation:
    """Return what a sweep would do and, if earlier runs allow an estimate, its probable cost. Starts nothing."""
    plan = make_plan(selection)
    return replace(explain(plan), estimate=estimate(options.out / plan.matrix.name, plan))


def sweep(selection: Selection, options: SweepOptions, context: RunContext) -> tuple[RunResult, RunDirectory]:
    """Run the missing trials, judge them, and return the result with the directory of the run.

    If the run is interrupted or a host is lost, the result covers what was run.
    """
    began, clock = context.now(), time.monotonic()
    directory = RunDirectory.create(out=options.out, matrix=selection.matrix.name, now=began)
    homes = {} if options.fresh else directory.machines()
    with using_hosts(selection.images, context, homes=homes) as opened:
        plan, only = make_plan(selection, lanes_of(opened)), None
        if options.decide:
            plan, only = deciding.cells_to_run(plan, opened, directory, context)
        told = plan_to_json(
            plan,
            payload=payload_hash,
            inputs=functools.partial(inputs.keep_inputs, directory=directory.path),
            dockerfile=functools.partial(inputs.keep_dockerfile, directory=directory.path),
        )
        directory.write("plan.json", json.dumps(told, indent=1))
        directory.point_latest()
        made = functools.partial(_result, plan=plan, began=began, clock=clock, opened=opened, directory=directory.path)
        running = Running(
            plan=plan, hosts=opened, journal=directory, context=context, reuse=not options.fresh, only=only,
            so_far=lambda found: context.so_far(lambda: made(found()), directory),
        )  # fmt: skip
        running.run()
    return made(find(running.rows.judged()), interrupted=context.stopped.is_set()), directory


def _result(
    judged: Findings,
    *,
    plan: Plan,
    began: datetime,
    clock: float,
    opened: Sequence[OpenHost],
    directory: Path,
    interrupted: bool | None = None,
) -> RunResult:
    """Return the result of these findings. `clock`: the start, in monotonic seconds; `interrupted`: whether the run was
    interrupted, None if it is still running.
    """
    cells = tuple(cell for row in judged.rows for cell in row.cells)
    hosts = states_of(opened)
    verdict: RunVerdict = "running"
    if interrupted is not None:
        verdict = run_verdict(cells, judged.findings, hosts, interrupted=interrupted)
    return RunResult(
        matrix=plan.matrix.name,
        verdict=verdict,
        started=began.isoformat(timespec="seconds"),
        duration_s=round(time.monotonic() - clock, 1),
        hosts=hosts,
        plan=plan,
        cells=cells,
        findings=judged.findings,
        attribution=attribute(plan, cells, judged.findings),
        directory=directory,
        warnings=(*troubles_of(opened), *(warning for row in judged.rows for warning in row.warnings)),
        observations=observations(judged.rows),
        replicates=sum(row.replicates for row in judged.rows),
    )


# ---------------------------------------------------------------- the run of a plan


@dataclass(kw_only=True)
class Running:
    """A plan being run on open hosts.

    `only`: the ids of the cells that may be launched; None: all. `so_far`: as for `RunningRows`.
    """

    plan: Plan
    hosts: Sequence[OpenHost]
    journal: RunDirectory
    context: RunContext
    reuse: bool = True
    only: frozenset[str] | None = None
    so_far: Callable[[Callable[[], Findings]], None] = lambda found: None
    ending: Ending = field(init=False)
    rows: RunningRows = field(init=False)
    machine_run: MachineRun = field(init=False)

    def __post_init__(self) -> None:
        self.ending = Ending(asked=self.plan.stop)
        self.rows = RunningRows(
            plan=self.plan, journal=self.journal, ending=self.ending, only=self.only, so_far=self.so_far
        )
        self.machine_run = MachineRun(
            plan=self.plan, journal=self.journal, context=self.context, finished=self.rows.finish, reuse=self.reuse
        )

    def run(self) -> None:
        """Launch the missing trials. Return early once the run is stopped. A lost host gets a problem."""
        trials, searched = self.plan.trials, any(map(self.plan.searched, self.plan.rows))
        exact = trials.least == trials.most and not searched
        self.context.progress.plan(most=most_launches(self.plan, self.only), exact=exact, about=self._about())
        hosts = dict.fromkeys(each.part_of for each in self.hosts)
        machines = [[each for each in self.hosts if each.part_of == host] for host in hosts]
        in_threads([functools.partial(self._run_host, each) for each in machines], self.context.stopped)
        if self.ending.reached and self.only != frozenset() and not self.context.stopped.is_set():
            self.rows.mark_unfinished(self.ending.reached)

    def _about(self) -> Mapping[str, int]:
        """Return the probable number of launches by lane: as in earlier runs, else as many as clear results take."""
        if self.only is not None:
            return {}
        expected = estimate(self.journal.path.parent, self.plan) if self.reuse else None
        return typical_launches(self.plan) if expected is None else expected.launches

    def _run_host(self, machines: Sequence[OpenHost]) -> None:
        each, *_ = machines
        runs = self.rows.on(each.part_of)
        if each.part_of.pool:
            self._pool(machines).run(runs)
            return
        try:
            if each.usable:
                self.machine_run.use(each, self._queue(each.host, runs), self.context.stopped.is_set)
        except Interrupted:
            raise
        except HarnessError as error:  # the other hosts go on, and what is known is reported
            each.problem = error.text_at(each.host.where)
        if each.problem is not None:
            self.rows.give_up(runs, each.problem)
            self.context.progress.note(each.placed_problem)

    def _pool(self, machines: Sequence[OpenHost]) -> PoolRun:
        return PoolRun(
            machines=machines,
            context=self.context,
            rows=self.rows,
            make_queue=functools.partial(self._queue, machines[0].part_of),
            use=self.machine_run.use,
            homes=self.journal.machines() if self.reuse else {},
        )

    def _queue(self, host: Host, rows: Sequence[RowRun]) -> RowQueue:
        """Return the queue of a host's rows. If the space for images is limited, the series run one after the other: if
        they took turns, each round would pull their images again.
        """
        queue = RowQueue(
            standing=self.rows.standing,
            recall=self.rows.open_rows.recall,
            stop=self.ending.why,
            may=lambda worker, row: host.parallel is not True or worker == str(row.cells[0].cell.lane),
            splits=None if isinstance(host.parallel, bool) or host.pool or host.request is not None else _splits,
        )
        series = list(dict.fromkeys(row.cells[0].cell.image.series for row in rows))
        for row in rows:
            limited = host.disk_bytes is not None
            queue.add(row, group=series.index(row.cells[0].cell.image.series) if limited else 0)
        return queue


def _splits(row: RowRun) -> bool:
    """Return whether the launches of a row can run side by side."""
    return not compares_times(row.cells[0].cell.variant.scenario)
