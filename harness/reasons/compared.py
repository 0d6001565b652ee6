"""Lists the reasons why two cells of stored runs are not compared."""

from __future__ import annotations

from enum import unique

from harness.reasons.reason import Reason


@unique
class CompareReason(Reason):
    """Says why two cells are not compared."""

    TAKEN_OVER = (
        "measured once: the later run took over these trials from the first; sweep with --fresh to measure again"
    )
    WHEELS = "wheel of {name} {before} and {after}"
    SCRIPTS = "script or command, its files or the agent: {one} and {other}"
