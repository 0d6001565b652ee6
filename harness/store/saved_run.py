"""Reads a run back from its directory, which is not trusted: it may have been copied from another machine."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from harness import doors
from harness.model import (
    Cell,
    CellResult,
    CellVerdict,
    Finding,
    HostState,
    Lane,
    Plan,
    RunResult,
    Trial,
    Variant,
    grouped,
)
from harness.model.measured import REPLICATE, shown_rows
from harness.store import read_trial, result_file
from harness.store.plan_file import plan_from_file, read_plan_file
from harness.store.result_file import CellEntry, ResultFile
from harness.store.trial_json import FOLDER, trial_files


@dataclass(frozen=True, kw_only=True)
class StoredRun:
    """A run as it was written. `cells` are keyed by their ids, `payloads` (a hash of what is copied into the trials) by
    series, lane and variant.

    `files` holds, for each scenario, the sha256 of each of its files by the path relative to the script. `dockerfiles`
    holds the sha256 of each Dockerfile by the folder of its build. `told` is the content of result.json.
    """

    path: Path
    plan: Plan
    cells: Mapping[str, CellResult]
    payloads: Mapping[tuple[str, Lane, Variant], str | None]
    told: ResultFile
    files: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    dockerfiles: Mapping[str, str] = field(default_factory=dict)

    @property
    def findings(self) -> tuple[Finding, ...]:
        return self.told.findings

    @property
    def lacking(self) -> tuple[str, ...]:
        """Return one sentence on the launches whose files are missing; () if none is missing."""
        lost = sum(max(0, result.verdict.trials - len(result.trials)) for result in self.cells.values())
        if not lost:
            return ()
        files = "the file of 1 launch" if lost == 1 else f"the files of {lost:,} launches"
        return (f"{self.path / FOLDER}: lacks {files}, with their traces and facts; copy the run's whole directory",)


def newest(path: Path) -> Path:
    """Return the newest run with a result in a matrix's folder; if `path` contains no such run, return `path`."""
    results = [file.parent for file in path.glob(f"[0-9]*/{result_file.FILE}")]
    return max(results, key=when, default=path)


def when(run: Path) -> tuple[str, int, str]:
    """Return a sort key of a run's directory: when it began, to the second, and if several did, when it was printed."""
    result = run / result_file.FILE
    return run.name.partition("-")[0], result.stat().st_mtime_ns if result.exists() else 0, run.name


def read_run(path: Path, *, keep: Callable[[Trial], Trial] = lambda trial: trial) -> StoredRun:
    """Return the run in a directory, or the newest run in a matrix's folder. Raises UsageError if no run is there.

    `keep` is applied to each trial as it is read, and can drop parts that the caller does not need, to save memory.
    """
    folder = newest(path)
    plan_file = read_plan_file(folder)
    plan = plan_from_file(plan_file, folder)
    result = result_file.read_result(folder, plan)
    trials = _trials(folder, keep)
    return StoredRun(
        path=folder,
        plan=plan,
        cells={cell.id: _result(cell, result.cells.get(cell.id), trials.get(cell.id, ())) for cell in plan.cells},
        payloads={
            (row.series.name, row.lane, row.variant): entry.payload
            for row, entry in zip(plan.rows, plan_file.rows, strict=True)
        },
        told=result,
        files=plan_file.files,
        dockerfiles=plan_file.dockerfiles,
    )


def _trials(folder: Path, keep: Callable[[Trial], Trial]) -> dict[str, tuple[Trial, ...]]:
    """Return the trials by cell id, each cell's in the order of their numbers, and after them its A/A replicate's."""
    if (folder / FOLDER).is_dir():
        os.scandir(folder / FOLDER).close()  # raises an error where glob would find nothing
    trials = sorted(map(keep, map(read_trial, trial_files(folder))), key=lambda one: (one.is_replicate, one.number))
    by_cell = grouped((trial.cell_id.removesuffix(REPLICATE), trial) for trial in trials)
    return {cell_id: tuple(own) for cell_id, own in by_cell.items()}


def _result(cell: Cell, entry: CellEntry | None, trials: tuple[Trial, ...]) -> CellResult:
    if entry is None:
        missing = CellVerdict(verdicts=("untested",), why="not in the run's result.json")
        return CellResult(cell=cell, verdict=missing, trials=trials)
    return CellResult(
        cell=cell,
        verdict=entry.verdict,
        digest=entry.digest,
        trials=trials,
        problem=entry.problem,
        skipped=entry.skipped,
    )


def read_result(path: Path) -> RunResult:
    """Return the result of the run in a directory, with its traces thinned as after a sweep. Raises UsageError."""
    trace_rows = shown_rows(len(trial_files(path)))
    stored = read_run(path, keep=lambda trial: trial.thinned(trace_rows))
    file, plan = stored.told, stored.plan
    return RunResult(
        matrix=plan.matrix.name,
        verdict=file.verdict,
        started=file.started,
        duration_s=file.duration_s,
        hosts=tuple(HostState(host=host, problem=file.problems.get(host.name)) for host in plan.matrix.hosts),
        plan=plan,
        cells=tuple(stored.cells[cell.id] for cell in plan.cells),
        findings=file.findings,
        attribution=file.attribution,
        directory=stored.path,
        warnings=(*file.warnings, *stored.lacking),
        added=doors.added(stored.path, plan),
        observations=file.observations,
        since=file.since,
    )
