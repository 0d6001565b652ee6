"""What a search learns from trials."""

from __future__ import annotations

from harness.judge.next.bisection import Bisection
from harness.model import End, Trial, Trials
from tests.players.searching import row


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
    (found,) = Bisection(runs=runs, asked=Trials(least=2, most=2)).boundaries()
    assert (found.before, found.between, found.after) == (1, (2,), 3)


def test_a_failure_that_the_baseline_has_too_is_not_bad_in_other_versions() -> None:
    """A search blamed a version that fails before its first step, as the baseline does."""
    runs = row(3, is_program=True)
    for run, steps in zip(runs, (0, 0, 1000), strict=True):
        run.trials.extend(trial(number, end="completed" if steps else "setup", steps=steps) for number in range(2))
    assert not Bisection(runs=runs, asked=Trials(least=2, most=2), baseline=0).boundaries()
