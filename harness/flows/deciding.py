"""Finds out from the newest run whether `sweep --decide` has anything left to decide."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from harness.errors import ImageUnavailable, Interrupted, UsageError
from harness.flows.context import RunContext
from harness.flows.estimate import known_trial, newest_runs, row_of_earlier_runs
from harness.flows.hosts import OpenHost, leased
from harness.flows.running import Run
from harness.judge.attribution.cause import deciding_cells
from harness.judge.beside import known_beside
from harness.judge.comparable import changed_software, software, software_of
from harness.judge.run import judge_run
from harness.model import CellRun, JudgedRow, Lane, Plan, RunResult, Trials
from harness.model.watching import unheard
from harness.plan.cells import including, only_versions, with_lanes
from harness.run.hosts.cell_launcher import cannot_run
from harness.run.hosts.mounted_data import DataUnavailable, HostData, key_of_inputs
from harness.run.trial.payload import payload_hash, trial_key
from harness.store import RunDirectory, result_file
from harness.store.plan_file import plan_to_json, read_plan_file
from harness.store.saved_run import read_result
from harness.store.trial_json import trial_files


def settled(plan: Plan, out: Path) -> RunResult | None:
    """Return the newest run in `out` if it had exactly this plan, ran to its end and left nothing undecided; else None.

    No engine is asked: only a sweep can check whether images and hosts are still the same.
    Raises UsageError if the matrix has no run yet.
    """
    runs = sorted((path.parent for path in (out / plan.matrix.name).glob("[0-9]*/plan.json")), reverse=True)
    if not runs:
        to_do = "sweep it without --decide first, or name another folder with --out"
        raise UsageError(f"--decide: {out} has no run of {plan.matrix.name} yet; {to_do}")
    if not _is_of(plan, runs[0]) or not (runs[0] / result_file.FILE).exists():
        return None
    result = read_result(runs[0])
    return None if result.verdict == "interrupted" or deciding_cells(result.attribution) else result


def _is_of(plan: Plan, run: Path) -> bool:
    """Return whether a run had this plan (cells, scripts, settings) on the lanes that it found; False if unreadable."""
    try:
        stored = read_plan_file(run)
    except UsageError:
        return False
    hosts = {row.lane.host.name: row.lane.host for row in plan.rows}
    lanes: dict[str, list[Lane]] = {name: [] for name in hosts}
    for name, gpu in ((lane.host, lane.gpu) for lane in stored.lanes):
        if name not in hosts:
            return False
        lanes[name].append(Lane(host=hosts[name], gpu=gpu))
    ours = plan_to_json(with_lanes(plan, lanes), payload=payload_hash)
    return _compared(ours) == _compared(stored.json())


def _compared(plan: Mapping[str, Any]) -> dict[str, Any]:
    """Return the plan without the parts that may differ between two runs of it, such as the seed and the search."""
    rows = [{**row, "cells": [version for version, _ in row["cells"]]} for row in plan["rows"]]
    free = dict.fromkeys(("file", "seed", "search", "stop", "include", "exclude", "lanes", "files", "dockerfiles"))
    return {**plan, **free, "rows": rows}


# ---------------------------------------------------------------- hosts that changed


def changed_hosts(plan: Plan, hosts: Sequence[OpenHost], journal: RunDirectory) -> Iterator[tuple[Path, str]]:
    """Yield the newest earlier run with trials of a host, and a note, for each host whose software changed."""
    runs = _earlier_runs(journal)
    for each in (each for each in hosts if not each.host.pool):
        cells = [cell for row in plan.rows if row.lane.host == each.part_of for cell in row.cells]
        files = ((path, file) for path in runs for cell in cells for file in trial_files(path, of=cell.id))
        known = ((path, trial) for path, file in files if (trial := known_trial(file)) is not None and trial.measured)
        earlier, trial = next(known, (None, None))
        then = {} if trial is None else software_of([trial])
        now = software((gpu for lane in each.lanes for gpu in lane.gpus), [each.facts])
        changed = [f"{name} {now[name]} instead of {then[name]}" for name in changed_software(then, now)]
        if changed and earlier is not None:
            what = f"{each.host.full_name}: {' and '.join(changed)} since the run {earlier}"
            yield earlier, f"{what}; what both runs measure is compared at the end"


def _earlier_runs(journal: RunDirectory) -> list[Path]:
    """Return the newest earlier runs, without the first launches of `try`, which are compared with nothing."""
    return [path for path in newest_runs(journal.path.parent) if path != journal.path and not _is_rehearsal(path)]


def _is_rehearsal(run: Path) -> bool:
    try:
        return read_plan_file(run).rehearsal
    except UsageError:
        return True  # nor is a run that cannot be read


def _on_changed_hosts(plan: Plan, journal: RunDirectory) -> Plan:
    """Return the plan with only the versions that show whether the host or a new image is at fault: those that were
    never measured, and the known ones that run beside them (all, if no version has all its launches). The earlier run
    has the known ones before the change."""
    wanted: dict[str, set[str]] = {}
    for row in plan.rows:
        known = row_of_earlier_runs(row, journal.path.parent, plan)
        beside = known_beside(known)
        kept = {run.cell.image.version for run in known.cells if not (run.trials and beside) or run.cell.id in beside}
        wanted.setdefault(row.series.name, set()).update(kept)
    return only_versions(plan, wanted)


# ---------------------------------------------------------------- undecided


def cells_to_run(
    plan: Plan, hosts: Sequence[OpenHost], journal: RunDirectory, context: RunContext, *, is_changed: bool
) -> tuple[Plan, frozenset[str] | None]:
    """Return the plan, and the ids of its cells that would settle a cause. If only a cell that the matrix
    excludes can settle it, the plan includes that cell. The trials of an earlier call count, so the next call returns
    the next cells. If no earlier trial belongs to this plan because the software of a host `is_changed`,
    the plan has only the versions that settle what that changed, and all may be launched (None); else raise UsageError.
    """
    known, included = None, plan
    while included != known:
        known = included
        rows = _judged(known, hosts, journal, context)
        if context.stopped.is_set():
            return known, frozenset()
        cells = tuple(cell for row in rows for cell in row.cells)
        if is_changed and not any(cell.trials for cell in cells):
            limited = _on_changed_hosts(plan, journal)
            versions = dict.fromkeys(f"{cell.image.series} {cell.image.version}" for cell in limited.cells)
            context.progress.note(f"to be measured on the hosts as they are now: {', '.join(versions)}")
            return limited, None
        if not any(cell.trials for cell in cells):
            shutil.rmtree(journal.path)
            raise UsageError(
                "--decide: no earlier measurement still fits this plan (script, settings, images or hosts have changed "
                "since); sweep it without --decide first"
            )
        wanted = {cell.id for cell in deciding_cells(judge_run(known, rows, directory=journal.path).attribution)}
        included = including(known, wanted)
    names = ", ".join(str(cell.cell) for cell in cells if cell.cell.id in wanted)
    context.progress.note(f"to be measured: {names}" if names else "nothing to decide: no cell would settle a cause")
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
            with each.noting_problem(), leased(each, context, over=context.stopped.is_set):
                for row in rows.on(each.part_of):
                    if homes.get(row.place, here) == here:
                        for run in row.cells:
                            _take_over(run, each, data, journal, context, asked=plan.trials)
                        rows.finish(row)
        except Interrupted:
            return ()
    return rows.judged()


def _take_over(
    run: CellRun, each: OpenHost, data: HostData, journal: RunDirectory, context: RunContext, *, asked: Trials
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
            run.trials[:] = journal.known_trials(cell, key, asked=asked)
