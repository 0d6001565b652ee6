"""Lists the reasons for the launches and conclusions of a bisection, and of a narrowing."""

from __future__ import annotations

from enum import unique

from harness.reasons.reason import Reason


@unique
class BisectReason(Reason):
    """Says why a bisection launches versions, and what it found in the end."""

    ENDS_UNKNOWN = "nothing is known about {versions}: both ends come first"
    ENDS_ALIKE = "both ends are alike so far: launching {versions} once more to be sure"
    BASELINE_BAD = "{version}, the baseline, showed {verdicts}: launching it again to see whether that is usual"
    BAD_TOO_FEW_TIMES = "{metric}: {version} was bad in too few launches to be sure: launching it once more"
    GOOD_BETWEEN_BAD = "{version} was good between two bad versions, perhaps by luck: launching it again"

    GETS_BAD = "{metric}: {before} is good and {after} is bad"
    GETS_GOOD = "{metric}: {before} is bad and {after} is good"
    SPLITS = "{sides}: {version} splits the {count} version{s} between them"
    SIDES_UNCONFIRMED = "{sides}: launching {versions} once more before a version is named"
    FLAKY = "{bad} fails in about {share:.0%} of its launches"
    MAYBE_FLAKY = "{bad} may fail in only some of its launches"
    MAY_BE_LUCK = "{found}, so good launches may be luck: {version} tells most about how far the failure reaches"
    ENDED_TOO_EARLY = (
        "judging by the steps at which launches failed, {good} may be bad and may have ended before its failure was due"
        " ({chance:.1%}): launching {version} once more"
    )

    STEP_UNKNOWN = "{metric}: looking for a step of {limit:.1%} or more"
    STEP_SOMEWHERE = "{metric}: looking for the version at which it changes"
    STEP_UNCONFIRMED = "{metric}: confirming both sides of the step"
    SIDE_BY_SIDE = "{why}, with {versions} side by side"

    NONE_LAUNCHED = "no version could be launched"
    ENDS_UNCLEAR = "nothing bad was found, but it is unclear whether {versions} is good; launch more with --trials"
    ENDS_GOOD = "both ends are good"
    OUTERMOST_GOOD = "{versions}, the oldest and the newest version that could run, are good"
    ONLY_GOOD = "{version}, the only version that could run, is good"
    UNSEARCHED = "{found}; only --search full would find a bad version between them"
    TOO_DEAR = "searching further would cost more than running every version (--search full); {next}"
    BAD_SINCE_BEFORE = "{metric}: bad since before {version}"
    MAYBE_BAD_SINCE_BEFORE = "{metric}: may be bad since before {version}, but fewer than {agree} launches agree"

    NAMED = "{metric}: {version} is the {what}{doubt}"
    MAYBE_NAMED = "{metric}: {version} may be the {what}, but not both sides have {agree} launches that agree{doubt}"
    BETWEEN = "{metric}: the {what} lies between {start} and {after}; unclear versions between them: {unclear}"
    MAYBE_BETWEEN = "{found}; not both sides have {agree} launches that agree"
    FIRST_BAD = "first bad version"
    FIRST_GOOD = "first version that is good again"
    FIRST_SLOWER = "first slower version"
    FIRST_FASTER = "first faster version"
    ALL_FAILED = (
        " ({launches} from there on failed; if only some launches fail, the failure may have begun earlier:"
        " see --search full)"
    )
    ALL_LAUNCHES = "all {count} launches"
    ONLY_LAUNCH = "the only launch"
    BASELINE_DECIDES = "{found}; only a version that is slower than the baseline, {version}, is bad"


# ---------------------------------------------------------------- narrowing


@unique
class NarrowReason(Reason):
    """Says why hybrids are launched, what their launches show, and why components belong together."""

    ENDS_UNKNOWN = "the good and the bad version themselves, again"
    CAUSE_AMONG = "the cause is among {suspects}; next: a hybrid with {groups} from the bad version"
    GOOD_WITHOUT = "{suspects}: another launch of the hybrid that is good without it, before it is named"
    BAD_WITH = "{suspects}: another launch of the hybrid that is bad with it, before it is named"
    PROOF_WITH = "{suspects}: the good version with it"
    PROOF_WITHOUT = "{suspects}: the bad version without it"
    SHAM = "{groups}: taken out of the {state} version and put in again, to see the effect of swapping itself"

    NOTHING_DIFFERS = "nothing differs between the two versions"
    GOOD_IS_BAD = "the good version is bad in {bad} of {launches:launch}"
    BAD_IS_GOOD = "the bad version is good in {good} launches"
    EFFECT_GONE = "less than half of the effect is left, if any, in {count} launches"
    UNPROVEN = "the proof confirms no group"
    INTERRUPTED = "the search was interrupted before its next step: {next}"

    NOT_MEASURED = "it was not measured"
    NOT_SWAPPABLE = "neither version can take the groups that it would need from the other"
    TOO_MANY_HYBRIDS = "the largest allowed number of hybrids was tried"
    TOO_MANY_LAUNCHES = "the largest allowed number of launches was made"
    TOO_FEW_LAUNCHES = "too few launches to tell"
    UNSETTLED = "{count} launches do not show whether it is bad"

    NO_FIGURE = "this launch has no figure that could be compared"
    NO_STEP = "it failed before its first step"
    NO_SAMPLES = "it has no samples"
    NOT_WHOLE = "it was not measured over a whole launch"
    FAILED = "it failed: {line}"
    FAILED_OTHERWISE = "it fails in a way that B does not: {line}"
    NOT_FINITE = "{name} is not finite"
    VALUE_OF_B = "{name} is {value:.6g}"
    VALUE_OF_NEITHER = "{name} is {value:.6g}, which is neither A's nor B's"
    VALUES_OVERLAP = "{name} does not distinguish A from B"
    OTHER_LIBRARY = "{library} of {version} was requested, but {loaded} was mapped"

    COPY_EQUAL = (
        "no distribution, mapped library or variable differs between the version and its copy; other files are not "
        "compared"
    )
    COPY_DIFFERS = "the version and its copy differ in {names}"

    OTHER_REQUIRED = "{name} {version} requires {requirement}, and {other} is {installed}"
    MISSING_REQUIRED = "{name} {version} requires {requirement}, and {other} is not installed"
    FILE_SHARED = "{name} and {other} both have {path}"
    ONE_CUDNN = "the libraries of cuDNN check each other's versions"
    ONE_PYTHON = "a distribution is installed for one minor version of Python and one kind of C library"


@unique
class NarrowName(Reason):
    """Says what the hybrids and groups of a search are called."""

    BASE = "operating system, Python and C library"
    BASE_WITH = "{base}, with {count} distribution{s}"
    REASSEMBLED = "{version} reassembled from its own parts"
    PUT_IN_AGAIN = "{version} with its own {groups} put in again"
