"""The reasons why a row is launched before the others."""

from __future__ import annotations

from enum import unique

from harness.reasons.reason import Reason


@unique
class TurnReason(Reason):
    """Why a row comes before the others."""

    FINISH = "a round that was begun is finished first"
    FIRST = "the first round of every row comes before the second round of any row"
    CONFIRM = "what looks bad is confirmed before what looks good is launched again"
    NEAR = "this row takes the fewest seconds of those near a limit"
    GOOD = "no row has anything to confirm; this one takes the fewest seconds"
