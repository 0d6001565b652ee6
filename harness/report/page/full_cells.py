"""Selects the cells whose traces and details the page shows."""

from __future__ import annotations

from harness.model import CellResult, RunResult
from harness.report.charts import traces
from harness.report.places import place_of_cell, side_of

MOST_LINES = 3000
"""Most trace lines on a page, over all cells; cells beyond this limit have figures only."""


def left_out(result: RunResult, in_full: frozenset[str]) -> int:
    """Return how many cells with trials have no details on the page, because the file would become too large."""
    return sum(bool(entry.trials) and entry.cell_id not in in_full for entry in result.cells)


def shown_in_full(result: RunResult) -> frozenset[str]:
    """Return the ids of the cells whose traces are shown, as many as MOST_LINES allows.

    Both versions of each finding come first, then bad cells, undecided cells and good cells.
    """
    sides = {side_of(finding, version) for finding in result.findings for version in (finding.before, finding.after)}
    measured = [entry for entry in result.cells if entry.trials]
    measured.sort(key=lambda entry: _importance(entry, sides))
    shown, lines = set(), 0
    for entry in measured:
        lines += max(1, traces.lines_of(entry))
        if lines > MOST_LINES:
            break
        shown.add(entry.cell_id)
    return frozenset(shown)


def _importance(entry: CellResult, sides: set[tuple[str, str, str, str]]) -> int:
    """Return a sort key, most important first: the versions of a finding, then bad, undecided and good cells."""
    if place_of_cell(entry.cell) in sides:
        return 0
    return {"bad": 1, "unsure": 2}.get(entry.verdict.state, 3)
