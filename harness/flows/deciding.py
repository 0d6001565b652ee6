"""Finds out from the newest run whether `sweep --decide` has anything left to decide."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from harness.errors import HarnessError, ImageUnavailable, Interrupted, UsageError
from harness.flows.context import RunContext
from harness.flows.hosts import OpenHost, leased
from harness.flows.running import Run
from harness.judge.attribution.cause import deciding_cells
from harness.judge.run import judge_run
from harness.model import CellRun, JudgedRow, Lane, Plan, RunResult
from harness.model.watching import unheard
from harness.plan.cells import Selection, including, make_plan
from harness.run.hosts.cell_launcher import cannot_run
from harness.run.hosts.mounted_data import DataUnavailable, HostData, key_of_inputs
from harness.run.trial.payload import payload_hash, trial_key
from harness.store import RunDirectory, result_file
from harness.store.plan_file import plan_to_json, read_plan_file
from harness.store.saved_run import read_result


def settled(selection: Selection, out: Path) -> RunResult | None:
    """Return the newest run in `out` if it had exactly this plan, ran to its end and left nothing undecided; else None.

    No engine is asked: only a sweep can check whether images and hosts are still the same.
    Raises UsageError if the matrix has no run yet.
    """
    runs = sorted((path.parent for path in (out / selection.matrix.name).glob("[0-9]*/plan.json")), reverse=True)
    if not runs:
        to_do = "sweep it without --decide first, or name another folder with --out"
        raise UsageError(f"--decide: {out} has no run of {selection.matrix.name} yet; {to_do}")
    if not _is_of(selection, runs[0]) or not (runs[0] / result_file.FILE).exists():
        return None
    result = read_result(runs[0])
    return None if result.verdict == "interrupted" or deciding_cells(result.attribution) else result


def _is_of(selection: Selection, run: Path) -> bool:
    """Return whether a run had this plan: the same cells, scripts and settings, on the lanes that the run found.
    Return False for a run that cannot be read.
    """
    try:
        stored = read_plan_file(run)
    except UsageError:
        return False
    hosts = {host.name: host for _, _, host in selection.combinations}
    lanes: dict[str, list[Lane]] = {name: [] for name in hosts}
    for name, gpu in ((lane.host, lane.gpu) for lane in stored.lanes):
        if name not in hosts:
            return False
        lanes[name].append(Lane(host=hosts[name], gpu=gpu))
    ours = plan_to_json(make_plan(selection, lanes), payload=payload_hash)
    return _compared(ours) == _compared(stored.json())


def _compared(plan: Mapping[str, Any]) -> dict[str, Any]:
    """Return the plan without the parts that may differ between two runs of it, such as the seed and the search."""
    rows = [{**row, "cells": [version for version, _ in row["cells"]]} for row in plan["rows"]]
    free = dict.fromkeys(("file", "seed", "search", "stop", "include", "exclude", "lanes", "files", "dockerfiles"))
    return {**plan, **free, "rows": rows}


# ---------------------------------------------------------------- undecided


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
        wanted = {cell.id for cell in deciding_cells(judge_run(known, rows, directory=journal.path).attribution)}
        included = including(known, wanted)
    names = ", ".join(str(cell.cell) for cell in cells if cell.cell.id in wanted)
    context.progress.note(f"to be measured: {names}" if names else "nothing to decide: no cause is undecided")
    return known, frozenset(wanted)


def _judged(plan: Plan, hosts: Sequence[OpenHost], journal: RunDirectory, context: RunContext) -> Sequence[JudgedRow]:
    """Return the verdicts on all rows by the trials of earlier runs that still fit. Nothing is launched. A host that
    is lost meanwhile gets a problem. Return () if the run is stopped.
    """
    rows = Run(plan=plan, journal=journal, context=context, began=context.now(), began_s=0.0, only=frozenset())
    homes = journal.machines()
    for each in (each for each in hosts if each.usable):
        here = each.host.machine
        try:
            data = HostData(environ=context.environ)
            with leased(each, context, over=context.stopped.is_set):
                for row in rows.on(each.part_of):
                    if homes.get(row.place, here) == here:
                        for run in row.cells:
                            _take_over(run, each, data, journal, context, most=plan.trials.most)
                        rows.finish(row)
        except Interrupted:
            return ()
        except HarnessError as error:  # the other hosts go on
            each.problem = error.text_at(each.host.where)
    return rows.judged()


def _take_over(
    run: CellRun, each: OpenHost, data: HostData, journal: RunDirectory, context: RunContext, *, most: int
) -> None:
    """Read the newest trials of a cell that fit its image, if the machine has the image."""
    assert each.engine is not None
    cell = run.cell = each.own(run.cell)
    if cell.excluded or run.incompatible or each.engine.look(cell.image, unheard) is None:
        return
    with suppress(ImageUnavailable, DataUnavailable):  # the sweep reports it
        say = context.preparing(lane=str(cell.lane), image=cell.image.version)
        prepared = each.engine.prepare(cell.image, say)
        run.incompatible = cannot_run(cell, prepared) or ""
        if not run.incompatible:
            found = data.of(cell, prepared, each.engine, say) if cell.variant.scenario.data else {}
            inputs = key_of_inputs(cell.variant.scenario, found, context.environ)
            key = trial_key(cell, prepared=prepared, facts=each.engine.facts, inputs=inputs)
            run.trials[:] = journal.known_trials(cell, key, most=most)
