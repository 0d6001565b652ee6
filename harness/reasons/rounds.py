"""The reasons why the versions of a row, or one of them, need more launches."""

from __future__ import annotations

from enum import unique

from harness.reasons.reason import Reason


@unique
class RoundReason(Reason):
    """Why another round of all compared versions, or another launch of one version, is needed."""

    INCOMPLETE_ROUNDS = "only {common} of {wanted} rounds have the {signal} of every version"
    SEEMS_TO_DIFFER = "{signal} seems to differ, and {rounds} rounds are needed to show it"
    TOO_IMPRECISE = "{signal} is known to ±{visible:.1%}, and the limit is {limit:.1%}"

    TOO_FEW_FAILED = "all its launches failed, but there are too few to show that it always fails"
    MAY_BE_LUCKY = (
        "there is a chance of {chance:.0%} that {good} would miss a failure that occurred in {failed} of {launches} "
        "launches of a nearby version"
    )
