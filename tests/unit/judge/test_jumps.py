"""Rare large losses: recognised by their times, and not confused with a warm-up, a new maximum or a random walk."""

from __future__ import annotations

import numpy as np
import pytest

from harness.judge.trace.jumps import Losses, find_losses


def stairs(times: np.ndarray, *, size: float = 5000.0, rows: int = 4000) -> np.ndarray:
    """Return jumps of one size at fractions of the rows."""
    return size * (np.arange(rows)[:, None] >= np.asarray(times) * rows).sum(axis=1)


def losses(times: np.ndarray) -> Losses:
    return find_losses(stairs(times), grain=4.0)


def test_jumps_are_found_with_their_times_and_sizes():
    found = losses(np.linspace(0.1, 0.95, 12))
    assert found.sizes == pytest.approx(np.full(12, 5000.0))
    assert found.times == pytest.approx((np.linspace(0.1, 0.95, 12) - 0.02) / 0.98, abs=0.01)
    assert found.steady


def test_noise_hides_no_large_jump():
    noise = np.random.default_rng(1).normal(0, 64, 4000)
    found = find_losses(stairs(np.linspace(0.1, 0.95, 12)) + noise, grain=4.0)
    assert len(found.sizes) == 12
    assert found.steady


def test_a_count_that_jumps_has_no_grain():
    """For example open files: nothing changes between two jumps, and that is not a fall."""
    found = find_losses(stairs(np.linspace(0.1, 0.95, 12), size=1.0), grain=0.0)
    assert (len(found.sizes), len(found.falls)) == (12, 0)
    assert found.steady


@pytest.mark.parametrize("count", [12, 30, 100])
def test_jumps_that_become_rarer_are_a_warm_up(count):
    """A table that grows when it is fuller than ever: blaming the image for it would be wrong."""
    assert not losses((np.arange(count) / count) ** 2).steady
    assert not losses(np.geomspace(0.02, 0.99, count)).steady


def test_random_times_are_rarely_given_up_and_records_rarely_taken():
    rng = np.random.default_rng(4)
    uniform = [losses(np.sort(rng.uniform(0, 1, 25))).steady for _ in range(200)]
    records = [losses(np.sort(np.exp(rng.uniform(np.log(0.02), 0, 25)))).steady for _ in range(200)]
    assert sum(uniform) >= 180
    assert sum(records) <= 2


@pytest.mark.parametrize("chunks", [3, 12])
def test_small_jumps_do_not_make_large_ones_steady(chunks):
    """A heap that never gives back keeps its maximum: noise adds small jumps, which come at any time."""
    rng = np.random.default_rng(5)
    large = (np.arange(1, chunks + 1) / chunks) ** 2 * 0.9 if chunks > 4 else np.array([0.2, 0.5, 0.8])
    for _ in range(20):
        small = stairs(np.sort(rng.uniform(0, 1, 12)), size=300.0)
        assert not find_losses(stairs(large) + small, grain=4.0).steady


def test_too_few_jumps_and_as_many_down_as_up_are_no_leak():
    assert not losses(np.linspace(0.1, 0.95, 8)).steady
    times = np.linspace(0.05, 0.95, 30)
    assert not find_losses(stairs(times[::2]) - stairs(times[1::2]), grain=4.0).steady


def test_jumps_that_have_ended_are_not_due():
    assert not losses(np.linspace(0.05, 0.5, 20)).possible
    assert losses(np.linspace(0.05, 0.97, 20)).possible


def test_what_is_detectable_by_jumps_is_nine_of_their_size():
    assert losses(np.linspace(0.1, 0.95, 20)).detectable == pytest.approx(9 * 5000 / (0.98 * 4000))


def test_of_twice_the_detectable_pace_nearly_all_are_found():
    """Half of the leaks with nine expected jumps have nine, nearly all of those with eighteen; each
    test rejects some.
    """
    rng = np.random.default_rng(6)
    found = [losses(np.sort(rng.uniform(0, 1, rng.poisson(18)))) for _ in range(200)]
    assert sum(one.steady for one in found) >= 188


@pytest.mark.parametrize("times", [np.linspace(0.1, 0.9, 8), np.empty(0)])
def test_too_few_jumps_do_not_say_what_is_detectable(times):
    """Some other allocation caused them: a leak need not take as much at a time."""
    assert losses(times).detectable == np.inf


def test_what_goes_down_as_often_says_nothing_of_leaks():
    times = np.linspace(0.05, 0.95, 30)
    assert find_losses(stairs(times[::2]) - stairs(times[1::2]), grain=4.0).detectable == np.inf


@pytest.mark.parametrize("rows", [1, 10, 255, 300])
def test_short_series_have_no_jumps_to_tell(rows):
    found = find_losses(np.arange(rows) * 1000.0, grain=4.0)
    assert not found.steady
    assert found.highest == 0.0


def test_the_upper_limit_holds():
    """Garwood's limit for a Poisson count: it may be too low in one case of two hundred."""
    rng = np.random.default_rng(2)
    found = [losses(np.sort(rng.uniform(0, 1, rng.poisson(14)))) for _ in range(300)]
    assert sum(one.highest < 14 * 5000 / 4000 for one in found) <= 4
