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
from pathlib import Path

from harness.errors import EngineUnreachable, HarnessError, Interrupted
from harness.flows.hosts import OpenHost, in_threads, leave_out, open_machine
from harness.flows.running import Run
from harness.model import RowRun
from harness.plan.equal_machines import MachineSeen, machine_change, odd_ones
from harness.schedule import RowQueue, round_limit_s

RETRIES = 2
"""Most times that a row starts again on another machine, and that the pool waits for the same lost machine."""
ASK_EVERY_S = 3.0


@dataclass(frozen=True, kw_only=True)
class PoolRun:
    """The run of one pool. `homes`: the machine that measured each row in an earlier run, by the row's place."""

    machines: Sequence[OpenHost]
    run: Run
    homes: Mapping[tuple[str, str, str], str]
    tried: dict[tuple[str, str, str], list[str]] = field(default_factory=dict)
    """The machines that were lost while they measured a row, by the row's place."""
    gone: dict[str, MachineSeen] = field(default_factory=dict)
    """The machines that were lost for good, as last seen, by name."""
    data: list[Path] = field(default_factory=list)
    """The mounted paths that each machine must have, because the best one has them."""

    def launch(self, rows: Sequence[RowRun]) -> None:
        """Run the rows. The cells of a row that could not be run get a problem."""
        self._compare_data(rows)
        left = sorted(rows, key=round_limit_s, reverse=True)
        while left and (able := [each for each in self.machines if each.usable or each.awaited]):
            queue = self.queue(left)
            self.gone.clear()
            in_threads([functools.partial(self._work, each, queue) for each in able])
            if self.run.context.stopped.is_set():
                raise Interrupted("interrupted")
            if not self.gone:
                if any(each.usable for each in able):  # nothing is left, or nothing more is to be launched
                    return
                break
            lost = [row for name in sorted(self.gone) for row in queue.begun(name)]
            left = [
                *(row for row in left if not row.finished and row not in lost),
                *(again for row in lost if (again := self._again(row)) is not None),
            ]
        for row in left:
            _give_up_row(row, "; ".join(str(each.problem) for each in self.machines if each.problem is not None))

    def _compare_data(self, rows: Sequence[RowRun]) -> None:
        """Leave out the machines that lack mounted data which the machine with the most of them has."""
        paths = {mount.source for row in rows for run in row.cells for mount in run.cell.variant.scenario.data}
        self.data[:] = sorted(paths)
        usable = [each for each in self.machines if each.usable]
        absent = [self._absent(each) for each in usable]
        self.data[:] = [path for path in self.data if path not in min(absent, key=len, default=())]
        for each, lacking in zip(usable, absent, strict=True):
            self._check_data(each, lacking)
            if each.problem is not None:
                self.run.context.progress.note(each.placed_problem)

    def _absent(self, each: OpenHost) -> Sequence[Path]:
        with suppress(HarnessError):  # launches say it
            return each.engine.missing(self.data) if self.data and each.engine is not None else ()
        return ()

    def _check_data(self, each: OpenHost, absent: Sequence[Path]) -> None:
        if lacking := [path for path in self.data if path in absent]:
            leave_out(each, f"its data, because {lacking[0]} does not exist there")

    def queue(self, rows: Sequence[RowRun]) -> RowQueue:
        """Return the queue of these rows, in which a machine finishes its row before it begins another."""
        return self.run.queue(self.machines[0].part_of, rows, most=1, may=self._may, begin=self._begin)

    def _begin(self, machine: str, row: RowRun) -> None:
        """Bind the cells of a row to the machine that begins it."""
        each = next(each for each in self.machines if each.host.machine == machine)
        for run in row.cells:
            run.cell = each.own(run.cell)
        self.run.choose_noise(row)

    def _may(self, machine: str, row: RowRun) -> bool:
        """Return whether a machine may take a row, which stays on the machine that measured it if that is usable."""
        home = self.homes.get(row.place)
        return home in (None, machine) or not any(each.host.machine == home and each.usable for each in self.machines)

    def _again(self, row: RowRun) -> RowRun | None:
        """Start the row of a lost machine again; return None and give the row up after RETRIES new starts."""
        lost = self.tried.setdefault(row.place, [])
        lost.append(row.cells[0].cell.lane.host.machine)
        if len(lost) <= RETRIES:
            return self.run.again(row, f"{lost[-1]} was lost while it measured this row")
        _give_up_row(
            row, f"{len(lost)} machines were lost one after the other while they measured this row: {', '.join(lost)}"
        )
        return None

    # ------------------------------------------------------------ one machine, or the place of one

    def _work(self, each: OpenHost, queue: RowQueue) -> None:
        """Let the machine take rows until none is left for it, or until it is lost."""
        lost_s: list[float] = []
        context = self.run.context

        def over() -> bool:
            is_late = bool(lost_s) and each.usable and time.monotonic() > lost_s[-1] + context.pool_wait_s
            return context.stopped.is_set() or is_late or not queue.ahead(each.host.machine)

        while True:
            name = each.host.machine
            try:
                if not each.awaited:
                    self.run.use(each, queue, over)
                    return
                if not self._joined(each, queue, over):
                    return
            except Interrupted:  # or no row was left for it while it waited for its lease or its node
                if context.stopped.is_set():
                    raise
                if queue.begun(name):
                    self.gone[name] = each.seen
                    each.problem = f"{name} was lost, and another sweep uses it now"
                return
            except HarnessError as error:  # the other machines go on
                lost_s.append(time.monotonic())
                if not self._goes_on(each, queue, error, again=len(lost_s) <= RETRIES):
                    return

    def _joined(self, each: OpenHost, queue: RowQueue, over: Callable[[], bool]) -> bool:
        """Wait for a node that the queue has not granted yet; return whether the node joined the pool. A lost node that
        is granted again, unchanged, goes on with its row.
        """
        open_machine(each, self.run.context, over=over)
        name = each.host.machine
        equal = next((other for other in self.machines if other.usable and other is not each), None)
        if each.usable and equal is not None and (difference := odd_ones([equal.seen, each.seen])):
            leave_out(each, difference[name])
        elif each.usable:
            self._check_data(each, self._absent(each))
        self.run.context.progress.note(f"{each.host.full_name} joins the pool" if each.usable else each.placed_problem)
        if each.usable and name in self.gone and not machine_change(self.gone[name], each.seen):
            del self.gone[name]
            queue.resume(name)
        return each.usable

    def _goes_on(self, each: OpenHost, queue: RowQueue, error: HarnessError, *, again: bool) -> bool:
        """Return whether a lost machine came back, or a lost node's place asks for another one; if not, set its
        problem. `again`: the pool may wait or ask.
        """
        name, where = each.host.machine, each.host.where
        lost, note = error.text_at(where), self.run.context.progress.note
        problem = f"{name} was lost: {lost}"
        self.break_rounds(name, queue)
        is_node = each.host.can.queues
        difference = self._waited(each, problem) if again and not is_node else None
        if difference == "":
            note(f"{where}: {name} is back, and goes on with its row")
            queue.resume(name)
            return True
        if difference is not None:
            problem = f"{name} was lost: {lost}; it came back with {difference}"
        self.gone[name] = each.seen
        if is_node:
            each.close()
        if is_node and again:
            each.await_another()
        else:
            each.problem = problem
        note(f"{where}: {problem}; its row starts again on another {'node' if is_node else 'machine'}")
        return is_node and again

    def break_rounds(self, machine: str, queue: RowQueue) -> None:
        """Exclude the launches of a broken-off round from comparisons of times, because the rest of the round follows
        minutes later. Their failures and leaks still count.
        """
        journal = self.run.journal
        for row in queue.begun(machine):
            begun = row.proposal
            if begun is None or all(any(trial.round == begun.round for trial in run.own) for run in begun.runs):
                continue
            for run in row.runs:
                for place, trial in enumerate(run.trials):
                    if place >= run.adopted and trial.round == begun.round:
                        whole = journal.read_back(trial)  # in memory, its trace may be thinned
                        conditions = replace(
                            whole.conditions, disturbed="the machine was lost in the middle of its round"
                        )
                        run.trials[place] = replace(whole, conditions=conditions)
                        journal.write_trial(run.trials[place], run.cell)

    def _waited(self, each: OpenHost, problem: str) -> str | None:
        """Wait for a lost machine. Return how it differs from before, or ""; None if it does not come back."""
        context = self.run.context
        wait_s = context.pool_wait_s
        if wait_s:
            context.progress.note(f"{each.host.where}: {problem}; its row waits for it, {wait_s:.0f} s at most")
        until_s = time.monotonic() + wait_s
        while time.monotonic() < until_s and not context.stopped.wait(min(ASK_EVERY_S, wait_s)):
            with suppress(HarnessError):  # it does not answer yet
                return self._reopened(each)
        return None

    def _reopened(self, each: OpenHost) -> str:
        """Open the machine again; return how it differs from what it was, or "". Raises HarnessError."""
        new = OpenHost(host=each.host, part_of=each.part_of, images=each.images)
        open_machine(new, self.run.context, over=self.run.context.stopped.is_set)
        difference = machine_change(each.seen, new.seen) if new.problem is None else ""
        if new.problem is not None or difference:
            new.close()
        if new.problem is not None:
            raise EngineUnreachable(new.problem, place=each.host.where)
        if not difference:
            each.close()
            each.engine = new.engine
        return difference


def _give_up_row(row: RowRun, problem: str) -> None:
    for run in row.cells:
        run.problem = run.problem or problem
