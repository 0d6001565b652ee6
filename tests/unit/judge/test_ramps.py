"""Drift over the versions has a separate verdict, which steps never get."""

from __future__ import annotations

import math

import numpy as np
import pytest

from harness.judge.comparison.round_tables import RoundTable
from harness.judge.history.changepoints import Levels, find_levels, lay_out
from harness.judge.history.changes import known_levels
from harness.model import Change, Floats

LIMIT = math.log(1.05)


def made(figures: Floats, *, sigma: float = 0.02, seed: int = 0) -> Floats:
    return np.asarray(np.log(figures) + np.random.default_rng(seed).normal(0, sigma, (3, len(figures))))


def levels_of(figures: Floats, **more: float) -> Levels:
    return find_levels(lay_out(made(figures, **more)), least=LIMIT, alpha=0.0064)  # type: ignore[arg-type]


def changes(figures: Floats) -> list[Change[int]]:
    table = RoundTable(values=made(figures), positions=tuple(range(len(figures))))
    return known_levels("step_time", table, limit=math.expm1(LIMIT)).changes()


RAMP = np.linspace(1, 1.2, 100)


@pytest.mark.parametrize("seed", range(5))
def test_a_little_worse_in_every_version_is_a_drift(seed):
    """No single step shows, and after a hundred versions everything is a fifth slower."""
    (shift,) = levels_of(RAMP, seed=seed).shifts
    assert shift.drift
    assert shift.before < 10
    assert shift.after > 89
    assert shift.interval[0] < math.log(1.2) < shift.interval[1]


def test_a_drift_is_told_from_its_first_to_its_last_version():
    (change,) = changes(np.concatenate([np.ones(30), np.linspace(1, 1.3, 40), np.full(30, 1.3)]))
    assert change.kind == "drift"
    assert change.before is not None
    assert 25 <= change.before <= 38
    assert 62 <= change.after <= 75
    assert change.effect is not None
    assert change.effect.value == pytest.approx(1.3, abs=0.06)


def test_what_falls_is_no_finding_but_ends_one():
    assert changes(RAMP[::-1]) == []
    assert [change.kind for change in changes(np.concatenate([RAMP, RAMP[::-1]]))] == ["drift", "first_fixed"]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    "figures",
    [
        np.repeat([1, 1.1], 20),
        np.repeat(1.1 ** np.arange(6), 4),
        np.repeat(1.1 ** np.arange(6), 16),
        100 * (1 + 0.1 * ((np.arange(80) // 10) % 2)),
        np.ones(50),
    ],
    ids=["step", "short stairs", "stairs", "square", "quiet"],
)
def test_steps_are_no_drift(figures, seed):
    """A version is to blame for each of them."""
    assert not any(shift.drift for shift in levels_of(figures, seed=seed).shifts)


def test_a_jump_beside_a_drift_is_a_change_of_its_own():
    """Otherwise it would be lost between the drift and the level after it."""
    after = levels_of(np.concatenate([np.ones(30), np.linspace(1, 1.2, 40), np.full(30, 1.5)])).shifts
    assert [shift.drift for shift in after] == [True, False]
    assert after[1].before < 70 <= after[1].after
    before = levels_of(np.concatenate([np.ones(30), np.linspace(1.3, 1.5, 40)])).shifts
    assert [shift.drift for shift in before] == [False, True]
    assert before[0].before < 30 <= before[0].after
