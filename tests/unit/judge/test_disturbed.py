"""A trial whose step times say nothing: a throttled clock, or a pull at the same time."""

from __future__ import annotations

from dataclasses import replace

from harness.judge.cell import needs_whole_budget
from harness.judge.history.changes import find_changes
from harness.judge.history.precision import wants_round
from harness.judge.launches import judge_launches
from harness.model import Trial, Trials
from tests.players.trials import LIMITS, STEPS, of_row, row_of, trial_of


def versions(ms: dict[int, float], *, disturbed: str = "", rounds: int = 4) -> list[list[Trial]]:
    """Return four versions of 1 ms; the launches of the last one take as many ms as `ms` gives for a round."""
    last = [trial_of(r, ms=ms.get(r, 1.0), seed=9, steps=1000, disturbed=disturbed * (r in ms)) for r in range(rounds)]
    return [*([trial_of(r, seed=seed, steps=1000) for r in range(rounds)] for seed in range(3)), last]


def test_a_version_measured_while_the_clock_was_held_down_is_not_slower():
    hot = dict.fromkeys(range(4), 2.0)
    for disturbed, found in (("", ["step_time"]), ("clocks were held down", [])):
        trials = versions(hot, disturbed=disturbed)
        changes = find_changes(of_row(trials))
        assert [change.metric for change in changes] == found


def test_a_clock_that_falls_is_no_slowdown():
    drifting = trial_of(ms=1.0, drift=1.0)
    (seen,) = judge_launches([drifting], limits=LIMITS, steps=STEPS)
    assert "slowdown" in seen.verdicts
    (marked,) = judge_launches(
        [replace(drifting, conditions=replace(drifting.conditions, disturbed="hot"))], limits=LIMITS, steps=STEPS
    )
    assert marked.verdicts == tuple(name for name in seen.verdicts if name != "slowdown")
    assert (marked.trace_verdict.step_ms, marked.trace_verdict.step_drift) == (None, None)
    assert "hot" in marked.trace_verdict.why


def test_a_leak_is_a_leak_however_hot_the_card_is():
    (seen,) = judge_launches([trial_of(rate=8.0, disturbed="hot")], limits=LIMITS, steps=STEPS)
    assert "leak" in seen.verdicts


# ---------------------------------------------------------------- pulls


ASKED = Trials(least=3, most=8)


def slower_from_3(*, pulled: bool) -> list[list[Trial]]:
    return row_of([1.0, 1.0, 1.0, 1.3, 1.3, 1.3], pulled=pulled)


def test_times_during_pulls_accuse_no_version_and_are_measured_again() -> None:
    (found,) = find_changes(of_row(slower_from_3(pulled=False)))
    assert (found.metric, found.after) == ("step_time", 3)
    trials = slower_from_3(pulled=True)
    assert find_changes(of_row(trials)) == ()
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
