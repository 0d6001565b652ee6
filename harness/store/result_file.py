"""Writes result.json, which holds all conclusions of a run, and reads it back.

All reports can be made again from result.json, plan.json and the trials. The file holds the harness's own records;
lanes, variants and cells are named by their ids. `summary.json` is only an export for other programs.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Any, get_type_hints

from pydantic import TypeAdapter, ValidationError

from harness.model import (
    METRIC_PREFIX,
    SIGNALS,
    Attribution,
    Cell,
    CellResult,
    CellVerdict,
    Finding,
    Host,
    Lane,
    Observation,
    Plan,
    RunResult,
    RunVerdict,
    Skip,
    Variant,
    VersionRow,
    Where,
)
from harness.model.attributed import on_lanes
from harness.store.json_files import UNENDED, WRONG, first_problem, read_json

FILE = "result.json"
SCHEMA = 5
RECORDS = {"findings": "a finding", "observations": "an observation", "attribution": "an attribution"}
"""The lists of records that name parts of the plan, and what messages call such a record."""


@dataclass(frozen=True, kw_only=True)
class CellEntry:
    """The conclusion on a cell. `first_launch`: when the oldest of its launches began, None if it has none;
    `taken_over`: how many of its launches come from earlier runs."""

    verdict: CellVerdict
    digest: str | None
    problem: str
    skipped: Skip | None
    first_launch: str | None
    taken_over: int


@dataclass(frozen=True, kw_only=True)
class CauseEntry:
    """The sentence that attributes findings, by their numbers in the reports, to the image, the GPU or the host."""

    findings: tuple[int, ...]
    sentence: str


@dataclass(frozen=True, kw_only=True)
class ResultFile:
    """The content of result.json. `problems`: why a host could not be used, by its name. `cells` are keyed by id."""

    verdict: RunVerdict
    started: str
    duration_s: float
    warnings: tuple[str, ...]
    problems: Mapping[str, str]
    causes: tuple[CauseEntry, ...]
    findings: tuple[Finding, ...]
    observations: tuple[Observation, ...]
    attribution: tuple[Attribution, ...]
    cells: Mapping[str, CellEntry]
    since: tuple[str, ...] = ()


def encoded_result(result: RunResult, *, causes: Sequence[tuple[Sequence[int], str]] = ()) -> bytes:
    """Return the file's content in UTF-8, with one entry per line. The entries are encoded one at a time, because the
    plain data of 10,000 cells would fill the memory.

    Findings keep the order of `result.findings`, which gives them their numbers in reports. `causes` are (numbers of
    findings, sentence). Numbers that are not finite are written as Python's `json` writes them (NaN, Infinity).
    """
    file = ResultFile(
        verdict=result.verdict,
        started=result.started,
        duration_s=result.duration_s,
        warnings=result.warnings,
        problems={state.host.name: state.problem for state in result.hosts if state.problem is not None},
        cells={entry.cell.id: _entry(entry, began=result.started) for entry in result.cells},
        findings=result.findings,
        causes=tuple(CauseEntry(findings=tuple(numbers), sentence=sentence) for numbers, sentence in causes),
        attribution=result.attribution,
        observations=result.observations,
        since=result.since,
    )
    out = io.BytesIO()
    out.write(f'{{\n "schema": {SCHEMA}'.encode())
    for field in fields(file):
        value, written = getattr(file, field.name), _format(field.name)
        out.write(f",\n {json.dumps(field.name)}: ".encode())
        if isinstance(value, Mapping):
            each = (f"{json.dumps(key)}: {_json(written.dump_python({key: one})[key])}" for key, one in value.items())
            _write(out, "{}", each)
        elif isinstance(value, tuple):
            _write(out, "[]", (_json(written.dump_python((one,))[0]) for one in value))
        else:
            out.write(_json(value).encode())
    out.write(b"\n}\n")
    return out.getvalue()


def _write(out: io.BytesIO, brackets: str, entries: Iterable[str]) -> None:
    out.write(brackets[0].encode())
    for number, entry in enumerate(entries):
        out.write(f"{',' if number else ''}\n  {entry}".encode())
    out.write(brackets[1].encode())


@cache
def _format(name: str) -> TypeAdapter[Any]:
    """Return what reads and writes a field of the file."""
    return TypeAdapter(get_type_hints(ResultFile)[name])


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), default=lambda scalar: scalar.item())  # numpy scalars


def _entry(cell: CellResult, *, began: str) -> CellEntry:
    launches = [trial.started for trial in cell.trials if trial.measured and trial.started]
    return CellEntry(
        verdict=cell.verdict,
        digest=cell.digest,
        problem=cell.problem,
        skipped=cell.skipped,
        first_launch=min(launches, default=None),
        taken_over=sum(started < began for started in launches),
    )


# ---------------------------------------------------------------- reading


class _Lanes(dict[str, Lane]):
    """The lanes of a plan by their ids. Another id is that of a host that the run left out; only its name is known."""

    def __missing__(self, name: str) -> Lane:
        if not isinstance(name, str):
            raise KeyError(name)
        return Lane(host=Host(name=name, engine="", where=Where(file="", line=0, key="")))


def read_result(folder: Path, plan: Plan) -> ResultFile:
    """Return the result of the run in a directory, which has this plan. Raises UsageError if it is missing or damaged,
    or if it names something that the plan does not have.
    """
    rows = {(row.series.name, row.lane, row.variant): row for row in plan.rows}
    parts: Mapping[Any, Mapping[str, Any]] = {
        Lane: _Lanes({row.lane.id: row.lane for row in plan.rows}),
        Variant: {row.variant.id: row.variant for row in plan.rows},
        Cell: {cell.id: cell for cell in plan.cells},
    }

    def validated(content: Any) -> ResultFile:
        if not isinstance(content, dict):
            raise ValueError("not an object")
        records = {name: content.pop(name, None) for name in RECORDS}
        file = _whole().validate_python(content | dict.fromkeys(RECORDS, ()))
        for name, what in RECORDS.items():
            try:
                file = replace(file, **{name: _format(name).validate_python(records[name], context=parts)})
                known = frozenset(file.findings)
                for record in getattr(file, name):
                    _check(record, rows, known)
            except (LookupError, TypeError, ValueError, RecursionError) as error:
                problem = first_problem(error) if isinstance(error, ValidationError) else error
                raise ValueError(f"{what} that the plan and the findings do not allow: {problem}") from error
        return replace(file, cells={name: _known(entry) for name, entry in file.cells.items()})

    return read_json(folder / FILE, validated, absent=UNENDED, wrong=WRONG, schema=SCHEMA)


@cache
def _whole() -> TypeAdapter[ResultFile]:
    return TypeAdapter(ResultFile)


def _known(entry: CellEntry) -> CellEntry:
    """Return the entry without signals of other versions of the harness. Raises ValueError without a verdict."""
    if not entry.verdict.verdicts:
        raise ValueError("a cell without a verdict")
    signals = {name: each for name, each in entry.verdict.signals.items() if _is_signal(name)}
    return replace(entry, verdict=replace(entry.verdict, signals=signals))


def _is_signal(name: str) -> bool:
    return name in SIGNALS or name.startswith(METRIC_PREFIX)


def _check(
    record: Finding | Observation | Attribution,
    rows: Mapping[tuple[str, Lane, Variant], VersionRow],
    findings: frozenset[Finding],
) -> None:
    """Raise LookupError or ValueError for a record that reports could not describe."""
    if isinstance(record, Finding | Observation):
        metric, last = (record.metric, None) if isinstance(record, Finding) else (record.signal, record.last)
        row = rows[record.series, record.lane, record.variant]
        if isinstance(record, Finding) and record.kind == "better":
            raise ValueError("it is an improvement")
        named = {record.before, record.after, last} - {None} - {cell.image.version for cell in row.cells}
        if named or not _is_signal(metric):
            raise ValueError(f"it names {', '.join(map(str, named)) or metric}, which the plan does not have")
        return
    if not (record.episodes and record.variants and record.bad_lanes):
        raise ValueError("no episodes, variants or lanes")
    for episode in record.episodes:
        if episode.begins is None and episode.ends is None:
            raise ValueError("an episode without findings")
        if not findings.issuperset(episode.findings):
            raise ValueError("an episode of other findings")
        finding = episode.finding
        row = rows[record.series, finding.lane, finding.variant]
        if finding.series != record.series or len(episode.states) != len(row.cells):
            raise ValueError("an episode of another row")
        for bounds, low in ((episode.since, -1), (episode.until, 0), ((0, episode.seen), 0)):
            if bounds is not None and not low <= bounds[0] <= bounds[1] < len(row.cells):
                raise ValueError("an episode beyond its row")
    on_lanes(record)
