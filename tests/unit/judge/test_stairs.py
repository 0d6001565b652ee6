"""Levels that rise in steps below the limit, and levels of which a later version repairs a part."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.judge.history.changepoints import exact_levels, find_levels, lay_out
from harness.judge.history.changes import level_changes

LIMIT = float(np.log(1.1))
Told = list[tuple[str, int | None, int]]


def told(percents: list[float], *, baseline: int | None = None, noise: float = 0.005, seed: int = 0) -> Told:
    """Return the findings on versions whose steps take longer by these shares, in per cent; without noise, exactly."""
    logs = np.log1p(np.array(percents) / 100)
    table = logs + np.random.default_rng(seed).normal(0, noise, (5, len(logs)))
    levels = find_levels(lay_out(table), least=LIMIT, alpha=0.005) if noise else exact_levels(logs)
    if not levels.shifts:
        return []
    found = level_changes("step_time", range(len(logs)), levels, least=LIMIT, baseline=baseline)
    return [(change.kind, change.before, change.after) for _, change in found]


@pytest.mark.parametrize(
    ("percents", "found"),
    [
        ([0, 5, 9, 14], [("drift", 0, 3)]),
        ([0, 6, 12], [("drift", 0, 2)]),
        ([0, 0, 5, 5, 9, 9, 14, 14], [("drift", 1, 6)]),
        ([0, 0, 15, 13, 7, 7, 7, 7], [("first_bad", 1, 2), ("first_fixed", 3, 4)]),
        ([0, 0, 15, 13], [("first_bad", 1, 2)]),
        ([0, 0, 30, 30, 12, 12], [("first_bad", 1, 2)]),  # most of it is repaired, but not enough
        ([0, 0, 20, 20, 40, 40], [("first_bad", 1, 2), ("worse", 3, 4)]),
        ([0, 12, 9, 12, 9], [("first_bad", 0, 1)]),  # about the limit
        ([20, 0, 0, 15], [("first_bad", 2, 3)]),  # worse than the version before
        ([0, 0, 5, 5, 0, 0], []),
    ],
)
@pytest.mark.parametrize("seed", range(3))
def test_each_level_is_compared_with_the_oldest_and_with_the_one_before(
    percents: list[float], found: Told, seed: int
) -> None:
    """A history that was 15 % slower in the end was good with all ticks: each of its levels became the next reference.
    One that was slower by 15 % with p = 1e-30 was good because a later version repaired a part of it.
    """
    assert told(percents, seed=seed) == found


def test_a_baseline_is_compared_as_it_was_measured() -> None:
    assert told([0, 0, 15, 13, 7, 7, 7, 7], baseline=0) == [("first_bad", 1, 2), ("first_fixed", 3, 4)]
    assert told([0, 5, 9, 14], baseline=0) == [("drift", 0, 3)]


levels = st.lists(st.integers(-20, 40), min_size=2, max_size=9)


@given(levels, levels)
def test_a_newer_version_changes_nothing_about_the_older_ones(older: list[float], newer: list[float]) -> None:
    alone = told(older, noise=0)
    assert told([*older, *newer], noise=0)[: len(alone)] == alone


@given(levels, st.data())
def test_an_equal_version_next_to_another_one_changes_no_other(percents: list[float], data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(percents) - 1))
    twice = [*percents[: place + 1], *percents[place:]]
    kinds = [(kind, percents[after]) for kind, _, after in told(percents, noise=0)]
    assert [(kind, twice[after]) for kind, _, after in told(twice, noise=0)] == kinds
