"""The reasons for the launches of a bisection, and for its conclusion."""

from __future__ import annotations

from enum import unique

from harness.reasons.reason import Reason


@unique
class BisectReason(Reason):
    """Why a bisection launches versions, and what it found in the end."""

    ENDS_UNKNOWN = "nothing is known about {versions}: both ends come first"
    ENDS_ALIKE = "both ends are alike so far: {versions} once more, to be sure"
    BASELINE_BAD = "{version}, the baseline, showed {verdicts}: is that usual?"
    BAD_TOO_FEW_TIMES = "{metric}: {version} was bad too few times to be believed: once more"
    GOOD_BETWEEN_BAD = "{version} was good between two bad versions: was it only lucky?"

    GETS_BAD = "{metric}: {before} is good and {after} bad"
    GETS_GOOD = "{metric}: {before} is bad and {after} good"
    SPLITS = "{sides}: {version} splits the {count} version{s} between"
    SIDES_UNCONFIRMED = "{sides}: {versions} once more, before a version is named"
    FLAKY = (
        "{bad} fails in about {share:.0%} of its launches, so good launches may be luck:"
        " {version} tells most about how far the failure reaches"
    )
    MAYBE_FLAKY = (
        "{bad} may fail in only some of its launches, so good launches may be luck:"
        " {version} tells most about how far the failure reaches"
    )
    ENDED_TOO_EARLY = (
        "by the steps at which launches failed, {good} may be bad and have ended before its failure was due"
        " ({chance:.1%}): {version} once more"
    )

    STEP_UNKNOWN = "{metric}: is there a step of {limit:.1%} or more?"
    STEP_SOMEWHERE = "{metric} changes: where?"
    STEP_UNCONFIRMED = "{metric}: both sides of the step once more, before a version is named:"
    SIDE_BY_SIDE = "{why} {versions} side by side"

    NONE_LAUNCHED = "no version could be launched"
    ENDS_UNCLEAR = "nothing bad was found, but it is unclear whether {versions} is good; launch more with --trials"
    ENDS_GOOD = "both ends are good; only --search full would find a bad version between them"
    TOO_DEAR = "searching further would cost more than running every version (--search full); {next}"
    BAD_SINCE_BEFORE = "{metric}: bad since before {version}"
    MAYBE_BAD_SINCE_BEFORE = "{metric}: may be bad since before {version}, without {agree} launches that agree"

    NAMED = "{metric}: {version} is the {what}{doubt}"
    MAYBE_NAMED = "{metric}: {version} may be the {what}, without {agree} launches that agree on both sides{doubt}"
    BETWEEN = "{metric}: the {what} lies between {start} and {after}; {unclear} between are unclear"
    MAYBE_BETWEEN = (
        "{metric}: the {what} lies between {start} and {after};"
        " {unclear} between are unclear, without {agree} launches that agree on both sides"
    )
    FIRST_BAD = "first bad"
    FIRST_GOOD = "first good again"
    FIRST_SLOWER = "first that is slower"
    FIRST_FASTER = "first that is faster"
    ALL_FAILED = (
        " (all {count} launches from there on failed; if it fails only in some of them, it may be older:"
        " see --search full)"
    )
    ONLY_ONE_FAILED = (
        " (the only launch from there on failed; if it fails only in some of them, it may be older: see --search full)"
    )
    BASELINE_DECIDES = "{found}; only what is slower than the baseline, {version}, is bad"
