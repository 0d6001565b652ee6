"""Opens the hosts of a sweep side by side, and asks which GPUs they have."""

from __future__ import annotations

import functools
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from types import MappingProxyType

from harness.errors import HarnessError, Interrupted
from harness.flows.parts.context import RunContext
from harness.flows.parts.hosts.machines import OpenHost, leave_out
from harness.flows.parts.hosts.threads import in_threads
from harness.model import Host, Image
from harness.model.watching import Say
from harness.plan.equal_machines import odd_ones
from harness.plan.lanes import choose_lanes
from harness.run.engine import Engine, Lease
from harness.run.hosts import other_sweeps

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
    machines = [
        OpenHost(host=_preferring(machine, place, _nodes_of(host, homes)), part_of=host, images=wanted)
        for host, wanted in images.items()
        for place, machine in enumerate(host.machines[:1] if one and host.request is not None else host.machines)
    ]

    try:
        in_threads(
            [functools.partial(_open_unless_late, each, machines, context) for each in machines], context.stopped
        )
        for host in images:
            _leave_out_odd_ones([each for each in machines if each.part_of == host], context)
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
        late = each.part_of.request is not None and opened and time.monotonic() > min(opened) + GATHER_S
        if late and each.opened_s is None:
            raise _Late
        return context.stopped.is_set()

    with suppress(_Late):
        open_machine(each, context, over=is_late)


def open_machine(each: OpenHost, context: RunContext, *, over: Callable[[], bool]) -> None:
    """Open a machine, or set its `problem`. Raises Interrupted once `over` returns True."""

    def say(text: str) -> None:
        if over():
            raise Interrupted("interrupted")
        context.progress.preparing(lane=each.name, image="engine", text=text)

    engine = None
    try:
        engine = context.open_engine(each.host, environ=context.environ, say=say)
        if each.host.machine:
            _name_machine(each, engine, say)
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


def _name_machine(each: OpenHost, engine: Engine, say: Say) -> None:
    """Add the machine to the engine's facts, and so to the record and the key of every trial: a row that is resumed
    takes over no trials of another machine. A node gets its name when the queue grants it.
    """
    cpu = engine.cpu(each.images, say)
    if each.host.request is not None:
        each.host = replace(each.host, machine=str(engine.facts["name"]))
    engine.facts = {**engine.facts, "machine": each.host.machine, "cpu": cpu}


def _nodes_of(host: Host, homes: Mapping[tuple[str, str, str], str]) -> list[str]:
    """Return the nodes of a pool that measured rows before, the node with the most rows first."""
    lanes = [machine for (_, lane, _), machine in homes.items() if lane.partition("/")[0] == host.name]
    return [name for name, _ in Counter(lanes).most_common()]


def _preferring(machine: Host, place: int, nodes: Sequence[str]) -> Host:
    """Return the machine, which asks the queue for one of the nodes that measured rows before if `place` has one."""
    if machine.request is None or place >= len(nodes) or not machine.machine:
        return machine
    return replace(machine, request=replace(machine.request, preferred=nodes[place]))


@contextmanager
def leased(each: OpenHost, context: RunContext, *, over: Callable[[], bool]) -> Iterator[Lease]:
    """Lease an open machine, announce its use to other sweeps, and remove what killed runs left on it. Raises
    EngineUnreachable, or Interrupted once `over` returns True.
    """
    engine, host, progress = each.engine, each.host, context.progress
    assert engine is not None
    announced = other_sweeps.announced(host.name, engine.facts, is_process=host.is_process, note=progress.note)
    with engine.lease(context.showing(lane=each.name, image="lease"), over) as lease, announced:
        if removed := engine.remove_leftovers():
            progress.note(f"{each.name}: removed {removed} leftover{'s' if removed > 1 else ''} of killed runs")
        yield lease
