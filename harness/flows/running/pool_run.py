"""Distributes the rows of a pool over its machines: each row is measured entirely on one of them.

Machines take row after row, the longest first. If a machine is lost, its row waits for it; if the machine does not come
back, the row starts again on another one. Nodes of a cluster join the pool as the queue grants them; a lost node is
given up, and its place asks the queue for another one.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from harness.errors import EngineUnreachable, HarnessError, Interrupted
from harness.flows.parts.context import RunContext
from harness.flows.parts.hosts.machines import OpenHost, leave_out
from harness.flows.parts.hosts.opening import open_machine
from harness.flows.parts.hosts.threads import in_threads
from harness.model import Trial
from harness.plan.equal_machines import MachineSeen, machine_change, odd_ones
from harness.reasons import MachineReason
from harness.run.run_interfaces import CellRun, RowRun
from harness.schedule.cost import round_limit_s
from harness.schedule.row_queue import RowQueue

RETRIES = 2
"""Most times that a row starts again on another machine, and that the pool waits for the same lost machine."""
ASK_EVERY_S = 3.0


@dataclass(frozen=True, kw_only=True)
class PoolRun:
    """The run of one pool.

    `make_queue`: returns a queue of the given rows. `use`: leases a machine and runs rows of the queue on it until none
    is left for it; raises the error that ends this early. `begun`: called with each row that a machine begins. `again`:
    restarts a row, for a reason that the report quotes, and returns the new row. `note_broken`: records a trial whose
    round was broken off. `homes`: the machine that measured each row in an earlier run, by the row's place.
    """

    machines: Sequence[OpenHost]
    context: RunContext
    make_queue: Callable[[Sequence[RowRun]], RowQueue]
    use: Callable[[OpenHost, RowQueue, Callable[[], bool]], None]
    is_done: Callable[[RowRun], bool]
    begun: Callable[[RowRun], None]
    again: Callable[[RowRun, str], RowRun]
    runs_of: Callable[[RowRun], Sequence[CellRun]]
    note_broken: Callable[[Trial, CellRun], None]
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
            in_threads([functools.partial(self._work, each, queue) for each in able])
            if self.context.stopped.is_set():
                raise Interrupted("interrupted")
            if not self.gone:
                if any(each.usable for each in able):  # nothing is left, or nothing more is to be launched
                    return
                break
            lost = [row for name in sorted(self.gone) for row, _ in queue.begun(name)]
            left = [
                *(row for row in left if not self.is_done(row) and row not in lost),
                *(again for row in lost if (again := self._again(row)) is not None),
            ]
        for row in left:
            _give_up_row(row, "; ".join(str(each.problem) for each in self.machines if each.problem is not None))

    def queue(self, rows: Sequence[RowRun]) -> RowQueue:
        """Return the queue of these rows, in which a machine finishes its row before it begins another."""
        queue = self.make_queue(rows)
        queue.most, queue.begin, queue.may = 1, self._begin, self._may
        return queue

    def _begin(self, machine: str, row: RowRun) -> None:
        """Bind the cells of a row to the machine that begins it."""
        each = next(each for each in self.machines if each.host.machine == machine)
        for run in row.cells:
            run.cell = each.own(run.cell)
        self.begun(row)

    def _may(self, machine: str, row: RowRun) -> bool:
        """Return whether a machine may take a row. A row that an earlier run measured stays on its machine as long as
        that machine is usable.
        """
        home = self.homes.get(row.place)
        return home in (None, machine) or not any(each.host.machine == home and each.usable for each in self.machines)

    def _work(self, each: OpenHost, queue: RowQueue) -> None:
        """Let a machine take rows until none is left for it, or until it is lost."""
        lost_s: list[float] = []

        def over() -> bool:
            is_late = bool(lost_s) and each.usable and time.monotonic() > lost_s[-1] + self.context.pool_wait_s
            return self.context.stopped.is_set() or is_late or not queue.ahead(each.host.machine)

        while True:
            name = each.host.machine
            try:
                if not each.awaited:
                    return self.use(each, queue, over)
                if not self._joined(each, queue, over):
                    return None
            except Interrupted:  # or no row was left for it while it waited for its lease or its node
                if self.context.stopped.is_set():
                    raise
                if queue.begun(name):
                    self.gone[name] = each.seen
                    each.problem = MachineReason.LOST_AND_TAKEN(machine=name)
                return None
            except HarnessError as error:  # the other machines go on
                lost_s.append(time.monotonic())
                if not self._is_back(each, queue, error, again=len(lost_s) <= RETRIES):
                    return None

    def _joined(self, each: OpenHost, queue: RowQueue, over: Callable[[], bool]) -> bool:
        """Wait for a node that the queue has not granted yet; return whether the node joined the pool. A lost node that
        is granted again, unchanged, goes on with its row.
        """
        open_machine(each, self.context, over=over)
        name = each.host.machine
        equal = next((other for other in self.machines if other is not each and other.usable), None)
        if each.usable and equal is not None and (difference := odd_ones([equal.seen, each.seen])):
            leave_out(each, difference[name])
        self.context.progress.note(f"{each.name} joins the pool" if each.usable else each.placed_problem)
        if each.usable and name in self.gone and not machine_change(self.gone[name], each.seen):
            del self.gone[name]
            queue.resume(name)
        return each.usable

    def _is_back(self, each: OpenHost, queue: RowQueue, error: HarnessError, *, again: bool) -> bool:
        """Wait for a lost machine if `again` is True. Return whether it came back; if it did not, set its problem."""
        name, where = each.host.machine, each.host.where
        if each.host.slurm is not None:
            return self._has_another(each, queue, error, again=again)
        told = MachineReason.LOST(machine=name, error=error.text_at(where))
        wait_s = self.context.pool_wait_s if again else 0.0
        if wait_s:
            self.context.progress.note(f"{where}: {told}; its row waits for it, {wait_s:.0f} s at most")
        self._break_rounds(name, queue)
        until_s = time.monotonic() + wait_s
        while time.monotonic() < until_s and not self.context.stopped.wait(min(ASK_EVERY_S, wait_s)):
            try:
                difference = _reopened(each, self.context)
            except HarnessError:  # it does not answer yet
                continue
            if not difference:
                self.context.progress.note(f"{where}: {name} is back, and goes on with its row")
                queue.resume(name)
                return True
            told = MachineReason.LOST_AND_CHANGED(machine=name, error=error.text_at(where), difference=difference)
            break
        self.gone[name] = each.seen
        each.problem = told
        self.context.progress.note(f"{where}: {told}; its row starts again on another machine")
        return False

    def _has_another(self, each: OpenHost, queue: RowQueue, error: HarnessError, *, again: bool) -> bool:
        """Give up a lost node; return whether its place may ask the queue for another one."""
        name = each.host.machine
        self._break_rounds(name, queue)
        self.gone[name] = each.seen
        each.close()
        told = MachineReason.LOST(machine=name, error=error.text_at(each.host.where))
        if again:
            each.await_another()
        else:
            each.problem = told
        self.context.progress.note(f"{each.host.where}: {told}; its row starts again on another node")
        return again

    def _break_rounds(self, machine: str, queue: RowQueue) -> None:
        """Exclude the launches of a broken-off round from comparisons of times, because the rest of the round follows
        minutes later. Their failures and leaks still count.
        """
        for row, batch in queue.begun(machine):
            if batch is None or all(_ran(run, batch.round) for run in batch.runs):
                continue
            for run in self.runs_of(row):
                for place, trial in enumerate(run.trials):
                    if place >= run.adopted and trial.round == batch.round:
                        run.trials[place] = replace(trial, disturbed=MachineReason.LOST_DURING_ROUND())
                        self.note_broken(run.trials[place], run)

    def _again(self, row: RowRun) -> RowRun | None:
        """Start the row of a lost machine again; return None and give the row up after RETRIES new starts."""
        lost = self.tried.setdefault(row.place, [])
        lost.append(row.cells[0].cell.lane.host.machine)
        if len(lost) <= RETRIES:
            return self.again(row, MachineReason.LOST_DURING_ROW(machine=lost[-1]))
        _give_up_row(row, MachineReason.SEVERAL_LOST_DURING_ROW(count=len(lost), machines=", ".join(lost)))
        return None


def _reopened(each: OpenHost, context: RunContext) -> str:
    """Open a machine again and compare it with what it was; return the difference, or "" if there is none. Raises
    HarnessError.
    """
    new = OpenHost(host=each.host, part_of=each.part_of, images=each.images)
    open_machine(new, context, over=context.stopped.is_set)
    if new.problem is not None:
        new.close()
        raise EngineUnreachable(new.problem, place=each.host.where)
    if difference := machine_change(each.seen, new.seen):
        new.close()
        return difference
    each.close()
    each.engine = new.engine
    return ""


def _ran(run: CellRun, number: int) -> bool:
    return any(trial.round == number for trial in run.trials[run.adopted :])


def _give_up_row(row: RowRun, problem: str) -> None:
    for run in row.cells:
        run.problem = run.problem or problem
