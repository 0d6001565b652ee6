"""Defines the fields of a cell, once for summary.json, its schema and cells.csv, and writes cells.csv.

A new field is an entry of FIELDS and a line in `docs/reports.md`.
"""

from __future__ import annotations

import csv
import io
import json
import math
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from harness.model import METRIC_PREFIX, SIGNALS, CellResult, Finding, RunResult, unit_per
from harness.model.signals import known_effect
from harness.report.text import finding_words, signal_words
from harness.report.text.harmless_text import plain
from harness.report.text.names import finding_cells

_FORMULA = ("=", "+", "-", "@")
_VISIBLE = ("step_time", "peak_memory")
"""The signals in `smallest_visible`."""

KINDS: Mapping[str, Mapping[str, Any]] = {
    "text": {"type": "string"},
    "text or null": {"type": ["string", "null"]},
    "count": {"type": "integer", "minimum": 0},
    "integer or null": {"type": ["integer", "null"]},
    "number": {"type": ["number", "null"]},
    "interval": {"$ref": "#/$defs/interval"},
    "yes or no": {"type": "boolean"},
    "names": {"type": "array", "items": {"type": "string"}},
    "params": {"$ref": "#/$defs/params"},
    "verdict": {"$ref": "#/$defs/cell_verdict"},
    "verdicts": {"type": "array", "items": {"$ref": "#/$defs/cell_verdict"}},
    "visible": {"type": ["object", "null"], "properties": {name: {"type": ["number", "null"]} for name in _VISIBLE}},
    "object": {"type": "object"},
    "signals": {"type": "object", "additionalProperties": {"$ref": "#/$defs/signal"}},
}
"""The JSON Schema of each kind of field."""


class Field(NamedTuple):
    """A field of a cell. A field of the kind `interval` becomes two columns of cells.csv, one of the kind `visible` a
    column for each signal, and `signals` the columns at the end.
    """

    name: str
    kind: str
    value: Callable[[CellResult], Any]
    help: str = ""


def _of(signal: str, figure: Literal["value", "ci", "visible"], factor: float = 1.0) -> Callable[[CellResult], Any]:
    """Return what reads a figure of a signal and multiplies it, or both ends of an interval, by `factor`."""

    def read(entry: CellResult) -> Any:
        found = getattr(entry.verdict.of(signal), figure)
        return [factor * end for end in found] if isinstance(found, tuple) else found and factor * found

    return read


def _metrics(entry: CellResult) -> Mapping[str, float | None]:
    own = {name: signal for name, signal in entry.verdict.signals.items() if name.startswith(METRIC_PREFIX)}
    return {name.removeprefix(METRIC_PREFIX): signal.value for name, signal in own.items()}


def _visible(entry: CellResult) -> Mapping[str, float | None] | None:
    found = {name: entry.verdict.of(name).visible for name in _VISIBLE}
    if all(visible is None for visible in found.values()):
        return None
    return {name: known_effect(name, visible) for name, visible in found.items()}


def _small_growth(entry: CellResult) -> list[str]:
    growths = (name for name, signal in SIGNALS.items() if signal.kind == "growth")
    return [name for name in growths if entry.verdict.grows_slowly(name)]


def _signals(entry: CellResult) -> Mapping[str, Any]:
    return {
        name: {
            "seen": signal.seen,
            "value": signal.value,
            "ci": signal.ci,
            "limit": signal.limit,
            "visible": known_effect(name, signal.visible),
            "why": signal_words.reason(signal),
            "unit": unit_per(signal_words.shown_signal(name), entry.verdict.per),
        }
        for name, signal in entry.verdict.signals.items()
    }


FIELDS = (
    Field("series", "text", lambda entry: entry.cell.image.series),
    Field("image", "text", lambda entry: entry.cell.image.version, "the version's name within the series"),
    Field("digest", "text or null", lambda entry: entry.digest),
    Field("host", "text", lambda entry: entry.cell.lane.host.name),
    Field("gpu", "text or null", lambda entry: entry.cell.lane.gpu),
    Field("scenario", "text", lambda entry: entry.cell.variant.scenario.name),
    Field("params", "params", lambda entry: dict(entry.cell.variant.params)),
    Field(
        "machine", "text or null", lambda entry: entry.machine or None,
        "The machine of a pool that ran the cell; null where the host is one machine.",
    ),
    Field("trials", "count", lambda entry: entry.verdict.trials, "launches that say something about the image"),
    Field("failed", "count", lambda entry: entry.verdict.failed),
    Field("signal", "integer or null", lambda entry: entry.verdict.signal),
    Field("steps", "count", lambda entry: entry.verdict.steps),
    Field("verdict", "verdict", lambda entry: entry.verdict.verdict),
    Field("verdicts", "verdicts", lambda entry: entry.verdict.verdicts, "all that hold, strongest first"),
    Field("layer", "text or null", lambda entry: entry.verdict.layer),
    Field(
        "smallest_visible", "visible", _visible,
        "by metric, the smallest change that could have been seen, as a fraction; null above 999",
    ),
    Field("metrics", "object", _metrics),
    Field("rate_kib_per_step", "number", _of("memory", "value")),
    Field("rate_ci", "interval", _of("memory", "ci")),
    Field("excluded_kib_per_step", "number", _of("memory", "visible"), "the smallest leak that is ruled out"),
    Field("step_ms", "number", _of("step_time", "value", 1e3)),
    Field("step_ms_ci", "interval", _of("step_time", "ci", 1e3)),
    Field("step_drift", "number", lambda entry: entry.verdict.drift, "a fraction: 0.1 is 10 %"),
    Field("peak_rss_mib", "number", _of("peak_memory", "value", 1 / 1024), "as step_ms"),
    Field("peak_rss_mib_ci", "interval", _of("peak_memory", "ci", 1 / 1024)),
    Field("why", "text", signal_words.why),
    Field(
        "provisional", "yes or no", lambda entry: entry.verdict.provisional,
        "it has fewer launches than its verdict needs: it may yet change",
    ),
    Field(
        "small_growth", "names", _small_growth,
        "the signals that certainly grow in a good cell, by half their limit or more",
    ),
    Field(
        "signals", "signals", _signals,
        "by name, what was judged and how finely; empty where nothing is known of them",
    ),
)  # fmt: skip


def cell_json(entry: CellResult) -> dict[str, Any]:
    """Return a cell's entry in `cells` of summary.json."""
    return {field.name: json_ready(field.value(entry)) for field in FIELDS}


def cell_schema() -> dict[str, Any]:
    """Return the JSON Schema of a cell."""
    helped = {field.name: {"description": field.help} if field.help else {} for field in FIELDS}
    return {
        "type": "object",
        "properties": {field.name: {**KINDS[field.kind], **helped[field.name]} for field in FIELDS},
    }


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


# ---------------------------------------------------------------- cells.csv


def cells_csv(result: RunResult) -> str:
    """Return a header and a line for each cell, in the order of the plan; lines end with a newline, without CR."""
    changes = finding_cells(result)
    seen = {name for entry in result.cells for name in entry.verdict.signals}
    judged = (signal for signal in SIGNALS.values() if signal.kind != "observation")
    names = [signal.name for signal in judged if signal.name in seen or not signal.of_server]
    names += sorted(seen - SIGNALS.keys())
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
    for field in FIELDS:
        if field.kind != "signals":
            yield from _of_field(field, json_ready(field.value(entry)))
    for name in names:
        signal = known.get(name)
        yield harmless(name), json_ready(signal_words.figure_of(name, entry.verdict)[0])
        yield f"{harmless(name)}_seen", None if signal is None else signal.seen
    yield "changes", harmless("; ".join(map(finding_words.text, changes)))


def _of_field(field: Field, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the columns of a field, whose value is ready for JSON."""
    if field.kind == "interval":
        yield from zip(
            (f"{field.name.removesuffix('ci')}{end}" for end in ("low", "high")), value or (None, None), strict=True
        )
    elif field.kind == "visible":
        yield from ((f"{field.name}_{name}", (value or {}).get(name)) for name in _VISIBLE)
    elif isinstance(value, list):
        yield field.name, " ".join(value)
    else:
        yield field.name, json.dumps(value) if isinstance(value, Mapping | bool) else harmless(value)


def harmless(value: Any) -> Any:
    """Return the value for a CSV field. Text that a spreadsheet would take for a formula, even with a full-width equals
    sign, gets a leading apostrophe.
    """
    if not isinstance(value, str):
        return value
    text = plain(value)
    return f"'{text}" if unicodedata.normalize("NFKC", text[:1]).startswith(_FORMULA) else text
