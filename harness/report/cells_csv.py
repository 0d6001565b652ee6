"""The cells as CSV, for spreadsheets and data frames: one line a cell, the fields of `summary.json` in columns.

An interval has a column for each end; params and metrics are JSON; what is not known is empty. The last column,
`changes`, has the findings that begin with the cell, in the words of all reports.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from harness.model import CellResult, Finding, RunResult
from harness.report import words
from harness.report.clean import plain
from harness.report.episodes import finding_cells
from harness.report.summary import cell_json

_INTERVALS = {
    name: name.removesuffix("_ci") for name in ("rate_ci", "step_ms_ci", "compared_step_ms_ci", "compared_peak_mib_ci")
}
_FORMULA = ("=", "+", "-", "@")


def render(result: RunResult) -> str:
    """A header and a line for each cell, in the order of the plan; lines end with a newline alone."""
    changes = finding_cells(result)
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    for number, entry in enumerate(result.cells):
        row = dict(_columns(entry, changes.get(entry.cell_id, ())))
        if number == 0:
            writer.writerow(row)
        writer.writerow(row.values())
    return out.getvalue()


def _columns(entry: CellResult, changes: Sequence[Finding]) -> Iterator[tuple[str, Any]]:
    yield from _fields(cell_json(entry))
    yield "changes", _harmless("; ".join(map(words.finding_text, changes)))


def _fields(cell: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in cell.items():
        if name in _INTERVALS:
            low, high = value or (None, None)
            yield f"{_INTERVALS[name]}_low", low
            yield f"{_INTERVALS[name]}_high", high
        elif name == "smallest_visible":
            for metric in ("step_time", "peak_memory"):
                yield f"smallest_visible_{metric}", (value or {}).get(metric)
        elif name == "verdicts":
            yield name, " ".join(value)
        else:
            yield name, json.dumps(value) if isinstance(value, Mapping) else _harmless(value)


def _harmless(value: Any) -> Any:
    """Text that a spreadsheet would take for a formula gets an apostrophe, as people type it."""
    if not isinstance(value, str):
        return value
    text = plain(value)
    return f"'{text}" if text.startswith(_FORMULA) else text
