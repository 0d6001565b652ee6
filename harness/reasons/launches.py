"""The reasons for the launches of a row whose versions all run."""

from __future__ import annotations

from enum import unique

from harness.reasons.reason import Reason


@unique
class LaunchReason(Reason):
    """Why versions are launched next, or why no more are."""

    ROUND = "round {number} of {least}"
    WAITING_FOR_IMAGE = "trial {number}, while waiting for an image"
    WAITING_UNKNOWN = "in its turn, to measure the effect of waiting for images"
    STEP_TIMES_DIFFER = "step times differ, so all versions run side by side"
    AA_NOISE_UNKNOWN = "the same image again, to measure the A/A noise, which is how far two equal images differ"

    CHANGE_UNCONFIRMED = "{versions} again, to confirm the change"
    FAILED_ALONGSIDE = "it failed alongside other launches, so it is launched alone"

    ENOUGH = "{trials} trials per version; more would not change the result"
