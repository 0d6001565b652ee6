"""The trend fit: the numbers under every verdict."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.judge.trace.trends import (
    BLOCKS,
    block_levels,
    fit_trend,
    observed_quantum,
    teeth_floor,
    wave_floor,
    without_bursts,
)

levels = st.lists(st.integers(-1000, 1000), min_size=BLOCKS, max_size=BLOCKS).map(lambda v: np.array(v, dtype=float))


def fit(values: np.ndarray):
    return fit_trend(values, steps_per_block=10.0, alpha=0.01)


@given(levels, st.floats(0.125, 1024))
def test_a_unit_is_only_a_unit(values, factor):
    """The choice between bytes and KiB must not decide whether something leaks."""
    one, other = fit(values), fit(values * factor)
    for name in ("rate", "low", "high"):
        assert getattr(other, name) == pytest.approx(getattr(one, name) * factor, rel=1e-6, abs=1e-6 * factor)


@given(levels, st.integers(-(10**6), 10**6))
def test_the_size_of_the_process_does_not_matter(values, base):
    one, other = fit(values), fit(values + base)
    assert other.rate == pytest.approx(one.rate, rel=1e-6, abs=1e-6)
    assert other.low == pytest.approx(one.low, rel=1e-6, abs=1e-6)


@given(levels)
def test_backwards_in_time_is_upside_down(values):
    """A shrinking process must be judged by the same measure as a growing one."""
    one, other = fit(values), fit(values[::-1])
    assert other.rate == pytest.approx(-one.rate, abs=0.35 * (one.high - one.low) + 1e-9)


@given(levels)
def test_bounds_enclose_the_rate_and_are_numbers(values):
    trend = fit(values)
    assert np.isfinite([trend.rate, trend.low, trend.high, trend.rise]).all()
    assert trend.low <= trend.rate <= trend.high


def test_an_exact_line_has_no_error():
    trend = fit(np.arange(BLOCKS) * 20.0)
    assert (trend.rate, trend.low, trend.high) == (2.0, 2.0, 2.0)


def test_a_random_walk_is_rarely_a_trend():
    """Resident memory wanders: ordinary least squares calls most random walks a trend."""
    rng = np.random.default_rng(5)
    trends = [fit(rng.normal(0, 1, BLOCKS).cumsum()) for _ in range(500)]
    assert sum(trend.low > 0 and trend.drift > 2.62 for trend in trends) <= 10


def test_floors_ignore_saw_teeth_and_spikes():
    values = 100 + np.tile(np.arange(50.0), 64)
    values[::97] += 10_000
    assert block_levels(values, share=0.1) == pytest.approx(np.full(BLOCKS, 105), abs=3)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (np.full(100, 7.0), 4.0),
        (np.repeat([0.0, 2048, 4096, 6144], 100), 2048.0),
        (np.repeat([0.0, 1e6], 100), 4.0),
        (np.repeat([0.0, 1e6, 2e6, 3e6], 100), 2048.0),
        (np.repeat([0.0, 2048.0], 100), 2048.0),
        (np.repeat([0.0, 2048.0, 4096.0], [100, 100, 700]), 4.0),
        (np.repeat([0.0, 2048.0, 4096.0], [100, 300, 500]), 2048.0),
        (np.repeat([0.0, 2048.0], [5, 995]), 4.0),
        (np.arange(100) * 4.0, 4.0),
    ],
)
def test_the_quantum_is_what_the_kernel_hands_out(values, expected):
    """Assuming 2 MiB pages where there are none would always rule out "flat"."""
    assert observed_quantum(values, least=4, most=2048) == expected


@given(levels)
def test_cutting_bursts_only_lowers(values):
    assert (without_bursts(values) <= values).all()
    assert without_bursts(values).min() == values.min()


def test_a_burst_is_cut_and_growth_is_not():
    """Memory that a burst of work holds for a moment must neither hide a leak nor look like one."""
    line = np.arange(BLOCKS) * 10.0
    burst = line + np.where(np.isin(np.arange(BLOCKS), (5, 6)), 500.0, 0.0)
    assert without_bursts(line).tolist() == line.tolist()
    assert without_bursts(burst) == pytest.approx(line, abs=20)


# ---------------------------------------------------------------- floors under saw-teeth and waves


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
