"""Makes and measures hybrids of the last good and the first bad version until the component is known."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from harness.errors import EngineUnreachable, ImageUnavailable, InfrastructureError, Interrupted, UsageError
from harness.flows.narrow import sides as narrow_sides
from harness.flows.narrow.questions import NarrowQuestion
from harness.flows.parts.context import RunContext
from harness.flows.running.machine_run import MachineRun
from harness.model import Finding, Plan, Trials
from harness.model.answers.narrowed import ComponentGroup, Hybrid, Narrowed
from harness.narrow.coupling import Coupling, asked_extras, couple
from harness.narrow.differing_components import components
from harness.narrow.hybrid_images import Sides, grafted_hybrid, installed_hybrid, not_loaded
from harness.narrow.search import ComponentSearch, NarrowRules, SearchCost, expected_cost
from harness.run.engine import Kept
from harness.run.hosts.host_run import HostRun
from harness.run.run_interfaces import CellRun, RowRun
from harness.schedule.narrow_launches import fault_counts, is_level, level_size
from harness.schedule.narrow_scheduler import NarrowScheduler
from harness.schedule.priority import RowStanding
from harness.schedule.row_queue import RowQueue
from harness.store import RunDirectory

MOST_NAMED = 6


@dataclass(frozen=True, kw_only=True)
class Narrowing:
    """A question and everything else that is known before the first hybrid is made."""

    question: NarrowQuestion
    both: narrow_sides.BothSides
    sides: Sides
    coupling: Coupling
    rules: NarrowRules


@contextmanager
def narrowing(
    question: NarrowQuestion, context: RunContext, *, known: narrow_sides.Contents | None = None
) -> Iterator[Narrowing]:
    """Open and lease the host, make A and B, and list their contents, unless the contents are `known`.

    Raises UsageError if A and B do not differ, InfrastructureError, Interrupted.
    """
    with narrow_sides.both_sides(question.plan, context, digests=question.digests) as both:
        looked = known or narrow_sides.looked_into(both)
        coupling = _coupled(both, looked)
        sides = Sides(
            images={side: cell.image for side, cell in both.cells.items()},
            references={side: each.reference for side, each in both.made.items()},
            inventories=looked,
            groups=coupling.groups,
        )
        rules = NarrowRules(
            seen=fault_counts(question.seen, finding=question.finding, scenario=question.b.variant.scenario),
            effect=level_size(question.finding),
        )
        yield Narrowing(question=question, both=both, sides=sides, coupling=coupling, rules=rules)


def dry_run(plan: Plan, context: RunContext, *, digests: narrow_sides.Digests) -> tuple[ComponentGroup, ...]:
    """Return the groups of installed components in which the two versions of a plan differ, without running the
    scenario. Raises UsageError if no such component differs or can be swapped, InfrastructureError, Interrupted.
    """
    with narrow_sides.both_sides(plan, context, digests=digests) as both:
        looked = narrow_sides.installed(both)
        groups = _coupled(both, looked, ran=False).groups
        if not any(group.swaps for group in groups):
            raise UsageError(f"{_nothing_to_swap(both, looked)}; without --dry-run, narrow compares mapped libraries")
        return groups


def cost(groups: Sequence[ComponentGroup], finding: Finding | None) -> SearchCost:
    """Return the expected cost of a search; without a finding, for a fault that shows in every launch."""
    level = finding is not None and is_level(finding)
    return expected_cost(len(groups), is_level=level, rules=NarrowRules())


def _coupled(both: narrow_sides.BothSides, looked: narrow_sides.Contents, *, ran: bool = True) -> Coupling:
    differing = narrow_sides.differing(both.cells, looked, ran=ran)
    extras = asked_extras(both.cells["A"].image.source, both.cells["B"].image.source)
    return couple(differing, a=looked["A"], b=looked["B"], extras=extras)


# ---------------------------------------------------------------- the search


def narrow(narrowing: Narrowing, *, out: Path, fresh: bool) -> Narrowed:
    """Make, launch and judge hybrids until the search has its answer, or until Ctrl-C.

    Launches of an earlier call are taken over unless `fresh`. Raises EngineUnreachable, InfrastructureError, and
    UsageError if nothing can be swapped.
    """
    question, both = narrowing.question, narrowing.both
    if not any(group.swaps for group in narrowing.coupling.groups):
        raise UsageError(_nothing_to_swap(both, narrowing.sides.inventories))
    journal = RunDirectory.create(out=out, matrix=question.journal, now=both.context.now())
    scheduler = _scheduler(narrowing, journal)
    _make_shams(narrowing, scheduler)
    queue = RowQueue(standing=lambda row: RowStanding(suspect=True), recall=lambda row: None)
    queue.add(RowRun(cells=(scheduler.run_of_a(),), scheduler=scheduler))
    lane, about = str(both.lane), cost(narrowing.coupling.groups, question.finding)
    both.context.progress.plan(most={lane: about.most}, exact=False, about={lane: about.launches})
    interrupted = False
    try:
        _worker(narrowing, journal, reuse=not fresh).run(queue)
    except Interrupted:
        interrupted = True
    good, bad = question.a.image.version, question.b.image.version
    answer = scheduler.search.conclude(scheduler.outcomes(), good=good, bad=bad)
    if not interrupted:
        try:
            if answer.verdict == "method" and both.lane.host.in_environments:
                sham = answer.shams[-1].result.hybrid
                answer = replace(answer, reason=_changed_by_method(narrowing, scheduler, sham))
        finally:
            _remove_hybrids(narrowing, scheduler)
    return replace(answer, finding=question.number, metric=question.finding.metric)


def _changed_by_method(narrowing: Narrowing, made: NarrowScheduler, sham: Hybrid) -> str:
    """Return how a copy of a version, made from the version's own parts, differs from that version; "" if the copy can
    no longer be inspected. No error is raised, because the search already has its answer.
    """
    run, both, own = made.runs[sham], narrowing.both, narrowing.sides.inventories[sham.base]
    if run.prepared is None:
        return ""
    try:
        seen, _ = both.look(run.cell, run.prepared)
    except (InfrastructureError, Interrupted):
        return ""
    names = [each.name for each in components(own, seen)]
    if not names:
        return (
            "no distribution, mapped library or variable differs between the version and its copy; "
            "other files are not compared"
        )
    left = len(names) - MOST_NAMED
    return (
        f"the version and its copy differ in {', '.join(names[:MOST_NAMED])}{f' and {left} more' if left > 0 else ''}"
    )


def _make_shams(narrowing: Narrowing, made: NarrowScheduler) -> None:
    """Make the sham swap of each version before anything is launched, which shows whether an index lacks any part.

    Raises InfrastructureError if no sham can be made, Interrupted.
    """
    both, problems = narrowing.both, []
    for sham in made.search.shams:
        cell = replace(made.like, image=made.image_of(sham))
        try:
            narrow_sides.prepared(cell, both.engine, both.context)
        except ImageUnavailable as error:
            problems.append(str(error))
            both.context.progress.note(
                f"{cell.image.version}: cannot be made: {error}; hybrids that need it cannot be made either"
            )
    if problems and len(problems) == len(made.search.shams):
        raise InfrastructureError(f"no hybrid can be made, so none was launched: {problems[0]}")


def _nothing_to_swap(both: narrow_sides.BothSides, looked: narrow_sides.Contents) -> str:
    names = (f"{cell.image.version} ({' '.join(looked[side].installs_for)})" for side, cell in both.cells.items())
    return (
        f"{' and '.join(names)}: everything that differs belongs to the operating system, Python or the C library, "
        "which cannot be swapped; narrow versions with the same minor version of Python"
    )


def _scheduler(narrowing: Narrowing, journal: RunDirectory) -> NarrowScheduler:
    make = installed_hybrid if narrowing.both.lane.host.in_environments else grafted_hybrid
    return NarrowScheduler(
        search=ComponentSearch(
            narrowing.coupling.groups,
            narrowing.rules,
            needs=narrowing.coupling.pairs,
            apart=not narrowing.both.lane.host.in_environments,
        ),
        like=replace(narrowing.question.a, lane=narrowing.both.lane),
        finding=narrowing.question.finding,
        image_of=functools.partial(make, narrowing.sides),
        refused=narrowing.coupling.refused,
        checked=functools.partial(_checked, narrowing),
        log=journal.write_decision,
    )


def _checked(narrowing: Narrowing, hybrid: Hybrid, run: CellRun) -> str:
    """Return which swapped library a hybrid does not load, else "": a library's own RPATH wins over LD_LIBRARY_PATH."""
    if not narrowing.sides.swapped(hybrid, "library") or run.prepared is None:
        return ""
    try:
        seen, _ = narrowing.both.look(run.cell, run.prepared)
    except (EngineUnreachable, Interrupted):
        raise
    except InfrastructureError as error:
        return str(error)
    return not_loaded(narrowing.sides, hybrid, seen)


def _worker(narrowing: Narrowing, journal: RunDirectory, *, reuse: bool) -> HostRun:
    both, rules = narrowing.both, narrowing.rules
    plan = replace(narrowing.question.plan, trials=Trials(least=rules.least, most=rules.most))
    machine = MachineRun(
        plan=plan, journal=journal, context=both.context, finished=lambda row: None, reuse=reuse
    )  # fmt: skip
    return machine.worker(both.engine, both.lane.host, both.lease)


def _remove_hybrids(narrowing: Narrowing, made: NarrowScheduler) -> None:
    """Remove the hybrids of this search, except those that another run uses; A and B stay."""
    note = narrowing.both.context.progress.note
    for hybrid, run in made.runs.items():
        if run.prepared is None or narrowing.sides.is_end(hybrid):
            continue
        version = run.cell.image.version
        try:
            narrowing.both.engine.remove(
                Kept(reference=run.prepared.reference, name=version, made=True, layers={}), note
            )
        except InfrastructureError as error:
            note(f"{version}: was not removed: {error}; `harness clean --images` removes it")
