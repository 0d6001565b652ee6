"""`harness frontier`: the settings of a run, by what they cost and what they give."""

from __future__ import annotations

import json
from pathlib import Path

from harness.errors import UsageError
from harness.model import Setting
from harness.probes import settings


def settings_of(run: Path) -> tuple[Setting, ...]:
    """Those of a run's directory. Raises UsageError if it is none, or has none."""
    try:
        summary = json.loads((run / "summary.json").read_bytes())
    except (OSError, ValueError) as error:
        raise UsageError(
            f"{run}: no run's directory with a summary.json; give one such as reports/NAME/latest"
        ) from error
    found = settings(summary) if isinstance(summary, dict) else ()
    if not found:
        raise UsageError(f"{run}: no cell of this run has both a step time and a peak of memory; run more steps")
    return found
