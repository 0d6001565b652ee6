"""Lists the reasons for the verdicts on the numbers that a scenario returns, and differences that are only reported."""

from __future__ import annotations

from enum import unique

from harness.reasons.reason import Reason


@unique
class ValueReason(Reason):
    """Says why a number of a version is judged as it is, or not judged."""

    NO_WHOLE_LAUNCH = "not measured: no launch completed its steps"
    NOT_RETURNED = "this version returned no `{name}`"
    NO_LIMIT = "checked for NaN and infinity only: it has no limit"

    NOT_FINITE = "NaN or infinity in {name}"
    NAN = "a step returned NaN or infinity as `{name}`"
    NAN_EVERYWHERE = "a step returned NaN or infinity as `{name}` in every version"
    NAN_ONCE = "a step returned NaN or infinity in one launch"

    ABSENT = "no step returned `{name}`"
    ABSENT_HERE = "no step returned `{name}`, unlike in other versions"
    RETURNED_TEXT = "no step returned a number as `{name}`"
    RETURNED_TEXT_HERE = "no step returned a number as `{name}`, unlike in other versions"
    NOT_IN_COMMON_STEPS = "none of the steps that all launches made returned `{name}`"

    TOO_FEW_AGREE = "two launches that agree are needed"
    VARIES = (
        "`{name}: equal` cannot be checked: the value differs between launches of one version; seed the scenario, or "
        "write `{name}: {{change: 1%}}`"
    )


@unique
class ObservedDifference(Reason):
    """Says what differs between a version and the one before."""

    RETURNED = "{name} is now returned"
    NO_LONGER_RETURNED = "{name} is no longer returned"
    SOME_STEPS_DIFFER = "{name} differs in some steps"
    VALUE_CHANGED = "{name} {old:.6g} → {new:.6g}"
    LAST_DIGITS_CHANGED = "{name} {old!r} → {new!r}"

    MORE_LINES = "and {count} more new lines"
