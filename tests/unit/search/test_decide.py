"""The search: few launches, the right version, and never an endless search."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.judge.history.flaky import Evidence
from harness.judge.next.bisect_records import Expected, VersionEvidence, expected_launches
from harness.judge.next.bisection import rules_of, searched_changes
from harness.judge.next.decide import conclude, decide, not_needed
from harness.judge.next.rounds import to_confirm
from harness.model import CellVerdict, Change, End, Trial, Trials, VerdictName
from tests.players.searching import RULES, fresh, launched, launches, play, row, step_at
from tests.players.trials import row_run


def named(spots) -> list[tuple[int | None, int]]:
    return [(change.before, change.after) for change in conclude(spots, rules=RULES)]


@pytest.mark.parametrize("versions", [*range(2, 33), 63, 64])
def test_every_first_bad_version_is_named_within_the_bound(versions):
    """ceil(log2 N) + 4 launches, including both ends and the confirmation."""
    for first_bad in range(1, versions):
        spots, log = play(fresh(versions), step_at(first_bad))
        assert conclude(spots, rules=RULES) == (
            Change(metric="outcome", kind="first_bad", before=first_bad - 1, after=first_bad, confirmed=True),
        )
        assert launches(log) <= math.ceil(math.log2(versions)) + 4


@pytest.mark.parametrize("seed", range(20))
def test_the_bound_holds_for_long_histories(seed):
    rng = random.Random(seed)
    versions = rng.randrange(65, 1001)
    first_bad = rng.randrange(1, versions)
    spots, log = play(fresh(versions), step_at(first_bad))
    assert named(spots) == [(first_bad - 1, first_bad)]
    assert launches(log) <= math.ceil(math.log2(versions)) + 4


# ---------------------------------------------------------------- ends


def known(*said: str | None) -> list[VersionEvidence]:
    """Return one launch of each version, or none where the value is None."""
    return [VersionEvidence() if each is None else launched(VersionEvidence(), each) for each in said]


def test_both_ends_come_first_and_the_baseline_with_them():
    decision = decide(fresh(9), rules=replace(RULES, baseline=3))
    assert (decision.kind, decision.launch) == ("end", (0, 3, 8))


def test_an_end_that_cannot_be_asked_gives_way_to_its_neighbour():
    spots = fresh(6)
    spots[0] = spots[5] = VersionEvidence(testable=False)
    assert decide(spots, rules=RULES).launch == (1, 4)


def test_an_oldest_version_that_is_bad_is_an_answer():
    _, log = play(fresh(20), lambda place: "bad")
    assert log[-1].reason == "outcome: bad since before version 0"
    assert launches(log) == 4


def test_a_leak_seen_once_beside_noisy_versions_is_asked_again():
    """Noisy ends are neither good nor bad: without a change to confirm, the leak between them stayed a suspect."""
    noisy = VersionEvidence(launches=3, states={"outcome": Evidence(good=3), "memory": Evidence(unsure=3)})
    leaks = VersionEvidence(launches=1, states={"outcome": Evidence(good=1), "memory": Evidence(bad=1)})
    decision = decide([noisy, VersionEvidence(), leaks, VersionEvidence(), noisy], rules=RULES)
    assert (decision.kind, decision.launch) == ("confirm", (2,))
    leaks = VersionEvidence(launches=2, states={"outcome": Evidence(good=2), "memory": Evidence(bad=2)})
    assert decide([noisy, VersionEvidence(), leaks, VersionEvidence(), noisy], rules=RULES).kind == "done"


def test_two_good_ends_are_not_called_a_good_series():
    spots, log = play(fresh(20), lambda place: "bad" if 5 < place < 9 else "good")
    assert log[-1].reason == "both ends are good; only --search full would find a bad version between them"
    assert launches(log) == 2 * RULES.least
    assert conclude(spots, rules=RULES) == ()


def test_a_series_that_was_fixed_takes_one_launch_more():
    """The oldest version is accused, too, and therefore confirmed."""
    spots, log = play(fresh(32), lambda place: "bad" if place < 11 else "good")
    (found,) = conclude(spots, rules=RULES)
    assert (found.before, found.after, found.kind, found.confirmed) == (10, 11, "first_fixed", True)
    assert launches(log) <= math.ceil(math.log2(32)) + 5
    assert "bad since before version 0" in log[-1].reason


def test_nothing_to_ask():
    decision = decide([VersionEvidence(testable=False)] * 3, rules=RULES)
    assert (decision.launch, decision.kind, decision.reason) == ((), "done", "no version could be launched")
    assert decide([], rules=RULES).kind == "done"


# ---------------------------------------------------------------- halving


def test_an_image_at_hand_is_preferred_where_it_costs_nothing():
    """Among 20 positions, any split into at most 16 and 4 is as good in the worst case."""
    spots = known("good", *[None] * 19, "bad")
    assert decide(spots, rules=RULES).launch == (10,)
    spots[13] = VersionEvidence(at_hand=True)
    assert decide(spots, rules=RULES).launch == (13,)


def test_an_image_at_hand_is_not_preferred_where_it_costs_a_launch():
    """Among 16 positions, only the middle leaves 8."""
    spots = known("good", *[None] * 15, "bad")
    spots[5] = VersionEvidence(at_hand=True)
    assert decide(spots, rules=RULES).launch == (8,)


def test_what_earlier_runs_know_splits_the_history():
    """Bad, good and bad again: each change is searched for in its own range."""
    spots = known("good", None, None, "bad", None, None, "good", None, None, "bad")
    spots, log = play(spots, lambda place: "bad" if 2 <= place <= 4 or place >= 8 else "good")
    assert named(spots) == [(1, 2), (4, 5), (7, 8)]
    assert launches(log) <= 20


def test_a_gap_is_an_interval():
    spots, log = play(fresh(12), step_at(7, untestable=(5, 6, 7)))
    (found,) = conclude(spots, rules=RULES)
    assert (found.before, found.after, found.between) == (4, 8, (5, 6, 7))
    assert "lies between version 4 and version 8; unclear versions between them: 3" in log[-1].reason


@pytest.mark.parametrize("metric", ["memory", "slowdown"])
def test_another_metric_is_searched_alike(metric):
    usual, log = play(fresh(30), step_at(17))
    other, same = play(fresh(30), step_at(17), metric=metric)
    assert named(other) == named(usual)
    assert [each.launch for each in same] == [each.launch for each in log]


def test_a_leak_that_most_launches_deny_accuses_nobody():
    spots = known("good", None, "good")
    spots[2] = VersionEvidence(launches=3, states={"memory": Evidence(good=2, bad=1)})
    assert conclude(spots, rules=RULES) == ()


# ---------------------------------------------------------------- the rest


def test_versions_that_were_not_launched_say_why():
    spots, _ = play(fresh(9), step_at(4))
    told = not_needed(spots, rules=RULES)
    assert told[1] == "not needed: between version 0 and version 2, both good"
    assert told[7] == "not needed: between version 4 and version 8, both bad"


@pytest.mark.parametrize("versions", range(40))
@pytest.mark.parametrize("trials", [(1, 1), (3, 8), (5, 5), (8, 9)])
def test_what_is_expected_lies_between_the_least_and_the_most(versions, trials):
    """A dry run said "at least 10, about 7 expected"."""
    expected = expected_launches(versions, rules=replace(RULES, least=trials[0], most=trials[1]))
    assert expected.least <= expected.typical <= max(expected.most, expected.least)


def test_expected_launches():
    assert expected_launches(24, rules=RULES) == Expected(least=6, typical=9, most=192)
    assert expected_launches(1, rules=RULES) == Expected(least=3, typical=3, most=8)
    assert expected_launches(0, rules=RULES) == Expected(least=0, typical=0, most=0)


def test_versions_that_could_not_run_are_not_called_good_ends():
    """The newest versions fail in their setup: "both ends are good" let a reader believe that they work."""
    broken = VersionEvidence(testable=False)
    good = VersionEvidence(launches=3, states={"outcome": Evidence(good=3)})
    named = replace(good, name="1.0"), replace(good, name="1.1")

    between = decide([named[0], VersionEvidence(), named[1], broken], rules=RULES).reason
    assert between.startswith("1.0 and 1.1, the oldest and the newest version that could run, are good; only --search")
    assert decide([*named, broken], rules=RULES).reason.endswith("that could run, are good")
    assert decide([named[0], broken], rules=RULES).reason == "1.0, the only version that could run, is good"
    assert decide([*named], rules=RULES).reason == "both ends are good"


def test_an_end_that_cannot_be_told_is_not_called_good():
    """The newest version grows, and no launch shows whether it is a leak: "both ends are good" would be false."""
    _, log = play(fresh(6), lambda place: "unsure" if place == 5 else "good", metric="memory")
    assert "whether version 5 is good" in log[-1].reason
    spots = [
        VersionEvidence(launches=8, states={"outcome": Evidence(good=8), "memory": Evidence(good=8)}) for _ in range(3)
    ]
    spots[2] = VersionEvidence(launches=8, states={"outcome": Evidence(good=8), "memory": Evidence(unsure=8)})
    assert "whether version 2 is good" in decide(spots, rules=RULES).reason


# ---------------------------------------------------------------- what a search learns from trials


def trial(number: int, *, end: End, steps: int) -> Trial:
    return Trial(cell_id="c", number=number, key="k", end=end, round=number, last_step=steps)


def test_a_launch_that_stopped_because_it_was_quiet_is_good_for_the_steps_that_it_did() -> None:
    """Others crash at step 900: a version that stopped at 500 would be named the last good one, and the next one
    blamed.
    """
    runs = row(5)
    told: list[tuple[End, int]] = [
        ("completed", 1000),
        ("completed", 1000),
        ("stopped", 500),
        ("crash", 899),
        ("crash", 899),
    ]
    for run, (end, steps) in zip(runs, told, strict=True):
        run.trials.extend(trial(number, end=end, steps=steps) for number in range(2))
    searched = row_run(runs, asked=Trials(least=2, most=2))
    (found,) = searched_changes(searched, rules_of(searched))
    assert (found.before, found.between, found.after) == (1, (2,), 3)


def test_a_failure_that_the_baseline_has_too_is_not_bad_in_other_versions() -> None:
    """A search blamed a version that fails before its first step, as the baseline does."""
    runs = row(3, program=Path("s.py"))
    for run, steps in zip(runs, (0, 0, 1000), strict=True):
        run.trials.extend(trial(number, end="completed" if steps else "setup", steps=steps) for number in range(2))
    searched = row_run(runs, asked=Trials(least=2, most=2))
    searched.planned = replace(searched.planned, series=replace(searched.planned.series, baseline="0"))
    assert not searched_changes(searched, rules_of(searched))


# ---------------------------------------------------------------- what was bad once is launched again at once


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
