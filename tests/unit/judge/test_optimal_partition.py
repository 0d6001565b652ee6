"""The segments found are optimal: every other split is worse."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.judge.history.changepoints import likeliest_bounds
from harness.model import Floats
from tests.nightly import many

series = st.lists(st.floats(-3, 3), min_size=1, max_size=7).map(np.array)


def left(means: Floats) -> float:
    return float(((means - means.mean()) ** 2).sum())


@given(series, st.floats(0.1, 3), st.floats(0.1, 10))
@settings(max_examples=many(24, 600))
def test_no_other_split_is_better(means, variance, penalty):
    """A change that is missed at this point is never found again."""

    def cost(bounds: tuple[int, ...]) -> float:
        parts = itertools.pairwise((0, *bounds, len(means)))
        return sum(left(means[begin:end]) / variance + penalty for begin, end in parts)

    found = likeliest_bounds(means, variance=variance, penalty=penalty)
    every = [
        cost(bounds)
        for count in range(len(means))
        for bounds in itertools.combinations(range(1, len(means)), count)
    ]  # fmt: skip
    assert cost(tuple(found)) == pytest.approx(min(every), abs=1e-6)
