"""`harness narrow`: hybrids of last good and first bad are made and measured until the culprit is known."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from harness.errors import EngineUnreachable, ImageUnavailable, InfrastructureError, Interrupted, UsageError
from harness.flows.parts import narrow_sides
from harness.flows.parts.context import RunContext
from harness.flows.parts.hosts.machines import first_usable
from harness.flows.parts.hosts.opening import using_hosts
from harness.flows.parts.questions import NarrowQuestion
from harness.model import Cell, Image, Lane, Trials
from harness.model.narrowed import Hybrid, Narrowed, Side
from harness.model.watching import Say, unheard
from harness.narrow.coupling import Coupling, asked_extras, couple
from harness.narrow.expected import SearchCost, expected
from harness.narrow.hybrids import Sides, grafted, installed, not_loaded
from harness.narrow.search import ComponentSearch, NarrowRules
from harness.run.engine import Engine, Kept, Lease
from harness.run.hosts.cell_launcher import CellLauncher
from harness.run.hosts.lanes import HostRun
from harness.run.images.prefetch import HostImages
from harness.run.scheduler import BlockRun, CellRun
from harness.schedule import oracle
from harness.schedule.narrow_launches import is_level
from harness.schedule.narrow_scheduler import NarrowScheduler, OneRow
from harness.store import RunDirectory


@dataclass(frozen=True, kw_only=True)
class Narrowing:
    """A question on its way: everything that is known before the first hybrid is made."""

    question: NarrowQuestion
    engine: Engine
    lane: Lane
    lease: Lease
    context: RunContext
    sides: Sides
    coupling: Coupling
    rules: NarrowRules = field(default_factory=NarrowRules)

    @property
    def expected(self) -> SearchCost:
        level, most = is_level(self.question.finding), self.rules.most_launches
        return expected(len(self.coupling.groups), is_level=level, most=most)


@contextmanager
def narrowing(
    question: NarrowQuestion, context: RunContext, *, known: narrow_sides.Contents | None = None
) -> Iterator[Narrowing]:
    """Open and lease the host, make A and B, and look what they consist of, unless that is `known`.

    Raises UsageError where they do not differ in anything, InfrastructureError, Interrupted.
    """
    with using_hosts(question.plan, context, one=True) as machines:
        opened = first_usable(machines)
        engine, lane = narrow_sides.opened_engine(opened, question.a.lane, context)
        with narrow_sides.leased(opened, engine, context) as lease:
            cells: Mapping[Side, Cell] = {"A": replace(question.a, lane=lane), "B": replace(question.b, lane=lane)}
            had = narrow_sides.made(cells, engine, context)
            looked = known or narrow_sides.looked_into(cells, had, engine, context)
            found = narrow_sides.differing(cells, looked)
            extras = asked_extras(cells["A"].image.source, cells["B"].image.source)
            coupling = couple(found, a=looked["A"], b=looked["B"], extras=extras)
            images: Mapping[Side, Image] = {side: cell.image for side, cell in cells.items()}
            yield Narrowing(
                question=question,
                engine=engine,
                lane=lane,
                lease=lease,
                context=context,
                sides=Sides(
                    images=images,
                    references={side: each.reference for side, each in had.items()},
                    inventories=looked,
                    groups=coupling.groups,
                ),
                coupling=coupling,
            )


# ---------------------------------------------------------------- the search


def narrow(narrowing: Narrowing, *, out: Path, fresh: bool) -> Narrowed:
    """Make, launch and judge hybrids until the search has its answer, or until Ctrl-C.

    Launches of an earlier call are taken over unless `fresh`. Raises EngineUnreachable, InfrastructureError, and
    UsageError where nothing can be swapped.
    """
    question = narrowing.question
    if not any(group.swaps for group in narrowing.coupling.groups):
        raise UsageError(_nothing_to_swap(narrowing))
    journal = RunDirectory.create(out=out, matrix=question.journal, now=narrowing.context.now())
    made = _scheduler(narrowing, journal)
    _make_shams(narrowing, made)
    row = OneRow(block=BlockRun(cells=(made.run_of_a(),), scheduler=made))
    lane, cost = str(narrowing.lane), narrowing.expected
    narrowing.context.progress.plan(most={lane: cost.most}, exact=False, about={lane: cost.launches})
    interrupted = False
    try:
        _host_run(narrowing, journal, reuse=not fresh).run(row)
    except Interrupted:
        interrupted = True
    if not interrupted:
        _remove_hybrids(narrowing, made)
    found = made.search.conclude(made.outcomes(), good=question.a.image.version, bad=question.b.image.version)
    return replace(found, finding=question.number, metric=question.finding.metric)


def _make_shams(narrowing: Narrowing, made: NarrowScheduler) -> None:
    """Put each version's own parts into it again before anything is launched: what is gone from an index shows here.

    Raises InfrastructureError where neither version can be made again, Interrupted.
    """
    problems = []
    for sham in made.search.shams:
        cell = replace(made.like, image=made.image_of(sham))
        try:
            narrow_sides.prepared(cell, narrowing.engine, narrowing.context)
        except ImageUnavailable as error:
            problems.append(str(error))
            narrowing.context.progress.note(f"{cell.image.version}: cannot be made: {error}; nor can what takes it")
    if problems and len(problems) == len(made.search.shams):
        raise InfrastructureError(f"no hybrid can be made, and nothing was launched for one: {problems[0]}")


def _nothing_to_swap(narrowing: Narrowing) -> str:
    images, inventories = narrowing.sides.images, narrowing.sides.inventories
    names = (f"{images[side].version} ({' '.join(inventories[side].installs_for)})" for side in ("A", "B"))
    return (
        f"{' and '.join(names)}: all that differs goes with the operating system, Python and C library, which cannot "
        "be swapped; narrow versions with the same minor version of Python"
    )


def _scheduler(narrowing: Narrowing, journal: RunDirectory) -> NarrowScheduler:
    make = installed if narrowing.lane.host.in_environments else grafted
    return NarrowScheduler(
        search=ComponentSearch(narrowing.coupling.groups, narrowing.rules, needs=narrowing.coupling.pairs),
        like=replace(narrowing.question.a, lane=narrowing.lane),
        finding=narrowing.question.finding,
        image_of=functools.partial(make, narrowing.sides),
        refused=narrowing.coupling.refused,
        checked=functools.partial(_checked, narrowing),
        log=journal.write_decision,
    )


def _checked(narrowing: Narrowing, hybrid: Hybrid, run: CellRun) -> str:
    """Look into a hybrid with a library of the other side: a library's own path wins over LD_LIBRARY_PATH."""
    if not narrowing.sides.swapped(hybrid, "library") or run.prepared is None:
        return ""
    try:
        seen = narrow_sides.inventory(run.cell, run.prepared, narrowing.engine, narrowing.context)
    except (EngineUnreachable, Interrupted):
        raise
    except InfrastructureError as error:
        return str(error)
    return not_loaded(narrowing.sides, hybrid, seen)


def _host_run(narrowing: Narrowing, journal: RunDirectory, *, reuse: bool) -> HostRun:
    context, host = narrowing.context, narrowing.lane.host
    opener: Callable[[], Engine] = functools.partial(context.open_engine, host, environ=context.environ, say=unheard)
    images = HostImages(
        engine=narrowing.engine, open_another=opener, progress=context.progress, stopped=context.stopped.is_set
    )
    launcher = CellLauncher(
        engine=narrowing.engine,
        lease=narrowing.lease,
        images=images,
        run_id=journal.id,
        trials=Trials(least=narrowing.rules.least, most=narrowing.rules.most),
        oracle=oracle.oracle(),
        journal=journal,
        progress=context.progress,
        stopped=context.stopped.is_set,
        reuse=reuse,
    )
    rng = random.Random(f"{narrowing.question.plan.seed} {host.name}")
    return HostRun(worker=host.name, launcher=launcher, rng=rng, finished=lambda block: None)


def _remove_hybrids(narrowing: Narrowing, made: NarrowScheduler) -> None:
    """Remove what was made for this search alone; A and B stay. What is in use by another run stays as well."""

    def say(text: str) -> None:
        narrowing.context.progress.note(text)

    for hybrid, run in made.runs.items():
        if run.prepared is not None and not narrowing.sides.is_end(hybrid):
            _remove(narrowing.engine, run, say)


def _remove(engine: Engine, run: CellRun, say: Say) -> None:
    if run.prepared is not None:
        kept = Kept(reference=run.prepared.reference, name=run.cell.image.version, made=True, layers={})
        try:
            engine.remove(kept, say)
        except InfrastructureError as error:
            say(f"{run.cell.image.version}: was not removed: {error}; `harness clean --images` removes it")
