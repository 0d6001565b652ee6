"""Lists the reasons for the verdicts on the signals that are compared between versions, and the remedies."""

from __future__ import annotations

from enum import unique

from harness.reasons.reason import Reason


@unique
class SignalReason(Reason):
    """Says why a signal of a version is judged as it is, or not judged."""

    LIMIT_IS_NONE = "the limit is none"
    NOT_MEASURED = "not measured"
    UNTESTED = "not measured: untested"
    NO_STEPS = "there are no steps to time"
    NO_LONG_LAUNCH = "no launch of the whole budget was long enough"
    TOO_FEW_STEPS = "too few steps"
    TOO_LITTLE_CPU = "too little processor time to count"
    NO_ITEMS = "the scenario returns no `items`"
    NO_SETUP = "a command or a program has no separate setup"
    NO_STEP_TIMED = "no step was timed"
    NO_GPU = "no GPU"
    NO_GPU_POOL = "no GPU pool"
    ABSENT_HERE = "{absent} here, unlike in other versions"
    BAD_VERSION = "this version is bad: {verdict}"

    NO_OTHER_VERSION = "there is no other version to compare it with"
    OTHERS_ARE_BAD = "all versions but one are bad"
    NO_USABLE_LAUNCH = "none of its launches can be compared"
    NO_WARM_LAUNCH = "no launch started with its files in the page cache while no other launch ran"
    TOO_FEW_LAUNCHES = "too few of its launches can be compared with those of the others"
    TOO_FEW_ROUNDS = "too few rounds in which every version was measured"
    OTHER_ROUNDS = "it was not measured in the same rounds as the others"
    ENDED_AS_SLOW = "its steps are so slow that its launches ended early, and only their times are compared"

    BISECTED = "according to the comparisons of the bisection"
    NOT_BISECTED = "a bisection does not compare this signal; `--search full` does"

    FAR_FROM_VERSION_BEFORE = "{signal} is {ratio} times that of the version before, in {launches}"
    FAR_FROM_LAST_MEASURED = (
        "{signal} is {ratio} times that of the last version before it that was measured, in {launches}"
    )

    LAUNCHES_DIFFER = "{launches} that differ by a factor of {ratio}"

    UNCONFIRMED = "a change that needs {launches} launches of each version to be confirmed"
    MAY_BE_CHANCE = "a change that may be due to chance among so many comparisons"


@unique
class Remedy(Reason):
    """Says what would let a signal be judged."""

    SETTLED = "more launches would settle it"
    MORE_LAUNCHES = "more launches (`--trials {launches}`)"
    WIDER_LIMIT = "a wider limit (`{limit}`, or none)"
    QUIETER_HOST = "a quieter host"
    LATER_LOOK = "a larger `steps: {{first: …}}` lets every launch make such a step"
    FRESH = "`--fresh` measures all versions again, side by side"
    SAME_SWEEP = "run the same sweep again to continue"
    SWEEP_WITHOUT_STOP = "{why}; run the same sweep without it to continue"
