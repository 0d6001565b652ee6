"""Distributes the rows of a pool over its machines: each row is measured entirely on one of them.

Machines take row after row, the longest first. If a machine is lost and does not come back, its row starts again on
another one.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from harness.errors import Interrupted
from harness.flows.parts.context import RunContext
from harness.flows.parts.hosts.machines import OpenHost
from harness.flows.parts.hosts.threads import in_threads
from harness.flows.running.pool_machine import RETRIES, PoolMachine
from harness.flows.running.running_rows import RunningRows
from harness.plan.equal_machines import MachineSeen
from harness.reasons import MachineReason
from harness.run.run_interfaces import CellRun, RowRun
from harness.schedule.cost import round_limit_s
from harness.schedule.row_queue import RowQueue


@dataclass(frozen=True, kw_only=True)
class PoolRun:
    """The run of one pool.

    `make_queue`: returns a queue of the given rows. `use`: leases a machine and runs rows of the queue on it until none
    is left for it; raises the error that ends this early. `homes`: the machine that measured each row in an earlier
    run, by the row's place.
    """

    machines: Sequence[OpenHost]
    context: RunContext
    rows: RunningRows
    make_queue: Callable[[Sequence[RowRun]], RowQueue]
    use: Callable[[OpenHost, RowQueue, Callable[[], bool]], None]
    homes: Mapping[tuple[str, str, str], str]
    tried: dict[tuple[str, str, str], list[str]] = field(default_factory=dict)
    """The machines that were lost while they measured a row, by the row's place."""
    gone: dict[str, MachineSeen] = field(default_factory=dict)
    """The machines that were lost for good, as last seen, by name."""

    def run(self, rows: Sequence[RowRun]) -> None:
        """Run the rows. The cells of a row that could not be run get a problem."""
        left = sorted(rows, key=round_limit_s, reverse=True)
        while left and (able := [each for each in self.machines if each.usable or each.awaited]):
            queue = self.queue(left)
            self.gone.clear()
            in_threads([self._machine(each, queue).run for each in able])
            if self.context.stopped.is_set():
                raise Interrupted("interrupted")
            if not self.gone:
                if any(each.usable for each in able):  # nothing is left, or nothing more is to be launched
                    return
                break
            lost = [row for name in sorted(self.gone) for row, _ in queue.begun(name)]
            left = [
                *(row for row in left if not self.rows.is_done(row) and row not in lost),
                *(again for row in lost if (again := self._again(row)) is not None),
            ]
        for row in left:
            _give_up_row(row, "; ".join(str(each.problem) for each in self.machines if each.problem is not None))

    def queue(self, rows: Sequence[RowRun]) -> RowQueue:
        """Return the queue of these rows, in which a machine finishes its row before it begins another."""
        queue = self.make_queue(rows)
        queue.most, queue.begin, queue.may = 1, self._begin, self._may
        return queue

    def _machine(self, each: OpenHost, queue: RowQueue) -> PoolMachine:
        others = [other for other in self.machines if other is not each]
        return PoolMachine(
            each=each, others=others, context=self.context, queue=queue, use=self.use, gone=self.gone,
            break_rounds=functools.partial(self._break_rounds, queue=queue),
        )  # fmt: skip

    def _begin(self, machine: str, row: RowRun) -> None:
        """Bind the cells of a row to the machine that begins it."""
        each = next(each for each in self.machines if each.host.machine == machine)
        for run in row.cells:
            run.cell = each.own(run.cell)
        self.rows.choose_noise(row)

    def _may(self, machine: str, row: RowRun) -> bool:
        """Return whether a machine may take a row. A row that an earlier run measured stays on its machine as long as
        that machine is usable.
        """
        home = self.homes.get(row.place)
        return home in (None, machine) or not any(each.host.machine == home and each.usable for each in self.machines)

    def _break_rounds(self, machine: str, queue: RowQueue) -> None:
        """Exclude the launches of a broken-off round from comparisons of times, because the rest of the round follows
        minutes later. Their failures and leaks still count.
        """
        for row, batch in queue.begun(machine):
            if batch is None or all(_ran(run, batch.round) for run in batch.runs):
                continue
            for run in self.rows.runs_of(row):
                for place, trial in enumerate(run.trials):
                    if place >= run.adopted and trial.round == batch.round:
                        run.trials[place] = replace(trial, disturbed=MachineReason.LOST_DURING_ROUND())
                        self.rows.journal.write_trial(run.trials[place], run.cell)

    def _again(self, row: RowRun) -> RowRun | None:
        """Start the row of a lost machine again; return None and give the row up after RETRIES new starts."""
        lost = self.tried.setdefault(row.place, [])
        lost.append(row.cells[0].cell.lane.host.machine)
        if len(lost) <= RETRIES:
            return self.rows.again(row, MachineReason.LOST_DURING_ROW(machine=lost[-1]))
        _give_up_row(row, MachineReason.SEVERAL_LOST_DURING_ROW(count=len(lost), machines=", ".join(lost)))
        return None


def _ran(run: CellRun, number: int) -> bool:
    return any(trial.round == number for trial in run.trials[run.adopted :])


def _give_up_row(row: RowRun, problem: str) -> None:
    for run in row.cells:
        run.problem = run.problem or problem
