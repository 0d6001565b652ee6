"""Failures that come in a part of the launches, where every version is launched."""

from __future__ import annotations

import random

from harness.judge.history import find_changes, wants_launches
from harness.judge.verdict import judge_cell, wants_more
from harness.model import Trial, Trials
from tests.unit.judge.making import LIMITS, STEPS, failed, trial_of
from tests.unit.judge.test_history import cell, changes, more_launches, named


def test_good_launches_between_two_bad_versions_may_be_luck():
    """A failure of every second launch is no failure that was fixed and came back."""
    half, lucky = cell("crash", trials=4, failed=2), cell("flat", trials=4)
    found = changes([cell("flat", trials=30), half, lucky, half, half])
    assert named(found) == [("outcome", "first_bad", 0, 1)]
    assert set(more_launches(cell("flat", trials=30), half, lucky, half, half)) == {2}


def test_a_version_whose_launches_all_failed_is_seen_beside_the_others():
    """Three of three by luck, where the others fail in half: three good launches next to it prove nothing."""
    always, half, few = cell("crash", failed=3), cell("crash", trials=8, failed=4), cell("flat", trials=3)
    (found,) = [one for one in changes([cell("flat", trials=30), few, always, half, half]) if one.metric == "outcome"]
    assert (found.before, found.after, found.untestable) == (0, 2, (1,))


def exit_codes(rng: random.Random, *, first_bad: int, rate: float, versions: int = 8) -> list[list[Trial]]:
    """Launches as rounds ask for them, of a failure that comes in a part of the launches from `first_bad` on."""
    asked, launched = Trials(least=3, most=8), [list[Trial]() for _ in range(versions)]
    wanted = list(range(versions)) * asked.least
    while wanted:
        for place in wanted:
            bad = place >= first_bad and rng.random() < rate
            launched[place].append(failed(signal=None) if bad else trial_of(steps=64, end="completed"))
        cells = [judge_cell(each, limits=LIMITS, steps=STEPS, exit_only=True) for each in launched]
        more = {
            place for place, each in enumerate(launched)
            if wants_more(each, trials_asked=asked, limits=LIMITS, steps=STEPS, exit_only=True)
        }  # fmt: skip
        wanted = sorted(more | set(wants_launches(cells, launched, trials_asked=asked)))
    return launched


def test_a_failure_of_every_second_launch_names_no_wrong_version():
    """With plain majorities a third of these histories named an innocent version, or a fix that was none."""
    right, wrong = 0, 0
    for seed in range(40):
        rng = random.Random(seed)
        first_bad = rng.randrange(1, 8)
        launched = exit_codes(rng, first_bad=first_bad, rate=0.5)
        cells = [judge_cell(each, limits=LIMITS, steps=STEPS, exit_only=True) for each in launched]
        for one in find_changes(cells, launched, limits=LIMITS, steps=STEPS, seed=0, exit_only=True):
            held = one.kind == "first_bad" and one.before is not None and one.before < first_bad <= one.after
            right += held
            wrong += not held and one.kind != "bad_from_start"
    assert right >= 25
    assert wrong <= 2
