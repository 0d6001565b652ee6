"""Records each machine of a sweep as it was found, and sums up the machines of a host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from harness.model import Cell, Host, HostState, Image, Lane
from harness.plan.equal_machines import MachineSeen
from harness.reasons import MachineReason
from harness.run.engine import Engine


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
    """When the machine was opened, in seconds of the monotonic clock."""

    @property
    def awaited(self) -> bool:
        """Return whether this is a node of a pool that the queue has not granted yet."""
        return self.engine is None and self.problem is None and self.host.request is not None

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

    @property
    def name(self) -> str:
        """Return the machine as messages name it: `old`, or `farm, gpu3`."""
        return f"{self.host.name}, {self.host.machine}" if self.host.machine else self.host.name

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

    def await_another(self) -> None:
        """Free the place of this node, so that another node is requested from the queue."""
        assert self.host.request is not None
        self.host = self.part_of.machines[self.host.request.place - 1]
        self.engine, self.lanes, self.opened_s = None, (), None

    def close(self) -> None:
        """Close the engine. A node of a cluster goes back to the queue."""
        if self.engine is not None:
            self.engine.close()


def leave_out(each: OpenHost, difference: str) -> None:
    """Leave a machine out of its pool; a node of a cluster goes back to the queue."""
    is_node = each.host.request is not None
    if is_node:
        each.close()
    each.problem = (MachineReason.NODE_LEFT_OUT if is_node else MachineReason.LEFT_OUT)(
        machine=each.host.machine, difference=difference
    )


def first_usable(machines: Sequence[OpenHost]) -> OpenHost:
    """Return the first machine that can be used; the first of all if none can."""
    return next((each for each in machines if each.usable), machines[0])


def states_of(machines: Sequence[OpenHost]) -> tuple[HostState, ...]:
    """Return the hosts of the plan as they were found: a pool can be used if one of its machines can."""
    hosts = dict.fromkeys(each.part_of for each in machines)
    return tuple(_state(host, [each for each in machines if each.part_of == host]) for host in hosts)


def _state(host: Host, machines: Sequence[OpenHost]) -> HostState:
    first = first_usable(machines)
    if not host.pool or first.usable:
        return HostState(host=host, problem=first.problem, facts=first.facts)
    told = "; ".join(f"{each.host.machine}: {each.problem}" for each in machines if each.problem is not None)
    return HostState(host=host, problem=MachineReason.NONE_USABLE(problems=told))


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
