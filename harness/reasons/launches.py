"""The reasons for the launches of a row whose versions all run."""

from __future__ import annotations

from enum import unique

from harness.reasons.reason import Reason


@unique
class LaunchReason(Reason):
    """Why versions are launched next, or why no more are."""

    ROUND = "round {number} of {least}"
    WAITING_FOR_IMAGE = "trial {number}, while waiting for an image"
    WAITING_UNKNOWN = "in its turn: what did waiting for images change?"
    STEP_TIMES_DIFFER = "step times differ: all versions side by side"
    AA_NOISE_UNKNOWN = "the same image again, to measure the A/A noise: how far do two equal images differ?"

    CHANGE_UNCONFIRMED = "{versions}: is the change there?"
    FAILED_ALONGSIDE = "it failed alongside other launches: does it also fail alone?"

    ENOUGH = "{trials} trials per version; more would not change the result"
