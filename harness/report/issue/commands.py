"""The commands that measure something of a run again, ready for a shell: every name of a matrix is quoted."""

from __future__ import annotations

import glob
import shlex

from harness.model import CellResult, RunResult, Variant, written


def of_history(entry: CellResult, result: RunResult) -> str:
    """All versions of its series, on its host, with its variant."""
    cell = entry.cell
    words = [
        "harness", "sweep", str(result.plan.matrix.path), "--fresh", "--series", cell.image.series,
        "--host", cell.lane.host.name, "--only", glob.escape(_pattern(cell.variant)),
    ]  # fmt: skip
    return shlex.join(words)


def of_cell(entry: CellResult, result: RunResult) -> str:
    """The cell alone, by hand."""
    return shlex.join(["harness", "repro", str(result.directory), entry.cell_id])


def _pattern(variant: Variant) -> str:
    """As `--only` reads it: values as the matrix file writes them."""
    return " ".join([variant.scenario.name, *(f"{name}={written(value)}" for name, value in variant.params)])
