"""Flaky failures, if every version is launched."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.judge.cell import fails_late, judge_cell, wants_more
from harness.judge.comparable import whole_run
from harness.judge.comparison.compared_levels import Compared
from harness.judge.history.changes import find_changes
from harness.judge.history.flaky import outliving
from harness.judge.history.transitions import outcome_changes, wants_launches
from harness.judge.launches import always_fails, rarest_failure
from harness.judge.next.bisect_records import Rules
from harness.model import Change, Failure, Trial, Trials
from harness.model.measured import Facts
from tests.nightly import many
from tests.players.trials import LIMITS, STEPS, cell, cell_of, changes, failed, more_launches, named, trial_of


def test_good_launches_between_two_bad_versions_may_be_luck():
    """A failure of every second launch must not be reported as fixed and back again."""
    half, lucky = cell("crash", trials=4, failed=2), cell("flat", trials=4)
    found = changes([cell("flat", trials=30), half, lucky, half, half])
    assert named(found) == [("outcome", "first_bad", 0, 1)]
    assert set(more_launches(cell("flat", trials=30), half, lucky, half, half)) == {2}


def test_a_version_whose_launches_all_failed_is_seen_beside_the_others():
    """Three of three may be bad luck if the other versions fail in half of their launches: three good launches next to
    it prove nothing.
    """
    always, half, few = cell("crash", failed=3), cell("crash", trials=8, failed=4), cell("flat", trials=3)
    (found,) = [one for one in changes([cell("flat", trials=30), few, always, half, half]) if one.metric == "outcome"]
    assert (found.before, found.after, found.between) == (0, 2, (1,))


def test_a_doubtful_neighbour_counts_in_the_significance_of_a_failure():
    """A crash in 12 of 21 launches was confirmed with "p = 0.652": only the 3 good ones of the oldest version counted,
    not the 8 of the next, in which it may have begun."""
    half = cell("crash", trials=7, failed=4)
    (found,) = changes([cell("flat", trials=3), cell("flat", trials=8), half, half, half])
    assert (found.before, found.after, found.between) == (0, 2, (1,))
    assert found.p is not None
    assert found.p < 0.01


def test_launches_of_an_untested_version_are_not_good_launches():
    """A bad version with such good launches would seem flaky, and the fix would not be proven."""
    few, untested = cell("flat", trials=3), cell("untested", trials=3)
    found = changes([few, untested, cell("crash", failed=3), few])
    assert named(found) == [("outcome", "first_bad", 0, 2), ("outcome", "first_fixed", 2, 3)]


def test_a_version_of_which_three_launches_failed_is_launched_once_more():
    """If every fifth launch fails, one version in 125 fails three of three: the next version would
    be called its fix.
    """
    few, three = cell("flat", trials=3), cell("crash", failed=3)
    assert set(more_launches(few, three, few)) == {1}
    assert more_launches(few, cell("crash", trials=4, failed=4), few) == {}
    assert more_launches(three) == {}


def exit_codes(rng: random.Random, *, first_bad: int, rate: float, versions: int = 8) -> list[list[Trial]]:
    """Return launches in rounds, with a flaky failure from `first_bad` on."""
    asked, launched = Trials(least=3, most=8), [list[Trial]() for _ in range(versions)]
    wanted = list(range(versions)) * asked.least
    while wanted:
        for place in wanted:
            bad = place >= first_bad and rng.random() < rate
            launched[place].append(failed(signal=None) if bad else trial_of(steps=64, end="completed"))
        cells = [judge_cell(each, limits=replace(LIMITS, exit_only=True), steps=STEPS) for each in launched]
        more = {
            place for place, each in enumerate(launched)
            if wants_more(each, trials_asked=asked, limits=replace(LIMITS, exit_only=True), steps=STEPS)
        }  # fmt: skip
        wanted = sorted(more | set(wants_launches(cells, launched, trials_asked=asked)))
    return launched


def test_a_failure_of_every_second_launch_names_no_wrong_version():
    """With plain majorities, a third of these histories named an innocent version, or a fix that does not exist."""
    right, wrong, count = 0, 0, many(20, 40)
    for seed in range(count):
        rng = random.Random(seed)
        first_bad = rng.randrange(1, 8)
        launched = exit_codes(rng, first_bad=first_bad, rate=0.5)
        cells = [judge_cell(each, limits=replace(LIMITS, exit_only=True), steps=STEPS) for each in launched]
        for one in find_changes(
            Compared(cells=cells, trials=launched, steps=STEPS, limits=replace(LIMITS, exit_only=True))
        ):
            held = one.kind == "first_bad" and one.before is not None and one.before < first_bad <= one.after
            right += held
            wrong += not held and one.kind != "bad_from_start"
    assert right >= count * 25 / 40
    assert wrong <= count * 2 / 40


# ---------------------------------------------------------------- launches that stopped before a failure could come


def launch(number: int, *, steps: int, fails: bool = False) -> Trial:
    """Return a launch that failed after this many steps, or went well; a quiet launch stops at a look."""
    end = "crash" if fails else "completed" if steps >= STEPS.budget else "stopped"
    signal = 11 if fails else None
    return Trial(cell_id="made", number=number, key="made", end=end, failure=Failure(signal=signal), last_step=steps)


def bad(*after: int) -> list[Trial]:
    return [launch(number, steps=steps, fails=True) for number, steps in enumerate(after)]


def good(*steps: int) -> list[Trial]:
    return [launch(number, steps=each) for number, each in enumerate(steps)]


def found_in(*versions: list[Trial]) -> tuple[Change[int], ...]:
    return outcome_changes([cell_of(each) for each in versions], versions, baseline=None)


def wanted_in(*versions: list[Trial]) -> dict[int, str]:
    asked = Trials(least=3, most=8)
    return dict(wants_launches([cell_of(each) for each in versions], versions, trials_asked=asked))


def test_launches_that_stopped_before_others_failed_accuse_nobody():
    """Versions fail at step 3,000: seven launches of the version before stopped at 500, and it was called good."""
    whole, short = good(4000, 4000, 4000), good(4000, *[500] * 7)
    (found,) = found_in(whole, short, bad(3000, 2900, 3100), bad(2950, 3050, 2990))
    assert (found.before, found.after, found.between) == (0, 2, (1,))
    (named,) = found_in(whole, good(4000, 4000, 4000), bad(3000, 2900, 3100), bad(2950, 3050, 2990))
    assert (named.before, named.after) == (1, 2)


def test_launches_that_outlived_every_failure_count_whole():
    (found,) = found_in(good(4000, 500, 500), bad(40, 499, 60))
    assert (found.before, found.after) == (0, 1)
    (later,) = found_in(good(4000, 500, 500), bad(40, 500, 60))
    assert (later.before, later.between) == (None, (0,))


def test_versions_whose_launches_stopped_too_early_get_more():
    """Eight launches that always stop at 500 steps settle nothing, and no whole launch was requested."""
    failing = bad(3000, 2900, 3100), bad(2950, 3050, 2990)
    wanted = wanted_in(good(4000, 4000, 4000), good(4000, 500, 500), *failing)
    assert wanted[1].startswith("there is a chance of ")
    assert wanted[1].endswith("a failure that occurred in 3 of 3 launches of a nearby version")
    assert wanted_in(good(4000, 4000, 4000), good(4000, 4000, 4000), *failing) == {}


quiet = st.lists(st.sampled_from([500, 1000, 2000, 4000]), min_size=3, max_size=8)
late = st.lists(st.integers(0, STEPS.budget - 1), min_size=3, max_size=8)


@given(quiet, late, st.lists(st.sampled_from([500, 1000, 2000]), max_size=5))
def test_a_launch_that_stopped_before_the_latest_failure_is_worth_nothing(steps, failures, more):
    """It does not make the p-value of a change smaller, either."""
    short = [each for each in more if each <= max(failures)]
    old, new = [4000, *steps], bad(*failures)
    first, second = found_in(good(*old), new), found_in(good(*old, *short), new)
    assert [(one.before, one.after, one.p) for one in first] == [(one.before, one.after, one.p) for one in second]


@given(quiet, st.lists(st.integers(0, 499), min_size=3, max_size=8))
def test_where_failures_come_before_the_first_look_all_launches_count(steps, failures):
    whole = [4000] * len(steps)
    assert found_in(good(4000, *steps), bad(*failures)) == found_in(good(4000, *whole), bad(*failures))
    assert not fails_late(bad(*failures), steps=STEPS)


@pytest.mark.parametrize("end", ["crash", "oom", "hang", "setup", "infrastructure", "stopped"])
def test_only_failures_of_the_image_ask_for_whole_launches(end):
    """A connection that was lost at step 3,000 makes no launch longer."""
    trial = Trial(cell_id="made", number=1, key="made", end=end, last_step=3000)
    assert fails_late([trial], steps=STEPS) == (end in ("crash", "oom", "hang"))


def test_a_launch_of_a_bad_version_that_was_stopped_before_the_failure_does_not_make_it_rare() -> None:
    """A crash at step 100 was reported as "from the start": the bad version's first launch had ended at step 64, and
    four good launches of the version before were then too few.
    """
    crashed = Trial(cell_id="c", number=1, key="k", end="crash", last_step=99)
    stopped = Trial(cell_id="c", number=2, key="k", end="stopped", last_step=64)
    whole = Trial(cell_id="c", number=3, key="k", end="completed", last_step=128)
    trials = [[stopped, whole, whole, whole], [stopped, crashed, crashed]]
    good, bad = outliving([False, True], [cell_of(each) for each in trials], trials)
    assert (good.at_risk, bad.at_risk, bad.failing) == (3, 2, 1.0)
    assert good.of("outcome").visible == rarest_failure(3), "a rarer failure was said to be ruled out by four launches"
    assert bad.why.startswith("crash in 2 of 2 launches")
    assert bad.of("outcome").value == 1.0
    at_exit = replace(crashed, last_step=64, failure=Failure(at_exit=True))
    assert cell_of([stopped, at_exit, at_exit]).failing == pytest.approx(2 / 3), "the same steps, without a failure"
    other_steps = whole_run(replace(stopped, facts=Facts(run_s=1.0)))
    trials = [[other_steps], [crashed, crashed]]
    good, _ = outliving([False, True], [cell_of(each) for each in trials], trials)
    assert good.at_risk == 1, "steps that are not compared leave out no whole run"


def test_a_third_launch_is_spared_only_where_every_failing_launch_failed_alike() -> None:
    """A version that crashes in every fifth launch may crash in two of two."""
    good, bad = [trial_of(number) for number in range(2)], [failed(number) for number in range(2)]
    assert always_fails([good, bad, bad]) == [False, True, True]
    assert always_fails([good, bad]) == [False, False], "two failures of one version may be chance"
    assert always_fails([good, bad, bad, [failed(0), trial_of(1)]]) == [False] * 4
    assert always_fails([bad, bad, [failed(0, signal=6)]]) == [False] * 3
    assert always_fails([[failed(0)], [failed(1)], bad]) == [False, False, True]


def _rows(*letters: str) -> list[list[Trial]]:
    """Return the launches of versions by letter: `g` ends well, `t` raises TypeError, `c` raises ConnectionError."""
    names = {"t": "TypeError", "c": "ConnectionError"}

    def launch(letter: str, number: int) -> Trial:
        if letter == "g":
            return trial_of(number)
        return replace(failed(number), message=f"{names[letter]}: it", failure=Failure())

    return [[launch(letter, number) for number, letter in enumerate(each, start=1)] for each in letters]


@pytest.mark.parametrize("flakes", [("gggg", "gggg"), ("cggg", "ggcg"), ("cggc", "gggg")])
def test_a_failure_of_all_versions_hides_no_failure_that_begins(flakes: tuple[str, str]) -> None:
    """A connection that fails now and then in every version made its searches end at a wrong version."""
    trials = _rows(*flakes, "gggg", "gcgg", "tttt", "ttct", "tttt", "tttt")
    found = outcome_changes([cell_of(each) for each in trials], trials, baseline=None)
    assert [(one.kind, one.before, one.after) for one in found] == [("first_bad", 3, 4)]


def test_a_failure_that_was_rare_before_begins_where_it_becomes_frequent() -> None:
    """The same crash, in one of eight launches of two old versions, was told as bad from the start."""
    trials = _rows("tggggggg", "gggg", "ggggtggg", "gggg", "tttt", "tttt", "tttt")
    found = outcome_changes([cell_of(each) for each in trials], trials, baseline=None)
    assert [(one.kind, one.before, one.after) for one in found] == [("first_bad", 3, 4)]
    assert found[0].effect is not None
    assert found[0].effect.value == 1.0


def test_a_few_launches_that_always_fail_stand_out_from_a_failure_that_was_rare_before() -> None:
    """Two of the eight launches of the oldest version failed in the same way, and it was told as bad from the start."""
    trials = _rows("ttgggggg", "gggg", "ttt", "ttt")
    found = outcome_changes([cell_of(each) for each in trials], trials, baseline=None)
    assert [(one.kind, one.before, one.after) for one in found] == [("first_bad", 1, 2)]


def test_versions_in_which_a_failure_may_still_be_rare_are_neither_good_nor_bad() -> None:
    """Four of sixteen launches crashed before the fifth version, and that was told as bad since the second one."""
    trials = _rows("gggg", "tggt", "gggt", "gtgg", "tttt", "tttt")
    (found,) = outcome_changes([cell_of(each) for each in trials], trials, baseline=None)
    assert (found.kind, found.before, found.after) == ("first_bad", 0, 5)


@pytest.mark.parametrize(("rows", "before"), [(("ttt", "ttt"), 1), (("tttt", "gttt"), 0)])
def test_a_rare_failure_of_another_kind_does_not_undo_the_good_versions(rows: tuple[str, str], before: int) -> None:
    """Two good versions lost a connection once, and there was nothing good to compare with."""
    trials = _rows("gcgg", "ggcg", *rows)
    (found,) = outcome_changes([cell_of(each) for each in trials], trials, baseline=None)
    assert (found.kind, found.before, found.after) == ("first_bad", before, 2)


def test_one_lost_connection_does_not_undo_the_versions_before_a_failure_that_may_have_begun() -> None:
    """A crash that comes seldom was told as bad from the start, because the oldest version lost a connection once."""
    trials = _rows("gggggggc", "gggggggg", "ggg", "ggggg", "tggg", "gtt")
    (found,) = outcome_changes([cell_of(each) for each in trials], trials, baseline=None)
    assert (found.kind, found.before, found.after) == ("first_bad", 0, 5)


def test_a_failure_that_comes_in_one_stretch_alone_is_found_with_few_launches() -> None:
    """A bisection beside versions that could not run found nothing: that the crash begins a version later, where one
    launch failed, was not ruled out."""
    trials = _rows("g", *[""] * 10, "g", "g", "gg", *[""] * 3, "ttt", *[""] * 5, "t")
    (found,) = outcome_changes([cell_of(each) for each in trials], trials, baseline=None, miss=Rules().alpha)
    assert (found.kind, found.before, found.after) == ("first_bad", 13, 17)


def test_two_failures_that_come_and_go_are_weighed_together() -> None:
    """Where none of them begins in a version, none is the noise of the other."""
    trials = _rows("tggg", "ggcg", "ttgg", "gggc")
    found = outcome_changes([cell_of(each) for each in trials], trials, baseline=None)
    assert [one.kind for one in found] == ["bad_from_start"]


def test_a_version_that_always_fails_is_not_told_to_fail_in_half_of_the_launches_of_the_next() -> None:
    """`crashes in 50 % of launches since a version after 2` stood above a table in which 4 crashed and 5 was good."""
    trials = _rows("gg", "gg", "gg", "tt", "gg")
    (found,) = outcome_changes([cell_of(each) for each in trials], trials, baseline=None)
    assert (found.kind, found.after) == ("first_bad", 3)
    assert found.effect is not None
    assert found.effect.value == 1.0


def test_the_share_of_failing_launches_is_that_of_all_versions_that_may_fail() -> None:
    """Two of eight launches failed, and 32 of newer versions did not: that was told as 25 % in every version since. If
    the older ones are not known to be good, it is told of that version alone, and so is its share."""
    newer = ["ttgggggg", *(["g" * 8] * 4)]
    for older, share in ((["g" * 8] * 3, 2 / 8), (["g" * 99] * 3, 2 / 40)):
        trials = _rows(*older, *newer)
        (found,) = outcome_changes([cell_of(each) for each in trials], trials, baseline=None)
        assert found.effect is not None
        assert found.effect.value == share


def test_a_version_that_always_fails_is_launched_until_it_stands_out_from_rare_failures() -> None:
    """A few launches that fail may be luck where older ones failed, too: without more, one in eleven such crashes was
    told as bad from the start."""
    rare = [*good(4000, 4000), *bad(4000)]
    assert set(wanted_in(rare, rare, bad(*[4000] * 4))) == {0, 1, 2}
