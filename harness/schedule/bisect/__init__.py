"""Bisection: the fewest launches that name the version at which a history changes. Pure.

    spots -> decide -> launch what it says -> spots -> decide -> ... -> "done"

`docs/search.md` describes the method and when it is right.
"""

from harness.schedule.bisect.conclude import conclude, not_needed
from harness.schedule.bisect.decide import decide
from harness.schedule.bisect.records import (
    LEVEL_METRICS,
    Boundary,
    Decision,
    Evidence,
    Expected,
    Rules,
    VersionEvidence,
    expected_launches,
)

__all__ = [
    "LEVEL_METRICS",
    "Boundary",
    "Decision",
    "Evidence",
    "Expected",
    "Rules",
    "VersionEvidence",
    "conclude",
    "decide",
    "expected_launches",
    "not_needed",
]
