"""Writes the commands that repeat or reproduce part of a run, quoted for a shell."""

from __future__ import annotations

import glob
import shlex

from harness.model import CellResult, RunResult, written


def of_history(entry: CellResult, result: RunResult) -> str:
    """Return the command that measures all versions of the cell's series again, on its host, with its variant."""
    cell, variant = entry.cell, entry.cell.variant
    pattern = " ".join([variant.scenario.name, *(f"{name}={written(value)}" for name, value in variant.params)])
    words = [
        "harness", "sweep", str(result.plan.matrix.path), "--fresh", "--series", cell.image.series,
        "--host", cell.lane.host.name, "--only", glob.escape(pattern),
    ]  # fmt: skip
    return shlex.join(words)


def of_cell(entry: CellResult, result: RunResult) -> str:
    """Return the command that writes a script that reproduces this cell without the harness."""
    return shlex.join(["harness", "repro", str(result.directory), entry.cell_id])
