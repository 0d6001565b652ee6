"""Launches that end early because their steps are plainly slow: what they show, and what they must
not be mistaken for.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from harness.judge.comparison.level_rules import usable
from harness.judge.comparison.which_launches import first_look_s, own_step_s, paced_steps, plainly_slow, usual_step_s
from harness.judge.history.changes import find_changes
from harness.judge.history.precision import wants_round
from harness.judge.signal_verdicts import with_signals
from harness.model import Steps, Trial, Trials
from tests.players.trials import LIMITS, STEPS, cell_of, of_row, times, trace_of, trial_of

USUAL_S = 120e-6


def slow_row() -> list[list[Trial]]:
    """Return seven versions in three rounds. Three are slow: their launches end early, the last one after 30 s."""
    short = [(107, {}), (14, {}), (833, {"end": "completed", "time_asked_s": 30.0})]
    return [
        [trial_of(round_, ms=36.0, steps=steps, seed=place, **more) for round_, (steps, more) in enumerate(short)]
        if place in (2, 3, 4)
        else [trial_of(round_, ms=0.12, seed=place) for round_ in range(3)]
        for place in range(7)
    ]


def test_a_version_300_times_slower_is_named_by_launches_of_a_few_steps():
    """Launches of fewer than 250 steps were not compared: each had to run for minutes before the version was named."""
    trials = slow_row()
    compared = of_row(trials)
    found = [change for change in find_changes(compared) if change.metric == "step_time"]
    assert [(one.kind, one.before, one.after) for one in found] == [("first_bad", 1, 2), ("first_fixed", 4, 5)]
    assert found[0].effect is not None
    assert found[0].effect.value == pytest.approx(300, rel=0.1)


def test_its_memory_is_told_by_the_launch_that_looked_at_it():
    cell = cell_of(slow_row()[2])
    assert cell.verdict == "flat"
    assert "(up to step 833); its time of 30 s ran out" in cell.why


def test_so_few_steps_alone_say_nothing_of_memory():
    assert cell_of([trial_of(number, ms=36.0, steps=14) for number in range(2)]).verdict == "inconclusive"


def test_a_slow_version_asks_for_no_rounds_and_shortens_no_comparison():
    """Its peak cannot be compared, and more rounds would not change that."""
    trials = slow_row()
    assert wants_round(trials, limits=LIMITS, steps=STEPS, trials_asked=Trials()) is None
    assert [len(version) for version in usable("peak_memory", trials, steps=STEPS)] == [3, 3, 0, 0, 0, 3, 3]
    assert [len(version) for version in usable("step_time", trials, steps=STEPS)] == [3] * 7


def test_what_its_short_launches_cannot_show_is_said_to_be_for_that():
    """The report said that its peak "was not measured", although it was."""
    trials = slow_row()
    compared = of_row(trials)
    assert list(compared.ended_as_slow) == [False, False, True, True, True, False, False]
    cells = with_signals(compared, {}, rises={})
    why = "its steps are so slow that its launches ended early, and only their times are compared"
    assert cells[2].signals["peak_memory"].why == why
    assert cells[1].signals["peak_memory"].why != why


def test_a_slow_start_is_not_a_slow_version():
    """A version that compiles its first steps would be called 300 times slower."""
    step_s = times(0.12, steps=100)
    step_s[:40] = 0.036
    assert not plainly_slow(trace_of(step_s=step_s), usual_s=USUAL_S, own_s=None, steps=STEPS)
    always = trace_of(step_s=times(36.0, steps=100))
    assert plainly_slow(always, usual_s=USUAL_S, own_s=None, steps=STEPS)
    assert not plainly_slow(trace_of(step_s=times(36.0, steps=63)), usual_s=USUAL_S, own_s=None, steps=STEPS)


def test_a_version_whose_whole_budget_is_cheap_runs_it():
    """A leak of 24 KiB made an empty step eight times slower, and the leak itself was then not measured twice."""
    assert not plainly_slow(trace_of(step_s=times(0.01, steps=500)), usual_s=1e-6, own_s=None, steps=STEPS)
    assert first_look_s(1e-5, 1e-6, STEPS) is None


def test_a_slow_start_of_200_steps_is_no_slow_version() -> None:
    """Two launches ended during it and one after it: *28 times slower, confirmed*, which no launch had measured."""
    steps = Steps(first=200, budget=800)

    def started(number: int, made: int) -> Trial:
        step_s = times(1.0, steps=made, seed=number)
        step_s[:200] = 0.030
        return replace(trial_of(number, steps=made), trace=trace_of(step_s=step_s), last_step=made)

    trials = [[trial_of(number, ms=1.0, steps=800, seed=place) for number in range(4)] for place in range(5)]
    trials[2] = [started(number, made) for number, made in enumerate((200, 200, 800, 200))]
    compared = of_row(trials, steps=steps)
    assert not [change for change in find_changes(compared) if change.metric == "step_time"]
    assert own_step_s(trials[2]) == pytest.approx(1e-3, rel=0.1)


@pytest.mark.parametrize("made", [STEPS.budget, STEPS.first, 100])
def test_a_slow_launch_is_compared_unless_a_longer_one_began_as_slowly(made: int) -> None:
    """One of two launches was ten times slower, and vanished: "Nothing bad found", without a word on it."""
    trials = [[trial_of(number, ms=1.0, seed=place) for number in range(2)] for place in range(2)]
    trials[1][1] = trial_of(1, ms=10.0, steps=made, seed=1)
    assert [len(own) for own in usable("step_time", trials, steps=STEPS)] == [2, 2]
    compared = of_row(trials)
    cells = with_signals(compared, {}, rises={})
    signal = cells[1].signals["step_time"]
    assert (signal.seen, "in 2 launches that differ by a factor of " in signal.why) == ("suspect", True)
    assert paced_steps(trials) == (STEPS.budget if made < STEPS.budget else made)


@pytest.mark.parametrize(("own_s", "ends"), [(0.036, True), (0.012, False), (None, False)])
def test_ten_steps_are_enough_to_show_again_what_an_earlier_launch_showed(own_s: float | None, ends: bool):
    assert plainly_slow(trace_of(step_s=times(36.0, steps=10)), usual_s=USUAL_S, own_s=own_s, steps=STEPS) is ends


def test_the_first_look_at_a_version_that_is_not_slow_comes_after_its_steps():
    assert first_look_s(7 * USUAL_S, USUAL_S, STEPS) is None
    soon, later = first_look_s(300 * USUAL_S, USUAL_S, STEPS), first_look_s(None, USUAL_S, STEPS)
    assert soon is not None
    assert later is not None
    assert 0.36 < soon < 1 < later < 5


def test_the_usual_pace_is_that_of_most_versions():
    rows = [[trial_of(0, ms=ms, steps=500)] for ms in (1.0, 1.1, 1.2, 36.0, 36.0)]
    assert usual_step_s(rows) == pytest.approx(0.0012, rel=0.1)
    assert usual_step_s([[], [trial_of(0, steps=500, ms=2.0)]]) == pytest.approx(0.002, rel=0.1)
    assert usual_step_s([[], []]) is None


def test_a_first_look_comes_after_10_s_at_the_latest():
    """500 steps of 300 ms are two and a half minutes."""
    assert Steps().look_times_s() == (10.0, 20.0, 40.0, None)
    assert Steps(time_s=300.0).look_times_s() == (10.0, 20.0, 40.0, 300.0)
    assert Steps(time_s=40.0).look_times_s() == (5.0, 10.0, 20.0, 40.0)


def test_a_look_at_100_steps_says_how_far_it_looked():
    """What 30 s of 300 ms steps show is reported as such, and no more."""
    rows = 50_000 + np.random.default_rng(1).normal(0, 2, 100)
    cell = cell_of([trial_of(0, steps=100, trace=trace_of(rows, step_s=times(300.0, steps=100)))])
    assert cell.verdict == "inconclusive"  # no launch has run the whole budget yet
    assert "up to step 100" in cell.why
