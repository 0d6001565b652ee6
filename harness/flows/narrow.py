"""`harness narrow`: hybrids of last good and first bad are made and measured until the culprit is known."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from harness.errors import EngineUnreachable, ImageUnavailable, InfrastructureError, Interrupted, UsageError
from harness.flows.parts import narrow_sides
from harness.flows.parts.context import RunContext
from harness.flows.parts.questions import NarrowQuestion
from harness.model import Finding, Plan, Trials
from harness.model.narrowed import ComponentGroup, Hybrid, Narrowed
from harness.model.watching import Say, unheard
from harness.narrow.components import components
from harness.narrow.coupling import Coupling, asked_extras, couple
from harness.narrow.expected import SearchCost, expected
from harness.narrow.hybrids import Sides, grafted, installed, not_loaded
from harness.narrow.search import ComponentSearch, NarrowRules
from harness.run.engine import Engine, Kept
from harness.run.hosts.cell_launcher import CellLauncher
from harness.run.hosts.lanes import HostRun
from harness.run.images.prefetch import HostImages
from harness.run.scheduler import BlockRun, CellRun
from harness.schedule import oracle
from harness.schedule.narrow_launches import is_level, seen, size_of
from harness.schedule.narrow_scheduler import NarrowScheduler, OneRow
from harness.store import RunDirectory

MOST_NAMED = 6


@dataclass(frozen=True, kw_only=True)
class Narrowing:
    """A question on its way: everything that is known before the first hybrid is made."""

    question: NarrowQuestion
    both: narrow_sides.BothSides
    sides: Sides
    coupling: Coupling
    rules: NarrowRules


@contextmanager
def narrowing(
    question: NarrowQuestion, context: RunContext, *, known: narrow_sides.Contents | None = None
) -> Iterator[Narrowing]:
    """Open and lease the host, make A and B, and look what they consist of, unless that is `known`.

    Raises UsageError where they do not differ in anything, InfrastructureError, Interrupted.
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
            seen=seen(question.seen, finding=question.finding, scenario=question.b.variant.scenario),
            effect=size_of(question.finding),
        )
        yield Narrowing(question=question, both=both, sides=sides, coupling=coupling, rules=rules)


def dry_run(plan: Plan, context: RunContext, *, digests: narrow_sides.Digests) -> tuple[ComponentGroup, ...]:
    """Return the groups in which the two versions of a plan differ, by what is installed in them. The scenario is not
    run. Raises UsageError where nothing that is installed differs, InfrastructureError, Interrupted.
    """
    with narrow_sides.both_sides(plan, context, digests=digests) as both:
        return _coupled(both, narrow_sides.installed(both), ran=False).groups


def cost(groups: Sequence[ComponentGroup], finding: Finding | None) -> SearchCost:
    """Return what a search takes; without a finding, for one that each launch shows by itself."""
    level = finding is not None and is_level(finding)
    return expected(len(groups), is_level=level, most=NarrowRules().most_launches)


def _coupled(both: narrow_sides.BothSides, looked: narrow_sides.Contents, *, ran: bool = True) -> Coupling:
    found = narrow_sides.differing(both.cells, looked, ran=ran)
    extras = asked_extras(both.cells["A"].image.source, both.cells["B"].image.source)
    return couple(found, a=looked["A"], b=looked["B"], extras=extras)


# ---------------------------------------------------------------- the search


def narrow(narrowing: Narrowing, *, out: Path, fresh: bool) -> Narrowed:
    """Make, launch and judge hybrids until the search has its answer, or until Ctrl-C.

    Launches of an earlier call are taken over unless `fresh`. Raises EngineUnreachable, InfrastructureError, and
    UsageError where nothing can be swapped.
    """
    question, both = narrowing.question, narrowing.both
    if not any(group.swaps for group in narrowing.coupling.groups):
        raise UsageError(_nothing_to_swap(narrowing))
    journal = RunDirectory.create(out=out, matrix=question.journal, now=both.context.now())
    made = _scheduler(narrowing, journal)
    _make_shams(narrowing, made)
    row = OneRow(block=BlockRun(cells=(made.run_of_a(),), scheduler=made))
    lane, about = str(both.lane), cost(narrowing.coupling.groups, question.finding)
    both.context.progress.plan(most={lane: about.most}, exact=False, about={lane: about.launches})
    interrupted = False
    try:
        _host_run(narrowing, journal, reuse=not fresh).run(row)
    except Interrupted:
        interrupted = True
    found = made.search.conclude(made.outcomes(), good=question.a.image.version, bad=question.b.image.version)
    if not interrupted:
        try:
            if found.verdict == "method" and both.lane.host.in_environments:
                found = replace(found, reason=_changed_by_method(narrowing, made, found.shams[-1].result.hybrid))
        finally:
            _remove_hybrids(narrowing, made)
    return replace(found, finding=question.number, metric=question.finding.metric)


def _changed_by_method(narrowing: Narrowing, made: NarrowScheduler, sham: Hybrid) -> str:
    """Look in what an environment that was made again from a version's own parts differs from that version; "" if that
    cannot be seen any more. The answer of the search is known by then, and is kept.
    """
    run, both, own = made.runs[sham], narrowing.both, narrowing.sides.inventories[sham.base]
    if run.prepared is None:
        return ""
    try:
        seen = narrow_sides.inventory(run.cell, run.prepared, both.engine, both.context)
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
    """Put each version's own parts into it again before anything is launched: what is gone from an index shows here.

    Raises InfrastructureError where neither version can be made again, Interrupted.
    """
    both, problems = narrowing.both, []
    for sham in made.search.shams:
        cell = replace(made.like, image=made.image_of(sham))
        try:
            narrow_sides.prepared(cell, both.engine, both.context)
        except ImageUnavailable as error:
            problems.append(str(error))
            both.context.progress.note(f"{cell.image.version}: cannot be made: {error}; nor can what takes it")
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
    make = installed if narrowing.both.lane.host.in_environments else grafted
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
    """Look into a hybrid with a library of the other side: a library's own path wins over LD_LIBRARY_PATH."""
    if not narrowing.sides.swapped(hybrid, "library") or run.prepared is None:
        return ""
    both = narrowing.both
    try:
        seen = narrow_sides.inventory(run.cell, run.prepared, both.engine, both.context)
    except (EngineUnreachable, Interrupted):
        raise
    except InfrastructureError as error:
        return str(error)
    return not_loaded(narrowing.sides, hybrid, seen)


def _host_run(narrowing: Narrowing, journal: RunDirectory, *, reuse: bool) -> HostRun:
    both = narrowing.both
    context, host = both.context, both.lane.host
    opener: Callable[[], Engine] = functools.partial(context.open_engine, host, environ=context.environ, say=unheard)
    images = HostImages(
        engine=both.engine, open_another=opener, progress=context.progress, stopped=context.stopped.is_set
    )
    launcher = CellLauncher(
        engine=both.engine,
        lease=both.lease,
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
        narrowing.both.context.progress.note(text)

    for hybrid, run in made.runs.items():
        if run.prepared is not None and not narrowing.sides.is_end(hybrid):
            _remove(narrowing.both.engine, run, say)


def _remove(engine: Engine, run: CellRun, say: Say) -> None:
    if run.prepared is not None:
        kept = Kept(reference=run.prepared.reference, name=run.cell.image.version, made=True, layers={})
        try:
            engine.remove(kept, say)
        except InfrastructureError as error:
            say(f"{run.cell.image.version}: was not removed: {error}; `harness clean --images` removes it")
