"""Lists the reasons for and against another launch: of a row, a round or a version."""

from __future__ import annotations

from enum import unique

from harness.reasons.reason import Reason


@unique
class TurnReason(Reason):
    """Says why a row comes before the others."""

    FINISH = "a round that was begun is finished first"
    FIRST = "the first round of every row comes before the second round of any row"
    CONFIRM = "what looks bad is confirmed before what looks good is launched again"
    NEAR = "this row takes the fewest seconds of those near a limit"
    GOOD = "no row has anything to confirm; this one takes the fewest seconds"


@unique
class RoundReason(Reason):
    """Says why another round of all compared versions, or another launch of one version, is needed."""

    INCOMPLETE_ROUNDS = "only {common} of {wanted} rounds have the {signal} of every version"
    SEEMS_TO_DIFFER = "{signal} seems to differ, and {rounds} rounds are needed to show it"
    TOO_IMPRECISE = "{signal} is known to ±{visible:.1%}, and the limit is {limit:.1%}"

    TOO_FEW_FAILED = "all its launches failed, but there are too few to show that it always fails"
    MAY_BE_LUCKY = (
        "there is a chance of {chance:.0%} that {good} would miss a failure that occurred in {failed} of {launches} "
        "launches of a nearby version"
    )


@unique
class LaunchReason(Reason):
    """Says why versions are launched next, or why no more are."""

    ROUND = "round {number} of {least}"
    AA_NOISE_UNKNOWN = "the same image again, to measure the A/A noise, which is how far two equal images differ"

    CHANGE_UNCONFIRMED = "{versions} again, to confirm the change"
    FAILED_ALONGSIDE = "it failed alongside other launches, so it is launched alone"

    ENOUGH = "{trials:launch} per version; more would not change the result"


@unique
class SkipReason(Reason):
    """Says why a version is not launched, or not launched again."""

    OUTSIDE_LAUNCHED = "not needed: outside the versions that were launched"
    BETWEEN_BAD = "not needed: between {older} and {newer}, both bad"
    BETWEEN_GOOD = "not needed: between {older} and {newer}, both good"
    BETWEEN_DIFFERENT = "not needed: between {older} and {newer}, which differ"
    BAD_SINCE = "{seen}; bad since {version}, where launches agree: the search needed no more launches of this version"

    NOT_TO_DECIDE = "not measured, and not needed for --decide"

    STOPPED_AT_FIRST_BAD = "stopped by --until first-bad"
    STOPPED_BY_QUICK = "stopped by --quick"
    STOPPED_BY_TIME = "stopped by --time"
