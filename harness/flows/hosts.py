"""Records each machine of a sweep as it was found, and sums up the machines of a host."""

from __future__ import annotations

import functools
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from harness import amounts
from harness.errors import HarnessError, InfrastructureError, Interrupted
from harness.flows.context import RunContext
from harness.model import Cell, Host, HostState, Image, Lane, grouped
from harness.plan.cells import choose_lanes
from harness.plan.equal_machines import MachineSeen, odd_ones
from harness.run import leases
from harness.run.engine import Engine, Lease
from harness.run.interruptible import say_unless


@dataclass(kw_only=True)
class OpenHost:
    """One machine as it was found: with an engine, or with the one-line problem that makes it unusable.

    `part_of`: the host of the plan. `host`: this machine, which is that host itself or a machine of its pool.
    `images`: those that will run on the host; container engines list their GPUs from inside an image. `lanes`: the
    lanes of its GPUs, if the machine was asked for them.
    """

    host: Host
    part_of: Host
    images: Sequence[Image] = ()
    engine: Engine | None = None
    lanes: tuple[Lane, ...] = ()
    problem: str | None = None
    opened_s: float | None = None
    """The time at which the machine was opened, in seconds of the monotonic clock."""

    @property
    def awaited(self) -> bool:
        """Return whether this is a node of a pool that the queue has not granted yet."""
        return self.engine is None and self.problem is None and self.host.can.queues

    @property
    def seen(self) -> MachineSeen:
        """Return the properties by which the machines of a pool are compared."""
        return MachineSeen(
            name=self.host.machine, facts=self.facts, gpus=tuple(gpu for lane in self.lanes for gpu in lane.gpus)
        )

    @property
    def facts(self) -> Mapping[str, Any]:
        return {} if self.engine is None else self.engine.facts

    @property
    def usable(self) -> bool:
        return self.engine is not None and self.problem is None

    def own(self, cell: Cell) -> Cell:
        """Return a cell of the plan as this machine runs it: with the machine's own address and GPUs."""
        if not self.host.machine:
            return cell
        lanes = {lane.gpu: lane for lane in self.lanes}
        return replace(cell, lane=lanes.get(cell.lane.gpu, replace(cell.lane, host=self.host)))

    @property
    def placed_problem(self) -> str:
        """Return its problem after its place in the matrix file."""
        return f"{self.host.where}: {self.problem}"

    @contextmanager
    def noting_problem(self) -> Iterator[None]:
        """Keep an error of the block, except Interrupted, as the machine's problem, so that the other hosts go on."""
        try:
            yield
        except Interrupted:
            raise
        except HarnessError as error:
            self.problem = self.problem or error.text_at(self.host.where)

    def await_another(self) -> None:
        """Free the place of this node, so that another node is requested from the queue."""
        self.host = self.part_of.machines[self.host.place - 1]
        self.engine, self.lanes, self.opened_s = None, (), None

    def close(self) -> None:
        """Close the engine. A node of a cluster goes back to the queue."""
        if self.engine is not None:
            self.engine.close()


def leave_out(each: OpenHost, difference: str) -> None:
    """Leave a machine out of its pool; a node of a cluster goes back to the queue."""
    is_node = each.host.can.queues
    if is_node:
        each.close()
        remedy = "make `select` match equal nodes only, or name this one in `nodes` of another host"
    else:
        remedy = "make it match the others, or define a separate host for it"
    each.problem = f"{each.host.machine} is left out of the pool: it differs in {difference}; {remedy}"


def first_usable(machines: Sequence[OpenHost]) -> OpenHost:
    """Return the first machine that can be used; the first of all if none can."""
    return next((each for each in machines if each.usable), machines[0])


def states_of(machines: Sequence[OpenHost]) -> tuple[HostState, ...]:
    """Return the hosts of the plan as they were found: a pool can be used if one of its machines can."""
    states = []
    for host, own in grouped((each.part_of, each) for each in machines).items():
        first = first_usable(own)
        problem = first.problem
        if host.pool and not first.usable:
            told = "; ".join(f"{each.host.machine}: {each.problem}" for each in own if each.problem is not None)
            problem = f"no machine of the pool can be used: {told}"
        states.append(HostState(host=host, problem=problem))
    return tuple(states)


def troubles_of(machines: Sequence[OpenHost]) -> tuple[str, ...]:
    """Return the problems of individual machines in pools that were used nevertheless."""
    used = {each.part_of for each in machines if each.usable}
    return tuple(
        each.placed_problem
        for each in machines
        if each.part_of.pool and each.part_of in used and each.problem is not None
    )


def lanes_of(machines: Sequence[OpenHost]) -> dict[str, tuple[Lane, ...]]:
    """Return the lanes of each host whose GPUs are known, by name. A pool has the lanes of its first usable machine."""
    found: dict[str, tuple[Lane, ...]] = {}
    for each in machines:
        if each.lanes and (each.usable or not each.part_of.pool):
            found.setdefault(each.part_of.name, tuple(replace(lane, host=each.part_of) for lane in each.lanes))
    return found


# ---------------------------------------------------------------- opening


GATHER_S = 10.0
"""Seconds that a pool of a cluster waits for more nodes once it has one. Later nodes join it while it runs."""


@contextmanager
def using_hosts(
    images: Mapping[Host, Sequence[Image]],
    context: RunContext,
    *,
    one: bool = False,
    homes: Mapping[tuple[str, str, str], str] = MappingProxyType({}),
) -> Iterator[list[OpenHost]]:
    """Yield every machine of the hosts, in the order given, each with its `problem` if it has one. The engines are
    closed on exit, even if opening one of them raises. `images`: those that will run on each host.

    Once `context` is stopped, some machines may have neither an engine nor a problem. Nodes of a pool that the queue
    does not grant soon are `awaited`. `one`: open only one node of such a pool. `homes`: the machine that measured each
    row in an earlier run, by the row's place; these nodes are asked for first.
    """
    machines = []
    for host, wanted in images.items():
        # The nodes of a pool that measured rows before, the node with the most rows first.
        lanes = Counter(machine for (_, lane, _), machine in homes.items() if lane.partition("/")[0] == host.name)
        nodes = [name for name, _ in lanes.most_common()]
        for place, machine in enumerate(host.machines[:1] if one and host.can.queues else host.machines):
            own = machine
            if machine.can.queues and machine.machine and place < len(nodes):
                own = replace(machine, preferred=nodes[place])
            machines.append(OpenHost(host=own, part_of=host, images=wanted))
    try:
        in_threads(
            [functools.partial(_open_unless_late, each, machines, context) for each in machines], context.stopped
        )
        for alike in grouped((each.part_of, each) for each in machines).values():
            _leave_out_odd_ones(alike, context)
        yield machines
    finally:
        for each in machines:
            each.close()


def _leave_out_odd_ones(machines: Sequence[OpenHost], context: RunContext) -> None:
    """Use only equal machines of a pool; every other one gets the difference as its problem."""
    if not machines[0].part_of.pool:
        return
    usable = {each.host.machine: each for each in machines if each.usable}
    for name, difference in odd_ones([each.seen for each in usable.values()]).items():
        leave_out(usable[name], difference)
    for each in machines:
        if each.problem is not None:
            context.progress.note(each.placed_problem)


class _Late(Exception):
    """Raised when the rest of the pool is open and no longer waits for this node."""


def _open_unless_late(each: OpenHost, machines: Sequence[OpenHost], context: RunContext) -> None:
    """Open a machine. Stop waiting for a node of a pool GATHER_S after the pool's first node was opened."""

    def is_late() -> bool:
        opened = [one.opened_s for one in machines if one.part_of == each.part_of and one.opened_s is not None]
        late = each.part_of.can.queues and opened and time.monotonic() > min(opened) + GATHER_S
        if late and each.opened_s is None:
            raise _Late
        return context.stopped.is_set()

    with suppress(_Late):
        open_machine(each, context, over=is_late)


def open_machine(each: OpenHost, context: RunContext, *, over: Callable[[], bool]) -> None:
    """Open a machine, or set its `problem`. Raises Interrupted once `over` returns True."""
    # A node gets its name while it is opened.
    show = context.progress.preparing
    say = say_unless(over, lambda text: show(lane=each.host.full_name, image="engine", text=text))
    engine = None
    try:
        engine = context.open_engine(each.host, environ=context.environ, say=say)
        if each.host.machine:
            # In the engine's facts, the machine is in the record and the key of every trial: a row that is resumed
            # takes over no trials of another machine. A node gets its name when the queue grants it.
            cpu = engine.cpu(each.images, say)
            if each.host.can.queues:
                each.host = replace(each.host, machine=str(engine.facts["name"]))
            engine.facts = {**engine.facts, "machine": each.host.machine, "cpu": cpu}
        if each.host.gpus != "none":
            each.lanes = choose_lanes(each.host, engine.gpus(each.images, say))
        each.engine, each.opened_s = engine, time.monotonic()
    except HarnessError as error:  # the other hosts go on, and what is known is reported
        if isinstance(error, Interrupted):
            raise
        each.engine, each.problem = engine, error.text_at(each.host.where)
    finally:
        if engine is not None and each.engine is None:
            engine.close()


def refuse_missing(each: OpenHost, images: Sequence[Image], context: RunContext) -> None:
    """Set the problem of a machine that is known not to get one of these images. Raises Interrupted."""
    if each.engine is not None and each.usable:
        refusals = []
        with suppress(InfrastructureError):  # launches say it
            for image in images:
                name = getattr(image.source, "reference", image.version)
                refusals.append(each.engine.refused(image, context.preparing(lane=each.host.full_name, image=name)))
            each.problem = "; ".join(filter(None, refusals)) or None


@contextmanager
def leased(each: OpenHost, context: RunContext, *, over: Callable[[], bool]) -> Iterator[Lease]:
    """Lease an open machine, announce its use to other sweeps, and remove what killed runs left on it. Raises
    EngineUnreachable, or Interrupted once `over` returns True.
    """
    engine, host, progress = each.engine, each.host, context.progress
    assert engine is not None
    announced = leases.announced(host.name, engine.facts, is_process=host.can.shares_programs, note=progress.note)
    with engine.lease(context.showing(lane=each.host.full_name, image="lease"), over) as lease, announced:
        if removed := engine.remove_leftovers():
            progress.note(f"{each.host.full_name}: removed {amounts.count(removed, 'leftover')} of killed runs")
        yield lease


# ---------------------------------------------------------------- threads


REMOVAL_S = 30.0
"""Seconds that an interrupted run waits for its hosts to remove what they started."""


def in_threads(tasks: Sequence[Callable[[], None]], stopped: threading.Event | None = None) -> None:
    """Run the tasks in threads, each to its end even if others fail; raise the first error. A single task needs no
    thread, unless `stopped` is given.

    `stopped`: an error sets it, so that the other tasks end early; Interrupted, which it shows, is not raised. Once it
    is set, the tasks have REMOVAL_S to clean up.
    """
    if len(tasks) == 1 and stopped is None:
        return tasks[0]()
    failures: list[BaseException] = []

    def work(task: Callable[[], None]) -> None:
        try:
            task()
        except BaseException as error:  # noqa: BLE001 - handed on: a thread must not lose it
            failures.append(error)
            if stopped is not None:
                stopped.set()

    threads = [threading.Thread(target=work, args=(task,), daemon=True) for task in tasks]
    for thread in threads:
        thread.start()
    deadline = float("inf")
    while any(thread.is_alive() for thread in threads) and time.monotonic() < deadline:
        for thread in threads:
            thread.join(0.1)
        if stopped is not None and stopped.is_set():
            deadline = min(deadline, time.monotonic() + REMOVAL_S)
    for error in failures:
        if stopped is None or not isinstance(error, Interrupted):
            raise error
    return None
