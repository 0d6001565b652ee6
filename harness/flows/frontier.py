"""`harness frontier`: the settings of a run, by what they cost and what they give."""

from __future__ import annotations

from pathlib import Path

from harness.errors import UsageError
from harness.model import Setting
from harness.probes import settings
from harness.store.json_files import read_json
from harness.store.run_files import SummaryFile
from harness.store.saved_run import ABSENT, UNENDED, WRONG


def settings_of(run: Path) -> tuple[Setting, ...]:
    """Those of a run's directory. Raises UsageError if it is none, or has none."""
    absent = UNENDED if (run / "plan.json").exists() else ABSENT
    summary = read_json(run / "summary.json", SummaryFile.model_validate, absent=absent, wrong=WRONG)
    found = settings(summary.model_dump())
    if not found:
        raise UsageError(f"{run}: no cell of this run has both a step time and a peak of memory; run more steps")
    return found
