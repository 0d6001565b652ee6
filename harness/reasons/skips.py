"""The reasons why a version gets no launch, or no more."""

from __future__ import annotations

from enum import unique

from harness.reasons.reason import Reason


@unique
class SkipReason(Reason):
    """Why a version is not launched, or not launched again."""

    OUTSIDE_LAUNCHED = "not needed: outside the versions that were launched"
    BETWEEN_BAD = "not needed: between {older} and {newer}, both bad"
    BETWEEN_GOOD = "not needed: between {older} and {newer}, both good"
    BETWEEN_DIFFERENT = "not needed: between {older} and {newer}, which differ"
    BAD_SINCE = "{seen}; bad since {version}, where launches agree: the search needed no more launches of this version"

    NOT_TO_DECIDE = "not measured, and not needed for --decide"

    STOPPED_AT_FIRST_BAD = "stopped by --until first-bad"
    STOPPED_BY_QUICK = "stopped by --quick"
    STOPPED_AFTER_LOOK = "stopped after a first look"
    STOPPED_BY_TIME = "stopped by --time"
