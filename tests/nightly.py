"""What only `make nightly` does: the same tests with more random examples, and on every installed Python.

By day, random tests draw the same examples each time, so that a failure comes from the change, not from chance.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

NIGHTLY = os.environ.get("HARNESS_NIGHTLY") == "1"
AS_MANY = 10
SUPPRESSED = [HealthCheck.too_slow]  # a busy machine is not a fault of a test


def many(by_day: int, at_night: int | None = None) -> int:
    """Return how many random examples a test tries; at night ten times as many, unless `at_night` says otherwise."""
    if not NIGHTLY:
        return by_day
    return by_day * AS_MANY if at_night is None else at_night


def at_night(reason: str) -> pytest.MarkDecorator:
    """Return a mark for a long test whose subject other tests cover by day; `reason` names them."""
    return pytest.mark.skipif(not NIGHTLY, reason=f"{reason}: make nightly")


def load_profile() -> None:
    """Load a profile for hypothesis: 20 examples by day and 1,000 at night, unless a test says otherwise.

    No test has a deadline, because it would fail on a busy machine; pytest-timeout ends a test that hangs.
    """
    settings.register_profile(
        "day", deadline=None, max_examples=20, derandomize=True, database=None, suppress_health_check=SUPPRESSED
    )
    settings.register_profile(
        "night", deadline=None, max_examples=1000, print_blob=True, suppress_health_check=SUPPRESSED
    )
    settings.load_profile("night" if NIGHTLY else "day")
