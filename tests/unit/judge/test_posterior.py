"""The probability of each position equals the sum over all splits; a version is named only if it is certain."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import chdtri

from harness.judge.comparison.round_effects import Spread
from harness.judge.history.changepoints.posterior import NOISES, ChangepointPlace, place_changes
from harness.judge.history.changepoints.posterior import _segments as segments
from harness.judge.history.changepoints.posterior import _splits as splits_of
from harness.model import Floats
from tests.nightly import many

LOTS = 100_000
"""Degrees of freedom for known noise."""
tables = st.lists(st.floats(-1, 1), min_size=3, max_size=6).map(np.array)


def evidence(level_of: Floats, variance: float) -> float:
    """Return the evidence for one level of these versions, with the level integrated out by formula (flat prior); not a
    log.
    """
    count, rest = len(level_of), level_of - level_of.mean()
    density = (2 * math.pi * variance) ** (-(count - 1) / 2) / math.sqrt(count)
    return density * math.exp(-float(rest @ rest) / (2 * variance))


def by_enumeration(means: Floats, variance: float, changes: int) -> dict[tuple[int, ...], float]:
    """Return the evidence of every split, computed one by one."""
    found = {}
    for places in itertools.combinations(range(1, len(means)), changes):
        edges = (0, *places, len(means))
        found[places] = math.prod(evidence(means[a:b], variance) for a, b in itertools.pairwise(edges))
    return found


@given(tables, st.integers(1, 2), st.floats(0.3, 1.0))
@settings(max_examples=many(24, 600))
def test_the_recursion_is_the_sum_over_all_splits(means, changes, deviation):
    """Everything that is named depends on these probabilities."""
    found = [
        each
        for each in splits_of(
            means, range(len(means) + 1), rounds=1, spread=Spread(deviation=deviation, freedom=3), changes=changes
        )
        if each.pairs is None
    ]
    shares = (np.arange(NOISES) + 0.5) / NOISES
    for each, variance in zip(found, deviation**2 * 3 / chdtri(3, shares), strict=True):
        splits = by_enumeration(means, float(variance), changes)
        for number, place in itertools.product(range(changes), range(1, len(means))):
            share = sum(value for places, value in splits.items() if places[number] == place) / sum(splits.values())
            assert each.chances[number, place - 1] == pytest.approx(share, abs=1e-9)


def test_the_level_is_integrated_out():
    """Quadrature over the level gives the same result."""
    from scipy import integrate  # here, because every process of pytest imports every file

    values, variance = np.array([0.1, 0.3, 0.25]), 0.04
    density = lambda level: math.prod(  # noqa: E731
        math.exp(-((value - level) ** 2) / (2 * variance)) / math.sqrt(2 * math.pi * variance) for value in values
    )
    whole, _ = integrate.quad(density, -5, 5)
    assert math.exp(segments(values, [0, 3], variance=variance)[0, 1]) == pytest.approx(whole / 1.0, rel=1e-6)


def place(means: list[float], deviation: float, *near: int) -> tuple[ChangepointPlace, ...]:
    return place_changes(
        np.array(means), rounds=4, spread=Spread(deviation=deviation, freedom=LOTS), near=near or (len(means) // 2,)
    )


def test_a_clear_step_has_a_name():
    assert place([0, 0, 0, 1, 1, 1], 0.1, 3) == (ChangepointPlace(first=3, low=3, high=3),)


def test_two_steps_have_two_names():
    assert place([0, 0, 0, 1, 1, 2, 2], 0.1, 3, 5) == (
        ChangepointPlace(first=3, low=3, high=3),
        ChangepointPlace(first=5, low=5, high=5),
    )


def test_a_version_halfway_belongs_to_neither_side():
    (found,) = place([0, 0, 0, 0.5, 1, 1, 1], 0.5, 3)
    assert found.low <= 3
    assert found.high >= 4


@given(st.floats(0.01, 3.0), st.floats(-2, 2), st.integers(0, 2**31))
@settings(max_examples=many(8, 200))
def test_units_and_offsets_are_no_matter(factor, offset, seed):
    means = np.random.default_rng(seed).normal(0, 0.3, 8) + np.array([0, 0, 0, 1, 1, 1, 1, 1])
    one = place(list(means), 0.3, 3)
    other = place_changes(
        means * factor + offset, rounds=4, spread=Spread(deviation=0.3 * factor, freedom=LOTS), near=(3,)
    )
    assert one == other


@given(st.integers(0, 2**31))
@settings(max_examples=many(8, 200))
def test_read_backwards_the_same_place_is_found(seed):
    means = np.random.default_rng(seed).normal(0, 0.3, 9) + np.array([0, 0, 0, 0, 1, 1, 1, 1, 1])
    (one,), (other,) = place(list(means), 0.3, 4), place(list(means[::-1]), 0.3, 5)
    assert (9 - other.high, 9 - other.low) == (one.low, one.high)


def test_a_long_series_is_as_cheap_near_its_change():
    means = np.zeros(5000)
    means[2500:] = 1.0
    (found,) = place_changes(means, rounds=3, spread=Spread(deviation=0.1, freedom=LOTS), near=(2500,))
    assert found == ChangepointPlace(first=2500, low=2500, high=2500)
