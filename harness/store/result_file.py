"""Writes result.json, which holds all conclusions of a run, and reads it back.

All reports can be made again from result.json, plan.json and the trials. The file holds the harness's own records.
What the plan has is referred to: lanes by their names, variants by their positions, cells by their ids; an attribution
refers to findings by their positions. `summary.json` is only an export for other programs.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

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
SCHEMA = 4
RECORDS = ("findings", "observations", "attribution")
"""The lists of records that refer to the plan."""


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
    """The sentence that attributes some findings to the image, the GPU or the host. `findings` are their numbers in the
    reports, from 1."""

    findings: tuple[int, ...]
    sentence: str


@dataclass(frozen=True, kw_only=True)
class ResultFile:
    """The content of result.json. `problems`: why each unusable host could not be used, by its name. `cells` are keyed
    by the cells' ids."""

    verdict: RunVerdict
    started: str
    duration_s: float
    warnings: tuple[str, ...]
    problems: Mapping[str, str]
    cells: Mapping[str, CellEntry]
    findings: tuple[Finding, ...]
    causes: tuple[CauseEntry, ...]
    attribution: tuple[Attribution, ...]
    observations: tuple[Observation, ...]


_FILE, _CELL = TypeAdapter(ResultFile), TypeAdapter(CellEntry)
_FINDING, _OBSERVATION, _ATTRIBUTION = TypeAdapter(Finding), TypeAdapter(Observation), TypeAdapter(Attribution)


def encoded_result(result: RunResult, *, causes: Sequence[tuple[Sequence[int], str]] = ()) -> bytes:
    """Return the file's content in UTF-8, with one entry per line. The entries are encoded one at a time, because the
    plain data of 10,000 cells would fill the memory.

    Findings keep the order of `result.findings`, which gives them their numbers in reports. `causes` are (numbers of
    findings, sentence). Numbers that are not finite are written as Python's `json` writes them (NaN, Infinity).
    """
    references = _References.of(result.plan, result.findings)
    head = {
        "schema": SCHEMA,
        "verdict": result.verdict,
        "started": result.started,
        "duration_s": result.duration_s,
        "warnings": result.warnings,
        "problems": {state.host.name: state.problem for state in result.hosts if state.problem is not None},
        "causes": [{"findings": list(numbers), "sentence": sentence} for numbers, sentence in causes],
        "attribution": [references.plain(each) for each in result.attribution],
    }
    lists = {
        name: [references.fields_of(each) for each in entries]
        for name, entries in (("findings", result.findings), ("observations", result.observations))
    }
    out = io.BytesIO()
    out.write(b"{")
    for name, value in head.items():
        out.write(f"\n {json.dumps(name)}: {_json(value)},".encode())
    for name, entries in lists.items():
        _write(out, name, "[]", map(_json, entries))
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


def _cell_json(entry: CellResult, *, began: str) -> Any:
    launches = [trial.started for trial in entry.trials if trial.measured and trial.started]
    return _CELL.dump_python(
        CellEntry(
            verdict=entry.verdict,
            digest=entry.digest,
            problem=entry.problem,
            skipped=entry.skipped,
            first_launch=min(launches, default=None),
            taken_over=sum(started < began for started in launches),
        )
    )


# ---------------------------------------------------------------- references


@dataclass(frozen=True, kw_only=True)
class _References:
    """The things that records refer to, by the kind of the reference and its key in the file."""

    known: Mapping[str, Mapping[Any, Any]]
    keys: Mapping[str, Mapping[Any, Any]]
    rows: Mapping[tuple[str, Lane, Variant], VersionRow]
    where: Where

    @classmethod
    def of(cls, plan: Plan, findings: Sequence[Finding]) -> _References:
        variants = dict(enumerate(dict.fromkeys(row.variant for row in plan.rows)))
        known: dict[str, Mapping[Any, Any]] = {
            "finding": dict(enumerate(findings)),
            "variant": variants,
            "cell": {cell.id: cell for cell in plan.cells},
            "lane": {str(row.lane): row.lane for row in plan.rows},
        }
        keys = {name: {record: key for key, record in known[name].items()} for name in ("finding", "variant")}
        rows = {(row.series.name, row.lane, row.variant): row for row in plan.rows}
        return cls(known=known, keys=keys, rows=rows, where=Where(file=str(plan.matrix.path), line=1, key=""))

    def plain(self, value: Any) -> Any:
        """Return a record as plain data, with references in place of what the plan has."""
        match value:
            case Finding():
                return {"finding": self.keys["finding"][value]}
            case Variant():
                return {"variant": self.keys["variant"][value]}
            case Cell():
                return {"cell": value.id}
            case Lane():
                return {"lane": str(value)}
            case tuple():
                return list(map(self.plain, value))
        return self.fields_of(value) if is_dataclass(value) else value

    def fields_of(self, record: Any) -> dict[str, Any]:
        return {each.name: self.plain(getattr(record, each.name)) for each in fields(record)}

    def whole(self, value: Any) -> Any:
        """Return plain data with the records that it refers to. Raises LookupError, TypeError and ValueError."""
        if isinstance(value, list):
            return list(map(self.whole, value))
        if not isinstance(value, dict):
            return value
        kind, *others = value
        if others or kind not in self.known:
            return {name: self.whole(each) for name, each in value.items()}
        name = value[kind]
        if kind != "lane" or name in self.known[kind]:
            return self.known[kind][name]
        if not isinstance(name, str):
            raise ValueError("the name of a lane is not a text")
        # A host of the matrix that the run left out; only its name is stored.
        return Lane(host=Host(name=name, engine="", gpus="none", where=self.where))


# ---------------------------------------------------------------- reading


Record = TypeVar("Record", Finding, Observation, Attribution)


def read_result(folder: Path, plan: Plan) -> ResultFile:
    """Return the result of the run in a directory, which has this plan. Raises UsageError if it is missing or damaged,
    or if it names something that the plan does not have.
    """

    def validated(content: Any) -> ResultFile:
        if not isinstance(content, dict):
            raise ValueError("not an object")
        plain = {name: content.pop(name, None) for name in RECORDS}
        file = _FILE.validate_python(content | dict.fromkeys(RECORDS, ()))
        references = _References.of(plan, ())
        findings = _records(plain["findings"], _FINDING, "a finding", references)
        references = _References.of(plan, findings)
        cells = {
            name: replace(entry, verdict=replace(entry.verdict, signals=signals))
            for name, entry in file.cells.items()
            # Another version of the harness may have written signals that this one does not have.
            for signals in [{name: each for name, each in entry.verdict.signals.items() if _is_signal(name)}]
        }
        return replace(
            file,
            cells=cells,
            findings=findings,
            observations=_records(plain["observations"], _OBSERVATION, "an observation", references),
            attribution=_records(plain["attribution"], _ATTRIBUTION, "an attribution", references),
        )

    return read_json(folder / FILE, validated, absent=UNENDED, wrong=WRONG, schema=SCHEMA)


def _is_signal(name: str) -> bool:
    return name in SIGNALS or name.startswith(METRIC_PREFIX)


def _records(content: Any, kind: TypeAdapter[Record], what: str, references: _References) -> tuple[Record, ...]:
    """Return the records in a list of the file. Raises ValueError."""
    try:
        records = tuple(map(kind.validate_python, references.whole(content)))
        for record in records:
            _check(record, references.rows)
    except (LookupError, TypeError, ValueError, RecursionError) as error:
        problem = first_problem(error) if isinstance(error, ValidationError) else error
        raise ValueError(f"{what} that the plan and the findings do not allow: {problem}") from error
    return records


def _check(record: Finding | Observation | Attribution, rows: Mapping[tuple[str, Lane, Variant], VersionRow]) -> None:
    """Raise LookupError or ValueError for a record that reports could not describe."""
    if isinstance(record, Finding | Observation):
        metric = record.metric if isinstance(record, Finding) else record.signal
        row = rows[record.series, record.lane, record.variant]
        named = {record.before, record.after} - {None} - {cell.image.version for cell in row.cells}
        if named or not _is_signal(metric):
            raise ValueError(f"it names {', '.join(map(str, named)) or metric}, which the plan does not have")
        return
    if not (record.episodes and record.variants and record.bad_lanes):
        raise ValueError("no episodes, variants or lanes")
    for episode in record.episodes:
        if episode.begins is None and episode.ends is None:
            raise ValueError("an episode without findings")
        finding = episode.finding
        row = rows[record.series, finding.lane, finding.variant]
        if finding.series != record.series or len(episode.states) != len(row.cells):
            raise ValueError("an episode of another row")
        for bounds, low in ((episode.since, -1), (episode.until, 0), ((0, episode.seen), 0)):
            if bounds is not None and not low <= bounds[0] <= bounds[1] < len(row.cells):
                raise ValueError("an episode beyond its row")
    on_lanes(record)
