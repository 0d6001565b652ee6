"""Reads a run's result back from its directory, so that every report can be made again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from harness.model import HostState, Lane, RunResult, VersionRow
from harness.model.matrix import Gpu
from harness.model.measured import shown_rows
from harness.store import result_file
from harness.store.saved_narrowed import read_narrowed
from harness.store.saved_probes import read_probed
from harness.store.saved_run import read_run
from harness.store.trial_json import trial_files

GpusOfLanes = Mapping[tuple[str, str | None], tuple[Gpu, ...]]


def read_result(path: Path) -> RunResult:
    """Return the result of the run in a directory, with its traces thinned as after a sweep. Raises UsageError."""
    trace_rows = shown_rows(len(trial_files(path)))
    stored = read_run(path, keep=lambda trial: trial.thinned(trace_rows))
    file = stored.told
    lanes = {(one.host, one.gpu): one.gpus for one in file.lanes}
    plan = replace(stored.plan, rows=tuple(_with_gpus(row, lanes) for row in stored.plan.rows))
    cells = tuple(replace(stored.cells[cell.id], cell=cell) for cell in plan.cells)
    findings = tuple(replace(one, lane=_lane(one.lane, lanes)) for one in stored.findings)
    result_path = stored.path / result_file.FILE
    return RunResult(
        matrix=plan.matrix.name,
        verdict=file.verdict,
        started=file.started,
        duration_s=file.duration_s,
        hosts=tuple(HostState(host=host, problem=file.problems.get(host.name)) for host in plan.matrix.hosts),
        plan=plan,
        cells=cells,
        findings=findings,
        attribution=result_file.attribution_of(file, plan, findings, path=result_path),
        directory=stored.path,
        warnings=(*file.warnings, *stored.lacking),
        probed=read_probed(stored.path, plan),
        narrowed=read_narrowed(stored.path),
        observations=result_file.observations_of(file, plan, path=result_path),
        replicates=sum(trial.started >= file.started for some in stored.replicates.values() for trial in some),
    )


def _lane(lane: Lane, gpus: GpusOfLanes) -> Lane:
    return replace(lane, gpus=gpus.get((lane.host.name, lane.gpu), ()))


def _with_gpus(row: VersionRow, gpus: GpusOfLanes) -> VersionRow:
    lane = _lane(row.lane, gpus)
    return replace(row, lane=lane, cells=tuple(replace(cell, lane=lane) for cell in row.cells))
