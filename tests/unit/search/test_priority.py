"""Which row is launched next: what a user who stops early would not have been told."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from harness.schedule.priority import NEAR, ORDER, RowState, Standing, choose, in_order

STANDINGS = st.builds(
    Standing, suspect=st.booleans(), confirmed=st.booleans(), nearness=st.floats(0, 3, allow_nan=False)
)
STATES = st.builds(
    RowState, group=st.integers(0, 2), finishes=st.booleans(), first=st.booleans(), confirms=st.booleans(),
    rounds=st.integers(0, 9), standing=STANDINGS,
)  # fmt: skip
ROWS = st.lists(STATES, min_size=1, max_size=12)


@given(ROWS)
def test_a_row_of_the_first_group_is_chosen_and_none_of_it_is_more_urgent(rows: list[RowState]) -> None:
    choice = choose(rows)
    assert choice is not None
    chosen = rows[choice.place]
    same = [row for row in rows if row.group == chosen.group]
    assert chosen.group == min(row.group for row in rows)
    assert all(ORDER.index(chosen.urgency) <= ORDER.index(row.urgency) for row in same)
    assert choice.urgency == chosen.urgency
    assert choice.reason


@given(ROWS)
def test_what_is_chosen_does_not_depend_on_the_rows_behind_it(rows: list[RowState]) -> None:
    """A user who leaves out a row that would come later gets the same launches first."""
    order = in_order(rows)
    assert sorted(order) == list(range(len(rows)))
    first = choose(rows)
    assert first is not None
    assert order[0] == first.place
    kept = [rows[place] for place in sorted(order[: max(1, len(order) // 2)])]
    again = choose(kept)
    assert again is not None
    assert kept[again.place] == rows[first.place]


@given(ROWS)
def test_no_row_gets_a_second_round_before_every_row_had_its_first(rows: list[RowState]) -> None:
    """A user who stops after an hour has seen every row once, not one row eight times."""
    plain = [replace(row, group=0, finishes=False) for row in rows]
    choice = choose(plain)
    assert choice is not None
    assert plain[choice.place].first or not any(row.first for row in plain)


@given(ROWS)
def test_nothing_good_is_launched_again_while_something_bad_waits_to_be_confirmed(rows: list[RowState]) -> None:
    later = [replace(row, group=0, finishes=False, first=False) for row in rows]
    choice = choose(later)
    assert choice is not None
    waits = any(row.confirms or row.standing.suspect for row in later)
    assert (choice.urgency == "confirm") == waits


@given(st.lists(st.floats(NEAR, 3), min_size=1, max_size=9))
def test_of_rows_that_are_near_a_limit_the_nearest_comes_first(shares: list[float]) -> None:
    choice = choose([RowState(standing=Standing(nearness=share)) for share in shares])
    assert choice is not None
    assert shares[choice.place] == max(shares)


@given(st.lists(st.integers(0, 9), min_size=1, max_size=9))
def test_rows_that_are_plainly_good_go_on_evenly(rounds: list[int]) -> None:
    choice = choose([RowState(rounds=number) for number in rounds])
    assert choice is not None
    assert rounds[choice.place] == min(rounds)


def test_there_is_nothing_to_choose_of_no_rows() -> None:
    assert choose([]) is None
