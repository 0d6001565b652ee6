"""Writes the line below the headline of every report: the number of cells by verdict, the launches and the duration."""

from __future__ import annotations

from collections import Counter

from harness.model import CellResult, RunResult
from harness.report.bad_ranges import place_of_cell, worsened
from harness.report.text import numbers, words
from harness.report.text.sensitivity import is_needless


def line(result: RunResult) -> str:
    """Return `12 cells: 6 good, 4 worse than before, 2 bad; 36 trials and 3 A/A replicates in 3 min; seed 7`.

    `worse than before`: the cell's verdict is good, but a level such as step time or peak memory got worse.
    `good in part`: some signal could not be decided. The seed determines the launch order, for `--seed`.
    """
    worse = worsened(result)
    counted = Counter(_counted_as(entry, is_worse=place_of_cell(entry.cell) in worse) for entry in result.cells)
    parts = [f"{counted[name]:,} {name}" for name in _COUNTED if counted[name]]
    known = sum("" < trial.started < result.started for cell in result.cells for trial in cell.trials)
    ran = numbers.count(sum(len(cell.trials) for cell in result.cells) - known, "trial")
    replicates = f" and {numbers.count(result.replicates, 'A/A replicate')}" if result.replicates else ""
    earlier = f", {known:,} more from earlier runs" if known else ""
    cells = numbers.count(len(result.cells), "cell")
    time = numbers.duration(result.duration_s)
    return f"{cells}: {', '.join(parts) or 'none'}; {ran}{replicates} in {time}{earlier}; seed {result.plan.seed}"


_COUNTED = ("good", "good in part", words.SO_FAR, "worse than before", "bad", "unsure", "not measured", "not needed")


def _counted_as(entry: CellResult, *, is_worse: bool) -> str:
    """Return the category in _COUNTED to which a cell belongs."""
    verdict = entry.verdict
    own, seen = words.tone(verdict.verdict), verdict.state
    if own == "good":
        if is_worse or seen == "bad":
            return "worse than before"
        if seen == "good":
            return "good"
        return words.SO_FAR if verdict.provisional else "good in part"
    if own == "none":
        return "not needed" if is_needless(entry) else "not measured"
    return "unsure" if seen == "unsure" else "bad"
