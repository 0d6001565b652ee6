"""Runs a plan, with a thread for each host, so that a slow or lost host does not hold up the others."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from harness.assess.estimate import estimate
from harness.assess.findings import Findings
from harness.errors import HarnessError, Interrupted
from harness.flows.parts.context import RunContext
from harness.flows.parts.hosts.machines import OpenHost
from harness.flows.parts.hosts.threads import in_threads
from harness.flows.running.early_end import Ending
from harness.flows.running.machine_run import MachineRun
from harness.flows.running.pool_run import PoolRun
from harness.flows.running.running_rows import RunningRows
from harness.model import Host, Plan
from harness.plan.explain import most_launches, typical_launches
from harness.run.hosts.beside import compares_times
from harness.run.run_interfaces import RowRun
from harness.schedule.row_queue import RowQueue
from harness.store import RunDirectory


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
