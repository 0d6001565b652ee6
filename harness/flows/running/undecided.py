"""Finds the cells that `sweep --decide` runs, by judging what earlier runs measured; it launches nothing."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from contextlib import suppress

from harness.assess.findings import find
from harness.assess.row_verdicts import JudgedRow
from harness.errors import HarnessError, ImageUnavailable, Interrupted, UsageError
from harness.flows.parts.context import RunContext
from harness.flows.parts.hosts.machines import OpenHost
from harness.flows.parts.hosts.opening import leased
from harness.flows.running.early_end import Ending
from harness.flows.running.running_rows import RunningRows
from harness.judge.attribution.cause import attribute, deciding_cells
from harness.model import Plan
from harness.model.watching import unheard
from harness.plan.cells import including
from harness.run.run_interfaces import CellRun
from harness.run.trial.payload import trial_key
from harness.schedule.compatibility import cannot_run
from harness.store import RunDirectory


def cells_to_run(
    plan: Plan, hosts: Sequence[OpenHost], journal: RunDirectory, context: RunContext
) -> tuple[Plan, frozenset[str]]:
    """Return the plan, and the ids of its cells that would settle an undecided cause. If only a cell that the matrix
    excludes can settle it, the plan includes that cell. The trials of an earlier call count, so the next call returns
    the next cells. Raises UsageError if no earlier trial belongs to this plan.
    """
    known, included = None, plan
    while included != known:
        known = included
        rows = _judged(known, hosts, journal, context)
        if context.stopped.is_set():
            return known, frozenset()
        cells = tuple(cell for row in rows for cell in row.cells)
        if not any(cell.trials for cell in cells):
            shutil.rmtree(journal.path)
            raise UsageError(
                "--decide: no earlier measurement still fits this plan (script, settings, images or hosts have changed "
                "since); sweep it without --decide first"
            )
        wanted = {cell.id for cell in deciding_cells(attribute(known, cells, find(rows).findings))}
        included = including(known, wanted)
    names = ", ".join(str(cell.cell) for cell in cells if cell.cell_id in wanted)
    context.progress.note(f"to be measured: {names}" if names else "nothing to decide: no cause is undecided")
    return known, frozenset(wanted)


def _judged(plan: Plan, hosts: Sequence[OpenHost], journal: RunDirectory, context: RunContext) -> Sequence[JudgedRow]:
    """Return the verdicts on all rows by the trials of earlier runs that still fit. Nothing is launched. A host that
    is lost meanwhile gets a problem. Return () if the run is stopped.
    """
    rows = RunningRows(plan=plan, journal=journal, ending=Ending(asked=plan.stop), only=frozenset())
    homes = journal.machines()
    for each in (each for each in hosts if each.usable):
        here = each.host.machine
        try:
            with leased(each, context, over=context.stopped.is_set):
                for row in rows.on(each.part_of):
                    if homes.get(row.place, here) == here:
                        for run in row.cells:
                            _take_over(run, each, journal, context, most=plan.trials.most)
                        rows.finish(row)
        except Interrupted:
            return ()
        except HarnessError as error:  # the other hosts go on
            each.problem = error.text_at(each.host.where)
    return rows.judged()


def _take_over(run: CellRun, each: OpenHost, journal: RunDirectory, context: RunContext, *, most: int) -> None:
    """Read the newest trials of a cell that fit its image, if the machine has the image."""
    assert each.engine is not None
    cell = run.cell = each.own(run.cell)
    if cell.excluded or run.incompatible or each.engine.look(cell.image, unheard) is None:
        return
    with suppress(ImageUnavailable):  # the sweep reports it
        say = context.preparing(lane=str(cell.lane), image=cell.image.version)
        prepared = each.engine.prepare(cell.image, say)
        run.incompatible = cannot_run(cell, prepared) or ""
        if not run.incompatible:
            key = trial_key(cell, prepared=prepared, facts=each.engine.facts)
            run.trials[:] = journal.known_trials(cell, key)[-most:]
