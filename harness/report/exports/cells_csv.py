"""Writes the cells as CSV, for spreadsheets and data frames: one line per cell, with the fields of `summary.json`.

An interval takes two columns, for its low and high end; params and metrics are JSON; unknown values are empty. Each
signal has two columns: its figure, in the unit of `summary.json`, and its state. The last column, `changes`, has the
findings that begin with the cell, worded as in all reports.
"""

from __future__ import annotations

import csv
import io
import json
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from harness.model import SIGNALS, CellResult, Finding, RunResult
from harness.report.exports.summary_json import cell_json, json_ready
from harness.report.places import finding_cells
from harness.report.text import finding_words, signal_words
from harness.report.text.harmless_text import plain

_INTERVALS = {name: name.removesuffix("_ci") for name in ("rate_ci", "step_ms_ci", "peak_rss_mib_ci")}
_FORMULA = ("=", "+", "-", "@")


def render(result: RunResult) -> str:
    """Return a header and a line for each cell, in the order of the plan; lines end with a newline, without CR."""
    changes = finding_cells(result)
    own = sorted({name for entry in result.cells for name in entry.verdict.signals} - SIGNALS.keys())
    names = [*(name for name, signal in SIGNALS.items() if signal.kind != "observation"), *own]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    for number, entry in enumerate(result.cells):
        row = dict(_columns(entry, changes.get(entry.cell_id, ()), names))
        if number == 0:
            writer.writerow(row)
        writer.writerow(row.values())
    return out.getvalue()


def _columns(entry: CellResult, changes: Sequence[Finding], names: Sequence[str]) -> Iterator[tuple[str, Any]]:
    known = entry.verdict.signals
    yield from _fields(cell_json(entry))
    for name in names:
        signal = known.get(name)
        yield harmless(name), json_ready(signal_words.figure_of(name, entry.verdict)[0])
        yield f"{harmless(name)}_seen", None if signal is None else signal.seen
    yield "changes", harmless("; ".join(map(finding_words.text, changes)))


def _fields(cell: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
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
        elif name == "verdicts":
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
