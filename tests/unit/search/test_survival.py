"""Good launches and failures as survival data: what they prove, and what they do not prove."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.schedule.bisect import survival
from harness.schedule.bisect.bisect_records import Evidence

steps = st.integers(1, 100_000)
failures = st.lists(st.lists(steps, min_size=1, max_size=4), min_size=1, max_size=4)
survivals = st.lists(st.lists(steps, max_size=4), max_size=5)


def bad(*by_version: list[int]) -> list[Evidence]:
    return [Evidence(bad=len(each), failed_at=tuple(each)) for each in by_version]


def good(*by_version: list[int]) -> list[Evidence]:
    return [Evidence(good=len(each), survived=tuple(each)) for each in by_version]


@given(failures, survivals)
def test_more_good_launches_are_less_likely_to_be_luck(failed, survived):
    fits = survival.chances(bad(*failed), good(*survived))
    assert len(fits) == len(survived) + 1
    assert np.all(np.isfinite(fits))
    assert np.all(fits > 0)
    assert np.all(np.diff(fits) <= 1e-12)


@given(failures, steps, steps)
def test_a_longer_launch_never_proves_less(failed, one, other):
    short, long = sorted((one, other))
    assert (
        survival.chance_of_luck(bad(*failed), good([long]))
        <= survival.chance_of_luck(bad(*failed), good([short])) + 1e-9
    )


def test_at_a_constant_hazard_it_is_the_integral_over_what_the_hazard_may_be(monkeypatch):
    """With only shape 1 and prior 1/hazard, the posterior is a Gamma distribution of the total time on test."""
    from scipy.integrate import quad  # here, because every process of pytest imports every file
    from scipy.stats import gamma

    monkeypatch.setattr(survival, "SHAPES", np.ones(1))
    monkeypatch.setattr(survival, "_prior", lambda: np.zeros(1))
    survival._failures.cache_clear()
    at, fine, more = [300, 1200, 2500], [4000], [4000, 700]
    found = survival.chances_in_time([*bad(at), *good(fine)], good(more))
    total = sum(each - 0.5 for each in at) + sum(fine)
    hazard = gamma(len(at), scale=1 / total)
    expected, _ = quad(lambda rate: hazard.pdf(rate) * math.exp(-rate * sum(more)), 0, 0.02)
    survival._failures.cache_clear()
    assert found[1] / found[0] == pytest.approx(expected, rel=1e-6)


def test_what_no_launch_outlives_is_told_from_what_some_do():
    """Three failures each, and two good launches of 4,000 steps."""
    two = good([4000, 4000])

    def luck(*by_version: list[int]) -> float:
        return float(survival.chances_in_time(bad(*by_version), two)[1])

    assert max(luck([3], [5], [60]), luck([2000], [2000], [2000]), luck([3999, 3999], [3999]), luck([1, 1], [1])) < 1e-4
    assert luck([100], [3000, 3000]) < 0.004
    assert luck([600], [2000], [3500]) > 0.004
    assert luck([600, 2000, 3500]) > 0.004


def test_launches_that_ended_before_anything_failed_prove_nothing():
    late = bad([3000, 3010], [3005])
    assert survival.chance_of_luck(late, good([500])) > 0.99
    assert survival.chance_of_luck(late, good([4000])) < 0.01


def test_without_steps_the_share_of_launches_is_all_there_is():
    """A command counts no steps: nothing is known about when it failed."""
    assert survival.chance_of_luck([Evidence(bad=2)], [Evidence(good=1)]) == pytest.approx(0.0093, abs=0.001)
