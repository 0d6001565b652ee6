"""Launches during pulls: their times are compared with nothing, their outcome and memory count."""

from __future__ import annotations

from harness.judge.cell import needs_whole_budget
from harness.judge.history.changes import find_changes
from harness.judge.history.precision import wants_round
from harness.judge.launches import judge_launches
from harness.model import Trial, Trials
from tests.players.trials import LIMITS, STEPS, of_row, row_of, trial_of

ASKED = Trials(least=3, most=8)


def slower_from_3(*, pulled: bool) -> list[list[Trial]]:
    return row_of([1.0, 1.0, 1.0, 1.3, 1.3, 1.3], pulled=pulled)


def test_times_during_pulls_accuse_no_version_and_are_measured_again() -> None:
    (found,) = find_changes(of_row(slower_from_3(pulled=False)), limits=LIMITS)
    assert (found.metric, found.after) == ("step_time", 3)
    trials = slower_from_3(pulled=True)
    assert find_changes(of_row(trials), limits=LIMITS) == ()
    reason = wants_round(trials, limits=LIMITS, steps=STEPS, trials_asked=ASKED)
    assert reason == "only 0 of 3 rounds have the step time of every version"


def test_a_rise_during_a_pull_is_asked_again() -> None:
    """The pull may be the cause. When the rise was ignored, a version whose steps grow was good in every sweep with
    pulls.
    """
    (seen,) = judge_launches([trial_of(drift=1.0, pulled=True)], limits=LIMITS, steps=STEPS)
    assert seen.verdicts == ("inconclusive",)
    assert seen.trace_verdict.why.startswith("step times are not judged (an image was pulled at the same time); ")
    (quiet,) = judge_launches([trial_of(pulled=True)], limits=LIMITS, steps=STEPS)
    assert quiet.trace_verdict.why.startswith("RSS is flat")
    assert needs_whole_budget([seen.trial], limits=LIMITS, steps=STEPS)


def test_a_leak_during_pulls_counts() -> None:
    (leak,) = judge_launches([trial_of(rate=4.0, pulled=True)], limits=LIMITS, steps=STEPS)
    assert "leak" in leak.verdicts
