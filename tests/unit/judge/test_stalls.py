"""Stalls of rare steps are found; heavy tails that all versions have, and slower steps, are not accused of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from harness.judge.comparison.level_rules import SHORTEST_S, launch_figure_of
from harness.judge.history.changes import find_changes
from harness.model import Floats, Trial
from harness.model.measured import Facts, RankFacts
from tests.nightly import many
from tests.players.trials import of_row, times, trial_of


def launch(number: int, step_s: Floats) -> Trial:
    trial = trial_of(number, steps=len(step_s))
    assert trial.trace is not None
    trial.trace.columns["step_s"][:] = step_s
    return trial


def plain(seed: int) -> Floats:
    return times(0.3, steps=2000, seed=seed)


def stalled(seed: int) -> Floats:
    """Return step times of which every 400th is a stall of 200 ms, as at a checkpoint."""
    step_s = plain(seed)
    step_s[399::400] += 0.2
    return step_s


def paused(seed: int) -> Floats:
    """Return step times with about five pauses of 50 ms in 4,000 steps, at random."""
    return np.asarray(plain(seed) + 0.05 * (np.random.default_rng(seed).random(2000) < 5 / 4000))


def test_stalls_that_the_median_and_the_tail_do_not_show_are_found() -> None:
    """An epoch took 2.6 times as long, and all cells were flat."""
    trials = [[launch(number, plain(number)) for number in range(5)]]
    trials.append([launch(number, stalled(100 + number)) for number in range(5)])
    (found,) = find_changes(of_row(trials))
    assert (found.metric, found.effect is not None) == ("stalls", True)
    assert found.effect is not None
    assert found.effect.value == pytest.approx((0.3 + 200 / 400) / 0.3, rel=0.15)


def test_a_warm_up_that_takes_longer_is_found() -> None:
    """A version that tunes its kernels in the first 50 steps made each launch 5 s longer, and nothing was said."""

    def tuned(seed: int) -> Floats:
        step_s = plain(seed)
        step_s[1:51] += 0.1
        return step_s

    trials = [[launch(n, plain(n)) for n in range(3)], [launch(n, tuned(100 + n)) for n in range(3)]]
    (found,) = find_changes(of_row(trials))
    assert found.metric == "warm_up"
    figure = launch_figure_of("warm_up", trials)
    assert [figure(trial) for trial in trials[1]] == pytest.approx([5.0] * 3, rel=0.05)


def test_slower_steps_and_another_mix_of_steps_are_no_stalls() -> None:
    """Steps of two kinds, 1 and 3 units long: the median is of the shorter or of the longer kind."""

    def two_kinds(share: float, seed: int) -> Floats:
        return np.asarray(plain(seed) * np.where(np.random.default_rng(seed).random(2000) < share, 3, 1))

    for slower in (lambda seed: 2 * plain(seed), lambda seed: two_kinds(0.4, seed)):
        trials = [[launch(n, two_kinds(0.6, n)) for n in range(5)], [launch(n, slower(100 + n)) for n in range(5)]]
        assert "stalls" not in {change.metric for change in find_changes(of_row(trials))}


def test_pauses_at_random_in_all_versions_accuse_nobody() -> None:
    seeds = range(many(20, 300))
    accused = Counter(
        change.metric
        for seed in seeds
        for change in find_changes(
            of_row([[launch(n, paused(seed * 1000 + v * 50 + n)) for n in range(5)] for v in range(4)])
        )
    )
    assert accused["stalls"] <= 0.03 * len(seeds)


def test_a_slow_end_is_found_and_an_end_that_takes_no_time_has_a_figure() -> None:
    """After training, a version hung for six seconds before it ended."""

    def ended(end_s: float, *, number: int = 0) -> Trial:
        trial = launch(number, plain(number))
        return replace(trial, facts=Facts(end_s=end_s))

    trials = [[ended(0.02 * (1 + n), number=n) for n in range(3)], [ended(6.0 + 0.1 * n, number=n) for n in range(3)]]
    (found,) = find_changes(of_row(trials))
    assert (found.metric, found.kind) == ("end_time", "first_bad")
    figure = launch_figure_of("end_time", trials)
    assert [figure(trial) for trial in trials[0]] == [SHORTEST_S] * 3
    assert figure(replace(trials[0][0], end="crash")) is None


def test_a_slow_start_is_found_and_one_of_cold_layers_is_not() -> None:
    """The entrypoint of an image took six seconds. The first launch of an image reads its layers from the disk."""

    def row(*starts_s: Sequence[float]) -> list[list[Trial]]:
        return [
            [replace(launch(number, plain(number)), facts=Facts(start_s=each)) for number, each in enumerate(version)]
            for version in starts_s
        ]

    usual = [0.41, 0.44, 0.39]
    (found,) = find_changes(of_row(row(usual, [6.0, 6.2, 6.1])))
    assert (found.metric, found.kind) == ("start_time", "first_bad")
    for cold in ([9.0, 0.4, 0.43], [9.0, 0.4], [9.0, 0.41, 0.4, 0.43, 0.45]):
        assert not find_changes(of_row(row(usual[: len(cold)], cold)))


def test_a_rank_that_is_slower_than_the_others_is_found_without_its_waits() -> None:
    """Ranks that wait for each other take equally long: the step time says that all are slower, and not which."""

    def ranked(slowest_s: float, *, number: int) -> Trial:
        own_s = (0.010 + 0.0001 * number, slowest_s + 0.0001 * number, 0.0102)
        ranks = tuple(RankFacts(rank=place, steps=1, own_s=each, step_s=0.02) for place, each in enumerate(own_s))
        return replace(launch(number, plain(number)), facts=Facts(ranks=ranks))

    trials = [[ranked(0.0105, number=n) for n in range(5)], [ranked(0.0150, number=n) for n in range(5)]]
    found = [change for change in find_changes(of_row(trials)) if change.metric == "rank_spread"]
    assert [change.kind for change in found] == ["first_bad"]
    figure = launch_figure_of("rank_spread", trials)
    assert figure(trials[1][0]) == pytest.approx(0.0150 / 0.0101)
    assert figure(replace(trials[1][0], facts=Facts())) is None
