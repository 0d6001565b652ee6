"""A change as large as the minimum detectable effect is found."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.judge.comparison.round_effects import Spread, spread_within, without_rounds
from harness.judge.history.changepoints.detectable_change import least_found, least_of
from harness.judge.history.changepoints.segmentation import find_levels
from tests.nightly import many

ALPHA = 0.0064


@given(st.integers(2, 8), st.integers(4, 200), st.integers(1, 100), st.integers(5, 500))
@settings(max_examples=many(24, 600))
def test_more_versions_hide_more(rounds, versions, more, freedom):
    """With equal noise, a search over more versions finds larger chance differences."""
    spread = Spread(deviation=0.02, freedom=freedom)
    one, other = (least_of(spread, rounds=rounds, versions=each, alpha=ALPHA) for each in (versions, versions + more))
    # A version is compared with the mean of the others, which is more precise if there are more of them.
    assert one * math.sqrt((versions - 1) / versions) <= other * math.sqrt((versions + more - 1) / (versions + more))


@given(st.integers(2, 7), st.integers(4, 200), st.integers(20, 500))
@settings(max_examples=many(24, 600))
def test_more_rounds_hide_less(rounds, versions, freedom):
    spread = Spread(deviation=0.02, freedom=freedom)
    fewer, more = (least_of(spread, rounds=each, versions=versions, alpha=ALPHA) for each in (rounds, rounds + 1))
    assert more < fewer


@pytest.mark.parametrize(("rounds", "versions"), [(2, 2), (2, 24), (3, 3), (3, 6), (3, 24), (3, 90), (5, 24)])
def test_one_bad_version_of_twice_what_is_visible_is_found(rounds, versions):
    """Among 90 versions in three rounds, 4.3 % was promised, but 10 % was found in none of three histories."""
    found, count = 0, many(10, 20)
    for seed in range(count):
        rng = np.random.default_rng([seed, rounds, versions])
        table, bad = rng.normal(0, 0.02, (rounds, versions)), int(rng.integers(versions))
        spread = spread_within(without_rounds(table))
        assert spread is not None
        table[:, bad] += 2 * least_found(table, spread=spread, alpha=ALPHA)
        shifts = find_levels(table, least=0.01, alpha=ALPHA, seed=0).shifts
        found += any(shift.before < bad <= shift.after for shift in shifts) or (bad == 0 and bool(shifts))
    assert found >= 0.95 * count
