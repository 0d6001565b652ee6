"""Answers `harness narrow`: opens the host, makes both versions, and measures hybrids until the component is known."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from harness.errors import UNSTARTED, EngineUnreachable, ImageUnavailable, InfrastructureError, Interrupted, UsageError
from harness.flows.context import RunContext
from harness.flows.hosts import first_usable, leased, using_hosts
from harness.flows.looking import Looked, Looking
from harness.flows.running import cell_launcher, order_of
from harness.model import Cell, CellRun, Finding, Lane, Limits, Plan, Prepared, RowRun, RowStanding, Trials
from harness.narrow.coupling import Coupling
from harness.narrow.evidence import NarrowRules
from harness.narrow.hybrids import Sides, grafted_hybrid, installed_hybrid, not_loaded
from harness.narrow.inventory import FILE, Inventory, changed_copy, read_inventory
from harness.narrow.launches import NarrowScheduler, fault_counts, is_level, level_size
from harness.narrow.question import NarrowQuestion, coupled, refuse_equal
from harness.narrow.records import ComponentGroup, Hybrid, Narrowed, SearchCost, Side
from harness.narrow.search import ComponentSearch, expected_cost
from harness.run.engine import Engine, Kept, Lease
from harness.run.hosts.host_run import HostRun
from harness.run.process.engine import has_program
from harness.schedule import RowQueue
from harness.store import RunDirectory


@contextmanager
def narrowing(question: NarrowQuestion, context: RunContext, *, known: Contents | None = None) -> Iterator[Narrowing]:
    """Open and lease the host, make A and B, and list their contents, unless the contents are `known`.

    Raises UsageError if A and B do not differ or cannot be swapped, InfrastructureError, Interrupted.
    """
    with both_sides(question.plan, context, digests=question.digests) as both:
        looked = known or looked_into(both)
        coupling = coupled(both.cells, looked)
        sides = Sides(
            images={side: cell.image for side, cell in both.cells.items()},
            references={side: each.reference for side, each in both.made.items()},
            inventories=looked,
            groups=coupling.groups,
        )
        rules = NarrowRules(
            seen=fault_counts(question.seen, finding=question.finding, scenario=both.cells["B"].variant.scenario),
            effect=level_size(question.finding),
        )
        yield Narrowing(question=question, both=both, sides=sides, coupling=coupling, rules=rules)


def dry_run(plan: Plan, context: RunContext, *, digests: Digests) -> tuple[ComponentGroup, ...]:
    """Return the groups of installed components in which the two versions of a plan differ, without running the
    scenario. Raises UsageError if no such component differs or can be swapped, InfrastructureError, Interrupted.
    """
    with both_sides(plan, context, digests=digests) as both:
        return coupled(both.cells, installed(both), ran=False).groups


def cost(groups: Sequence[ComponentGroup], finding: Finding | None) -> SearchCost:
    """Return the expected cost of a search; without a finding, for a fault that shows in every launch."""
    level = finding is not None and is_level(finding)
    return expected_cost(len(groups), is_level=level, rules=NarrowRules())


def narrow(narrowing: Narrowing, *, out: Path, fresh: bool) -> Narrowed:
    """Make, launch and judge hybrids until the search has its answer, or until Ctrl-C.

    Launches of an earlier call are taken over unless `fresh`. Raises EngineUnreachable, InfrastructureError.
    """
    question, both, coupling = narrowing.question, narrowing.both, narrowing.coupling
    journal = RunDirectory.create(out=out, matrix=question.journal, now=both.context.now())
    in_environments = both.lane.host.can.makes_environments
    scheduler = NarrowScheduler(
        search=ComponentSearch(coupling.groups, narrowing.rules, needs=coupling.pairs, apart=not in_environments),
        like=both.cells["A"],
        finding=question.finding,
        image_of=functools.partial(installed_hybrid if in_environments else grafted_hybrid, narrowing.sides),
        checked=narrowing.not_loaded,
    )
    narrowing.make_shams(scheduler)
    queue = RowQueue(standing=lambda row: RowStanding(suspect=True), recall=lambda row: None)
    queue.add(
        RowRun(planned=question.plan.rows[0], cells=(scheduler.run_of_a(),), propose=scheduler.propose, lazy=True)
    )
    lane, about = str(both.lane), cost(coupling.groups, question.finding)
    both.context.progress.plan(most={lane: about.most}, exact=False, about={lane: about.launches})
    interrupted = False
    try:
        worker = _worker(narrowing, journal, reuse=not fresh)
        with closing(worker.launcher):
            worker.run(queue)
    except Interrupted:
        interrupted = True
    good, bad = (both.cells[side].image.version for side in ("A", "B"))
    answer = scheduler.search.conclude(scheduler.outcomes(), good=good, bad=bad)
    if not interrupted:
        try:
            if answer.verdict == "method" and in_environments:
                sham = answer.shams[-1].result.hybrid
                answer = replace(answer, reason=narrowing.changed_by_method(sham, scheduler.runs[sham]))
        finally:
            narrowing.remove(scheduler.runs)
    return replace(answer, finding=question.number, metric=question.finding.metric)


def _worker(narrowing: Narrowing, journal: RunDirectory, *, reuse: bool) -> HostRun:
    both, rules, host = narrowing.both, narrowing.rules, narrowing.both.lane.host
    launcher = cell_launcher(
        both.engine, host, both.lease, both.context, journal, reuse=reuse,
        trials=Trials(least=rules.least, most=rules.most),
    )  # fmt: skip
    rng = order_of(host, narrowing.question.plan.seed)
    return HostRun(worker=host.machine or host.name, launcher=launcher, rng=rng, finished=lambda row: None)


# ---------------------------------------------------------------- both versions on their host


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
        if context.stopped.is_set():
            raise Interrupted(UNSTARTED)
        engine = opened.engine
        if engine is None or opened.problem is not None:
            raise InfrastructureError(opened.problem or f"{opened.host.name}: the host could not be opened")
        same = (lane for lane in opened.lanes if lane.gpu == a.lane.gpu)
        lane = next(same, None) or replace(a.lane, host=opened.host)
        cells: Mapping[Side, Cell] = {"A": replace(a, lane=lane), "B": replace(b, lane=lane)}
        with leased(opened, context, over=context.stopped.is_set) as lease:
            made = {side: prepared(cell, engine, context) for side, cell in cells.items()}
            for side, cell in cells.items():
                if digests.get(side) not in (None, made[side].digest):
                    version = cell.image.version
                    context.progress.note(f"{version}: is not the image that the run measured; it has changed since")
            if made["A"].digest == made["B"].digest and a.image.environment == b.image.environment:
                refuse_equal(cells)
            _check_program(cells, made)
            yield BothSides(cells=cells, made=made, engine=engine, lane=lane, lease=lease, context=context)


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
            cell.variant.scenario, script=None, program=None, command=("true",), files=(), limits=Limits(exit_only=True)
        )
        quiet = replace(cell, lane=replace(cell.lane, gpus=()))
        looking = Looking(engine=sides.engine, cell=quiet, context=sides.context, prepared=sides.made[side])
        looked = looking.launch(replace(cell.variant, scenario=scenario), steps=1, probe=COMPONENTS, is_quiet=True)
        contents[side] = replace(_read(cell, sides.made[side], looked), mapped={})
    return contents


def checked(plan: Plan, context: RunContext) -> Contents:
    """Return the contents of both versions of a plan, by one launch of each, before either is measured.

    Raises UsageError if nothing that differs can be swapped, or if the first one, which should be good, fails twice;
    InfrastructureError if one cannot be made, Interrupted.
    """
    with both_sides(plan, context, digests={}) as sides:
        looks = {side: sides.look(cell, sides.made[side]) for side, cell in sides.cells.items()}
        looked = {side: one for side, (one, _) in looks.items()}
        coupled(sides.cells, looked)
        if looks["A"][1] and (problem := sides.look(sides.cells["A"], sides.made["A"])[1]):
            a, b = (cell.image.version for cell in sides.cells.values())
            rest = f"and {b} does not: are they swapped?"
            if looks["B"][1]:
                rest = "so does the bad one: is the scenario at fault?"
            raise UsageError(f"{a}: should be good, but fails ({problem}); {rest}")
    return looked


def _check_program(cells: Mapping[Side, Cell], made: Mapping[Side, Prepared]) -> None:
    """Raise UsageError if the scenario starts a program that neither environment nor the machine has."""
    command = cells["A"].variant.command
    if not command or "/" in command[0] or not cells["A"].lane.host.can.shares_programs:
        return
    for side, cell in cells.items():
        given = dict((*cell.image.environment, *cell.variant.scenario.environment))
        if has_program(command[0], python=made[side].reference, path=given.get("PATH")):
            return
    raise UsageError(f"{command[0]}: no such program, neither in the two environments nor on this machine")


def prepared(cell: Cell, engine: Engine, context: RunContext) -> Prepared:
    """Make the image of a cell. Raises InfrastructureError, Interrupted."""
    return engine.prepare(cell.image, context.preparing(lane=str(cell.lane), image=cell.image.version))


def _read(cell: Cell, had: Prepared, looked: Looked) -> Inventory:
    if FILE not in looked.files:
        raise InfrastructureError(f"{cell.image.version}: no launch could list its contents: {looked.problem}")
    variables = {**had.environment, **dict(cell.image.environment)}
    return read_inventory(looked.files[FILE], variables=variables)


# ---------------------------------------------------------------- one narrowing on its host


@dataclass(frozen=True, kw_only=True)
class Narrowing:
    """A question and everything else that is known before the first hybrid is made."""

    question: NarrowQuestion
    both: BothSides
    sides: Sides
    coupling: Coupling
    rules: NarrowRules

    def make_shams(self, scheduler: NarrowScheduler) -> None:
        """Make the sham swap of each version before anything is launched, which shows whether an index lacks any part.

        Raises InfrastructureError if no sham can be made, Interrupted.
        """
        context, problems = self.both.context, []
        for sham in scheduler.search.shams:
            cell = replace(scheduler.like, image=scheduler.image_of(sham))
            try:
                prepared(cell, self.both.engine, context)
            except ImageUnavailable as error:
                problems.append(str(error))
                context.progress.note(
                    f"{cell.image.version}: cannot be made: {error}; hybrids that need it cannot be made either"
                )
        if problems and len(problems) == len(scheduler.search.shams):
            raise InfrastructureError(f"no hybrid can be made, so none was launched: {problems[0]}")

    def not_loaded(self, hybrid: Hybrid, run: CellRun) -> str:
        """Return which swapped library a hybrid does not load, else "": a library's own RPATH wins over
        LD_LIBRARY_PATH.
        """
        if not self.sides.swapped(hybrid, "library") or run.prepared is None:
            return ""
        try:
            return not_loaded(self.sides, hybrid, self.both.look(run.cell, run.prepared)[0])
        except (EngineUnreachable, Interrupted):
            raise
        except InfrastructureError as error:
            return str(error)

    def changed_by_method(self, sham: Hybrid, run: CellRun) -> str:
        """Return how a copy of a version, made from the version's own parts, differs from that version; "" if the copy
        can no longer be inspected. No error is raised, because the search already has its answer.
        """
        with suppress(InfrastructureError, Interrupted):
            if run.prepared is not None:
                return changed_copy(self.sides.inventories[sham.base], self.both.look(run.cell, run.prepared)[0])
        return ""

    def remove(self, runs: Mapping[Hybrid, CellRun]) -> None:
        """Remove the hybrids, except those that another run uses; A and B stay."""
        note = self.both.context.progress.note
        for hybrid, run in runs.items():
            if run.prepared is None or self.sides.is_end(hybrid):
                continue
            version = run.cell.image.version
            try:
                self.both.engine.remove(
                    Kept(reference=run.prepared.reference, name=version, made=True, layers={}), note
                )  # fmt: skip
            except InfrastructureError as error:
                note(f"{version}: was not removed: {error}; `harness clean --images` removes it")
