"""The hosts of a sweep: opened side by side, and asked which GPUs they have."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from harness.errors import HarnessError, Interrupted
from harness.flows.parts.context import RunContext
from harness.model import Cell, Host, HostState, Image, Lane, Plan
from harness.plan import MachineSeen, choose_lanes, odd_ones
from harness.run.engine import Engine, Say

REMOVAL_S = 30.0
"""How long an interrupted run waits for its hosts to remove what they started."""


@dataclass(kw_only=True)
class OpenHost:
    """One machine as it was found: with an engine, or with the one line that says why it cannot be used.

    `host`: the machine, which is that of the plan or one of its pool (`part_of`). `lanes`: those that its GPUs make, if
    it was asked.
    """

    host: Host
    part_of: Host
    engine: Engine | None = None
    lanes: tuple[Lane, ...] = ()
    problem: str | None = None

    @property
    def facts(self) -> Mapping[str, Any]:
        return {} if self.engine is None else self.engine.facts

    @property
    def usable(self) -> bool:
        return self.engine is not None and self.problem is None

    @property
    def name(self) -> str:
        """The machine as messages name it: `old`, or `farm, gpu3`."""
        return f"{self.host.name}, {self.host.machine}" if self.host.machine else self.host.name

    def own(self, cell: Cell) -> Cell:
        """Return a cell of the plan as this machine runs it: with the machine's own address and GPUs."""
        if not self.host.machine:
            return cell
        lanes = {lane.gpu: lane for lane in self.lanes}
        return replace(cell, lane=lanes.get(cell.lane.gpu, replace(cell.lane, host=self.host)))

    def close(self) -> None:
        if self.engine is not None:
            self.engine.close()


@contextmanager
def using_hosts(plan: Plan, context: RunContext) -> Iterator[list[OpenHost]]:
    """Yield every machine of the plan, in its order; what is wrong with one is in its `problem`. Their engines are
    closed on leaving, and where opening one of them raises.

    Once `context` is stopped, some may have neither an engine nor a problem.
    """
    found = [OpenHost(host=machine, part_of=host) for host in hosts_of(plan) for machine in host.machines]

    def opener(each: OpenHost) -> Callable[[], None]:
        return lambda: _open(each, images_on(plan, each.part_of), context)

    try:
        side_by_side([opener(each) for each in found], context.stopped)
        for host in hosts_of(plan):
            _leave_out_odd_ones([each for each in found if each.part_of == host], context)
        yield found
    finally:
        for each in found:
            each.close()


def _leave_out_odd_ones(machines: Sequence[OpenHost], context: RunContext) -> None:
    """Of a pool, only equal machines are used; each other one has the difference as its problem."""
    if not machines[0].part_of.pool:
        return
    usable = {each.host.machine: each for each in machines if each.usable}
    seen = [
        MachineSeen(name=name, facts=each.facts, gpus=tuple(gpu for lane in each.lanes for gpu in lane.gpus))
        for name, each in usable.items()
    ]
    for name, difference in odd_ones(seen).items():
        text = f"{name} is left out of the pool: it differs in {difference}; make it equal, or a host of its own"
        usable[name].problem = f"{usable[name].host.where}: {text}"
    for each in machines:
        if each.problem is not None:
            context.progress.note(each.problem)


def first_usable(machines: Sequence[OpenHost]) -> OpenHost:
    """Return the first machine that can be used; the first of all if none can."""
    return next((each for each in machines if each.usable), machines[0])


def states_of(machines: Sequence[OpenHost]) -> tuple[HostState, ...]:
    """Return the hosts of the plan as they were found: a pool can be used if one of its machines can."""
    hosts = dict.fromkeys(each.part_of for each in machines)
    return tuple(_state(host, [each for each in machines if each.part_of == host]) for host in hosts)


def _state(host: Host, machines: Sequence[OpenHost]) -> HostState:
    known = first_usable(machines)
    if not host.pool or known.usable:
        return HostState(host=host, problem=known.problem, facts=known.facts)
    told = "; ".join(f"{each.host.machine}: {_alone(each)}" for each in machines if each.problem is not None)
    return HostState(host=host, problem=f"{host.where}: no machine of the pool can be used: {told}")


def _alone(each: OpenHost) -> str:
    """Return the machine's problem without its place, which is that of all of them."""
    return str(each.problem).removeprefix(f"{each.host.where}: ")


def troubles_of(machines: Sequence[OpenHost]) -> tuple[str, ...]:
    """Return the problems of single machines in pools that were used all the same."""
    used = {each.part_of for each in machines if each.usable}
    return tuple(
        each.problem for each in machines if each.part_of.pool and each.part_of in used and each.problem is not None
    )


def lanes_of(machines: Sequence[OpenHost]) -> dict[str, tuple[Lane, ...]]:
    """Return the lanes by host, of those whose GPUs are known; those of a pool are the first equal machine's."""
    found: dict[str, tuple[Lane, ...]] = {}
    for each in machines:
        if each.lanes and (each.usable or not each.part_of.pool):
            found.setdefault(each.part_of.name, tuple(replace(lane, host=each.part_of) for lane in each.lanes))
    return found


def hosts_of(plan: Plan) -> list[Host]:
    return list({block.lane.host.name: block.lane.host for block in plan.blocks}.values())


def side_by_side(tasks: Sequence[Callable[[], None]], stopped: threading.Event) -> None:
    """Run the tasks in threads to their end; once stopped, wait no longer than removing what they started may take.

    Raises what one of them raised, after stopping the others; but not Interrupted: `stopped` says so.
    """
    failures = _in_threads(tasks, failed=stopped.set, stopped=stopped)
    for error in failures:
        if not isinstance(error, Interrupted):
            raise error


def at_once(tasks: Sequence[Callable[[], None]]) -> None:
    """Run the tasks in threads, each to its own end, whatever becomes of the others. Raises what the first that failed
    raised.
    """
    for error in _in_threads(tasks):
        raise error


def _in_threads(
    tasks: Sequence[Callable[[], None]],
    *,
    failed: Callable[[], None] = lambda: None,
    stopped: threading.Event | None = None,
) -> list[BaseException]:
    """Return what tasks raised, in the order of time; `failed` is called at once for each. Waits for all of them; once
    `stopped`, for REMOVAL_S at most.
    """
    failures: list[BaseException] = []

    def work(task: Callable[[], None]) -> None:
        try:
            task()
        except BaseException as error:  # noqa: BLE001 - handed on: a thread must not lose it
            failures.append(error)
            failed()

    threads = [threading.Thread(target=work, args=(task,), daemon=True) for task in tasks]
    for thread in threads:
        thread.start()
    deadline = float("inf")
    while any(thread.is_alive() for thread in threads) and time.monotonic() < deadline:
        for thread in threads:
            thread.join(0.1)
        if stopped is not None and stopped.is_set():
            deadline = min(deadline, time.monotonic() + REMOVAL_S)
    return failures


def _open(each: OpenHost, images: Sequence[Image], context: RunContext) -> None:
    def say(text: str) -> None:
        if context.stopped.is_set():
            raise Interrupted("interrupted")
        context.progress.preparing(lane=each.name, image="engine", text=text)

    try:
        each.engine = context.open_engine(each.host, environ=context.environ, say=say)
        if each.host.machine:
            each.engine.facts = _facts_in_pool(each, each.engine, images, say)
        if each.host.gpus != "none":
            each.lanes = choose_lanes(each.host, each.engine.gpus(images, say))
    except Interrupted:
        raise
    except HarnessError as error:  # the other hosts go on, and what is known is reported
        each.problem = str(error)


def _facts_in_pool(each: OpenHost, engine: Engine, images: Sequence[Image], say: Say) -> Mapping[str, Any]:
    """Return the engine's facts with the machine, so that it is in the record and the key of every trial: a row that
    is taken up again takes over no trials of another machine.
    """
    return {**engine.facts, "machine": each.host.machine, "cpu": engine.cpu(images, say)}


def images_on(plan: Plan, host: Host) -> list[Image]:
    """Return what will run there, once each: a container engine asks for its GPUs in one of them."""
    cells = [cell for cell in plan.cells if cell.lane.host == host and not cell.excluded]
    return list({(cell.image.series, cell.image.version): cell.image for cell in cells}.values())
