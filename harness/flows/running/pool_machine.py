"""Runs rows on one machine of a pool: lets it join the pool, waits for it if it is lost, and gives it up.

The row of a lost machine waits for it. Nodes of a cluster join the pool as the queue grants them; a lost node is given
up, and its place asks the queue for another one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from harness.errors import EngineUnreachable, HarnessError, Interrupted
from harness.flows.parts.context import RunContext
from harness.flows.parts.hosts.machines import OpenHost, leave_out
from harness.flows.parts.hosts.opening import open_machine
from harness.plan.equal_machines import MachineSeen, machine_change, odd_ones
from harness.reasons import MachineReason
from harness.schedule.row_queue import RowQueue

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
