"""Writes summary.json, the stable interface for other programs (see `harness/data/summary.schema.json`).

A field that is not known is null, never omitted. Text is not cleaned, because JSON needs no cleaning.
"""

from __future__ import annotations

import csv
import io
import json
import math
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from harness.model import (
    METRIC_PREFIX,
    SIGNALS,
    Attribution,
    CellResult,
    CellVerdict,
    Culprit,
    Finding,
    HostState,
    Lane,
    Narrowed,
    Observation,
    Per,
    RunResult,
    SignalVerdict,
    Variant,
    unit_per,
)
from harness.model.signals import known_effect
from harness.report.text import fault_sentences, finding_words, narrowed_text, signal_words
from harness.report.text.fault_sentences import rule_text
from harness.report.text.harmless_text import plain
from harness.report.text.names import finding_cells

SCHEMA = 1
_CELL = (
    "trials", "failed", "signal", "steps", "verdict", "verdicts", "layer",
)  # fmt: skip
"""Fields of a cell's verdict that have the same name in summary.json, in the order of that file."""


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
    yield "narrowed", map(_narrowed, result.narrowed)


def _host(state: HostState, result: RunResult) -> dict[str, Any]:
    lanes = dict.fromkeys(row.lane for row in result.plan.rows if row.lane.host.name == state.host.name)
    gpus = [lane.gpu for lane in lanes if lane.gpu is not None]
    return {"name": state.host.name, "engine": state.host.engine, "gpus": gpus}


def _fields_of(record: object, names: Iterable[str]) -> dict[str, Any]:
    return {name: json_ready(getattr(record, name)) for name in names}


def _where(lane: Lane, variant: Variant) -> dict[str, Any]:
    return {
        "host": lane.host.name,
        "gpu": lane.gpu,
        "scenario": variant.scenario.name,
        "params": {name: json_ready(value) for name, value in variant.params},
    }


def cell_json(entry: CellResult) -> dict[str, Any]:
    """Return a cell's entry in `cells` of summary.json."""
    cell, verdict = entry.cell, entry.verdict
    return {
        "series": cell.image.series,
        "image": cell.image.version,
        "digest": entry.digest,
        **_where(cell.lane, cell.variant),
        "machine": entry.machine or None,
        **_fields_of(verdict, _CELL),
        **_figures(verdict),
        "why": signal_words.why(entry),
        "provisional": verdict.provisional,
        "small_growth": [
            name for name, signal in SIGNALS.items() if signal.kind == "growth" and verdict.grows_slowly(name)
        ],
        "signals": {name: _signal(name, signal, verdict.per) for name, signal in verdict.signals.items()},
    }


def _signal(name: str, signal: SignalVerdict, per: Per) -> dict[str, Any]:
    return {
        **_fields_of(signal, ("seen", "value", "ci", "limit")),
        "visible": json_ready(known_effect(name, signal.visible)),
        "why": signal_words.reason(signal),
        "unit": unit_per(signal_words.shown_signal(name), per),
    }


def _figures(verdict: CellVerdict) -> dict[str, Any]:
    """Return the figures of signals that have fields of their own, in the units of the fields' names."""
    memory, step, peak = (verdict.of(name) for name in ("memory", "step_time", "peak_memory"))
    visible = {name: json_ready(known_effect(name, verdict.of(name).visible)) for name in ("step_time", "peak_memory")}
    is_known = step.visible is not None or peak.visible is not None

    def scaled(figure: Any, factor: float) -> Any:
        return [factor * end for end in figure] if isinstance(figure, tuple) else figure and factor * figure

    figures = {
        "smallest_visible": visible if is_known else None,
        "metrics": {
            name.removeprefix(METRIC_PREFIX): signal.value
            for name, signal in verdict.signals.items()
            if name.startswith(METRIC_PREFIX)
        },
        "rate_kib_per_step": memory.value,
        "rate_ci": memory.ci,
        "excluded_kib_per_step": memory.visible,
        "step_ms": scaled(step.value, 1e3),
        "step_ms_ci": scaled(step.ci, 1e3),
        "step_drift": verdict.drift,
        "peak_rss_mib": scaled(peak.value, 1 / 1024),
        "peak_rss_mib_ci": scaled(peak.ci, 1 / 1024),
    }
    return {name: json_ready(value) for name, value in figures.items()}


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
    return {"series": each.series, **where, **_fields_of(each, ("signal", "before", "after", "text"))}


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


def _narrowed(narrowing: Narrowed) -> dict[str, Any]:
    return {
        **_fields_of(narrowing, ("finding", "verdict", "good", "bad")),
        "culprits": [_culprit(culprit, narrowing) for culprit in narrowing.culprits],
        "open": list(narrowing.open),
        "groups": len(narrowing.groups),
        "hybrids": len(narrowing.hybrids),
        "launches": narrowing.launches,
        "reason": narrowing.reason,
        "sentence": narrowed_text.headline(narrowing),
        "install": narrowed_text.install_lines(narrowing),
    }


def _culprit(culprit: Culprit, narrowing: Narrowed) -> dict[str, Any]:
    return {
        "kind": culprit.kind,
        "parts": [[narrowed_text.group_text(group, narrowing) for group in part] for part in culprit.parts],
        **_fields_of(culprit, ("part_of_it", "share", "share_ci")),
        "proof": [
            {"hybrid": cell.role, "state": cell.result.state, "launches": cell.result.launches}
            for cell in (*culprit.proof, *narrowing.shams)
        ],
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


def json_ready(value: Any) -> Any:
    """Return `value` in types that JSON has; a number that is not finite becomes None."""
    if isinstance(value, np.generic):
        return json_ready(value.item())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): json_ready(item) for key, item in value.items()}
    if isinstance(value, Sequence | np.ndarray) and not isinstance(value, str):
        return [json_ready(item) for item in value]
    return value


# ---------------------------------------------------------------- cells csv


_INTERVALS = {name: name.removesuffix("_ci") for name in ("rate_ci", "step_ms_ci", "peak_rss_mib_ci")}
_FORMULA = ("=", "+", "-", "@")


def cells_csv(result: RunResult) -> str:
    """Return a header and a line for each cell, in the order of the plan; lines end with a newline, without CR."""
    changes = finding_cells(result)
    own = sorted({name for entry in result.cells for name in entry.verdict.signals} - SIGNALS.keys())
    names = [*(name for name, signal in SIGNALS.items() if signal.kind != "observation"), *own]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    for number, entry in enumerate(result.cells):
        row = dict(_columns(entry, changes.get(entry.cell.id, ()), names))
        if number == 0:
            writer.writerow(row)
        writer.writerow(row.values())
    return out.getvalue()


def _columns(entry: CellResult, changes: Sequence[Finding], names: Sequence[str]) -> Iterator[tuple[str, Any]]:
    known = entry.verdict.signals
    yield from _cell_fields(cell_json(entry))
    for name in names:
        signal = known.get(name)
        yield harmless(name), json_ready(signal_words.figure_of(name, entry.verdict)[0])
        yield f"{harmless(name)}_seen", None if signal is None else signal.seen
    yield "changes", harmless("; ".join(map(finding_words.text, changes)))


def _cell_fields(cell: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in cell.items():
        if name in _INTERVALS:
            low, high = value or (None, None)
            yield f"{_INTERVALS[name]}_low", low
            yield f"{_INTERVALS[name]}_high", high
        elif name == "smallest_visible":
            for metric in ("step_time", "peak_memory"):
                yield f"smallest_visible_{metric}", (value or {}).get(metric)
        elif name == "signals":
            continue
        elif name == "provisional":
            yield name, json.dumps(value)
        elif name in ("verdicts", "small_growth"):
            yield name, " ".join(value)
        else:
            yield name, json.dumps(value) if isinstance(value, Mapping) else harmless(value)


def harmless(value: Any) -> Any:
    """Return the value for a CSV field. Text that a spreadsheet would take for a formula, even with a full-width equals
    sign, gets a leading apostrophe.
    """
    if not isinstance(value, str):
        return value
    text = plain(value)
    return f"'{text}" if unicodedata.normalize("NFKC", text[:1]).startswith(_FORMULA) else text
