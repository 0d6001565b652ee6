"""Drift: a loss of 1 % per version is found, and a quiet history is accused at most at the published rate."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
import pytest

from harness.judge.history.drift import FEWEST, LevelPoint, drift_of
from harness.model import Drift

LIMIT = math.log1p(0.05)


def watched(
    logs: Iterable[float], *, sigma: float = 0.01, launches: int = 3, seed: int = 1, anchor: bool = True
) -> list[LevelPoint]:
    """Return the runs of a watch: each version with the one before it and the oldest; days differ."""
    rng, true, points = np.random.default_rng(seed), list(logs), []
    for run in range(1, len(true)):
        day = rng.normal(0, 0.1)
        for version in sorted({run, run - 1} | ({0} if anchor else set())):
            value = true[version] + day + rng.normal(0, sigma / math.sqrt(launches))
            points.append(LevelPoint(run=run, version=version, log=float(value), launches=launches))
    return points


def judged(points: list[LevelPoint], *, least: float = LIMIT, signal: str = "step_time") -> Drift | None:
    return drift_of(points, [f"{place}" for place in range(40)], signal=signal, least=least)


def test_one_percent_a_version_is_found_over_twelve() -> None:
    found = judged(watched(math.log(1.01) * number for number in range(12)))
    assert found is not None
    assert (found.first, found.last, found.versions, found.runs) == ("0", "11", 12, 11)
    assert found.p < 1e-4


def test_its_interval_holds_the_truth_as_often_as_it_says() -> None:
    logs = [math.log(1.01) * number for number in range(12)]
    found = [judged(watched(logs, seed=seed)) for seed in range(60)]
    held = sum(one is not None and one.effect.bounds[0] < math.exp(logs[-1]) < one.effect.bounds[1] for one in found)
    assert held >= 53


def test_it_is_found_after_a_quiet_time() -> None:
    """Twenty quiet versions hide the slope of the last twelve from a line through all versions."""
    found = judged(watched([0.0] * 20 + [math.log(1.01) * number for number in range(12)]))
    assert found is not None
    assert 12 <= int(found.first) <= 22


def test_a_step_is_no_drift() -> None:
    """`since 1.7`, which a sweep gives, is the answer there; "gradually" would send the reader to the wrong place."""
    assert judged(watched([0.0] * 6 + [0.12] * 6)) is None


def test_what_gets_better_is_no_drift() -> None:
    assert judged(watched(-math.log(1.01) * number for number in range(12))) is None


def test_a_drift_below_the_limit_is_not_told() -> None:
    assert judged(watched(0.002 * number for number in range(12))) is None


def test_runs_that_share_no_version_say_nothing_together() -> None:
    """A machine that gets slower from day to day looks like a drift of the versions."""
    points = [LevelPoint(run=run, version=run, log=0.01 * run, launches=3) for run in range(12)]
    assert judged(points) is None
    assert judged([]) is None


def test_few_versions_are_not_judged() -> None:
    assert judged(watched(0.05 * number for number in range(FEWEST - 1))) is None
    assert judged(watched(0.05 * number for number in range(FEWEST + 1))) is not None


def test_figures_without_noise_are_judged() -> None:
    """The size of an image is exact."""
    points = watched((0.02 * number for number in range(12)), sigma=0.0)
    found = judged(points, signal="image_size")
    assert found is not None
    assert math.log(found.effect.value) == pytest.approx(0.22)


@pytest.mark.parametrize(("sigma", "least"), [(0.01, LIMIT), (0.05, LIMIT), (0.05, math.log1p(0.01))])
def test_quiet_histories_are_not_accused(sigma: float, least: float) -> None:
    """The published rate is 1 % of the histories, over all signals and looks."""
    accused = sum(judged(watched([0.0] * 16, sigma=sigma, seed=seed), least=least) is not None for seed in range(60))
    assert accused <= 2
