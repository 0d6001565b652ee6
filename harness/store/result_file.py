"""Writes result.json, the conclusions of a run without loss, and reads it back.

All reports can be made again from it, plan.json and the trials. Cells go by their ids; findings and observations name
their block by its place in the plan. `summary.json` is an export for other programs: nothing is read back from it.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields, replace
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
"""Fields of a finding that its block has already."""


def _is_signal(name: str) -> bool:
    return name in SIGNALS or name.startswith(METRIC_PREFIX)


def _known(metric: Metric) -> Metric:
    if not _is_signal(metric):
        raise ValueError("no such signal")
    return metric


KnownMetric = Annotated[Metric, AfterValidator(_known)]


class CellEntry(BaseModel):
    """A cell's conclusion. `first_launch`: when the oldest of its launches began; `taken_over`: how many of them are an
    earlier run's. Both are None in older files."""

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
    """An Observation without its place, and the number of its block."""

    block: int
    signal: KnownMetric
    before: str
    after: str
    text: str


class CauseEntry(BaseModel):
    """The sentence that says whose fault some findings are. `findings` are their numbers in the reports, from 1."""

    findings: list[int]
    sentence: str


class LaneEntry(BaseModel):
    """A lane, by the name of its host, with its GPUs."""

    host: str
    gpu: str | None
    gpus: tuple[Gpu, ...]


class ResultFile(BaseModel):
    """The whole file. `problems` go by host: why it could not be used. `cells` go by the cells' ids."""

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


def encoded_result(result: RunResult, *, causes: Sequence[tuple[Sequence[int], str]] = ()) -> bytes:
    """Return the file's content in UTF-8, with one entry a line. Entries are made one at a time, because 10,000 cells
    at once fill the memory.

    Findings keep the order of `result.findings`, by which reports number them. `causes` are (numbers of findings,
    sentence). A number that is not finite is written as Python's `json` writes it.
    """
    blocks = {_place(block): number for number, block in enumerate(result.plan.blocks)}
    head: dict[str, Any] = {
        "schema": SCHEMA,
        "verdict": result.verdict,
        "started": result.started,
        "duration_s": result.duration_s,
        "warnings": list(result.warnings),
        "lanes": [
            {"host": lane.host.name, "gpu": lane.gpu, "gpus": [_GPU.dump_python(gpu) for gpu in lane.gpus]}
            for lane in dict.fromkeys(block.lane for block in result.plan.blocks)
        ],
        "problems": {state.host.name: state.problem for state in result.hosts if state.problem is not None},
        "causes": [{"findings": list(numbers), "sentence": sentence} for numbers, sentence in causes],
    }
    out = io.BytesIO()
    out.write(b"{")
    for name, value in head.items():
        out.write(f"\n {json.dumps(name)}: {_json(value)},".encode())
    _write(out, "findings", "[]", (_json(_finding_json(finding, blocks)) for finding in result.findings))
    out.write(b",")
    _write(out, "observations", "[]", (_json(_unplaced(entry, blocks)) for entry in result.observations))
    out.write(b",")
    cells = (f"{json.dumps(entry.cell.id)}: {_json(_cell_json(entry, began=result.started))}" for entry in result.cells)
    _write(out, "cells", "{}", cells)
    out.write(b"\n}\n")
    return out.getvalue()


def _write(out: io.BytesIO, name: str, brackets: str, entries: Iterable[str]) -> None:
    out.write(f"\n {json.dumps(name)}: {brackets[0]}".encode())
    for number, entry in enumerate(entries):
        out.write(f"{',' if number else ''}\n  {entry}".encode())
    out.write(brackets[1].encode())


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), default=lambda scalar: scalar.item())  # of numpy


def _place(of: Block | Finding | Observation) -> tuple[object, ...]:
    series = of.series.name if isinstance(of, Block) else of.series
    return series, of.lane, of.variant


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
    return {**_unplaced(finding, blocks), "effect": _EFFECT.dump_python(finding.effect)}


def _unplaced(entry: Finding | Observation, blocks: Mapping[tuple[object, ...], int]) -> dict[str, Any]:
    own = {field.name: getattr(entry, field.name) for field in fields(entry) if field.name not in PLACE}
    return {"block": blocks[_place(entry)], **own}


# ---------------------------------------------------------------- reading


def read_result(folder: Path) -> ResultFile:
    """Return the result of the run in a directory. Raises UsageError if it has none, or one of another kind."""
    return read_json(folder / FILE, ResultFile.model_validate, absent=UNENDED, wrong=WRONG)


def verdict_of(entry: CellEntry) -> CellVerdict:
    """Return the verdict on a cell without signals that this version of the harness lacks, as a copied file may name
    them."""
    signals = {name: verdict for name, verdict in entry.verdict.signals.items() if _is_signal(name)}
    return replace(entry.verdict, signals=signals)


def findings_of(file: ResultFile, plan: Plan, *, path: Path) -> tuple[Finding, ...]:
    """Return the findings with their places in the plan. Raises UsageError if the plan lacks the version of one."""
    findings = []
    for number, entry in enumerate(file.findings, start=1):
        what = f"{path}: finding {number}"
        finding = Finding(**_placed(entry, plan, what=what))
        versions = {cell.image.version for cell in plan.blocks[entry.block].cells}
        if not {entry.before, entry.after} - {None} <= versions:
            raise UsageError(f"{what} names a version that the plan does not have; {WRONG}")
        findings.append(finding)
    return tuple(findings)


def observations_of(file: ResultFile, plan: Plan, *, path: Path) -> tuple[Observation, ...]:
    """Return the observations with their places in the plan. Raises UsageError if the plan lacks the block of one."""
    return tuple(Observation(**_placed(entry, plan, what=f"{path}: an observation")) for entry in file.observations)


def _placed(entry: FindingEntry | ObservationEntry, plan: Plan, *, what: str) -> dict[str, Any]:
    """Return the fields of an entry with series, lane and variant instead of the number of the block."""
    if not 0 <= entry.block < len(plan.blocks):
        raise UsageError(f"{what} names block {entry.block}, which the plan does not have; {WRONG}")
    block = plan.blocks[entry.block]
    own = {name: value for name, value in vars(entry).items() if name != "block"}
    return {"series": block.series.name, "lane": block.lane, "variant": block.variant, **own}
