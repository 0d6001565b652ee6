"""The exact test and the exact interval of failures agree with those of scipy.stats, which takes too long to import.

Each test imports scipy.stats when it runs, because every pytest process imports every file.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.judge.history.transitions import exact_interval, exact_p

LAUNCHES = st.integers(min_value=0, max_value=60)


@given(LAUNCHES, LAUNCHES, LAUNCHES, LAUNCHES)
def test_the_test_is_fisher_s(old_failed: int, old_fine: int, new_failed: int, new_fine: int) -> None:
    from scipy.stats import fisher_exact

    expected = float(fisher_exact([[old_failed, old_fine], [new_failed, new_fine]]).pvalue)
    assert exact_p((old_failed, old_fine), (new_failed, new_fine)) == pytest.approx(expected, rel=1e-6, abs=1e-12)


@given(st.integers(min_value=1, max_value=1000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_the_interval_is_clopper_and_pearson_s(failed_of: tuple[int, int]) -> None:
    from scipy.stats import binomtest

    failed, trials = failed_of
    expected = binomtest(failed, trials).proportion_ci(confidence_level=0.95, method="exact")
    assert exact_interval(failed, trials) == pytest.approx((expected.low, expected.high), rel=1e-6, abs=1e-12)
