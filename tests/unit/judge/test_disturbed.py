"""A trial whose step times say nothing: a throttled clock, or a pull at the same time."""

from __future__ import annotations

from dataclasses import replace

from harness.judge.history.changes import find_changes
from harness.judge.launches import judge_launches
from harness.model import Trial
from tests.players.trials import LIMITS, STEPS, of_row, trial_of


def versions(ms: dict[int, float], *, disturbed: str = "", rounds: int = 4) -> list[list[Trial]]:
    """Return four versions of 1 ms; the launches of the last one take as many ms as `ms` gives for a round."""
    last = [trial_of(r, ms=ms.get(r, 1.0), seed=9, steps=1000, disturbed=disturbed * (r in ms)) for r in range(rounds)]
    return [*([trial_of(r, seed=seed, steps=1000) for r in range(rounds)] for seed in range(3)), last]


def test_a_version_measured_while_the_clock_was_held_down_is_not_slower():
    hot = dict.fromkeys(range(4), 2.0)
    for disturbed, found in (("", ["step_time"]), ("clocks were held down", [])):
        trials = versions(hot, disturbed=disturbed)
        changes = find_changes(of_row(trials), limits=LIMITS)
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
