"""Reads the trials of earlier runs of a matrix."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

from harness.errors import UsageError
from harness.model import Trial
from harness.store import read_trial

NEWEST_RUNS = 5
"""Number of earlier runs that are read."""


def newest_runs(folder: Path) -> list[Path]:
    """Return the directories of the newest runs in `folder` that have trials, newest first."""
    trials = (run / "trials" for run in sorted(folder.glob("[0-9]*"), reverse=True))
    return list(islice((kept.parent for kept in trials if kept.is_dir() and not kept.is_symlink()), NEWEST_RUNS))


def known_trial(path: Path) -> Trial | None:
    """Return the trial in a file; None if the file was edited or has a later format."""
    try:
        return read_trial(path)
    except UsageError:
        return None
