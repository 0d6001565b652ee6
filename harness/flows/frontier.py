"""`harness frontier`: the settings of a run, by what they cost and what they give."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from harness.errors import UsageError
from harness.model import Setting
from harness.probes import settings
from harness.store.saved_run import read_run


def settings_of(run: Path) -> tuple[Setting, ...]:
    """Return the settings of the run in a directory. Raises UsageError if it is none, or has none."""
    stored = read_run(run, keep=lambda trial: replace(trial, trace=None))
    found = settings(stored.cells.values())
    if not found:
        raise UsageError(f"{run}: no cell of this run has both a step time and a peak of memory; run more steps")
    return found
