"""Reads the peak memory and the throughput of a run's variants, for `harness frontier`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from harness.errors import UsageError
from harness.model import Setting
from harness.probes.pareto import frontier_settings
from harness.store.saved_run import read_run


def settings_of(run: Path) -> tuple[Setting, ...]:
    """Return the settings of the run in a directory. Raises UsageError if there is no run, or if it has no setting."""
    stored = read_run(run, keep=lambda trial: replace(trial, trace=None))
    settings = frontier_settings(stored.cells.values())
    if not settings:
        raise UsageError(f"{run}: no cell of this run has both a step time and a peak memory; run more steps")
    return settings
