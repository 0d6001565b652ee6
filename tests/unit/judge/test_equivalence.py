"""Launches that waited for images clear versions of being slower, and accuse none. Otherwise every sweep that pulls
ends in rounds of all versions, or a slower version passes because a pull ran during the launches of the others.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from harness.judge.cell.cell_verdict import needs_whole_budget
from harness.judge.cell.trial_verdict import judge_launches
from harness.judge.comparison.compared_levels import Compared, with_compared
from harness.judge.comparison.equivalence import acquitted, bound_of, may_hold
from harness.judge.history.changes import find_changes
from harness.judge.history.detectable_effect import visible
from harness.judge.history.wants_round import wants_round
from harness.judge.unpaired import ComparedCell, compare_cell
from harness.model import Measured, Trial, Trials
from tests.unit.judge.making import LIMITS, STEPS, cell_of, of_row, trial_of

ASKED = Trials(least=3, most=8)


def in_wait(ms: list[float], *, pull: float = 1.0) -> list[list[Trial]]:
    """Return three launches of each version as its image arrived, which take `pull` times as long during pulls; those
    of the last version ran after the pulls, together with two more launches of the oldest version.
    """
    early = [
        [trial_of(n, ms=each * pull, seed=place, steps=1000, pulled="awaited") for n in range(3)]
        for place, each in enumerate(ms[:-1])
    ]
    early[0] += [trial_of(n, ms=ms[0], seed=77, steps=1000) for n in (1, 2)]
    return [*early, [trial_of(n, ms=ms[-1], seed=78, steps=1000) for n in range(3)]]


def test_versions_that_are_alike_need_no_rounds() -> None:
    trials = in_wait([1.0] * 6)
    cells = [cell_of(each) for each in trials]
    assert wants_round(trials, limits=LIMITS, steps=STEPS, trials_asked=ASKED) is None
    seen = visible(of_row(trials), limits=LIMITS)
    assert seen is not None
    assert 0.01 < seen["step_time"] < LIMITS.of("step_time")  # type: ignore[operator]
    told = with_compared(Compared(cells=cells, trials=trials, steps=STEPS), limits=LIMITS)
    assert [cell.step_level[0] for cell in told] == [pytest.approx(1.0, rel=0.03)] * 6


def step_time(sides: list[ComparedCell]) -> Measured:
    compared = compare_cell(sides[1], sides[2], steps=STEPS, limits=LIMITS)
    return next(each for each in compared if each.metric == "step_time")


def test_what_is_cleared_has_step_times_elsewhere() -> None:
    """Without them, a cell was undecided in comparisons of hosts and in attributions."""
    trials = in_wait([1.0] * 6)
    compared = of_row(trials)
    sides = [
        ComparedCell(verdict=cell, trials=each)
        for cell, each in zip(with_compared(compared, limits=LIMITS), trials, strict=True)
    ]
    assert all(side.verdict.step_ms is not None for side in sides)
    assert step_time(sides).ratio == pytest.approx(1.0, rel=0.05)
    alone = [replace(side, verdict=cell_of(list(side.trials))) for side in sides]
    assert step_time(alone).ratio is None


@pytest.mark.parametrize(
    "trials",
    [
        pytest.param(in_wait([1.0, 1.0, 1.0, 1.3, 1.3, 1.3]), id="slower-from-one-on"),
        pytest.param(in_wait([1.0, 1.0, 1.0, 1.3, 1.0, 1.0]), id="one-slower"),
        pytest.param(in_wait([1.0] * 6, pull=1.3), id="the-pull-makes-steps-longer"),
        pytest.param(in_wait([1.0] * 5 + [1.3], pull=1.3), id="a-pull-that-hides-the-last"),
        pytest.param([each[:3] for each in in_wait([1.0] * 6)][:5], id="none-ran-in-its-turn"),
    ],
)
def test_versions_that_differ_are_measured_side_by_side_and_not_accused(trials: list[list[Trial]]) -> None:
    reason = wants_round(trials, limits=LIMITS, steps=STEPS, trials_asked=ASKED)
    assert reason == "only 0 of 3 rounds have the step time of every version"
    cells = [cell_of(each) for each in trials]
    assert find_changes(Compared(cells=cells, trials=trials, steps=STEPS), limits=LIMITS) == ()
    told = with_compared(Compared(cells=cells, trials=trials, steps=STEPS), limits=LIMITS)
    assert all(cell.step_level[0] is None for cell in told[1:-1])


def test_rounds_beside_a_pull_are_rounds() -> None:
    """The images of the next series kept arriving, and the step times of this series were never compared."""
    slower = [
        [trial_of(n, ms=each, seed=place, steps=1000, pulled="beside") for n in range(3)]
        for place, each in enumerate([1.0, 1.0, 1.0, 1.3, 1.3, 1.3])
    ]
    (found,) = find_changes(of_row(slower), limits=LIMITS)
    assert (found.metric, found.after) == ("step_time", 3)


@pytest.mark.parametrize("pulled", ["beside", "awaited"])
def test_a_rise_beside_a_pull_is_asked_again(pulled: str) -> None:
    """The pull may be the cause. When the rise was ignored, a version whose steps grow was good in every sweep with
    pulls.
    """
    (seen,) = judge_launches([trial_of(drift=1.0, pulled=pulled)], limits=LIMITS, steps=STEPS)
    assert seen.verdicts == ("inconclusive",)
    assert seen.trace_verdict is not None
    assert seen.trace_verdict.why.startswith("step times are not judged (an image was pulled at the same time); ")
    (quiet,) = judge_launches([trial_of(pulled=pulled)], limits=LIMITS, steps=STEPS)
    assert quiet.trace_verdict is not None
    assert quiet.trace_verdict.why.startswith("RSS is flat")
    assert needs_whole_budget([seen.trial], limits=LIMITS, steps=STEPS)


@pytest.mark.parametrize("pull", [0.0, 0.05, -0.05])
@pytest.mark.parametrize("spread", [0.005, 0.01, 0.02])
def test_a_version_that_is_slower_by_the_bound_is_rarely_missed(spread: float, pull: float) -> None:
    """5 % of two versions by construction, even during a pull that makes steps longer or shorter."""
    rng, step, missed = np.random.default_rng(1), math.log1p(0.1), 0
    for _ in range(300):
        versions = int(rng.integers(3, 25))
        logs = rng.normal(0, spread, (versions, 3)) + step * (np.arange(versions) >= rng.integers(1, versions))[:, None]
        known = [(np.empty(0), row + pull) for row in logs[:-1]]
        known = [(rng.normal(0, spread, 2), known[0][1]), *known[1:], (logs[-1], np.empty(0))]
        most = bound_of(known)
        assert most is not None
        missed += most <= step
    assert missed <= 9


def test_launches_that_differ_already_cost_no_more_of_them() -> None:
    """Launches spent before the rounds are missing in the rounds."""
    alike, apart = in_wait([1.0] * 6)[:3], in_wait([1.0, 1.0, 1.3, 1.3])[:3]
    assert may_hold(of_row(alike).launches, limit=0.1, wanted=3)
    assert not may_hold(of_row(apart).launches, limit=0.1, wanted=3)
    assert may_hold([], limit=0.1, wanted=3)
    assert acquitted([], limit=0.1) is None
