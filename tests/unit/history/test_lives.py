"""The life of findings: no user is told that an existing fault is gone, or that a fixed fault exists."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from harness.history.conclusions import lives_of
from harness.history.records import FindingLife, Measurement, SeenFinding
from harness.model import CellVerdict, SignalVerdict
from harness.model.judged import SignalState

VERSIONS = [f"1.{number}" for number in range(12)]
Run = tuple[list[Measurement], tuple[SeenFinding, ...]]


def finding(run: int, before: str | None, after: str, kind: str = "first_bad") -> SeenFinding:
    return SeenFinding(run=f"{run}", number=1, metric="memory", kind=kind, before=before, after=after)  # type: ignore[arg-type]


def run(number: int, *findings: SeenFinding, states: Mapping[str, SignalState] | None = None) -> Run:
    """Return a run with its findings; it measured 1.11, and the versions in `states`."""
    known: Mapping[str, SignalState] = {"1.11": "blind", **(states or {})}
    cells = [
        Measurement(
            history=1, run=f"{number}", started="", version=version, digest=None, first_launch=None, taken_over=0,
            state="good",
            verdict=CellVerdict(verdicts=("flat",), why="", signals={"memory": SignalVerdict(seen=state)}),
        )
        for version, state in known.items()
    ]  # fmt: skip
    return cells, findings


def lives(*runs: Run) -> list[FindingLife]:
    measured = [cell for cells, _ in runs for cell in cells]
    return list(lives_of(measured, [one for _, findings in runs for one in findings], VERSIONS))


def test_two_runs_that_see_one_leak_tell_of_one() -> None:
    (life,) = lives(run(1, finding(1, "1.2", "1.5")), run(2, finding(2, "1.3", "1.4")))
    assert (life.begins.before, life.begins.after, life.found, life.seen) == ("1.3", "1.4", "1", "2")


def test_a_run_that_begins_bad_sees_what_is_open() -> None:
    """A watch runs only the last known image, which is bad, and a new one."""
    (life,) = lives(run(1, finding(1, "1.2", "1.3")), run(2, finding(2, None, "1.5", "bad_from_start")))
    assert (life.begins.after, life.status, life.seen) == ("1.3", "open", "2")


def test_what_comes_back_after_it_was_fixed_is_another_one() -> None:
    first, second = lives(
        run(1, finding(1, "1.2", "1.3")),
        run(2, finding(2, "1.3", "1.4", "first_fixed")),
        run(3, finding(3, "1.5", "1.6")),
    )
    assert (first.status, second.status, second.begins.after) == ("fixed", "open", "1.6")


def test_a_later_sweep_of_all_versions_opens_nothing_again() -> None:
    (life,) = lives(
        run(1, finding(1, "1.2", "1.3"), finding(1, "1.4", "1.5", "first_fixed")),
        run(2, finding(2, "1.2", "1.3"), finding(2, "1.4", "1.5", "first_fixed")),
    )
    assert (life.status, life.found, life.closed, life.seen) == ("fixed", "1", "1", "2")


def test_what_both_sides_deny_is_not_seen_again() -> None:
    (life,) = lives(run(1, finding(1, "1.2", "1.3")), run(2, states={"1.2": "good", "1.3": "good"}))
    assert (life.status, life.seen, life.closed) == ("not seen again", "1", "2")


def test_a_run_of_one_side_closes_nothing() -> None:
    (life,) = lives(run(1, finding(1, "1.2", "1.3")), run(2, states={"1.2": "good", "1.3": "blind"}))
    assert life.status == "open"
    (life,) = lives(run(1, finding(1, "1.2", "1.3")), run(2, states={"1.3": "good", "1.4": "good"}))
    assert life.status == "open"


def test_a_finding_that_is_found_again_is_open_again() -> None:
    (life,) = lives(
        run(1, finding(1, "1.2", "1.3")),
        run(2, states={"1.2": "good", "1.3": "good"}),
        run(3, finding(3, "1.2", "1.3")),
    )
    assert (life.status, life.closed) == ("open", None)


def test_a_leak_that_gets_worse_is_two() -> None:
    both = run(1, finding(1, "1.2", "1.3"), finding(1, "1.5", "1.6", "worse"))
    fixed = run(2, finding(2, "1.8", "1.9", "first_fixed"))
    assert [life.status for life in lives(both, fixed)] == ["fixed", "fixed"]


@given(
    st.lists(st.tuples(st.integers(0, 10), st.sampled_from(["first_bad", "first_fixed", "bad_from_start", "worse"])))
)
def test_every_beginning_is_in_a_life(told: list[tuple[int, str]]) -> None:
    """A finding without a life would not be shown to anyone."""
    runs = [
        run(number, finding(number, None if kind == "bad_from_start" else f"1.{at}", f"1.{at + 1}", kind))
        for number, (at, kind) in enumerate(told, start=1)
    ]
    found = lives(*runs)
    begun = [one for _, findings in runs for one in findings if one.kind != "first_fixed"]
    assert bool(found) == bool(begun)
    for one in begun:
        assert any(int(life.found) <= int(one.run) <= int(life.seen) for life in found)
    for life in found:
        assert (life.status == "fixed") == (life.ends is not None)
