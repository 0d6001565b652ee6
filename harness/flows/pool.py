"""Distributes the rows of a pool over its machines: each row is measured entirely on one of them.

Machines take row after row, the longest first. If a machine is lost and does not come back, its row starts again on
another one.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from harness.errors import EngineUnreachable, HarnessError, Interrupted
from harness.flows.context import RunContext
from harness.flows.hosts import OpenHost, in_threads, leave_out, open_machine
from harness.flows.running import RunningRows
from harness.plan.equal_machines import MachineSeen, machine_change, odd_ones
from harness.reasons import MachineReason
from harness.run.run_interfaces import CellRun, RowRun
from harness.schedule.priority import round_limit_s
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
                        whole = self.rows.journal.read_back(trial)  # in memory, its trace may be thinned
                        run.trials[place] = replace(
                            whole, conditions=replace(whole.conditions, disturbed=MachineReason.LOST_DURING_ROUND())
                        )
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


# ---------------------------------------------------------------- pool machine


RETRIES = 2
"""Most times that a row starts again on another machine, and that the pool waits for the same lost machine."""
ASK_EVERY_S = 3.0


@dataclass(frozen=True, kw_only=True)
class PoolMachine:
    """A machine of a pool, or the place of one. `others`: the other machines. `use`, `gone`: as for `PoolRun`.
    `break_rounds`: called with the name of a lost machine.
    """

    each: OpenHost
    others: Sequence[OpenHost]
    context: RunContext
    queue: RowQueue
    use: Callable[[OpenHost, RowQueue, Callable[[], bool]], None]
    gone: dict[str, MachineSeen]
    break_rounds: Callable[[str], None]

    def run(self) -> None:
        """Let the machine take rows until none is left for it, or until it is lost."""
        each, lost_s = self.each, list[float]()

        def over() -> bool:
            is_late = bool(lost_s) and each.usable and time.monotonic() > lost_s[-1] + self.context.pool_wait_s
            return self.context.stopped.is_set() or is_late or not self.queue.ahead(each.host.machine)

        while True:
            name = each.host.machine
            try:
                if not each.awaited:
                    return self.use(each, self.queue, over)
                if not self._joined(over):
                    return None
            except Interrupted:  # or no row was left for it while it waited for its lease or its node
                if self.context.stopped.is_set():
                    raise
                if self.queue.begun(name):
                    self.gone[name] = each.seen
                    each.problem = MachineReason.LOST_AND_TAKEN(machine=name)
                return None
            except HarnessError as error:  # the other machines go on
                lost_s.append(time.monotonic())
                if not self._goes_on(error, again=len(lost_s) <= RETRIES):
                    return None

    def _joined(self, over: Callable[[], bool]) -> bool:
        """Wait for a node that the queue has not granted yet; return whether the node joined the pool. A lost node that
        is granted again, unchanged, goes on with its row.
        """
        each = self.each
        open_machine(each, self.context, over=over)
        name = each.host.machine
        equal = next((other for other in self.others if other.usable), None)
        if each.usable and equal is not None and (difference := odd_ones([equal.seen, each.seen])):
            leave_out(each, difference[name])
        self.context.progress.note(f"{each.name} joins the pool" if each.usable else each.placed_problem)
        if each.usable and name in self.gone and not machine_change(self.gone[name], each.seen):
            del self.gone[name]
            self.queue.resume(name)
        return each.usable

    def _goes_on(self, error: HarnessError, *, again: bool) -> bool:
        """Return whether a lost machine came back, or a lost node's place asks for another one; if not, set its
        problem. `again`: the pool may wait or ask.
        """
        each, name, where = self.each, self.each.host.machine, self.each.host.where
        lost, note = error.text_at(where), self.context.progress.note
        problem = MachineReason.LOST(machine=name, error=lost)
        self.break_rounds(name)
        is_node = each.host.request is not None
        difference = self._waited(problem) if again and not is_node else None
        if difference == "":
            note(f"{where}: {name} is back, and goes on with its row")
            self.queue.resume(name)
            return True
        if difference is not None:
            problem = MachineReason.LOST_AND_CHANGED(machine=name, error=lost, difference=difference)
        self.gone[name] = each.seen
        if is_node:
            each.close()
        if is_node and again:
            each.await_another()
        else:
            each.problem = problem
        note(f"{where}: {problem}; its row starts again on another {'node' if is_node else 'machine'}")
        return is_node and again

    def _waited(self, problem: str) -> str | None:
        """Wait for a lost machine. Return how it differs from what it was, "" if it does not; None if it does not come
        back.
        """
        wait_s = self.context.pool_wait_s
        if wait_s:
            self.context.progress.note(
                f"{self.each.host.where}: {problem}; its row waits for it, {wait_s:.0f} s at most"
            )
        until_s = time.monotonic() + wait_s
        while time.monotonic() < until_s and not self.context.stopped.wait(min(ASK_EVERY_S, wait_s)):
            with suppress(HarnessError):  # it does not answer yet
                return self._reopened()
        return None

    def _reopened(self) -> str:
        """Open the machine again and compare it with what it was; return the difference, or "" if there is none. Raises
        HarnessError.
        """
        each = self.each
        new = OpenHost(host=each.host, part_of=each.part_of, images=each.images)
        open_machine(new, self.context, over=self.context.stopped.is_set)
        difference = machine_change(each.seen, new.seen) if new.problem is None else ""
        if new.problem is not None or difference:
            new.close()
        if new.problem is not None:
            raise EngineUnreachable(new.problem, place=each.host.where)
        if not difference:
            each.close()
            each.engine = new.engine
        return difference
