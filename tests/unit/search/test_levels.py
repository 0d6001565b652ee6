"""Step times and peaks: figures of one round are compared with each other, never with those of another round."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from harness.judge.history.flaky import Evidence
from harness.judge.next.bisect_records import Decision, Rules, VersionEvidence
from harness.judge.next.decide import conclude, decide
from tests.nightly import many

RULES = Rules(level_limit=math.log1p(0.03))


def measured(
    levels: Sequence[float], *, spread: float, seed: int, rules: Rules = RULES, drift: float = 0.5
) -> tuple[list[VersionEvidence], list[Decision]]:
    """Search a history of these levels (logs); each round as a whole is off by `drift`, and each launch by `spread`."""
    rng = np.random.default_rng(seed)
    spots, log = [VersionEvidence() for _ in levels], []
    while (decision := decide(spots, rules=rules)).launch:
        number, offset = len(log), rng.normal(0, drift)
        for place in decision.launch:
            figure = levels[place] + offset + rng.normal(0, spread)
            spots[place] = replace(
                spots[place],
                launches=spots[place].launches + 1,
                states={"outcome": Evidence(good=spots[place].launches + 1)},
                figures={**spots[place].figures, number: figure},
            )
        log.append(decision)
    return spots, [*log, decision]


def steps_of(versions: int, sizes: dict[int, float]) -> list[float]:
    return [sum(size for first, size in sizes.items() if first <= place) for place in range(versions)]


def named(spots: Sequence[VersionEvidence], rules: Rules = RULES) -> list[tuple[int, int]]:
    return [(change.before, change.after) for change in conclude(spots, rules=rules)]


@pytest.mark.parametrize("first", [1, 2, 7, 12, 18, 23])
@pytest.mark.parametrize("size", [0.095, -0.2])
def test_a_step_is_named_at_a_sixth_of_the_launches_of_full_rounds(first, size):
    spots, log = measured(steps_of(24, {first: size}), spread=0.01, seed=first)
    (found,) = conclude(spots, rules=RULES)
    kind = "first_bad" if size > 0 else "first_fixed"
    assert (found.before, found.after, found.kind, found.confirmed) == (first - 1, first, kind, True)
    assert found.effect is not None
    low, high = map(math.log, found.effect.bounds)
    assert low < size < high or abs(math.log(found.effect.value) - size) < 0.02
    assert sum(len(decision.launch) for decision in log) <= 24 * 8 / 6


def test_two_steps_are_both_found():
    """The middle level differs from both ends."""
    spots, _ = measured(steps_of(24, {8: 0.05, 15: 0.05}), spread=0.005, seed=1)
    assert named(spots) == [(7, 8), (14, 15)]


def test_both_sides_ran_side_by_side_before_a_version_is_named():
    """The judge compares them in at least three rounds."""
    spots, _ = measured(steps_of(24, {9: 0.2}), spread=0.01, seed=3)
    assert len(spots[8].figures.keys() & spots[9].figures.keys()) >= 3


@pytest.mark.parametrize("seed", range(20))
def test_noise_is_no_step(seed):
    spots, log = measured(steps_of(24, {}), spread=0.03, seed=seed)
    assert named(spots) == []
    assert log[-1].reason.startswith("both ends are good")


def test_noise_is_no_wrong_name():
    """The answer is the version, or an interval that contains it."""
    wrong = missed = 0
    for seed in range(many(10, 25)):
        first = 1 + seed % 23
        spots, _ = measured(steps_of(24, {first: 0.095}), spread=0.05, seed=seed)
        found = named(spots)
        missed += not found
        wrong += any(not before < first <= after for before, after in found)
    assert wrong == 0
    assert missed <= 2


def test_versions_without_figures_are_not_compared():
    """Launches that are too short to be timed: both ends are launched as usual, and nothing else."""
    spots = [VersionEvidence() for _ in range(9)]
    while (decision := decide(spots, rules=RULES)).launch:
        assert set(decision.launch) <= {0, 8}
        for place in decision.launch:
            count = spots[place].launches + 1
            spots[place] = VersionEvidence(launches=count, states={"outcome": Evidence(good=count)})
    assert decision.kind == "done"


def test_a_slower_version_is_not_called_bad():
    """Compared with an even slower baseline, it is not bad: the findings say what is bad, the search what it saw."""
    _, log = measured(steps_of(12, {5: 0.3}), spread=0.01, seed=1)
    assert log[-1].reason == "step_time: version 5 is the first version with slower steps"
    _, log = measured(steps_of(12, {5: -0.3}), spread=0.01, seed=1)
    assert log[-1].reason == "step_time: version 5 is the first version without slower steps"
