"""What is launched again immediately because it was bad once: neither too much, nor the wrong version."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.judge.next.rounds import to_confirm
from harness.model import CellVerdict, Trials, VerdictName

ASKED = Trials(least=3, most=8)


def cell(verdict: VerdictName, trials: int = 1, failed: int = 0) -> CellVerdict:
    return CellVerdict(verdicts=(verdict,), why="", trials=trials, failed=failed)


GOOD, ONCE, AGREED = cell("flat"), cell("suspect"), cell("leak", 2)


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        ([GOOD, GOOD, ONCE, ONCE], (1, 2)),
        ([GOOD, GOOD, AGREED, ONCE], (1,)),  # the good side has been launched once
        ([GOOD, cell("flat", 2), cell("crash", 2, failed=2)], (1,)),  # the good side may have been lucky
        ([GOOD, cell("flat", 3), cell("crash", 2, failed=2)], ()),
        ([GOOD, cell("flat", 2), AGREED, ONCE, ONCE], ()),  # later versions have the same fault, as far as is known
        ([ONCE, GOOD], (0,)),
        ([GOOD, cell("untested", 0), ONCE], (0, 2)),
        ([cell("flat", 2), AGREED, GOOD, ONCE], (2, 3)),  # the failure comes a second time
        ([GOOD, cell("inconclusive", 2, failed=1)], (0, 1)),
        ([GOOD, cell("inconclusive", 3, failed=1)], ()),  # flaky: rounds of all versions decide
        ([GOOD, GOOD], ()),
        ([], ()),
    ],
)
def test_the_last_good_and_the_first_bad_version_are_launched_again(
    cells: list[CellVerdict], expected: tuple[int, ...]
) -> None:
    assert to_confirm(cells, asked=ASKED) == expected


KINDS = st.sampled_from([GOOD, ONCE, AGREED, cell("flat", 2), cell("inconclusive"), cell("untested", 0)])


@given(st.lists(KINDS, max_size=12))
def test_the_bad_side_looks_bad_and_the_good_side_is_the_last_good_one_before_it(cells: list[CellVerdict]) -> None:
    """A version between them that looks good would be accused of a later fault."""
    sides = to_confirm(cells, asked=ASKED)
    if len(sides) == 2:
        good, bad = sides
        assert good < bad
        assert cells[good].verdict == "flat"
        assert all(one.verdict != "flat" for one in cells[good + 1 : bad])
    if len(sides) == 1 and cells[sides[0]].verdict == "flat":
        assert any(one.verdict == "leak" for one in cells[sides[0] + 1 :])
