"""Plans a sweep, runs the missing trials, judges them, and returns the result from which every report is made."""

from __future__ import annotations

import functools
import json
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from harness.assess.estimate import estimate
from harness.assess.findings import Findings, find, observations
from harness.flows.parts.context import RunContext
from harness.flows.parts.hosts.machines import OpenHost, lanes_of, states_of, troubles_of
from harness.flows.parts.hosts.opening import using_hosts
from harness.flows.running import undecided
from harness.flows.running.plan_run import Running
from harness.judge.attribution.cause import attribute
from harness.matrix import load_matrix
from harness.model import Explanation, Matrix, Plan, RunResult, SearchMode, Stop, Trials
from harness.plan.cells import Selection, make_plan, select
from harness.plan.explain import explain
from harness.run.trial.payload import payload_hash
from harness.schedule import oracle
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
            plan, only = undecided.cells_to_run(plan, opened, directory, context)
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
    result = made(find(running.rows.judged()))
    return replace(result, verdict=oracle.verdict_on_run(result, interrupted=context.stopped.is_set())), directory


def _result(
    judged: Findings,
    *,
    plan: Plan,
    began: datetime,
    clock: float,
    opened: Sequence[OpenHost],
    directory: Path,
) -> RunResult:
    """Return the result of these findings, with the verdict `running`. `clock`: the start, in monotonic seconds."""
    cells = tuple(cell for row in judged.rows for cell in row.cells)
    return RunResult(
        matrix=plan.matrix.name,
        verdict="running",
        started=began.isoformat(timespec="seconds"),
        duration_s=round(time.monotonic() - clock, 1),
        hosts=states_of(opened),
        plan=plan,
        cells=cells,
        findings=judged.findings,
        attribution=attribute(plan, cells, judged.findings),
        directory=directory,
        warnings=(*troubles_of(opened), *(warning for row in judged.rows for warning in row.warnings)),
        observations=observations(judged.rows),
        replicates=sum(row.replicates for row in judged.rows),
    )
