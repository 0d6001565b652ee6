"""Writes result.json, which holds all conclusions of a run, and reads it back.

All reports can be made again from result.json, plan.json and the trials. Cells are keyed by their ids; findings and
observations refer to their row by its index in the plan. `summary.json` is only an export for other programs.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields, is_dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, TypeAdapter, ValidationError

from harness.errors import UsageError
from harness.model import (
    METRIC_PREFIX,
    SIGNALS,
    Attribution,
    Cell,
    CellResult,
    CellVerdict,
    Effect,
    Finding,
    FindingKind,
    Host,
    Lane,
    Metric,
    Observation,
    Plan,
    RunResult,
    RunVerdict,
    Skip,
    Variant,
    VersionRow,
)
from harness.model.attributed import lane_bounds
from harness.model.matrix import Gpu
from harness.store.json_files import UNENDED, WRONG, first_problem, read_json

FILE = "result.json"
SCHEMA = 3
PLACE = frozenset({"series", "lane", "variant"})
"""Fields of a finding that are not written, because its row has them."""


def _is_signal(name: str) -> bool:
    return name in SIGNALS or name.startswith(METRIC_PREFIX)


def _known(metric: Metric) -> Metric:
    if not _is_signal(metric):
        raise ValueError("no such signal")
    return metric


KnownMetric = Annotated[Metric, AfterValidator(_known)]


class CellEntry(BaseModel):
    """The conclusion on a cell. `first_launch`: when the oldest of its launches began, None if it has none;
    `taken_over`: how many of its launches come from earlier runs."""

    verdict: CellVerdict
    digest: str | None
    problem: str
    skipped: Skip | None
    first_launch: str | None
    taken_over: int


class FindingEntry(BaseModel):
    """A Finding with the index of its row instead of series, lane and variant."""

    row: int
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
    """An Observation with the index of its row instead of series, lane and variant."""

    row: int
    signal: KnownMetric
    before: str
    after: str
    text: str


class CauseEntry(BaseModel):
    """The sentence that attributes some findings to the image, the GPU or the host. `findings` are their numbers in the
    reports, from 1."""

    findings: list[int]
    sentence: str


class LaneEntry(BaseModel):
    """A lane: the name of its host, its GPU selection, and its GPUs."""

    host: str
    gpu: str | None
    gpus: tuple[Gpu, ...]


class ResultFile(BaseModel):
    """The content of result.json. `problems`: why each unusable host could not be used, by its name. `cells` are keyed
    by the cells' ids. `attribution`: see `saved_attributions.py`."""

    verdict: RunVerdict
    started: str
    duration_s: float
    warnings: tuple[str, ...]
    lanes: list[LaneEntry]
    problems: dict[str, str]
    cells: dict[str, CellEntry]
    findings: list[FindingEntry]
    causes: list[CauseEntry]
    attribution: list[Any]
    observations: list[ObservationEntry]


_VERDICT, _EFFECT, _GPU = TypeAdapter(CellVerdict), TypeAdapter(Effect | None), TypeAdapter(Gpu)


def encoded_result(result: RunResult, *, causes: Sequence[tuple[Sequence[int], str]] = ()) -> bytes:
    """Return the file's content in UTF-8, with one entry per line. The entries are encoded one at a time, because the
    plain data of 10,000 cells would fill the memory.

    Findings keep the order of `result.findings`, which gives them their numbers in reports. `causes` are (numbers of
    findings, sentence). Numbers that are not finite are written as Python's `json` writes them (NaN, Infinity).
    """
    rows = {_place(row): number for number, row in enumerate(result.plan.rows)}
    head: dict[str, Any] = {
        "schema": SCHEMA,
        "verdict": result.verdict,
        "started": result.started,
        "duration_s": result.duration_s,
        "warnings": list(result.warnings),
        "lanes": [
            {"host": lane.host.name, "gpu": lane.gpu, "gpus": [_GPU.dump_python(gpu) for gpu in lane.gpus]}
            for lane in dict.fromkeys(row.lane for row in result.plan.rows)
        ],
        "problems": {state.host.name: state.problem for state in result.hosts if state.problem is not None},
        "causes": [{"findings": list(numbers), "sentence": sentence} for numbers, sentence in causes],
        "attribution": attributions_json(result),
    }
    out = io.BytesIO()
    out.write(b"{")
    for name, value in head.items():
        out.write(f"\n {json.dumps(name)}: {_json(value)},".encode())
    findings = ({**_unplaced(one, rows), "effect": _EFFECT.dump_python(one.effect)} for one in result.findings)
    _write(out, "findings", "[]", map(_json, findings))
    out.write(b",")
    _write(out, "observations", "[]", (_json(_unplaced(entry, rows)) for entry in result.observations))
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
    return json.dumps(value, separators=(",", ":"), default=lambda scalar: scalar.item())  # numpy scalars


def _place(of: VersionRow | Finding | Observation) -> tuple[object, ...]:
    series = of.series.name if isinstance(of, VersionRow) else of.series
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


def _unplaced(entry: Finding | Observation, rows: Mapping[tuple[object, ...], int]) -> dict[str, Any]:
    own = {field.name: getattr(entry, field.name) for field in fields(entry) if field.name not in PLACE}
    return {"row": rows[_place(entry)], **own}


# ---------------------------------------------------------------- reading


def read_result(folder: Path) -> ResultFile:
    """Return the result of the run in a directory. Raises UsageError if it is missing or damaged."""
    return read_json(folder / FILE, ResultFile.model_validate, absent=UNENDED, wrong=WRONG, schema=SCHEMA)


def verdict_of(entry: CellEntry) -> CellVerdict:
    """Return the verdict on a cell without the signals that this version of the harness does not have: another version
    may have written the file.
    """
    signals = {name: verdict for name, verdict in entry.verdict.signals.items() if _is_signal(name)}
    return replace(entry.verdict, signals=signals)


def findings_of(file: ResultFile, plan: Plan, *, path: Path) -> tuple[Finding, ...]:
    """Return the findings. Raises UsageError if one names a row or a version that the plan does not have."""
    findings = []
    for number, entry in enumerate(file.findings, start=1):
        what = f"{path}: finding {number}"
        finding = Finding(**_placed(entry, plan, what=what))
        versions = {cell.image.version for cell in plan.rows[entry.row].cells}
        if not {entry.before, entry.after} - {None} <= versions:
            raise UsageError(f"{what} names a version that the plan does not have; {WRONG}")
        findings.append(finding)
    return tuple(findings)


def observations_of(file: ResultFile, plan: Plan, *, path: Path) -> tuple[Observation, ...]:
    """Return the observations. Raises UsageError if one names a row that the plan does not have."""
    return tuple(Observation(**_placed(entry, plan, what=f"{path}: an observation")) for entry in file.observations)


def attribution_of(file: ResultFile, plan: Plan, findings: Sequence[Finding], *, path: Path) -> tuple[Attribution, ...]:
    """Return the attributions. Raises UsageError."""
    try:
        return attributions_of(file.attribution, plan, findings)
    except ValueError as error:
        raise UsageError(f"{path}: {error}; {WRONG}") from error


def _placed(entry: FindingEntry | ObservationEntry, plan: Plan, *, what: str) -> dict[str, Any]:
    """Return the fields of an entry, with series, lane and variant instead of the index of the row."""
    if not 0 <= entry.row < len(plan.rows):
        raise UsageError(f"{what} names row {entry.row}, which the plan does not have; {WRONG}")
    row = plan.rows[entry.row]
    own = {name: value for name, value in vars(entry).items() if name != "row"}
    return {"series": row.series.name, "lane": row.lane, "variant": row.variant, **own}


# ---------------------------------------------------------------- saved attributions


_ATTRIBUTIONS = TypeAdapter(tuple[Attribution, ...])


def attributions_json(result: RunResult) -> Any:
    """Return the attributions as plain data. Findings and variants are referred to by their position in the result and
    in the plan, cells by their ids, lanes by their names.
    """
    findings = {finding: number for number, finding in enumerate(result.findings)}
    variants = {variant: number for number, variant in enumerate(_variants(result.plan))}

    def plain(value: Any) -> Any:
        match value:
            case Finding():
                return {"finding": findings[value]}
            case Variant():
                return {"variant": variants[value]}
            case Cell():
                return {"cell": value.id}
            case Lane():
                return {"lane": str(value)}
            case tuple():
                return list(map(plain, value))
        return {each.name: plain(getattr(value, each.name)) for each in fields(value)} if is_dataclass(value) else value

    return plain(result.attribution)


def attributions_of(entries: Any, plan: Plan, findings: Sequence[Finding]) -> tuple[Attribution, ...]:
    """Return the attributions from plain data. Raises ValueError for anything but what `attributions_json` returns."""
    known: Mapping[str, Mapping[Any, Any]] = {
        "finding": dict(enumerate(findings)),
        "variant": dict(enumerate(_variants(plan))),
        "cell": {cell.id: cell for cell in plan.cells},
        "lane": {str(row.lane): row.lane for row in plan.rows},
    }

    def whole(value: Any) -> Any:
        if isinstance(value, list):
            return list(map(whole, value))
        if not isinstance(value, dict):
            return value
        kind, *others = value
        if others or kind not in known:
            return {name: whole(each) for name, each in value.items()}
        name = value[kind]
        return known[kind][name] if kind != "lane" or name in known[kind] else _left_out(name, plan)

    try:
        attributions = _ATTRIBUTIONS.validate_python(whole(entries))
        for attribution in attributions:
            _check(attribution, plan)
    except (LookupError, TypeError, ValueError, RecursionError) as error:
        problem = first_problem(error) if isinstance(error, ValidationError) else error
        raise ValueError(f"an attribution that the plan and the findings do not allow: {problem}") from error
    return attributions


def _variants(plan: Plan) -> list[Variant]:
    return list(dict.fromkeys(row.variant for row in plan.rows))


def _check(attribution: Attribution, plan: Plan) -> None:
    """Raise LookupError or ValueError for an attribution that reports could not describe."""
    rows = {(row.series.name, row.lane, row.variant): row for row in plan.rows}
    for episode in attribution.episodes:
        if episode.begins is None and episode.ends is None:
            raise ValueError("an episode without findings")
        finding = episode.finding
        row = rows[attribution.series, finding.lane, finding.variant]
        if finding.series != attribution.series or len(episode.states) != len(row.cells):
            raise ValueError("an episode of another row")
    if not (attribution.episodes and attribution.variants and attribution.bad_lanes):
        raise ValueError("no episodes, variants or lanes")
    lane_bounds(attribution, {cell.image.version: place for place, cell in enumerate(row.cells)})


def _left_out(name: str, plan: Plan) -> Lane:
    """Return the lane of a host of the matrix that the run left out; only the host's name is stored."""
    if not isinstance(name, str):
        raise ValueError("the name of a lane is not a text")
    return Lane(host=Host(name=name, engine="", gpus="none", where=plan.matrix.series[0].where))
