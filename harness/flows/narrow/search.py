"""Makes and measures hybrids of the last good and the first bad version until the component is known."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from harness.errors import Interrupted
from harness.flows.narrow import sides as narrow_sides
from harness.flows.narrow.hybrids import Narrowing
from harness.flows.narrow.questions import NarrowQuestion
from harness.flows.parts.context import RunContext
from harness.flows.running.machine_run import MachineRun
from harness.model import Finding, Plan, Trials
from harness.model.answers.narrowed import ComponentGroup, Narrowed
from harness.narrow.hybrid_images import Sides, grafted_hybrid, installed_hybrid
from harness.narrow.narrowable import check_swappable, coupled
from harness.narrow.search import ComponentSearch, NarrowRules, SearchCost, expected_cost
from harness.run.hosts.host_run import HostRun
from harness.run.run_interfaces import RowRun
from harness.schedule.narrow_launches import fault_counts, is_level, level_size
from harness.schedule.narrow_scheduler import NarrowScheduler
from harness.schedule.priority import RowStanding
from harness.schedule.row_queue import RowQueue
from harness.store import RunDirectory


@contextmanager
def narrowing(
    question: NarrowQuestion, context: RunContext, *, known: narrow_sides.Contents | None = None
) -> Iterator[Narrowing]:
    """Open and lease the host, make A and B, and list their contents, unless the contents are `known`.

    Raises UsageError if A and B do not differ, InfrastructureError, Interrupted.
    """
    with narrow_sides.both_sides(question.plan, context, digests=question.digests) as both:
        looked = known or narrow_sides.looked_into(both)
        coupling = coupled(both.cells, looked)
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
        coupling = coupled(both.cells, looked, ran=False)
        check_swappable(coupling, both.cells, looked, ran=False)
        return coupling.groups


def cost(groups: Sequence[ComponentGroup], finding: Finding | None) -> SearchCost:
    """Return the expected cost of a search; without a finding, for a fault that shows in every launch."""
    level = finding is not None and is_level(finding)
    return expected_cost(len(groups), is_level=level, rules=NarrowRules())


def narrow(narrowing: Narrowing, *, out: Path, fresh: bool) -> Narrowed:
    """Make, launch and judge hybrids until the search has its answer, or until Ctrl-C.

    Launches of an earlier call are taken over unless `fresh`. Raises EngineUnreachable, InfrastructureError, and
    UsageError if nothing can be swapped.
    """
    question, both = narrowing.question, narrowing.both
    check_swappable(narrowing.coupling, both.cells, narrowing.sides.inventories)
    journal = RunDirectory.create(out=out, matrix=question.journal, now=both.context.now())
    scheduler = _scheduler(narrowing, journal)
    narrowing.make_shams(scheduler)
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
                answer = replace(answer, reason=narrowing.changed_by_method(sham, scheduler.runs[sham]))
        finally:
            narrowing.remove(scheduler.runs)
    return replace(answer, finding=question.number, metric=question.finding.metric)


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
        checked=narrowing.not_loaded,
        log=journal.write_decision,
    )


def _worker(narrowing: Narrowing, journal: RunDirectory, *, reuse: bool) -> HostRun:
    both, rules = narrowing.both, narrowing.rules
    plan = replace(narrowing.question.plan, trials=Trials(least=rules.least, most=rules.most))
    machine = MachineRun(
        plan=plan, journal=journal, context=both.context, finished=lambda row: None, reuse=reuse
    )  # fmt: skip
    return machine.worker(both.engine, both.lane.host, both.lease)
