"""Lists the reasons that a search for a component gives, and the names of what it makes."""

from __future__ import annotations

from enum import unique

from harness.reasons.reason import Reason


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
