"""Which row is launched next: otherwise a user who stops early would miss the most important result."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from harness.model import Asked, Proposal, RowRun, RowStanding, Trace, Trial, Urgency
from harness.model.launched import NEAR
from harness.schedule import COSTLY, ORDER, REASONS, choose, expected_s, gives_way, rank, spent_s
from tests.players.searching import a_row

STATES = st.builds(
    RowStanding, suspect=st.booleans(), confirmed=st.booleans(), nearness=st.floats(0, 3, allow_nan=False),
    group=st.integers(0, 2), finishes=st.booleans(), first=st.booleans(), confirms=st.booleans(),
    launches=st.integers(0, 9), next_s=st.none() | st.floats(0, 1e3), spent_s=st.floats(0, 1e3),
)  # fmt: skip
ROWS = st.lists(STATES, min_size=1, max_size=12)


def seconds(row: RowStanding) -> float:
    had_s = row.spent_s if row.urgency == "confirm" and not row.confirms else 0.0
    return had_s + (row.next_s or 0.0)


@given(ROWS)
@example([RowStanding(), RowStanding(next_s=1.0, nearness=1.0)])
def test_a_row_of_the_first_group_is_chosen_and_none_of_it_is_more_urgent(rows: list[RowStanding]) -> None:
    choice = choose(rows)
    assert choice is not None
    chosen = rows[choice]
    same = [row for row in rows if row.group == chosen.group]
    assert chosen.group == min(row.group for row in rows)
    sharing: list[set[Urgency]] = [{"first", "confirm"}, {"near", "good"}]  # the seconds that come next decide
    assert all(
        ORDER.index(chosen.urgency) <= ORDER.index(row.urgency) or {chosen.urgency, row.urgency} in sharing
        for row in same
    )
    assert REASONS[chosen.urgency]


@given(ROWS)
def test_what_is_chosen_does_not_depend_on_the_rows_behind_it(rows: list[RowStanding]) -> None:
    """A user who leaves out a row that would come later gets the same launches first."""
    order = sorted(range(len(rows)), key=lambda place: rank(rows[place]))
    assert sorted(order) == list(range(len(rows)))
    first = choose(rows)
    assert first is not None
    assert order[0] == first
    kept = [rows[place] for place in sorted(order[: max(1, len(order) // 2)])]
    again = choose(kept)
    assert again is not None
    assert kept[again] == rows[first]


@given(ROWS)
def test_only_a_cheap_confirmation_comes_before_the_first_round_of_another_row(rows: list[RowStanding]) -> None:
    """A user who stops after an hour has seen every row once, not one row eight times."""
    plain = [replace(row, group=0, finishes=False) for row in rows]
    choice = choose(plain)
    assert choice is not None
    chosen = plain[choice]
    first_s = [seconds(row) for row in plain if row.urgency == "first"]
    assert chosen.urgency == "first" or not first_s or seconds(chosen) <= min(first_s)
    assert chosen.urgency in ("first", "confirm") or not first_s


@given(ROWS)
def test_nothing_good_is_launched_again_while_something_bad_waits_to_be_confirmed(rows: list[RowStanding]) -> None:
    later = [replace(row, group=0, finishes=False, first=False) for row in rows]
    choice = choose(later)
    assert choice is not None
    waits = any(row.confirms or row.suspect for row in later)
    assert (later[choice].urgency == "confirm") == waits


@given(st.lists(st.floats(NEAR, 3), min_size=1, max_size=9))
def test_of_rows_that_are_near_a_limit_the_nearest_comes_first(shares: list[float]) -> None:
    choice = choose([RowStanding(nearness=share) for share in shares])
    assert choice is not None
    assert shares[choice] == max(shares)


@given(st.lists(st.floats(0.1, 100), min_size=1, max_size=9), st.booleans())
def test_of_rows_that_are_good_the_cheapest_is_ended_first(costs: list[float], near: bool) -> None:
    """In turns, all rows would end late: a row that takes 10 s would wait for a row that takes an hour."""
    nearness = 1.0 if near else 0.0
    choice = choose([RowStanding(next_s=cost, spent_s=100 - cost, nearness=nearness) for cost in costs])
    assert choice is not None
    assert costs[choice] == min(costs)


def test_a_cheap_row_is_confirmed_before_a_costly_one_has_its_first_or_next_round() -> None:
    """A leak that is plain after 9 s would be named after 9 minutes."""
    cheap = RowStanding(spent_s=6, next_s=3, launches=2, suspect=True)
    first, again = (
        RowStanding(first=True, launches=6),
        RowStanding(spent_s=90, next_s=200, suspect=True),
    )
    assert cheap.urgency == "confirm"
    assert choose([first, again, cheap], launch_s=10) == 2
    dearer = replace(cheap, spent_s=600, confirms=True)
    assert choose([first, again, dearer], launch_s=10) == 2, "two launches more, and it is named"
    assert choose([first, again, cheap], launch_s=0) == 0


@given(st.lists(st.floats(0.1, 100), min_size=1, max_size=6))
def test_no_row_that_looks_bad_waits_for_ever_while_others_go_on(costs: list[float]) -> None:
    """A costly row that never has its turn would end as "not confirmed", after days."""
    states = [RowStanding(next_s=cost, suspect=True) for cost in costs]
    had = [0] * len(states)
    while not all(had):
        choice = choose(states)
        assert choice is not None
        row, cost = states[choice], costs[choice]
        had[choice] += 1
        states[choice] = replace(row, spent_s=row.spent_s + cost)
        assert all(state.spent_s <= max(costs) + 1e-6 for state in states)


@given(ROWS, STATES)
def test_a_costly_first_round_waits_for_what_is_far_cheaper_and_as_urgent(
    rows: list[RowStanding], row: RowStanding
) -> None:
    """The first launch of one row took 20 s, and eleven rows of a second each waited for its other six."""
    first = replace(row, first=True, finishes=False, next_s=60.0)
    if gives_way(first, rows, launch_s=1.0):
        choice = choose(rows, launch_s=1.0)
        assert choice is not None
        assert rows[choice].urgency in ("first", "confirm")
        assert rows[choice].takes_s(1.0) <= 60.0 / COSTLY
    assert not gives_way(first, [], launch_s=1.0)
    cheap = RowStanding(group=row.group, first=True, launches=5)
    assert gives_way(first, [cheap], launch_s=1.0)
    assert not gives_way(first, [replace(cheap, group=row.group + 1)], launch_s=1.0)
    assert not gives_way(first, [replace(cheap, launches=16)], launch_s=1.0)
    assert not gives_way(first, [RowStanding(next_s=1.0)], launch_s=1.0)  # what is good so far can wait


def test_there_is_nothing_to_choose_of_no_rows() -> None:
    assert choose([]) is None


# ---------------------------------------------------------------- what launches will cost


def trial(steps: int, *, step_s: float, end: str = "stopped") -> Trial:
    trace = Trace(step=np.arange(1.0, steps + 1), columns={"step_s": np.full(steps, step_s)}, looks=())
    return Trial(
        cell_id="c", number=1, key="k", end=end, asked=Asked(steps=4000), last_step=steps, trace=trace,
        duration_s=2 + steps * step_s,
    )  # fmt: skip


def launched(*trials: Trial) -> RowRun:
    made = a_row("a", 3)
    made.cells[0].trials.extend(trials)
    return made


def test_nothing_is_known_of_a_row_before_its_first_launch() -> None:
    made = launched()
    assert expected_s(Proposal(kind="round", runs=made.cells), made.cells) is None
    assert spent_s(made.cells) == 0


@pytest.mark.parametrize(
    ("trials", "depth", "expected"),
    [
        ((trial(500, step_s=0.01),), "brief", 7),
        ((trial(500, step_s=0.01),), "usual", 42),  # the second launch runs the whole budget
        ((trial(500, step_s=0.01), trial(4000, step_s=0.01, end="completed")), "usual", 7),
        ((trial(10, step_s=0.01, end="crash"),), "usual", 2.1),  # a version that crashes does so again
    ],
)
def test_a_launch_takes_what_it_took_before_and_the_whole_budget_if_it_has_to(trials, depth, expected) -> None:
    made = launched(*trials)
    assert expected_s(Proposal(kind="round", runs=made.cells, depth=depth), made.cells) == pytest.approx(expected)
    assert spent_s(made.cells) == pytest.approx(sum(each.duration_s for each in trials))


def test_a_version_that_had_no_launch_takes_as_long_as_the_others() -> None:
    made, other = launched(trial(500, step_s=0.01)), launched()
    assert expected_s(Proposal(kind="round", runs=other.cells), [*made.cells, *other.cells]) == pytest.approx(7)
