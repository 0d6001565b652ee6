"""Bisects a history: finds the version at which it changes with the fewest launches. Pure.

    versions -> decide -> launch what it says -> versions -> decide -> ... -> "done"

`docs/search.md` describes the method and when it is right.
"""

from harness.schedule.bisect.conclude import conclude, not_needed
from harness.schedule.bisect.decide import decide
from harness.schedule.bisect.records import (
    LEVEL,
    Boundary,
    Decision,
    Evidence,
    Expected,
    RowVersions,
    Rules,
    VersionEvidence,
    expected_launches,
)

__all__ = [
    "LEVEL",
    "Boundary",
    "Decision",
    "Evidence",
    "Expected",
    "RowVersions",
    "Rules",
    "VersionEvidence",
    "conclude",
    "decide",
    "expected_launches",
    "not_needed",
]
