"""Figures of any size, as a copied file or an image may contain them."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from harness.model import ratio_of, share_of


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_no_figure_ends_the_judgement_with_an_overflow(log: float) -> None:
    assert 0 < ratio_of(log) < math.inf
    assert -1 <= share_of(log) < math.inf


@given(st.floats(min_value=-600, max_value=600))
def test_a_ratio_is_told_as_it_is(log: float) -> None:
    assert math.isclose(math.log(ratio_of(log)), log, abs_tol=1e-9)
    assert share_of(log) == math.expm1(log)
