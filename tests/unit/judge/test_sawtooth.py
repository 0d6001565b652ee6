"""Memory that returns to a floor: a loss shows only in the troughs."""

from __future__ import annotations

import numpy as np
import pytest

from harness.judge.trace.trends import teeth_floor, wave_floor

TIME = np.arange(4000.0)


@pytest.mark.parametrize("period", [90, 333, 600])
@pytest.mark.parametrize("rate", [0.0, 2.5])
def test_the_floor_rises_as_the_leak_does(period, rate):
    found = teeth_floor(rate * TIME + 20 * (TIME % period))
    assert found is not None
    levels, rows = found
    assert np.diff(levels) == pytest.approx(rate * rows, abs=1e-6 + rate)


def test_what_wanders_or_falls_seldom_has_no_teeth():
    walk = np.random.default_rng(3).normal(0, 10, 4000).cumsum()
    assert teeth_floor(walk) is None
    assert teeth_floor(TIME % 1900) is None
    assert teeth_floor(-(TIME % 300)) is None
    assert teeth_floor(np.zeros(4000)) is None


def test_a_fall_over_several_rows_is_one():
    """A program that ends while it is sampled gives back everything at the end: memory did not return to a floor."""
    ending = np.append(TIME, [3000.0, 2000.0, 1000.0, 0.0])
    assert teeth_floor(ending) is None
    slow = np.where(TIME % 400 < 390, 10 * (TIME % 400), 390 * (400 - TIME % 400))
    found = teeth_floor(slow)
    assert found is not None
    assert len(found[0]) == 10


@pytest.mark.parametrize("rate", [0.0, 0.5])
def test_the_floor_of_waves(rate):
    found = wave_floor(rate * TIME + 5000 * np.sin(TIME / 100))
    assert found is not None
    levels, rows = found
    assert len(levels) >= 5
    assert np.diff(levels) == pytest.approx(rate * rows, abs=60)


def test_a_floor_that_was_not_seen_lately_says_nothing():
    """Growth that began after the last trough would not show."""
    ended = np.where(TIME < 2600, TIME % 400, TIME - 2600)
    assert teeth_floor(ended) is None
    assert wave_floor(np.where(TIME < 2600, np.sin(TIME / 100), 1.0)) is None
    assert wave_floor(TIME) is None
    assert wave_floor(TIME[:10]) is None
