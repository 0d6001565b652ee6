"""Writes summary.json, the stable interface for other programs, and its schema.

A field that is not known is null, never omitted. Text is not cleaned, because JSON needs no cleaning.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from importlib.resources import files
from typing import Any, get_args

from harness.exit_codes import OF_VERDICTS
from harness.model import (
    METRIC_PREFIX,
    SIGNALS,
    Attribution,
    Finding,
    HostState,
    Lane,
    Observation,
    RunResult,
    Variant,
    VerdictName,
)
from harness.report.added import added_to
from harness.report.exports.cell_table import cell_json, cell_schema, json_ready
from harness.report.text import fault_sentences
from harness.report.text.fault_sentences import rule_text

SCHEMA = 1


def encoded(result: RunResult) -> bytes:
    """Return the run as JSON in UTF-8, one entry per line. Entries are encoded one at a time, to save memory."""
    out = io.BytesIO()
    for number, (name, value) in enumerate(_fields(result)):
        out.write(f"{',' if number else '{'}\n {json.dumps(name)}: ".encode())
        if isinstance(value, Iterator):
            _write_entries(value, out)
        else:
            out.write(_json(value))
    out.write(b"\n}\n")
    return out.getvalue()


def _write_entries(entries: Iterator[Any], out: io.BytesIO) -> None:
    out.write(b"[")
    for number, entry in enumerate(entries):
        out.write(b",\n  " if number else b"\n  ")
        out.write(_json(entry))
    out.write(b"]")


def _json(value: Any) -> bytes:
    return json.dumps(value, allow_nan=False, separators=(",", ":")).encode()


def _fields(result: RunResult) -> Iterator[tuple[str, Any]]:
    """Yield the top-level fields; the values of long fields are iterators over their entries."""
    yield "schema", SCHEMA
    yield "matrix", result.matrix
    yield "verdict", result.verdict
    yield "exit_code", result.exit_code
    yield "hosts", (_host(state, result) for state in result.hosts)
    yield "cells", map(cell_json, result.cells)
    yield "findings", map(_finding, fault_sentences.numbered(result))
    yield "observations", map(_observation, result.observations)
    yield "attribution", attributions_json(result)
    yield "narrowed", [entry for each in added_to(result.added) if each.name == "narrowed" for entry in each.summary()]


def _host(state: HostState, result: RunResult) -> dict[str, Any]:
    lanes = dict.fromkeys(row.lane for row in result.plan.rows if row.lane.host.name == state.host.name)
    gpus = [lane.gpu for lane in lanes if lane.gpu is not None]
    return {"name": state.host.name, "engine": state.host.engine, "gpus": gpus}


def schema() -> dict[str, Any]:
    """Return the JSON Schema of summary.json: the file's, with the fields and names that the program defines. Every
    object has all of its properties and no others.
    """
    whole: dict[str, Any] = json.loads((files("harness") / "data" / "summary.schema.json").read_bytes())
    del whole["$comment"]  # about the file alone
    exits = {name: code for name, code in OF_VERDICTS.items() if name != "running"}
    whole["properties"] |= {"verdict": {"enum": list(exits)}, "exit_code": {"enum": list(exits.values())}}
    defined = whole["$defs"]
    defined |= {"cell": cell_schema(), "cell_verdict": {"enum": list(get_args(VerdictName))}}
    defined["metric"]["oneOf"] = [
        {"enum": list(SIGNALS)},
        {"type": "string", "pattern": f"^{re.escape(METRIC_PREFIX)}"},
    ]
    _close(whole)
    del defined["finding"]["additionalProperties"]  # each kind of finding has more of its own
    return whole


def _close(part: Any) -> None:
    """Require all properties of each object in a part of a schema, and allow no others."""
    if isinstance(part, dict) and "properties" in part:
        part.setdefault("required", list(part["properties"]))
        part.setdefault("unevaluatedProperties" if "$ref" in part else "additionalProperties", False)
    for each in part.values() if isinstance(part, dict) else part if isinstance(part, list) else ():
        _close(each)


def _fields_of(record: object, names: Iterable[str]) -> dict[str, Any]:
    return {name: json_ready(getattr(record, name)) for name in names}


def _where(lane: Lane, variant: Variant) -> dict[str, Any]:
    return {
        "host": lane.host.name,
        "gpu": lane.gpu,
        "scenario": variant.scenario.name,
        "params": {name: json_ready(value) for name, value in variant.params},
    }


def _finding(finding: Finding) -> dict[str, Any]:
    return {
        "series": finding.series,
        **_where(finding.lane, finding.variant),
        **_fields_of(finding, ("metric", "kind")),
        **_boundary(finding),
        **_fields_of(finding, ("untestable", "effect", "p", "confirmed", "verdict")),
        "effect": None if finding.effect is None else json_ready(asdict(finding.effect)),
        "consequence_of": finding.consequence_of or None,
    }


def _observation(each: Observation) -> dict[str, Any]:
    where = _where(each.lane, each.variant)
    return {"series": each.series, **where, **_fields_of(each, ("signal", "before", "after", "last", "text"))}


def attributions_json(result: RunResult) -> Iterator[dict[str, Any]]:
    """Yield the entries of `attribution` in summary.json."""
    numbers = {finding: number for number, finding in enumerate(fault_sentences.numbered(result), start=1)}
    return (_attribution(attribution, result, numbers) for attribution in result.attribution)


def _attribution(attribution: Attribution, result: RunResult, numbers: Mapping[Finding, int]) -> dict[str, Any]:
    about = (finding for episode in attribution.episodes for finding in episode.findings)
    return {
        **_fields_of(attribution, ("series", "scenario", "metric", "cause")),
        "findings": sorted({numbers[finding] for finding in about if finding in numbers}),
        "rule": rule_text(attribution.rule),
        "missing": [
            {"series": cell.image.series, "image": cell.image.version, **_where(cell.lane, cell.variant)}
            for cell in attribution.missing
        ],
        "sentence": fault_sentences.sentence(attribution, result),
    }


def _boundary(finding: Finding) -> dict[str, str | None]:
    if finding.kind == "first_bad":
        return {"last_good": finding.before, "first_bad": finding.after}
    if finding.kind == "first_fixed":
        return {"last_bad": finding.before, "first_good": finding.after}
    if finding.kind == "worse":
        return {"last_milder": finding.before, "first_worse": finding.after}
    if finding.kind == "drift":
        return {"drift_from": finding.before, "drift_to": finding.after}
    return {"oldest_bad": finding.after}
