"""The segments found are optimal: every other split is worse."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.judge.history.changepoints.optimal_partition import FEWEST_ON_A_LINE, pieces
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

    found = pieces(means, variance=variance, penalty=penalty)
    every = [
        cost(bounds)
        for count in range(len(means))
        for bounds in itertools.combinations(range(1, len(means)), count)
    ]  # fmt: skip
    assert cost(tuple(piece.begin for piece in found[1:])) == pytest.approx(min(every), abs=1e-6)
    assert [piece.begin for piece in found] == [0, *(piece.end for piece in found[:-1])]


@given(st.floats(-1, 1), st.integers(FEWEST_ON_A_LINE, 30), st.floats(-1e3, 1e3))
def test_a_line_is_found_whatever_its_offset(slope, count, offset):
    """Sums that cancel would find lines where there are none, and miss real ones."""
    means = offset + slope * np.arange(count)
    (found,) = pieces(means, variance=1e-3, penalty=1e9, line_penalty=1.0)
    assert found.line
    assert (found.first, found.last) == pytest.approx((means[0], means[-1]), abs=1e-6)


def test_without_a_price_for_lines_there_are_none():
    assert not any(piece.line for piece in pieces(np.arange(20.0), variance=0.1, penalty=5))
