"""Plans a sweep, runs the missing trials, judges them, and returns the result from which every report is made."""

from __future__ import annotations

import functools
import json
import random
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from harness.errors import HarnessError, Interrupted
from harness.flows import deciding
from harness.flows.context import RunContext
from harness.flows.estimate import estimate
from harness.flows.hosts import OpenHost, in_threads, lanes_of, refuse_missing, using_hosts
from harness.flows.pool import PoolRun
from harness.flows.running import Run
from harness.matrix import load_matrix
from harness.model import Explanation, Matrix, Plan, RunResult, SearchMode, Stop, Trials, grouped
from harness.plan.cells import select, with_lanes
from harness.plan.explain import explain, most_launches, typical_launches
from harness.plan.uses import uses
from harness.run.hosts.mounted_data import missing_data
from harness.run.trial.payload import keep_inputs, payload_hash
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
    """The conditions for an early end, in place of the matrix's own setting."""
    fresh: bool = False
    out: Path = Path("reports")

    def select(self, matrix: Matrix) -> Plan:
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


def selected(matrix: Path, options: SweepOptions, environ: Mapping[str, str]) -> Plan:
    """Read a matrix and return what to sweep. Beside the files that it names, only the package index is read."""
    return options.select(load_matrix(matrix, environ=environ))


def explained(plan: Plan, options: SweepOptions) -> Explanation:
    """Return what a sweep would do and, if earlier runs allow an estimate, its probable cost. Starts nothing."""
    return replace(explain(plan), estimate=estimate(options.out / plan.matrix.name, plan, reuse=not options.fresh))


def checked_data(plan: Plan, context: RunContext) -> tuple[str, ...]:
    """Return what each host says about the data that its scenarios mount, in one line for each missing path. Hosts
    without mounts are not asked, and a queue is asked for no node."""
    told = []
    for host in dict.fromkeys(row.lane.host for row in plan.rows):
        scenarios = [row.variant.scenario for row in plan.rows if row.lane.host == host]
        if not any(scenario.data for scenario in scenarios):
            continue
        if host.can.queues:
            told.append(f"{host.name}: the mounted data are looked for on the node that the queue grants")
            continue
        for machine in host.machines:
            name = machine.full_name
            try:
                say = context.preparing(lane=name, image="mounts")
                with closing(context.open_engine(machine, environ=context.environ, say=say)) as engine:
                    absent = missing_data(engine, scenarios)
            except Interrupted:
                raise
            except HarnessError as error:  # the other hosts are still asked
                absent = (error.text_at(host.where),)
            told += [f"{name}: {line}" for line in absent or ("all mounted data are there",)]
    return tuple(told)


def sweep(plan: Plan, options: SweepOptions, context: RunContext) -> tuple[RunResult, RunDirectory]:
    """Run the missing trials, judge them, and return the result with the directory of the run.

    If the run is interrupted or a host is lost, the result covers what was run.
    """
    began, began_s = context.now(), time.monotonic()
    journal = RunDirectory.create(out=options.out, matrix=plan.matrix.name, now=began)
    journal.counts_setups = options.decide
    homes = {} if options.fresh else journal.machines()
    with using_hosts(plan.images, context, homes=homes) as opened:
        for each in opened:
            refuse_missing(each, plan.later, context)
        plan, only = with_lanes(plan, lanes_of(opened)), None
        processors = {each.part_of.name: str(each.facts.get("architecture") or "") for each in opened}
        for line in uses(plan, processors):
            context.progress.note(line)
        changed = list(deciding.changed_hosts(plan, opened, journal))
        for _, text in changed:
            context.progress.note(text)
        if options.decide:
            plan, only = deciding.cells_to_run(plan, opened, journal, context, is_changed=bool(changed))
        told = plan_to_json(
            plan,
            payload=payload_hash,
            inputs=functools.partial(keep_inputs, directory=journal.path),
            dockerfile=functools.partial(inputs.keep_dockerfile, directory=journal.path),
        )
        journal.write("plan.json", json.dumps(told, indent=1))
        journal.point_latest()
        run = Run(
            plan=plan, journal=journal, context=context, began=began, began_s=began_s, hosts=opened,
            reuse=not options.fresh, only=only,
        )  # fmt: skip
        _launch(run, homes)
    return replace(run.result(), before=tuple(dict.fromkeys(earlier for earlier, _ in changed))), journal


def _launch(run: Run, homes: Mapping[tuple[str, str, str], str]) -> None:
    """Launch the missing trials on all hosts. Return early once the run is stopped. A lost host gets a problem."""
    plan, stopped = run.plan, run.context.stopped
    exact = plan.trials.least == plan.trials.most and not any(map(plan.searched, plan.rows))
    about: Mapping[str, int] = {}  # as in earlier runs, else as many as clear results take
    if run.only is None:
        expected = estimate(run.journal.path.parent, plan) if run.reuse else None
        about = typical_launches(plan) if expected is None else expected.launches
    most = most_launches(plan, run.only)
    run.context.progress.plan(most=most, exact=exact, about=about, time_s=plan.stop.time_s)
    machines = grouped((each.part_of, each) for each in run.hosts).values()
    in_threads([functools.partial(_launch_on, run, each, homes) for each in machines], stopped)
    if run.ending.reached and run.only != frozenset() and not stopped.is_set():
        run.mark_unfinished(run.ending.reached)


def _launch_on(run: Run, machines: Sequence[OpenHost], homes: Mapping[tuple[str, str, str], str]) -> None:
    """Run the rows of one host, which has several machines if it is a pool."""
    each, *_ = machines
    rows = run.on(each.part_of)
    if each.part_of.pool:
        PoolRun(machines=machines, run=run, homes=homes).launch(rows)
        return
    if each.usable:
        with each.noting_problem():
            run.use(each, run.queue(each.host, rows), run.context.stopped.is_set)
    if each.problem is not None:
        run.give_up(rows, each.problem)
        run.context.progress.note(each.placed_problem)
