"""The sentences on differences between versions that are reported but not judged."""

from __future__ import annotations

from enum import unique

from harness.reasons.reason import Reason


@unique
class ObservedDifference(Reason):
    """What differs between a version and the one before."""

    RETURNED = "{name} is now returned"
    NO_LONGER_RETURNED = "{name} is no longer returned"
    SOME_STEPS_DIFFER = "{name} differs in some steps"
    VALUE_CHANGED = "{name} {old:.6g} → {new:.6g}"
    LAST_DIGITS_CHANGED = "{name} {old!r} → {new!r}"

    MORE_LINES = "and {count} more new lines"
