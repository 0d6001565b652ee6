"""Makes both versions of a narrowing on their host, and lists their contents."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

from harness.errors import UNSTARTED, InfrastructureError, Interrupted, UsageError
from harness.flows.parts.context import RunContext
from harness.flows.parts.hosts.machines import OpenHost, first_usable
from harness.flows.parts.hosts.opening import leased, using_hosts
from harness.flows.parts.looking_inside import Looking
from harness.model import Cell, Lane, Plan
from harness.model.answers.narrowed import Side
from harness.narrow.inventory import FILE, Inventory, read_inventory
from harness.narrow.narrowable import coupled, refuse_bad, refuse_equal
from harness.probes.looked import Looked
from harness.run.engine import Engine, Lease, Prepared
from harness.run.process.engine import has_program

Contents = Mapping[Side, Inventory]
"""The inventory of each side."""
Digests = Mapping[Side, str | None]
INSPECTED_STEPS = 50
"""Most steps of the launch that lists the mapped libraries."""
COMPONENTS = {"name": "components"}


@dataclass(frozen=True, kw_only=True)
class BothSides:
    """A and B as cells on their lane, and the images that the engine launches for them, while the host is leased."""

    cells: Mapping[Side, Cell]
    made: Mapping[Side, Prepared]
    engine: Engine
    lane: Lane
    lease: Lease
    context: RunContext

    def look(self, cell: Cell, made: Prepared) -> tuple[Inventory, str]:
        """Return the contents of an image, as one launch lists them, and how the launch failed; "" if it ended well.

        Raises InfrastructureError, Interrupted.
        """
        looking = Looking(engine=self.engine, cell=cell, context=self.context, prepared=made)
        steps = min(INSPECTED_STEPS, cell.variant.scenario.steps.budget)
        looked = looking.launch(cell.variant, steps=steps, probe=COMPONENTS)
        return _read(cell, made, looked), looked.problem


@contextmanager
def both_sides(plan: Plan, context: RunContext, *, digests: Digests) -> Iterator[BothSides]:
    """Open and lease the host, and make both versions of a plan, which is one row of two cells. `digests`: those of
    the images that an earlier run measured; a note reports each image that differs.

    Raises UsageError if the versions are the same or lack the program that the scenario starts, InfrastructureError if
    one cannot be made, Interrupted.
    """
    ((a, b),) = (row.cells for row in plan.rows)
    with using_hosts({a.lane.host: [a.image, b.image]}, context, one=True) as machines:
        opened = first_usable(machines)
        engine, lane = _opened_engine(opened, a.lane, context)
        cells: Mapping[Side, Cell] = {"A": replace(a, lane=lane), "B": replace(b, lane=lane)}
        with leased(opened, context, over=context.stopped.is_set) as lease:
            images = _made(cells, engine, context, digests)
            _check_program(cells, images)
            yield BothSides(cells=cells, made=images, engine=engine, lane=lane, lease=lease, context=context)


def looked_into(sides: BothSides) -> Contents:
    """Return the contents of both versions, listed while the scenario runs. Raises InfrastructureError, Interrupted."""
    return {side: sides.look(cell, sides.made[side])[0] for side, cell in sides.cells.items()}


def installed(sides: BothSides) -> Contents:
    """Return what is installed in both versions, without running the scenario, so that mapped libraries are unknown.

    Raises InfrastructureError, Interrupted.
    """
    contents = {}
    for side, cell in sides.cells.items():
        sides.context.showing(lane=str(cell.lane), image=cell.image.version)("listing what is installed")
        scenario = replace(
            cell.variant.scenario, script=None, program=None, command=("true",), files=(), judge_exit=True
        )
        quiet = replace(cell, lane=replace(cell.lane, gpus=()))
        looking = Looking(engine=sides.engine, cell=quiet, context=sides.context, prepared=sides.made[side])
        looked = looking.quiet_launch(replace(cell.variant, scenario=scenario), steps=1, probe=COMPONENTS)
        contents[side] = replace(_read(cell, sides.made[side], looked), mapped={})
    return contents


def checked(plan: Plan, context: RunContext) -> Contents:
    """Return the contents of both versions of a plan, by one launch of each, before either is measured.

    Raises UsageError if the versions do not differ, or if the first one, which should be good, fails twice;
    InfrastructureError if one cannot be made, Interrupted.
    """
    with both_sides(plan, context, digests={}) as sides:
        looks = {side: sides.look(cell, sides.made[side]) for side, cell in sides.cells.items()}
        looked = {side: one for side, (one, _) in looks.items()}
        coupled(sides.cells, looked)
        if looks["A"][1] and (problem := sides.look(sides.cells["A"], sides.made["A"])[1]):
            refuse_bad(sides.cells, problem, b_fails=bool(looks["B"][1]))
    return looked


def _made(cells: Mapping[Side, Cell], engine: Engine, context: RunContext, digests: Digests) -> Mapping[Side, Prepared]:
    """Make both versions. Raises UsageError if they are the same, InfrastructureError, Interrupted."""
    had = {side: prepared(cell, engine, context) for side, cell in cells.items()}
    for side, cell in cells.items():
        if digests.get(side) not in (None, had[side].digest):
            context.progress.note(f"{cell.image.version}: is not the image that the run measured; it has changed since")
    if had["A"].digest == had["B"].digest and cells["A"].image.environment == cells["B"].image.environment:
        refuse_equal(cells)
    return had


def _check_program(cells: Mapping[Side, Cell], made: Mapping[Side, Prepared]) -> None:
    """Raise UsageError if the scenario starts a program that neither environment nor the machine has."""
    command = cells["A"].variant.command
    if not command or "/" in command[0] or not cells["A"].lane.host.is_process:
        return
    for side, cell in cells.items():
        given = dict((*cell.image.environment, *cell.variant.scenario.environment))
        if has_program(command[0], python=made[side].reference, path=given.get("PATH")):
            return
    raise UsageError(f"{command[0]}: no such program, neither in the two environments nor on this machine")


def _opened_engine(opened: OpenHost, asked: Lane, context: RunContext) -> tuple[Engine, Lane]:
    if context.stopped.is_set():
        raise Interrupted(UNSTARTED)
    if opened.engine is None or opened.problem is not None:
        raise InfrastructureError(opened.problem or f"{opened.host.name}: the host could not be opened")
    lane = next((lane for lane in opened.lanes if lane.gpu == asked.gpu), None)
    return opened.engine, lane or replace(asked, host=opened.host)


def prepared(cell: Cell, engine: Engine, context: RunContext) -> Prepared:
    """Make the image of a cell. Raises InfrastructureError, Interrupted."""
    return engine.prepare(cell.image, context.preparing(lane=str(cell.lane), image=cell.image.version))


def _read(cell: Cell, had: Prepared, looked: Looked) -> Inventory:
    if FILE not in looked.files:
        raise InfrastructureError(f"{cell.image.version}: no launch could list its contents: {looked.problem}")
    variables = {**had.environment, **dict(cell.image.environment)}
    return read_inventory(looked.files[FILE], variables=variables)
