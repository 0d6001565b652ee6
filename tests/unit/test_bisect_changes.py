"""Results of a search become findings, which are never narrower than what the search is sure of."""

from __future__ import annotations

import math

from harness.judge.next.bisect_records import Boundary, Rules
from harness.judge.next.bisection import with_boundaries
from harness.model import CellVerdict, Change, SignalVerdict

CELLS = [
    CellVerdict(
        verdicts=("flat",), why="", trials=3, signals={"peak_memory": SignalVerdict(seen="good", value=102_400.0)}
    )
] * 6
CRASH = Change(metric="outcome", kind="first_bad", before=2, after=3, p=0.1, verdict="crash")
FIXED = Change(metric="outcome", kind="first_fixed", before=3, after=4, p=0.1, verdict="crash")

LIMIT = math.log(1.1)
RULES = Rules(step_limit=LIMIT)


def outcome(before: int | None, after: int, *, worse: bool = True, confirmed: bool = True) -> Boundary:
    between = tuple(range(0 if before is None else before + 1, after))
    return Boundary(metric="outcome", before=before, after=after, worse=worse, between=between, confirmed=confirmed)


def found(*changes: Change, boundaries: list[Boundary], rules: Rules = RULES) -> list[tuple]:
    told = with_boundaries(changes, boundaries, cells=CELLS, rules=rules)
    return [(change.metric, change.kind, change.before, change.after) for change in told]


def test_a_change_is_as_wide_as_the_search_says() -> None:
    assert found(CRASH, boundaries=[outcome(1, 3)]) == [("outcome", "first_bad", 1, 3)]
    assert found(CRASH, boundaries=[outcome(2, 3)]) == [("outcome", "first_bad", 2, 3)]


def test_where_no_version_is_surely_good_none_is_called_the_last_good_one() -> None:
    """A rare failure may be older than all launched versions: an interval would not contain the truth."""
    (change,) = with_boundaries([CRASH], [outcome(None, 3, confirmed=False)], cells=CELLS, rules=RULES)
    assert (change.kind, change.before, change.after) == ("bad_from_start", None, 3)
    assert change.untestable == (0, 1, 2)


def test_a_fix_that_may_be_luck_is_none() -> None:
    assert found(FIXED, boundaries=[outcome(3, 4, worse=False, confirmed=False)]) == []
    assert found(FIXED, boundaries=[outcome(3, 4, worse=False)]) == [("outcome", "first_fixed", 3, 4)]


def test_a_series_that_begins_slower_than_its_baseline_is_bad() -> None:
    """Only the improvement was reported, and a run with nothing but an improvement exits with 0."""
    faster = Boundary(metric="step_time", before=2, after=3, worse=False, size=-math.log(1.5), p=1e-6)
    rules = Rules(step_limit=LIMIT, baseline=5)
    told = [("step_time", "bad_from_start", None, 0), ("step_time", "first_fixed", 2, 3)]
    assert found(boundaries=[faster], rules=rules) == told
    (begins, _) = with_boundaries([], [faster], cells=CELLS, rules=rules)
    assert begins.effect is not None
    assert math.isclose(begins.effect.value, 1.5)


def test_a_baseline_that_could_not_run_says_nothing() -> None:
    """Its level is unknown, and no version may be called bad by a guess."""
    cells = [*CELLS[:5], CellVerdict(verdicts=("untested",), why="", trials=0)]
    faster = Boundary(metric="step_time", before=2, after=3, worse=False, size=-math.log(1.5), p=1e-6)
    assert with_boundaries([], [faster], cells=cells, rules=Rules(step_limit=LIMIT, baseline=5)) == ()
