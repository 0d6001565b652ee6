"""Writes the commands that measure a part of a run again, quoted for a shell."""

from __future__ import annotations

import glob
import shlex

from harness.model import CellResult, RunResult, Variant, written


def of_history(entry: CellResult, result: RunResult) -> str:
    """Return the command that measures all versions of the cell's series, on its host, with its variant."""
    cell = entry.cell
    words = [
        "harness", "sweep", str(result.plan.matrix.path), "--fresh", "--series", cell.image.series,
        "--host", cell.lane.host.name, "--only", glob.escape(_pattern(cell.variant)),
    ]  # fmt: skip
    return shlex.join(words)


def of_cell(entry: CellResult, result: RunResult) -> str:
    """Return the command that writes the script which reproduces this cell without the harness."""
    return shlex.join(["harness", "repro", str(result.directory), entry.cell_id])


def _pattern(variant: Variant) -> str:
    """Return the variant as `--only` reads it, with values as the matrix file writes them."""
    return " ".join([variant.scenario.name, *(f"{name}={written(value)}" for name, value in variant.params)])
