"""`harness report`: a run's result read back from its directory, so that every report can be made of it again.

What `plan.json`, `summary.json` and the trials do not tell is in `run.json`: when, how long, which GPUs the lanes had,
and what kept cells from being measured. A run of before that file is read without.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from harness.assess.row_verdicts import shown_rows, thinned_trial
from harness.judge.attribution.cause import attribute
from harness.model import METRIC_PREFIX, SIGNALS, Block, HostState, Lane, Observation, Plan, RunResult, RunVerdict
from harness.model.gpus import Gpu
from harness.schedule import oracle
from harness.store.json_files import read_json
from harness.store.saved_probes import read_probed
from harness.store.saved_run import read_run

FILE = "run.json"
SCHEMA = 1


class _LaneFile(BaseModel):
    host: str
    gpu: str | None
    gpus: list[Gpu]


class _ObservationFile(BaseModel):
    block: int
    """Its place in the plan."""
    signal: str
    before: str
    after: str
    text: str


class _RunFile(BaseModel):
    verdict: RunVerdict | None = None
    started: str = ""
    duration_s: float = 0.0
    warnings: list[str] = []
    lanes: list[_LaneFile] = []
    problems: dict[str, str] = {}
    """By host."""
    hindered: dict[str, str] = {}
    """By cell: what kept it from being measured as planned."""
    skipped: dict[str, str] = {}
    """By cell: why it did not need to be."""
    observations: list[_ObservationFile] = []


def to_json(result: RunResult) -> dict[str, Any]:
    """The content of `run.json`."""
    lanes = dict.fromkeys(block.lane for block in result.plan.blocks)
    blocks = {(one.series.name, one.lane, one.variant): number for number, one in enumerate(result.plan.blocks)}
    return {
        "schema": SCHEMA,
        "verdict": result.verdict,
        "started": result.started,
        "duration_s": result.duration_s,
        "warnings": list(result.warnings),
        "lanes": [
            {"host": lane.host.name, "gpu": lane.gpu, "gpus": [asdict(gpu) for gpu in lane.gpus]} for lane in lanes
        ],
        "problems": {state.host.name: state.problem for state in result.hosts if state.problem is not None},
        "hindered": {entry.cell_id: entry.problem for entry in result.cells if entry.problem},
        "skipped": {entry.cell_id: entry.skipped for entry in result.cells if entry.skipped},
        "observations": [
            {"block": blocks[one.series, one.lane, one.variant], "signal": one.signal, "before": one.before,
             "after": one.after, "text": one.text}
            for one in result.observations
        ],
    }  # fmt: skip


def read_result(path: Path) -> RunResult:
    """The result of the run in a directory, its traces thinned as a sweep's are. Raises UsageError."""
    rows = shown_rows(sum(1 for _ in (path / "trials").glob("*.json")))
    stored = read_run(path, keep=functools.partial(thinned_trial, rows=rows))
    told = _read(stored.path / FILE)
    lanes = {(one.host, one.gpu): tuple(one.gpus) for one in told.lanes}
    plan = replace(stored.plan, blocks=tuple(_with_gpus(block, lanes) for block in stored.plan.blocks))
    cells = tuple(
        replace(
            stored.cells[cell.id],
            cell=cell,
            problem=told.hindered.get(cell.id, ""),
            skipped=told.skipped.get(cell.id, ""),
        )
        for cell in plan.cells
    )
    findings = tuple(replace(one, lane=_lane(one.lane, lanes)) for one in stored.findings)
    result = RunResult(
        matrix=plan.matrix.name,
        verdict="ok",
        started=told.started,
        duration_s=told.duration_s,
        hosts=tuple(HostState(host=host, problem=told.problems.get(host.name)) for host in plan.matrix.hosts),
        plan=plan,
        cells=cells,
        findings=findings,
        attribution=attribute(plan, cells, findings),
        directory=stored.path,
        warnings=tuple(told.warnings),
        probed=read_probed(stored.path, plan),
        observations=tuple(_observation(one, plan) for one in told.observations if _is_known(one, plan)),
    )
    return replace(result, verdict=told.verdict or oracle.run_verdict(result, interrupted=False))


def _is_known(told: _ObservationFile, plan: Plan) -> bool:
    """A copied file may name blocks and signals that there are not."""
    signal = told.signal in SIGNALS or told.signal.startswith(METRIC_PREFIX)
    return signal and 0 <= told.block < len(plan.blocks)


def _observation(told: _ObservationFile, plan: Plan) -> Observation:
    block = plan.blocks[told.block]
    return Observation(
        series=block.series.name,
        lane=block.lane,
        variant=block.variant,
        signal=told.signal,
        before=told.before,
        after=told.after,
        text=told.text,
    )


def _read(path: Path) -> _RunFile:
    if not path.exists():
        return _RunFile()
    return read_json(path, _RunFile.model_validate, absent="make it readable", wrong="remove it to go without")


Gpus = Mapping[tuple[str, str | None], tuple[Gpu, ...]]


def _lane(lane: Lane, gpus: Gpus) -> Lane:
    return replace(lane, gpus=gpus.get((lane.host.name, lane.gpu), ()))


def _with_gpus(block: Block, gpus: Gpus) -> Block:
    lane = _lane(block.lane, gpus)
    return replace(block, lane=lane, cells=tuple(replace(cell, lane=lane) for cell in block.cells))
