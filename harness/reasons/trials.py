"""The reasons that single launches give, and those of verdicts on fewer launches than they need."""

from __future__ import annotations

from enum import unique

from harness.reasons.reason import Reason


@unique
class TrialReason(Reason):
    """What a launch shows, and why a verdict rests on too few launches."""

    ON_GPU = "{shown} of GPU memory"

    TOO_FEW_RAN = "only {count} of {least} trials could run; so far: {why}"
    SO_FAR = "so far, by {count} of {least} launches: {why}"
    SO_FAR_STOPPED = "so far, by {count} of {least} launches ({stopped}): {why}"
