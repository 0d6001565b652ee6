"""Reads a run's result back from its directory, so that every report can be made again."""

from __future__ import annotations

from pathlib import Path

from harness.model import HostState, RunResult
from harness.model.measured import shown_rows
from harness.store.saved_narrowed import read_narrowed
from harness.store.saved_probes import read_probed
from harness.store.saved_run import read_run
from harness.store.trial_json import trial_files


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
        probed=read_probed(stored.path, plan),
        narrowed=read_narrowed(stored.path),
        observations=file.observations,
        replicates=sum(trial.started >= file.started for some in stored.replicates.values() for trial in some),
    )
