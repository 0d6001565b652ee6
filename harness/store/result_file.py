"""result.json: what a run concluded, without loss.

All reports can be made again from it, plan.json and the trials. Cells go by their ids; findings and observations name
their block by its place in the plan. `summary.json` is an export for other programs: nothing is read back from it.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, TypeAdapter

from harness.errors import UsageError
from harness.model import (
    METRIC_PREFIX,
    SIGNALS,
    Block,
    CellResult,
    CellVerdict,
    Effect,
    Finding,
    FindingKind,
    Lane,
    Metric,
    Observation,
    Plan,
    RunResult,
    RunVerdict,
    Skip,
)
from harness.model.gpus import Gpu
from harness.store.json_files import UNENDED, WRONG, read_json

FILE = "result.json"
SCHEMA = 2
PLACE = frozenset({"series", "lane", "variant"})
"""The fields of a finding that its block has already."""


def _is_signal(name: str) -> bool:
    return name in SIGNALS or name.startswith(METRIC_PREFIX)


def _known(metric: Metric) -> Metric:
    if not _is_signal(metric):
        raise ValueError("no such signal")
    return metric


KnownMetric = Annotated[Metric, AfterValidator(_known)]


class CellEntry(BaseModel):
    """`first_launch`: when the oldest of its launches began; `taken_over`: how many of them are an earlier run's. Both
    are None in older files."""

    verdict: CellVerdict
    digest: str | None
    problem: str
    skipped: Skip | None
    first_launch: str | None = None
    taken_over: int | None = None


class FindingEntry(BaseModel):
    """A Finding without its place, and the number of its block."""

    block: int
    metric: KnownMetric
    kind: FindingKind
    before: str | None
    after: str
    untestable: tuple[str, ...]
    effect: Effect | None
    p: float | None
    verdict: str
    confirmed: bool
    consequence_of: str


class ObservationEntry(BaseModel):
    block: int
    signal: KnownMetric
    before: str
    after: str
    text: str


class CauseEntry(BaseModel):
    """The sentence that says whose fault some findings are; `findings` are their numbers in the reports, from 1."""

    findings: list[int]
    sentence: str


class LaneEntry(BaseModel):
    host: str
    gpu: str | None
    gpus: tuple[Gpu, ...]


class ResultFile(BaseModel):
    """`problems` go by host: why it could not be used. `cells` go by the cells' ids."""

    verdict: RunVerdict
    started: str
    duration_s: float
    warnings: tuple[str, ...]
    lanes: list[LaneEntry]
    problems: dict[str, str]
    cells: dict[str, CellEntry]
    findings: list[FindingEntry]
    causes: list[CauseEntry]
    observations: list[ObservationEntry]


_VERDICT, _EFFECT, _GPU = TypeAdapter(CellVerdict), TypeAdapter(Effect | None), TypeAdapter(Gpu)


def encoded(result: RunResult, *, causes: Sequence[tuple[Sequence[int], str]] = ()) -> bytes:
    """Return the file's content in UTF-8: an entry a line, made one at a time, because 10,000 cells at once fill the
    memory.

    Findings stand in the order in which reports number them, which is that of `result.findings`. `causes` are
    (numbers of findings, sentence). A number that is not finite is written as Python's `json` writes it.
    """
    blocks = {_place(block): number for number, block in enumerate(result.plan.blocks)}
    lanes = dict.fromkeys(block.lane for block in result.plan.blocks)
    whole: dict[str, Any] = {
        "schema": SCHEMA,
        "verdict": result.verdict,
        "started": result.started,
        "duration_s": result.duration_s,
        "warnings": list(result.warnings),
        "lanes": [_lane_json(lane) for lane in lanes],
        "problems": {state.host.name: state.problem for state in result.hosts if state.problem is not None},
        "causes": [{"findings": list(numbers), "sentence": sentence} for numbers, sentence in causes],
    }
    out = io.BytesIO()
    out.write(b"{")
    for name, value in whole.items():
        out.write(f"\n {json.dumps(name)}: {_json(value)},".encode())
    _write(out, "findings", "[]", (_json(_finding_json(one, blocks)) for one in result.findings))
    out.write(b",")
    _write(out, "observations", "[]", (_json(_observation_json(one, blocks)) for one in result.observations))
    out.write(b",")
    _write(out, "cells", "{}", _cell_lines(result))
    out.write(b"\n}\n")
    return out.getvalue()


def _write(out: io.BytesIO, name: str, brackets: str, entries: Iterable[str]) -> None:
    out.write(f"\n {json.dumps(name)}: {brackets[0]}".encode())
    for number, entry in enumerate(entries):
        out.write(f"{',' if number else ''}\n  {entry}".encode())
    out.write(brackets[1].encode())


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), default=lambda scalar: scalar.item())  # of numpy


def _place(one: Block | Finding | Observation) -> tuple[object, ...]:
    series = one.series.name if isinstance(one, Block) else one.series
    return series, one.lane, one.variant


def _lane_json(lane: Lane) -> dict[str, Any]:
    return {"host": lane.host.name, "gpu": lane.gpu, "gpus": [_GPU.dump_python(gpu) for gpu in lane.gpus]}


def _cell_lines(result: RunResult) -> Iterator[str]:
    return (f"{json.dumps(one.cell.id)}: {_json(_cell_json(one, began=result.started))}" for one in result.cells)


def _cell_json(entry: CellResult, *, began: str) -> dict[str, Any]:
    launches = [trial.started for trial in entry.trials if trial.measured and trial.started]
    return {
        "verdict": _VERDICT.dump_python(entry.verdict),
        "digest": entry.digest,
        "problem": entry.problem,
        "skipped": None if entry.skipped is None else asdict(entry.skipped),
        "first_launch": min(launches, default=None),
        "taken_over": sum(started < began for started in launches),
    }


def _finding_json(finding: Finding, blocks: Mapping[tuple[object, ...], int]) -> dict[str, Any]:
    own = {field.name: getattr(finding, field.name) for field in fields(finding) if field.name not in PLACE}
    return {"block": blocks[_place(finding)], **own, "effect": _EFFECT.dump_python(finding.effect)}


def _observation_json(one: Observation, blocks: Mapping[tuple[object, ...], int]) -> dict[str, Any]:
    return {
        "block": blocks[_place(one)], "signal": one.signal, "before": one.before, "after": one.after, "text": one.text
    }  # fmt: skip


# ---------------------------------------------------------------- reading


def read(folder: Path) -> ResultFile:
    """Return the result of the run in a directory. Raises UsageError if it has none, or one of another kind."""
    return read_json(folder / FILE, ResultFile.model_validate, absent=UNENDED, wrong=WRONG)


def verdict_of(entry: CellEntry) -> CellVerdict:
    """Return the verdict on a cell. A copied file may name signals that this version of the harness does not have."""
    signals = {name: one for name, one in entry.verdict.signals.items() if _is_signal(name)}
    return CellVerdict(**{**vars(entry.verdict), "signals": signals})


def findings_of(told: ResultFile, plan: Plan, *, path: Path) -> tuple[Finding, ...]:
    """Return the findings with their places in the plan. Raises UsageError if the plan lacks the version of one."""
    found = []
    for number, entry in enumerate(told.findings, start=1):
        block = _block(entry.block, plan, what=f"{path}: finding {number}")
        versions = {cell.image.version for cell in block.cells}
        if not {entry.before, entry.after} - {None} <= versions:
            raise UsageError(f"{path}: finding {number} names a version that the plan does not have; {WRONG}")
        own = {name: getattr(entry, name) for name in FindingEntry.model_fields if name != "block"}
        found.append(Finding(series=block.series.name, lane=block.lane, variant=block.variant, **own))
    return tuple(found)


def observations_of(told: ResultFile, plan: Plan, *, path: Path) -> tuple[Observation, ...]:
    """Return the observations, with their places in the plan."""
    found = []
    for entry in told.observations:
        block = _block(entry.block, plan, what=f"{path}: an observation")
        own = {name: getattr(entry, name) for name in ObservationEntry.model_fields if name != "block"}
        found.append(Observation(series=block.series.name, lane=block.lane, variant=block.variant, **own))
    return tuple(found)


def _block(number: int, plan: Plan, *, what: str) -> Block:
    if not 0 <= number < len(plan.blocks):
        raise UsageError(f"{what} names block {number}, which the plan does not have; {WRONG}")
    return plan.blocks[number]
