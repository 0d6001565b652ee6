"""The probability of each position equals the sum over all splits; a version is named only if it is certain."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import chdtri

from harness.judge.comparison.noise import Spread
from harness.judge.history.posterior import (
    NOISES,
    OVERLOOKED,
    ChangepointPlace,
    level_evidence,
    place_change,
    probability_within,
)
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


@given(tables, st.floats(0.3, 1.0))
@settings(max_examples=many(24, 600))
def test_the_probability_of_each_place_is_the_sum_over_all_splits(means, deviation):
    """Everything that is named depends on these probabilities."""
    count = len(means)
    found = probability_within(means, np.arange(1, count), rounds=1, spread=Spread(deviation=deviation, freedom=3))
    width = max(float(np.ptp(means)), 1e-300)
    splits: dict[tuple[int, ...], float] = {}
    for variance in map(float, deviation**2 * 3 / chdtri(3, (np.arange(NOISES) + 0.5) / NOISES)):
        odds = OVERLOOKED / max(width, math.sqrt(variance)) * 2 / (count - 2)
        for changes, factor in ((1, 1.0), (2, odds)):
            for places in itertools.combinations(range(1, count), changes):
                edges = (0, *places, count)
                likely = math.prod(evidence(means[a:b], variance) for a, b in itertools.pairwise(edges))
                splits[places] = splits.get(places, 0.0) + factor * likely
    total = sum(splits.values())
    for low in range(1, count):
        for high in range(low, count):
            share = sum(value for places, value in splits.items() if any(low <= each <= high for each in places))
            assert found[low - 1, high - 1] == pytest.approx(share / total, abs=1e-9)


def test_the_level_is_integrated_out():
    """Quadrature over the level gives the same result."""
    from scipy import integrate  # here, because every process of pytest imports every file

    values, variance = np.array([0.1, 0.3, 0.25]), 0.04
    density = lambda level: math.prod(  # noqa: E731
        math.exp(-((value - level) ** 2) / (2 * variance)) / math.sqrt(2 * math.pi * variance) for value in values
    )
    whole, _ = integrate.quad(density, -5, 5)
    assert math.exp(level_evidence(values, np.array([0, 3]), variance=variance)[0, 1]) == pytest.approx(
        whole / 1.0, rel=1e-6
    )


def place(means: list[float], deviation: float, near: int) -> ChangepointPlace:
    places = range(max(1, near - 100), min(len(means), near + 100))
    return place_change(np.array(means), places, rounds=4, spread=Spread(deviation=deviation, freedom=LOTS))


def test_a_clear_step_has_a_name():
    assert place([0, 0, 0, 1, 1, 1], 0.1, 3) == ChangepointPlace(first=3, low=3, high=3)


def test_a_version_halfway_belongs_to_neither_side():
    found = place([0, 0, 0, 0.5, 1, 1, 1], 0.5, 3)
    assert found.low <= 3
    assert found.high >= 4


@given(st.floats(0.01, 3.0), st.floats(-2, 2), st.integers(0, 2**31))
@settings(max_examples=many(8, 200))
def test_units_and_offsets_are_no_matter(factor, offset, seed):
    means = np.random.default_rng(seed).normal(0, 0.3, 8) + np.array([0, 0, 0, 1, 1, 1, 1, 1])
    assert place(list(means), 0.3, 3) == place(list(means * factor + offset), 0.3 * factor, 3)


@given(st.integers(0, 2**31))
@settings(max_examples=many(8, 200))
def test_read_backwards_the_same_place_is_found(seed):
    means = np.random.default_rng(seed).normal(0, 0.3, 9) + np.array([0, 0, 0, 0, 1, 1, 1, 1, 1])
    one, other = place(list(means), 0.3, 4), place(list(means[::-1]), 0.3, 5)
    assert (9 - other.high, 9 - other.low) == (one.low, one.high)


def test_a_long_series_is_as_cheap_near_its_change():
    means = np.zeros(5000)
    means[2500:] = 1.0
    assert place(list(means), 0.1, 2500) == ChangepointPlace(first=2500, low=2500, high=2500)
