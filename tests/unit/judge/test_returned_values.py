"""Numbers that a scenario returns: an engineer learns of a NaN, a different checksum, or a loss that moved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain, pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.judge.history.returned_values import (
    NOISY_LIMIT,
    OTHER_RESULT,
    Values,
    differs_at_its_end,
    hides_a_change,
    judge_values,
)
from harness.judge.history.transitions import exact_interval, exact_p
from harness.judge.trace.samples import prefix
from harness.model import Facts, Limits, MetricLimit, Printed, Trial
from harness.model.measured import MOST_METRICS, REPLICATE
from tests.players.trials import STEPS, facts_of, trial_of

ROWS = 500


def returning(level: float, *, number: int, noise: float = 0.0, seed: int = 0, **more: Any) -> Trial:
    """Return a launch whose steps returned `loss`: a curve that is the same in all launches, or
    with independent noise.
    """
    trial = trial_of(number, steps=ROWS, seed=seed)
    assert trial.trace is not None
    curve = level * (1 + 0.5 / np.arange(1, ROWS + 1))
    rng = np.random.default_rng(1000 * seed + number)
    values = curve * (1 + noise * rng.normal(size=ROWS)) * (1 + noise * rng.normal())
    return replace(trial, trace=replace(trial.trace, columns={**trial.trace.columns, "loss": values}), **more)


def versions(levels: list[float], *, launches: int = 3, noise: float = 0.0) -> list[list[Trial]]:
    return [
        [returning(level, number=number, noise=noise, seed=place) for number in range(launches)]
        for place, level in enumerate(levels)
    ]


def judged(trials: list[list[Trial]], *limits: MetricLimit) -> Values:
    return judge_values(trials, limits=Limits(metrics=limits), steps=STEPS)["metrics.loss"]


def kinds(found: Values) -> list[tuple[str, int | None, int]]:
    return [(change.kind, change.before, change.after) for change in found.changes]


def limit(rule: Any, share: float = 0.0) -> MetricLimit:
    return MetricLimit(metric="loss", rule=rule, limit=share)


def test_nan_where_there_was_none_is_a_finding() -> None:
    trials = versions([1.0] * 4)
    for place in (2, 3):
        trials[place] = [replace(trial, not_finite={"loss": (400, 100)}) for trial in trials[place]]
    found = judged(trials)
    assert kinds(found) == [("first_bad", 1, 2)]
    assert found.changes[0].verdict == "nan"


@pytest.mark.parametrize("noise", [0.0, 0.01])
def test_a_loss_that_becomes_nan_is_not_said_to_be_higher_before_it(noise: float) -> None:
    """A falling loss was NaN from epoch 80 on: what is left of it, its beginning, was "a further 42.8 % higher"."""
    trials = versions([1.0] * 3, noise=noise)
    for version in trials:
        for trial in version:
            assert trial.trace is not None
            trial.trace.columns["loss"][:] *= np.linspace(3, 1, ROWS)
    for place in (1, 2):
        trials[place] = [replace(trial, not_finite={"loss": (250, 250)}) for trial in trials[place]]
        for trial in trials[place]:
            assert trial.trace is not None
            trial.trace.columns["loss"][250:] = np.nan
    assert [(one.verdict, one.after) for one in judged(trials).changes] == [("nan", 1)]


def test_nan_in_all_versions_accuses_none() -> None:
    trials = [[replace(trial, not_finite={"loss": (400, 100)}) for trial in version] for version in versions([1.0] * 3)]
    assert judged(trials).changes == ()


def test_nan_in_one_launch_is_not_confirmed() -> None:
    trials = versions([1.0] * 2)
    trials[1][0] = replace(trials[1][0], not_finite={"loss": (1, 100)})
    assert judged(trials).changes == ()


def test_a_launch_that_ended_before_the_first_nan_does_not_deny_it() -> None:
    trials = versions([1.0] * 2)
    whole = [replace(trial, last_step=4000) for trial in trials[0]]
    long = [replace(trial, not_finite={"loss": (9, 3000)}, last_step=4000) for trial in trials[1][:2]]
    assert kinds(judged([whole, [*long, trials[1][2]]])) == [("first_bad", 0, 1)]
    assert judged([trials[0], [*long, trials[1][2]]]).changes == ()  # the old version never ran that far


def test_a_version_with_one_launch_hides_nothing_and_is_not_called_noisy() -> None:
    trials = versions([1.0, 1.0, 2.0])
    trials[1] = trials[1][:1]
    found = judged(trials, limit("equal"))
    assert kinds(found) == [("first_bad", 0, 2)]
    assert found.changes[0].between == (1,)
    assert "two launches" in found.seen[1].why


def test_small_changes_from_version_to_version_are_each_within_the_limit() -> None:
    assert judged(versions([100.0, 104.0, 108.0, 112.0]), limit("change", 0.05)).changes == ()
    assert kinds(judged(versions([100.0, 200.0, 150.0]), limit("drop", 0.05))) == [("first_bad", 1, 2)]


@pytest.mark.parametrize("noise", [0.0, 0.003])
def test_a_result_that_creeps_up_is_compared_with_the_best_version(noise: float) -> None:
    """A loss that rose by 9 % from version to version, 54 % in all, was good in all of them: each was compared with the
    one before, of which it was less than the limit away."""
    found = judged(versions([1.09**place for place in range(6)], launches=6, noise=noise), limit("rise", 0.10))
    assert kinds(found) == [("drift", 0, 2)]
    better = judged(versions([1.0, 0.8, 0.8, 0.95], launches=6, noise=noise), limit("rise", 0.10))
    assert kinds(better) == [("first_bad", 2, 3)]
    again = judged(versions([1.0, 1.2, 1.05, 1.12], launches=6, noise=noise), limit("rise", 0.10))
    assert kinds(again) == [("first_bad", 0, 1), ("first_fixed", 1, 2), ("first_bad", 2, 3)], "no episode in another"


@pytest.mark.parametrize("noise", [0.0, 0.02])
def test_a_value_that_is_good_again_is_compared_with_the_bad_one(noise: float) -> None:
    """A loss was 1, then 4, and 1.05 after the repair. The table and the finding told the repair as a rise by 5 %."""
    found = judged(versions([1.0, 1.0, 4.0, 4.0, 1.05, 1.05], launches=6, noise=noise), limit("rise", 0.10))
    assert kinds(found) == [("first_bad", 1, 2), ("first_fixed", 3, 4)]
    assert [one.effect and round(one.effect.value, 1) for one in found.changes] == [4.0, 0.3]


@pytest.mark.parametrize("noise", [0.0, 0.02])
def test_a_bad_value_that_becomes_much_worse_is_a_finding_of_its_own(noise: float) -> None:
    """A throughput fell by 30 % and later to a third. The second fall was listed among the changes that are no
    finding."""
    found = judged(versions([1.0, 1.0, 1.4, 1.4, 4.0, 4.0], launches=6, noise=noise), limit("rise", 0.10))
    assert kinds(found) == [("first_bad", 1, 2), ("worse", 3, 4)]
    assert [one.effect and round(one.effect.value, 1) for one in found.changes] == [1.4, 2.9]
    assert not found.observed
    milder = judged(versions([1.0, 4.0, 1.4, 4.0, 1.4], launches=6, noise=noise), limit("rise", 0.10))
    assert "worse" not in [one.kind for one in milder.changes], "it was as bad before"


def test_a_level_near_zero_has_no_ratio() -> None:
    found = judged(versions([-0.001, -0.001, 5.0, 5.0], noise=0.02), limit("change", 0.01))
    assert all(one.effect is None or one.effect.value > 0 for one in found.changes)


@given(st.lists(st.sampled_from([1.0, 1.0, 1.5, 42.0]), min_size=2, max_size=6))
def test_an_exact_loss_is_bad_where_it_rises_without_a_limit_and_everywhere_with_equal(levels: list[float]) -> None:
    told, good, worst, states, expected = judged(versions(levels)), levels[0], 0.0, list[bool](), list[int]()
    for place, level in enumerate(levels):
        states.append(level > good)
        changes = place > 0 and (states[place] != states[place - 1] or (states[place] and level > worst))
        expected += [place] if changes else []
        good, worst = (good, max(worst, level)) if states[-1] else (level, 0.0)
    assert [change.after for change in told.changes] == expected
    assert len(told.observed) + len(told.changes) == sum(a != b for a, b in pairwise(levels))
    changed = judged(versions(levels), limit("equal"))
    bad = [place for place in range(1, len(levels)) if (levels[place] != levels[0]) != (levels[place - 1] != levels[0])]
    assert [change.after for change in changed.changes] == bad


@pytest.mark.parametrize(
    ("rule", "new", "is_bad"),
    [("change", 1.5, True), ("change", 0.5, True), ("change", 1.005, False), ("drop", 1.5, False), ("drop", 0.5, True),
     ("rise", 1.5, True), ("rise", 0.5, False), ("none", 9.0, False)],
)  # fmt: skip
def test_a_limit_is_kept_in_its_direction(rule: str, new: float, is_bad: bool) -> None:
    trials = versions([1.0, 1.0, new, new])
    found = judge_values(trials, limits=Limits(metrics=(limit(rule, 0.01),)), steps=STEPS)
    changes = found["metrics.loss"].changes if found else ()
    assert [(one.before, one.after) for one in changes] == ([(1, 2)] if is_bad else [])


def test_a_noisy_loss_that_moves_is_found_and_one_that_does_not_is_not() -> None:
    moved = judged(versions([1.0, 1.0, 1.0, 1.5, 1.5, 1.5], noise=0.02), limit("change", 0.1))
    assert kinds(moved) == [("first_bad", 2, 3)]
    assert moved.changes[0].effect is not None
    assert moved.changes[0].effect.value == pytest.approx(1.5, rel=0.1)
    assert judged(versions([1.0] * 6, noise=0.02), limit("change", 0.1)).changes == ()


def test_a_step_without_the_number_is_no_other_number() -> None:
    """Requests that failed at random had no answer, and `answer` was said to differ from launch to launch."""
    trials = versions([42.0, 42.0])
    for place, trial in enumerate(trials[1]):
        assert trial.trace is not None
        trial.trace.columns["loss"][place::50] = np.nan
    found = judged(trials)
    assert (found.changes, found.observed) == ((), ())
    assert [one.seen for one in found.seen] == ["good", "good"]


def answering(
    *odd: float | None, launches: int = 3, every: int = 50, shift: int = 0, failed: bool = False
) -> list[list[Trial]]:
    """Return versions whose steps all return 42, but for an `odd` number, or NaN, in some steps of a version. `shift`:
    these steps are others in each launch; `failed`: they are requests that failed."""
    trials = [[trial_of(number, steps=ROWS, seed=place) for number in range(launches)] for place in range(len(odd))]
    for version, value in zip(trials, odd, strict=True):
        for number, trial in enumerate(version):
            assert trial.trace is not None
            trial.trace.columns["loss"], trial.trace.columns["failed"] = np.full(ROWS, 42.0), np.zeros(ROWS)
            if value is not None:
                trial.trace.columns["loss"][40 + number * shift :: every] = value
                trial.trace.columns["failed"][40 + number * shift :: every] = failed
    return trials


@pytest.mark.parametrize("shift", [0, 3])
@pytest.mark.parametrize(("odd", "text"), [(7.0, "loss 7 instead of 42"), (np.nan, "loss is missing")])
def test_a_result_that_is_another_one_in_some_steps_is_told_first(odd: float, text: str, *, shift: int) -> None:
    """A server that answered wrongly in 1 of 50 requests, or not at all, was good: "Nothing bad"."""
    found = judged(answering(None, None, odd, odd, None, shift=shift))
    told = [one for one in found.observed if one.signal == OTHER_RESULT]
    assert [(one.before, one.after, one.last, one.text) for one in told] == [(1, 2, 3, f"{text} in 2 % of its steps")]
    assert not any("some steps" in one.text and one.after == 2 for one in found.observed)
    asked = judged(answering(None, odd, shift=shift), limit("equal"))
    assert [*asked.changes, *(one for one in asked.observed if one.signal == OTHER_RESULT)], "a finding, or told first"


@pytest.mark.parametrize(
    "trials",
    [
        answering(np.nan, np.nan, every=40),
        answering(7.0, 7.0, shift=3),
        answering(7.0, None, 7.0),
        answering(None, np.nan, shift=3, failed=True),
        answering(None, np.nan, launches=2),
        [*answering(None, None), [*answering(7.0)[0][:2], *answering(None)[0][:1]]],
        answering(None, 42.0 + 1e-9),
    ],
)
def test_a_result_that_varied_before_failed_or_came_by_chance_in_some_steps_accuses_nobody(
    trials: list[list[Trial]],
) -> None:
    assert not any(one.signal == OTHER_RESULT for one in judged(trials).observed)


def test_a_result_that_varies_along_the_steps_may_be_missing_in_some() -> None:
    """How often a number is printed, as beside a progress bar, may depend on the time."""
    trials = versions([1.0, 1.0])
    for trial in trials[1]:
        assert trial.trace is not None
        trial.trace.columns["loss"][49::50] = np.nan
    assert judged(trials).observed == ()


def test_equal_on_a_noisy_value_is_told_beside_the_cell() -> None:
    seen = judged(versions([1.0] * 3, noise=0.02), limit("equal")).seen[1]
    assert seen.seen == "blind"
    assert "cannot be checked" in seen.why
    assert "{change: 1%}" in seen.why


def test_a_limit_for_a_metric_that_no_step_returned_is_told() -> None:
    trials = [[trial_of(number, steps=ROWS) for number in range(3)] for _ in range(2)]
    seen = judged(trials, limit("change", 0.1)).seen[0]
    assert (seen.seen, seen.why) == ("blind", "no step gave `loss`")


def ending(
    values: Sequence[float], *, lasts: Sequence[int] = (), wholes: int = 1, noise: float = 0.0
) -> list[list[Trial]]:
    """Return launches of each version that end at its step of `lasts` and return a number that falls in the steps from
    400 on, and a short one, which does not get there."""
    trials = [
        [returning(value, number=number, noise=noise, seed=place if noise else 0) for number in range(wholes + 1)]
        for place, value in enumerate(values)
    ]
    for version, last in zip(trials, lasts or [ROWS] * len(values), strict=True):
        for number, trial in enumerate(version):
            end = last if number < wholes else 300
            assert trial.trace is not None
            trial.trace.metrics["loss"][:] *= np.linspace(9, 1, ROWS)
            trial.trace.metrics["loss"][:400] = np.nan
            version[number] = replace(trial, trace=prefix(trial.trace, end), last_step=end)
    return trials


def test_a_number_that_short_launches_do_not_reach_is_compared_over_the_whole_ones() -> None:
    """The accuracy that a program prints at its end was compared over the steps that all launches made: not at all."""
    alike = judged(ending([1.0, 1.0]), limit("change", 0.1))
    assert [(seen.seen, seen.visible) for seen in alike.seen] == [("good", 0.0)] * 2


@pytest.mark.parametrize(
    ("values", "wanted"), [([1.0, 1.0, 1.0], False), ([1.0, 1.0, 0.8], True)], ids=["alike", "one differs"]
)
def test_another_whole_launch_is_wanted_where_the_ends_differ(values: list[float], wanted: bool) -> None:
    """Short launches followed, so that an accuracy of 0.81 after 0.93 was never confirmed, and all cells were good."""
    trials, limits = ending(values), Limits()
    assert differs_at_its_end(trials, limits=limits, steps=STEPS) is wanted
    steps = [[returning(value, number=number) for number in range(2)] for value in values]
    assert not differs_at_its_end(steps, limits=limits, steps=STEPS), "short launches show it as well"


@pytest.mark.parametrize(
    ("trials", "wanted"),
    [
        (ending([1.0, 1.02], noise=0.01), True),  # one whole launch each: they may be exact
        (ending([1.0, 1.02], wholes=2, noise=0.01), False),
        (ending([1.0, 1.5], wholes=2, noise=0.01), True),
        (ending([1.0, 1.02], wholes=2), False),
        (ending([1.0] * 3, wholes=3, noise=0.01, lasts=[ROWS, ROWS, 410]), False),
    ],
    ids=["one launch each", "varies within the limit", "varies beyond the limit", "exact", "a leak ends launches"],
)
def test_further_whole_launches_are_wanted_only_where_they_may_tell_more(
    trials: list[list[Trial]], wanted: bool
) -> None:
    """All launches of all versions of a healthy program without a seed, or beside a leak, were whole."""
    assert differs_at_its_end(trials, limits=Limits(), steps=STEPS) is wanted


def test_a_number_that_is_not_judged_wants_whole_launches_only_while_it_is_exact() -> None:
    def wanted(trials: list[list[Trial]]) -> bool:
        return differs_at_its_end(named(trials, "fit_time"), limits=Limits(), steps=STEPS)

    once, twice = ending([1.0, 1.02]), ending([1.0, 1.02], wholes=2)
    assert not wanted(once)
    assert wanted([twice[0], once[1]])
    assert not wanted(twice)


@pytest.mark.parametrize("noise", [0.0, 0.01])
def test_a_late_number_is_compared_over_the_steps_of_all_launches_that_have_it(noise: float) -> None:
    """The launches of a leaking version end early, when a healthy loss has hardly begun to fall: it was "3.37×"."""
    trials = ending([1.0] * 4, lasts=[ROWS, ROWS, 410, 410], wholes=3, noise=noise)
    assert judged(trials).changes == ()
    trials = ending([1.0, 1.0, 1.5, 1.5], lasts=[ROWS, ROWS, 410, 410], wholes=3, noise=noise)
    assert bool(judged(trials, limit("rise", 0.1)).changes)


def test_a_number_of_the_last_row_is_compared_wherever_it_comes() -> None:
    """A version that needs fewer steps prints its final accuracy at another one."""
    trials = named(ending([0.9, 0.9, 0.8, 0.8], lasts=[ROWS, ROWS, 450, 450], wholes=2), "accuracy")
    for version in trials:
        for trial in version:
            assert trial.trace is not None
            trial.trace.metrics["accuracy"][:-1] = np.nan
            trial.trace.metrics["accuracy"][-1] /= np.linspace(9, 1, ROWS)[len(trial.trace.step) - 1]
    found = judge_values(
        trials, limits=Limits(metrics=(MetricLimit(metric="accuracy", rule="drop", limit=0.05),)), steps=STEPS
    )
    assert kinds(found["metrics.accuracy"]) == [("first_bad", 1, 2)]


def test_a_metric_of_some_versions_only_is_told_where_it_is_missing() -> None:
    trials = versions([1.0] * 3)
    trials[1] = [trial_of(number, steps=ROWS) for number in range(3)]
    found = judged(trials, limit("change", 0.1))
    assert [found.seen[place].seen for place in range(3)] == ["good", "blind", "good"]
    assert found.seen[1].why == "no step gave `loss`, unlike in other versions"
    assert found.observed == ()  # it is reported with the cell


def named(trials: list[list[Trial]], name: str) -> list[list[Trial]]:
    """Return the launches with another name for `loss`."""

    def renamed(trial: Trial) -> Trial:
        assert trial.trace is not None
        columns = {name if old == "loss" else old: values for old, values in trial.trace.columns.items()}
        return replace(trial, trace=replace(trial.trace, columns=columns))

    return [[renamed(trial) for trial in version] for version in trials]


def test_a_loss_that_is_no_longer_returned_is_a_finding_and_any_other_number_an_observation() -> None:
    """A version that printed no accuracy any more was good; log lines that come and go accuse nobody."""
    trials = versions([1.0] * 4)
    trials[1] = [trial_of(number, steps=ROWS) for number in range(3)]
    found = judged(trials)
    assert [(one.kind, one.before, one.after, one.verdict) for one in found.changes] == [
        ("first_bad", 0, 1, "vanished"),
        ("first_fixed", 1, 2, "vanished"),
    ]
    assert [one.text for one in found.observed] == ["loss is new"]
    other = judge_values(named(trials, "queue"), limits=Limits(), steps=STEPS)["metrics.queue"]
    assert other.changes == ()
    told = [(one.before, one.after, one.text) for one in other.observed]
    assert told == [(0, 1, "queue is gone"), (1, 2, "queue is new")]


def test_a_number_that_is_still_printed_is_not_gone() -> None:
    """`mean 0.5 ok` is a part of a sentence, and no metric: the report said that `mean` is gone."""
    trials = named(versions([1.0] * 2), "mean")
    trials[1] = [trial_of(number, steps=ROWS, output=Printed(head="step 1 mean 0.5 ok\n")) for number in range(3)]
    assert judge_values(trials, limits=Limits(), steps=STEPS)["metrics.mean"].observed == ()


@pytest.mark.parametrize(("name", "other"), [("mean", "x/mean"), ("val_queue", "queue"), ("x/mean", "mean")])
def test_a_number_is_gone_though_another_one_ends_with_its_name(name: str, other: str) -> None:
    """`queue 3` was still printed, and nobody was told that `val_queue` is gone."""
    trials = named(versions([1.0] * 2), name)
    trials[1] = [trial_of(number, steps=ROWS, output=Printed(head=f"step 1 {other} 0.5 ok\n")) for number in range(3)]
    (gone,) = judge_values(trials, limits=Limits(), steps=STEPS)[f"metrics.{name}"].observed
    assert gone.text == f"{name} is gone"


def test_an_accuracy_with_a_new_name_has_not_vanished() -> None:
    """Keras 2.3 logs `accuracy` where 2.2 logged `acc`."""
    trials = [*named(versions([0.9]), "acc"), *named(versions([0.9]), "accuracy")]
    found = judge_values(trials, limits=Limits(), steps=STEPS)
    assert [change for values in found.values() for change in values.changes] == []
    told = {one.text for values in found.values() for one in values.observed}
    assert told == {"acc is gone", "accuracy is new"}


@pytest.mark.parametrize(("others", "is_found"), [(["recall"], True), ([f"n{n}" for n in range(MOST_METRICS)], False)])
def test_an_accuracy_has_vanished_beside_numbers_that_were_there_before(others: list[str], is_found: bool) -> None:
    """The agent records so many numbers at most: an accuracy beside as many may only have found no room."""
    trials = named(versions([0.9, 0.9]), "accuracy")
    for trial in trials[1]:
        assert trial.trace is not None
        del trial.trace.columns["accuracy"]
    for trial in (*trials[0], *trials[1]):
        assert trial.trace is not None
        trial.trace.columns.update({name: np.ones(ROWS) for name in others})
    found = judge_values(trials, limits=Limits(), steps=STEPS)["metrics.accuracy"]
    assert [change.verdict for change in found.changes] == ["vanished"] * is_found


def test_a_loss_that_becomes_the_same_in_all_launches_was_no_fault_before() -> None:
    trials = [*versions([1.0] * 2, launches=4, noise=0.1), *versions([1.0] * 2, launches=4)]
    found = judged(trials)
    assert "varies" not in {change.verdict for change in found.changes}
    assert [one.text for one in found.observed if "differs" in one.text] == []


def test_the_end_of_a_launch_counts_by_the_limit_of_the_matrix_file() -> None:
    """A loss that ends 40 % higher is within a limit of 50 %; one that ends 12 % higher in its last steps, as other
    seeds do, is no late fault at a limit of 10 %."""
    steady = np.ones(ROWS)
    for rise, share in ((0.4, 0.5), (0.12, 0.1)):
        ends = np.where(np.arange(ROWS) >= 0.9 * ROWS, 1 + rise, 1.0)
        assert judged(with_values(steady, ends), limit("rise", share)).changes == ()


def test_a_fix_is_told_by_how_much_it_undoes() -> None:
    (_, fixed) = judged(versions([1.0, 2.0, 1.0])).changes
    assert fixed.effect is not None
    assert fixed.effect.value == pytest.approx(0.5)


def test_a_result_that_is_printed_another_number_of_times_has_not_vanished() -> None:
    """A version that printed nine scores after its last step instead of eight was said to have seven faults."""
    trials = [*named(versions([0.9]), "score"), *named(versions([0.9]), "score")]
    for trial in trials[0]:
        assert trial.trace is not None
        trial.trace.columns["score (1)"] = trial.trace.columns["score"]
    found = judge_values(trials, limits=Limits(), steps=STEPS)
    assert [change for values in found.values() for change in values.changes] == []
    assert found["metrics.score (1)"].observed == (), "a progress bar is drawn as often as there is time"
    trials[1] = versions([0.9])[0]  # `loss`
    found = judge_values(trials, limits=Limits(), steps=STEPS)
    assert [change.verdict for name in ("score", "score (1)") for change in found[f"metrics.{name}"].changes] == [
        "vanished",
        "vanished",
    ]


def test_a_program_that_goes_on_has_not_lost_what_others_print_at_their_end() -> None:
    """A version that makes twice as many steps was ended after those of the version before: `final is gone`."""

    def at_end(trial: Trial) -> Trial:
        assert trial.trace is not None
        trial.trace.metrics["accuracy"][:-1] = np.nan
        return replace(trial, facts=Facts(run_s=1.0))

    old = list(map(at_end, named(versions([0.9]), "accuracy")[0]))
    cut = [trial_of(number, steps=ROWS) for number in range(3)]
    for trials, told in ((cut, []), ([replace(trial, facts=Facts(run_s=1.0)) for trial in cut], ["vanished"])):
        found = judge_values([old, trials], limits=Limits(), steps=STEPS)["metrics.accuracy"]
        assert ([change.verdict for change in found.changes], found.observed) == (told, ())


def test_a_launch_that_ended_before_the_first_accuracy_has_not_lost_it() -> None:
    trials = named(versions([1.0] * 2), "accuracy")
    for trial in trials[0]:
        assert trial.trace is not None
        trial.trace.columns["accuracy"][:400] = np.nan
    trials[1] = [trial_of(number, steps=300, last_step=300) for number in range(3)]
    assert judge_values(trials, limits=Limits(), steps=STEPS)["metrics.accuracy"].changes == ()


def with_values(*curves: Any) -> list[list[Trial]]:
    """Return versions whose launches all return the same curve."""
    return [
        [
            replace(trial, trace=replace(trial.trace, columns={**trial.trace.columns, "loss": np.asarray(curve)}))
            for trial in (returning(1.0, number=number, seed=place) for number in range(3))
            if trial.trace is not None
        ]
        for place, curve in enumerate(curves)
    ]


CURVE = 0.3 + 2 / np.sqrt(np.arange(1, ROWS + 1)) + 0.1 * np.random.default_rng(1).normal(size=ROWS)
BEND = np.clip((np.arange(ROWS) / ROWS - 0.75) * 4, 0, 1)


@pytest.mark.parametrize(
    ("other", "is_bad"),
    [
        (CURVE * 1.02, True),
        (CURVE + 0.02, True),
        (CURVE + BEND * 0.7, True),
        (np.where(np.arange(ROWS) < ROWS // 3, CURVE, CURVE[ROWS // 3] + 1), True),  # it stops falling
        (CURVE * 1.005, False),
        (CURVE * 0.9, False),
        (CURVE + 0.1 * np.random.default_rng(2).normal(size=ROWS), False),
        (CURVE + np.linspace(0, 0.01, ROWS), False),
        (CURVE[::-1] * 0.0 + 0.31 + 2.3 / np.sqrt(np.arange(1, ROWS + 1)), False),
    ],
)
def test_the_same_loss_in_all_launches_is_compared_step_by_step(other: Any, is_bad: bool) -> None:
    """A seeded loss that is 2 % higher, or that leaves late, was an observation; other seeds and rounding are none."""
    assert bool(judged(with_values(CURVE, CURVE, other)).changes) == is_bad


@pytest.mark.parametrize("limits", [(), (limit("rise", 0.1),)])
@pytest.mark.parametrize(("rows", "first", "noise"), [(ROWS, 425, 0.0), (ROWS, 460, 0.02), (20, 18, 0.0), (10, 9, 0.0)])
def test_a_loss_that_explodes_in_its_last_steps_is_worse_at_its_end(
    rows: int, first: int, noise: float, limits: tuple[MetricLimit, ...]
) -> None:
    """The last quarter counted as a whole: a loss that rose from 0.5 to 51 in its last 150 of 1,000 steps was good."""
    trials = versions([1.0] * 4, noise=noise)
    for place, version in enumerate(trials):
        for number, trial in enumerate(version):
            assert trial.trace is not None
            values = trial.trace.columns["loss"][:rows].copy()
            if place >= 2:
                values[first:] *= 3
            columns = {name: column[:rows] for name, column in trial.trace.columns.items()} | {"loss": values}
            cut = replace(trial.trace, step=trial.trace.step[:rows], columns=columns)
            version[number] = replace(trial, trace=cut, last_step=rows)
    found = judged(trials, *limits)
    assert kinds(found) == [("first_bad", 1, 2)]
    assert found.changes[0].verdict == "late"
    assert [signal.value for signal in found.seen] == pytest.approx([1, 1, 3, 3], rel=0.1)


def test_a_brief_first_launch_does_not_hide_a_loss_that_leaves_late() -> None:
    trials = with_values(CURVE, CURVE, CURVE + BEND * 0.7)
    for version in trials:
        assert version[0].trace is not None
        short = {name: values[:100] for name, values in version[0].trace.columns.items()}
        version[0] = replace(
            version[0], trace=replace(version[0].trace, step=version[0].trace.step[:100], columns=short), last_step=100
        )
    found = judged(trials)
    assert kinds(found) == [("first_bad", 1, 2)]
    assert found.changes[0].verdict == "late"
    assert found.changes[0].effect is not None
    assert found.changes[0].effect.value == pytest.approx(2.5, abs=0.1), "that of the end, not that of the whole"


def test_a_lower_accuracy_is_worse_a_higher_one_better_and_a_time_is_no_result() -> None:
    for name, new, is_bad in (("val_accuracy", 0.8, True), ("val_accuracy", 0.95, False), ("fit_time", 2.0, False)):
        trials = named(versions([0.9, 0.9, new]), name)
        assert bool(judge_values(trials, limits=Limits(), steps=STEPS)[f"metrics.{name}"].changes) == is_bad, name


def test_a_loss_that_varies_is_judged_by_its_level_without_a_limit() -> None:
    assert kinds(judged(versions([1.0, 1.0, 1.0, 1.5, 1.5, 1.5], noise=0.02))) == [("first_bad", 2, 3)]
    better = judged(versions([1.5, 1.5, 1.5, 1.0, 1.0, 1.0], noise=0.02))
    assert better.changes == ()
    assert len(better.observed) == 1
    wild = judged(versions([1.0] * 6, noise=0.8))
    assert {one.seen for one in wild.seen} == {"none"}, "what cannot be told is not called good"


def test_lost_determinism_is_observed_and_bad_only_where_the_matrix_asks() -> None:
    trials = versions([1.0] * 4)
    trials[2:] = versions([1.0] * 4, noise=1e-6)[2:]
    found = judged(trials)
    assert found.changes == ()
    assert [one.text for one in found.observed] == [
        "loss was the same in all launches and now differs from launch to launch (6 launches against 6)"
    ]
    asked = judged(trials, limit("reproducible"))
    assert [(one.kind, one.before, one.after, one.verdict) for one in asked.changes] == [("first_bad", 1, 2, "varies")]


@pytest.mark.parametrize(("launches", "of"), [(3, 1), (4, 2), (2, 3)])
def test_a_seed_that_no_longer_reaches_a_library_is_a_finding(launches: int, of: int) -> None:
    """Losses were equal to the last digit, and differed by 10 % from launch to launch since: all versions were good."""
    trials = [*versions([1.0] * of, launches=launches), *versions([1.0] * of, launches=launches, noise=0.1)]
    found = judged(trials)
    assert [(one.kind, one.before, one.after, one.verdict) for one in found.changes] == [
        ("first_bad", of - 1, of, "varies")
    ]
    repaired = judged([*trials, *versions([1.0] * 2)])
    assert [(one.kind, one.after) for one in repaired.changes] == [("first_bad", of), ("first_fixed", 2 * of)]


def healthy_values(case: str) -> tuple[str, list[list[Trial]]]:
    """Return the launches of three versions that lost nothing, though those of the oldest agree."""
    rng = np.random.default_rng(0)

    def of(name: str, launch: Any) -> tuple[str, list[list[Trial]]]:
        made = [[launch(place) for _ in range(4)] for place in range(3)]
        trials = [[version[0] for version in with_values(*own)] for own in made]
        return name, named(trials, name)

    return {
        "a version with one launch": lambda: ("loss", [versions([1.0])[0][:1], *versions([1.0] * 2, noise=0.1)]),
        "a few launches that may agree by chance": lambda: (
            "loss", [versions([1.0], launches=2)[0], versions([1.0, 1.0], launches=2, noise=0.1)[1]],
        ),
        "never exact": lambda: ("loss", versions([1.0] * 3, noise=0.1)),
        "exact by rounding": lambda: of(
            "accuracy", lambda place: np.full(ROWS, np.round(0.912 + 0.003 * (place > 0) + 0.0004 * rng.normal(), 2))
        ),
        "exact at its bound": lambda: of(
            "accuracy", lambda place: np.full(ROWS, np.clip(0.985 + 0.003 * rng.normal() + 0.05 * (place == 0), 0, 1))
        ),
        "one launch that differs": lambda: (
            "loss", [*versions([1.0] * 2, launches=6), [*versions([1.0], launches=5)[0], returning(1.1, number=9)]],
        ),
        "one launch that differs from many": lambda: (
            "loss", [*versions([1.0] * 4, launches=6), [*versions([1.0], launches=5)[0], returning(1.1, number=9)]],
        ),
        "one launch of two that differs": lambda: (
            "loss", [*versions([1.0] * 2, launches=6), [returning(1.0, number=1), returning(1.1, number=2)]],
        ),
        "a name that tells no result": lambda: ("wait", named(
            [versions([1.0])[0], *versions([1.0] * 3, noise=0.1)[1:]], "wait"
        )),
    }[case]()  # fmt: skip


@pytest.mark.parametrize(
    "case",
    [
        "a version with one launch",
        "a few launches that may agree by chance",
        "never exact",
        "exact by rounding",
        "exact at its bound",
        "one launch that differs",
        "one launch that differs from many",
        "one launch of two that differs",
        "a name that tells no result",
    ],
)
def test_a_healthy_value_did_not_lose_its_reproducibility(case: str) -> None:
    name, trials = healthy_values(case)
    found = judge_values(trials, limits=Limits(), steps=STEPS)[f"metrics.{name}"]
    assert [one for one in found.changes if one.verdict == "varies"] == []


STEPS_OF = np.arange(1.0, ROWS + 1)


@pytest.mark.parametrize(
    ("name", "old", "new", "how"),
    [
        ("dice", 0.9 + 0.01 * np.sin(np.arange(ROWS)), 2.0 + np.abs(np.sin(np.arange(ROWS))), "other_result"),
        ("loss", [1.0], [1.3], "other_result"),
        ("loss", [1.0], [0.5], "other_result"),
        ("loss", [1.0], [1.05], "metrics.loss"),
        ("loss", CURVE, CURVE * 0.9, "other_result"),
        ("loss", CURVE, CURVE * 0.995, "metrics.loss"),
        ("loss", CURVE, CURVE[::-1], "metrics.loss"),  # as other seeds do
        ("checksum", [50505050.0], [50505051.0], "other_result"),
        ("checksum", STEPS_OF, np.append(STEPS_OF[:-1], 1e6), "other_result"),
        ("total_score", [2470.0], [2421.0], "other_result"),
        ("accuracy", [98.0], [97.0], "metrics.accuracy"),
        ("loss", [3.0], [4.0], "other_result"),
        ("reward", STEPS_OF, STEPS_OF[::-1], "metrics.reward"),
    ],
)
def test_an_exact_result_that_changes_either_way_is_told_first(name: str, old: Any, new: Any, how: str) -> None:
    """A score of 0.906 became 2.0 in every launch, and "nothing bad" was found. One loss that another seed made 30 %
    higher was a regression."""
    columns = [np.append(np.full(ROWS - len(one), np.nan), one) for one in (old, new)]
    found = judge_values(named(with_values(*columns), name), limits=Limits(), steps=STEPS)[f"metrics.{name}"]
    assert (found.changes, [one.signal for one in found.observed]) == ((), [how])
    assert found.seen[1].seen == ("none" if how == "other_result" else "good")


def test_another_whole_number_is_judged_by_equality() -> None:
    """A change of 1 in 50,505,050 was within all limits: "Nothing bad"."""
    trials = named(versions([0.0, 0.0]), "checksum")
    for place, version in enumerate(trials):
        for trial in version:
            assert trial.trace is not None
            trial.trace.metrics["checksum"][:] = 50505050 + place
    found = judge_values(trials, limits=Limits(), steps=STEPS)["metrics.checksum"]
    assert [one.text for one in found.observed] == ["checksum 50505050 → 50505051 in every launch"], "50,505,100"
    assert found.seen[1].remedy == "`metrics: {checksum: equal}` makes it a finding"


@pytest.mark.parametrize(("new", "limit"), [(0.65, "drop: 4%}}` makes it a finding"), (0.9, "drop: 14%}}` accepts it")])
def test_another_result_is_told_of_all_versions_that_have_it_with_a_limit_that_judges_it(
    new: float, limit: str
) -> None:
    """The next version, with the same value, had a tick; and the limit that was named hid the change."""
    columns = [np.append(np.full(ROWS - 1, np.nan), [one]) for one in (0.7, new, new)]
    trials = named(with_values(*columns), "map50")
    found = judge_values(trials, limits=Limits(), steps=STEPS)["metrics.map50"]
    assert [(one.after, one.last) for one in found.observed if one.signal == "other_result"] == [(1, 2)]
    assert [one.seen for one in found.seen] == ["good", "none", "none"]
    assert limit in (found.seen[2].remedy or "")


@pytest.mark.parametrize(
    ("old", "new", "is_bad"),
    [(2e-16, 4e-16, False), (0.0, 1e-17, False), (1e-7, 6e-7, False), (2e-6, 4e-6, True), (0.0, 1e-3, True)],
)
@pytest.mark.parametrize("noise", [0.0, 0.02])
def test_an_error_in_the_last_digits_is_rounding(old: float, new: float, *, is_bad: bool, noise: float) -> None:
    """An error of 2e-16 that became 4e-16 was a regression."""
    trials = named(versions([old] * 2 + [new] * 2, noise=noise), "max_abs_error")
    found = judge_values(trials, limits=Limits(), steps=STEPS)["metrics.max_abs_error"]
    assert bool(found.changes) == is_bad
    assert is_bad or found.observed


@pytest.mark.parametrize(("old", "new", "is_bad"), [(-0.1, -10.0, True), (-0.5, -0.1, False), (0.1, -0.1, False)])
@pytest.mark.parametrize(("limits", "noise"), [((), 0.0), ((), 0.02), ((("rise", 0.1),), 0.0)])
def test_an_error_with_a_sign_is_compared_by_its_size(
    old: float, new: float, *, is_bad: bool, limits: Any, noise: float
) -> None:
    """An error that went from -0.1 to -10 was good, and one from -0.5 to -0.1 a regression."""
    trials = named(versions([old] * 3 + [new] * 3, noise=noise), "bias_error")
    asked = Limits(metrics=tuple(MetricLimit(metric="bias_error", rule=rule, limit=share) for rule, share in limits))
    found = judge_values(trials, limits=asked, steps=STEPS)["metrics.bias_error"]
    assert kinds(found) == ([("first_bad", 2, 3)] if is_bad else [])


@pytest.mark.parametrize(("name", "scale", "bad"), [("val_acc", 1, True), ("reward", 50, False), ("loss", 1, False)])
def test_an_accuracy_that_varies_is_compared_by_the_point(name: str, scale: float, *, bad: bool) -> None:
    """An accuracy of 0.89 that fell to 0.83, while launches of one version differ by 0.004, was good."""
    rng = np.random.default_rng(3)

    def launch(level: float) -> Any:
        return scale * (level + rng.normal(0, 0.004) + rng.normal(0, 0.004, ROWS))

    levels = (0.893, 0.893, 0.833, 0.833)
    made = [with_values(*(launch(level) for _ in range(3))) for level in levels]
    trials = [[launches[at] for at, launches in enumerate(version)] for version in made]
    found = judge_values(named(trials, name), limits=Limits(), steps=STEPS)[f"metrics.{name}"]
    assert kinds(found) == ([("first_bad", 1, 2)] if bad else [])


@pytest.mark.parametrize("asked", [(), (limit("reproducible"),)])
def test_a_value_that_varies_now_and_then_is_not_said_to_have_been_the_same_in_all_launches(asked: Any) -> None:
    """A printed error differed in 1 of 6 launches of every version; the old version's three launches agreed by luck,
    its A/A replicate's did not, and the new version was accused."""
    rare = versions([1.0, 1.0], launches=6)
    rare[1][4] = returning(1.001, number=4)
    again = replace(returning(1.001, number=7), cell_id=f"1.0{REPLICATE}")
    for trials in ([[*versions([1.0])[0], again], versions([1.0], noise=1e-6)[0]], rare):
        found = judge_values(trials, limits=Limits(metrics=asked), steps=STEPS)["metrics.loss"]
        assert (found.changes, found.observed) == ((), ())
        assert {seen.limit for seen in found.seen} == {NOISY_LIMIT}, "compared as a value that varies"


@pytest.mark.parametrize("rule", ["equal", "change"])
def test_a_text_is_no_number_and_not_good(rule: str) -> None:
    """If every step returned a text for a metric, the agent sends a column without any number."""
    found = judged(versions([np.nan] * 2), limit(rule, 0.01))
    assert {(seen.seen, seen.why) for seen in found.seen} == {("blind", "no step gave a number as `loss`")}
    some = judged(versions([1.0, np.nan, 1.0]), limit(rule, 0.01))
    assert [seen.seen for seen in some.seen] == ["good", "blind", "good"]
    assert some.changes == ()


def test_nan_in_every_version_is_blind_if_the_metric_has_a_limit() -> None:
    trials = [[replace(one, not_finite={"loss": (500, 1)}) for one in version] for version in versions([np.nan] * 2)]
    told = "`loss` was NaN, infinity or a number beyond 1e30 in every version"
    for limits, seen in (((), "none"), ((limit("change", 0.01),), "blind")):
        assert {(one.seen, one.why) for one in judged(trials, *limits).seen} == {(seen, told)}


def test_nan_of_one_version_is_not_said_to_be_in_others() -> None:
    trials = versions([1.0] * 3)
    trials[1] = [replace(trial, not_finite={"loss": (400, 1)}) for trial in trials[1]]
    found = judged(trials, limit("change", 0.01))
    assert [seen.seen for seen in found.seen] == ["good", "blind", "good"]  # the change makes it bad
    assert found.seen[1].why == "`loss` was NaN, infinity or a number beyond 1e30"


@pytest.mark.parametrize("rule", ["equal", "change"])
def test_an_exact_value_that_the_oldest_version_lacks_is_compared_exactly(rule: str) -> None:
    """It was reported to differ between launches of one version, and no change in it was found."""
    trials = [[trial_of(number, steps=ROWS) for number in range(3)], *versions([1.0, 1.0, 1.2])]
    found = judged(trials, limit(rule, 0.1 if rule == "change" else 0.0))
    assert kinds(found) == [("first_bad", 2, 3)]
    assert [seen.seen for seen in found.seen[:3]] == ["blind", "good", "good"]


@pytest.mark.parametrize("limits", [(), (limit("equal"),)])
def test_a_version_whose_launches_all_failed_is_not_said_to_return_nothing(limits: tuple[MetricLimit, ...]) -> None:
    """It was killed before its first look, with everything that its steps had returned."""
    trials = [*versions([1.0]), [replace(trial_of(number, steps=ROWS, end="oom"), trace=None) for number in range(2)]]
    seen = judged(trials, *limits).seen[1]
    assert (seen.seen, seen.why) == ("none", "not measured: no launch completed its steps")


def test_a_checksum_that_differs_in_one_step_has_no_ratio() -> None:
    """Its finding said "returns 0 % more `checksum`"."""
    trials = versions([42.0, 42.0, 42.0])
    for trial in trials[2]:
        assert trial.trace is not None
        trial.trace.metrics["loss"][-2] = 41.0
    (change,) = judged(trials, limit("equal")).changes
    assert (change.kind, change.after, change.effect) == ("first_bad", 2, None)


def test_a_change_in_the_last_digits_has_no_ratio() -> None:
    """Its finding said "returns 0 % more `checksum`", because the sum differed in the ninth digit."""
    (change,) = judged(versions([42.0, 42.0, 42.0 * (1 + 1e-10)]), limit("equal")).changes
    assert (change.kind, change.after, change.effect) == ("first_bad", 2, None)


def test_a_change_of_a_negative_value_has_no_ratio() -> None:
    """A loss that fell from -1 to -1.5 was "50 % more"."""
    (change,) = judged(versions([-1.0, -1.0, -1.5, -1.5], noise=0.001), limit("change", 0.1)).changes
    assert (change.before, change.after, change.effect) == (1, 2, None)


@pytest.mark.parametrize(
    ("old", "new", "is_bad"),
    [
        ([0.96], [0.91], False),  # one number does not tell another seed from a worse result
        ([0.96], [0.95], False),
        ([0.8, 0.9], [0.8, 0.7], False),  # too few to tell an end; the whole run ended with a ValueError
        ([0.8, 0.85, 0.9], [0.81, 0.85, 0.8], False),
        ([0.8, 0.85, 0.9], [0.7, 0.75, 0.8], True),
        ([0.8, 0.88, 0.9, 0.92, 0.93], [0.79, 0.85, 0.86, 0.87, 0.87], True),
        ([0.8, 0.88, 0.9, 0.92, 0.93], [0.81, 0.87, 0.91, 0.91, 0.93], False),
    ],
)
def test_an_accuracy_that_is_printed_a_few_times_is_judged(old: list[float], new: list[float], is_bad: bool) -> None:
    def spread(values: list[float]) -> Any:
        column = np.full(ROWS, np.nan)
        column[np.linspace(10, ROWS - 1, len(values)).astype(int)] = values
        return column

    trials = named(with_values(spread(old), spread(new)), "accuracy")
    found = judge_values(trials, limits=Limits(), steps=STEPS)["metrics.accuracy"]
    assert bool(found.changes) == is_bad


@pytest.mark.parametrize(
    ("name", "noise", "level", "facts", "is_bad"),
    [
        ("checksum", 0.0, 2.0, {}, True),
        ("checksum", 0.0, 1.005, {}, False),
        ("checksum", 0.02, 2.0, {}, False),
        ("loss", 0.02, 2.0, {}, True),
        ("seed", 0.0, 2.0, {}, False),
        ("numpy", 0.0, 2.0, {"packages": {"numpy": "2.1"}}, False),
    ],
)
def test_a_number_whose_name_does_not_tell_what_is_worse_is_judged_if_it_is_exact(
    *, name: str, noise: float, level: float, facts: dict[str, Any], is_bad: bool
) -> None:
    """`checksum 17` became another one, in all launches, and the version was good."""
    trials = named(versions([1.0, 1.0, 1.0, level, level, level], noise=noise), name)
    trials = [[replace(trial, facts=facts_of(facts)) for trial in version] for version in trials]
    (found,) = judge_values(trials, limits=Limits(), steps=STEPS).values()
    assert bool(found.changes) == is_bad
    assert not (facts and found.observed), "the version of the package that is varied is no result"


@pytest.mark.parametrize("rules", [(), (limit("change", 0.1),)])
def test_absurd_numbers_end_no_judge(rules: tuple[MetricLimit, ...]) -> None:
    """1e-300 beside 1e29 and negative numbers raised an IndexError."""
    pool, rng = [1e-300, -1e-300, 1e29, -1e29, 0.0, 1.0, -3.0, 5e-324], np.random.default_rng(0)
    for _ in range(40):
        trials = [
            [returning(float(rng.choice(pool)), number=number, noise=0.1, seed=place) for number in range(3)]
            for place in range(int(rng.integers(2, 8)))
        ]
        assert len(judged(trials, *rules).seen) == len(trials)


def test_a_number_that_varies_and_whose_name_does_not_tell_what_is_worse_is_not_called_good() -> None:
    """`損失=0.5` was good in every version, however it rose."""
    for name, seen, hint in (("損失", "none", "損失: {rise"), ("lr", "good", "")):
        (found,) = judge_values(named(versions([1.0, 3.0], noise=0.1), name), limits=Limits(), steps=STEPS).values()
        assert {one.seen for one in found.seen} == {seen}
        assert all(hint in one.remedy for one in found.seen)


# ---------------------------------------------------------------- exact values


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


@pytest.mark.parametrize(
    ("name", "level", "step_s", "is_bad", "is_told"),
    [
        ("requests/s", 50.0, np.nan, True, False), ("requests/s", 200.0, np.nan, False, False),
        ("latency", 200.0, np.nan, True, False), ("requests/s", 50.0, 0.1, False, False),
        ("memory", 200.0, np.nan, False, True),
    ],
)  # fmt: skip
def test_a_rate_that_a_program_without_steps_prints_is_judged(
    name: str, level: float, step_s: float, is_bad: bool, is_told: bool
) -> None:
    """A benchmark of a fixed duration printed a third fewer images a second, and all was good. Of a program whose steps
    are timed, a time or a rate that it logs tells nothing more."""
    trials = named(versions([100.0, 100.0, level, level], noise=0.01), name)
    for trial in (trial for version in trials for trial in version):
        assert trial.trace is not None
        trial.trace.columns["step_s"][:] = step_s  # type: ignore[index]
    found = judge_values(trials, limits=Limits(), steps=STEPS)[f"metrics.{name}"]
    assert kinds(found) == ([("first_bad", 1, 2)] if is_bad else [])
    assert (f"metrics: {{{name}: " in found.seen[2].remedy) == is_told


def test_a_rate_that_some_launches_share_is_a_level() -> None:
    """A rate that was printed without decimals was exact, so that half of it was only `another result`."""

    def found(*levels: float) -> Values:
        trials = named(versions(list(levels), noise=0.0), "img/s")
        for trial in (trial for version in trials for trial in version):
            assert trial.trace is not None
            trial.trace.columns["step_s"][:] = np.nan
        return judge_values(trials, limits=Limits(), steps=STEPS)["metrics.img/s"]

    assert kinds(found(1250, 1250, 600, 600)) == [("first_bad", 1, 2)]
    for quiet in (found(1250, 1250, 1190, 1250), found(600, 600, 1250, 1250)):
        assert (quiet.changes, [each.seen for each in quiet.seen]) == ((), ["good"] * 4)
    assert not found(1250, 1250, 1190, 1250).observed


def levels_of(levels: list[float], *, launches: int, noise: float, seed: int) -> list[list[Trial]]:
    """Return versions whose launches return a loss that is the same in all steps, with noise from launch to launch."""
    rng, rows = np.random.default_rng(seed), [[returning(1.0, number=n) for n in range(launches)] for _ in levels]
    for level, own in zip(levels, rows, strict=True):
        for trial in own:
            assert trial.trace is not None
            trial.trace.columns["loss"][:] = level * (1 + noise * rng.normal())
    return rows


@pytest.mark.parametrize(
    ("old", "new", "given_limit"),
    [(1.0, 1.6, limit("rise", 0.5)), (1.0, 2.5, limit("rise", 1.0)), (1.0, 0.895, limit("drop", 0.1))],
)
def test_versions_that_are_added_do_not_hide_a_change_beyond_the_limit(
    old: float, new: float, given_limit: MetricLimit
) -> None:
    """The share was that of the median of all versions: 1 → 1.6 in six of eight was good with `rise: 50%`."""
    for more in (1, 6):
        rows = levels_of([old, old, *[new] * more], launches=5, noise=0.003, seed=1)
        assert kinds(judged(rows, given_limit)) == [("first_bad", 1, 2)]


def test_versions_that_are_added_do_not_make_a_change_within_the_limit_bad() -> None:
    """−9.5 % was beyond `drop: 10%` if most versions had it."""
    found = judged(levels_of([1.0] * 2 + [0.905] * 6, launches=5, noise=0.003, seed=1), limit("drop", 0.1))
    assert (found.changes, {one.seen for one in found.seen}) == ((), {"good"})


def test_a_limit_of_a_number_asks_for_the_launches_that_decide_it() -> None:
    """It stayed undecided, with the remedy `--trials 5`, although the sweep might launch each version 8 times."""

    def asked(noise: float, *, share: float = 0.1, launches: int = 3, most: int = 8, levels: int = 2) -> bool:
        limits = Limits(metrics=(limit("rise", share),) if share else ())
        rows = levels_of([1.0] * levels, launches=launches, noise=noise, seed=3)
        return hides_a_change(rows, limits=limits, steps=STEPS, most=most) is not None

    assert asked(0.06)
    assert not asked(0.06, launches=8), "no more are allowed"
    assert not asked(0.01), "it is decided"
    assert not asked(1.0), "8 launches do not decide it either"
    assert not asked(0.06, share=0.0), "nobody asked"
    assert not asked(0.06, levels=1), "there is nothing to compare it with"


def test_a_value_that_may_have_risen_by_its_limit_is_not_called_good() -> None:
    """A metric 10 % higher was good in 45 of 60 rows of 8 launches with `rise: 10%`; 2.6 % was said to be ruled out."""
    good = 0
    for seed in range(20):
        rows = levels_of([1.0, 1.0, 1.1, 1.1], launches=8, noise=0.03, seed=seed)
        found = judged(rows, limit("rise", 0.1))
        good += not found.changes and found.seen[2].seen == "good"
        assert all(one.visible is not None and one.visible > 0.04 for one in found.seen[2:])
    assert good <= 4


def test_a_value_that_varies_by_a_third_of_its_limit_is_decided_in_equal_versions() -> None:
    """54 of 60 such rows of three launches were undecided."""
    decided = sum(
        all(one.seen == "good" for one in judged(levels_of([1.0] * 4, launches=3, noise=0.03, seed=seed), given).seen)
        for seed in range(20)
        for given in [limit("rise", 0.1)]
    )
    assert decided >= 18


def test_more_launches_of_a_single_version_are_not_said_to_help() -> None:
    (seen,) = judged(levels_of([1.0], launches=3, noise=0.01, seed=1), limit("rise", 0.1)).seen
    assert (seen.seen, seen.why, seen.remedy) == ("blind", "there is no other version to compare it with", "")


@pytest.mark.parametrize("number", [1, 3])
def test_versions_with_a_single_launch_do_not_make_each_other_less_precise(number: int) -> None:
    """Each was given the margin of the one before, times the root of the launches: of three, the last was blind."""
    few, many = (levels_of([1.0] * n, launches=m, noise=0.03, seed=1) for n, m in ((number, 1), (4, 8)))
    for rows in (few + many, many + few):
        seen = judged(rows, limit("rise", 0.5)).seen
        assert {one.seen for one in seen} == {"good"}
        assert max(one.visible or 0.0 for one in seen) < 0.2


@pytest.mark.parametrize("rule", ["rise", "change"])
def test_rounding_leaves_no_version_undecided(rule: str) -> None:
    """A loss that ended at 1e-12 after one that ended at 0 was blind with a limit, and "a wider limit would help"."""
    rows = levels_of([0.0, 0.0, 1e-12, 1e-12], launches=3, noise=0.0, seed=1)
    for trial in chain(*rows):
        assert trial.trace is not None
        trial.trace.columns["loss"][:3] = 1.0
    found = judged(rows, limit(rule, 0.1))
    assert (found.changes, {(one.seen, one.visible) for one in found.seen}) == ((), {("good", 0.0)})
