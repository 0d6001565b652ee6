"""Figures from any source: in rounds like step times, or one per version, with the noise estimated from neighbours."""

from __future__ import annotations

import numpy as np
import pytest

from harness.judge.history.figure_history import judge_figures
from harness.model import Floats, SeriesVerdict

TENTH = 0.1


def judged(figures: Floats | list[float], *, sigma: float = 0.02, rounds: int = 1, seed: int = 0) -> SeriesVerdict:
    noise = np.random.default_rng(seed).normal(0, sigma, (rounds, len(figures)))
    names = [str(place) for place in range(len(figures))]
    return judge_figures(np.asarray(figures, dtype=float) * np.exp(noise), names, history="x", limit=TENTH)


def told(found: SeriesVerdict) -> list[tuple[str, int, int]]:
    return [(change.kind, change.begin, change.after) for change in found.changes]


ONE = np.ones(25)


@pytest.mark.parametrize("seed", range(5))
def test_a_step_of_single_figures_is_named(seed):
    found = judged(np.concatenate([ONE, 1.25 * ONE]), seed=seed)
    assert told(found) == [("first_bad", 24, 25)]
    assert found.alone
    assert found.noise == pytest.approx(0.02, rel=0.6)


@pytest.mark.parametrize("count", [8, 12, 20])
def test_a_step_in_a_short_history_is_named(count: int) -> None:
    """Of eight nightly figures, four near 100 and four near 125, nothing was found, nor of most with twelve."""
    half = count // 2
    figures = np.repeat([1.0, 1.25], half)
    hits = [("first_bad", half - 1, half) in told(judged(figures, seed=seed)) for seed in range(20)]
    assert sum(hits) >= 18
    assert not any(judged(np.ones(count), seed=seed).changes for seed in range(100))


@pytest.mark.parametrize("levels", [[1.0] * 3 + [1.3] * 3 + [1.0] * 4, [1.0] * 4 + [1.2] * 4 + [1.5] * 4])
def test_an_episode_and_a_stair_in_a_short_history_are_named(levels: list[float]) -> None:
    """Ten nightly figures, three of them 30 % above the others, were quiet, and only 2.7 times would have shown."""
    figures = np.array(levels)
    hits = [judged(figures, sigma=0.01, seed=seed).changes for seed in range(20)]
    first = int(np.flatnonzero(np.diff(figures))[0])
    named = [bool(found) and found[0].begin <= first < found[0].after for found in hits]
    assert sum(named) >= 18
    assert not any(judged(np.ones(len(levels)), sigma=0.01, seed=seed).changes for seed in range(100))


@pytest.mark.parametrize(
    ("lengths", "sigma"), [((5,) * 4, 0.02), ((4, 4, 3, 4), 0.01), ((6,) * 5, 0.015), ((6,) * 6, 0.02)]
)
def test_stairs_of_several_levels_are_named(lengths: tuple[int, ...], sigma: float) -> None:
    """Four stairs of 20 % raised figures by 73 %, which passed for a correlation of 0.9 between neighbours."""
    figures = np.repeat(1.2 ** np.arange(len(lengths)), lengths)
    found = [judged(figures, sigma=sigma, seed=seed) for seed in range(20)]
    assert sum(len(each.changes) == len(lengths) - 1 for each in found) >= 15
    assert not any(judged(np.ones(len(figures)), sigma=sigma, seed=seed).changes for seed in range(100))


def test_equal_figures_have_no_correlation() -> None:
    """Beside a noise of 0 %, a correlation of 0.3 was told, which is only assumed."""
    assert judged(np.ones(9), sigma=0.0).correlation == 0.0


@pytest.mark.parametrize(("count", "correlation"), [(8, 0.0), (12, 0.6), (30, 0.8)])
def test_what_is_said_to_show_does(count: int, correlation: float) -> None:
    """The output says `only a change of 12 % would have shown`: at least half of such changes must."""
    visible = np.median([following(correlation, count, seed).visible for seed in range(60)])
    change = np.where(np.arange(count) < count - 4, 1.0, 1.0 + visible)
    hits = [following(correlation, count, seed, change=change).changes for seed in range(60, 120)]
    assert sum(map(bool, hits)) >= 24


def test_a_few_newest_versions_are_enough():
    assert told(judged(np.concatenate([np.ones(45), np.full(4, 1.25)]))) == [("first_bad", 44, 45)]


def test_a_single_figure_that_is_far_off_is_no_change():
    """It is unknown whether the version or the machine caused it."""
    found = judged(np.concatenate([ONE, [1.5], ONE]))
    assert (found.changes, found.odd) == ((), ("25",))
    assert judged(np.concatenate([ONE, [1.5]])).odd == ("25",)


def test_where_single_figures_are_often_far_off_two_in_a_row_are_no_level():
    """A quarter of the histories in which one figure in ten is half as large again had a finding."""
    found = 0
    for seed in range(20):
        slow = np.random.default_rng([seed, 1]).random(60) < 0.1
        found += bool(judged(np.where(slow, 1.5, 1.0), sigma=0.005, seed=seed).changes)
    assert found <= 2
    assert told(judged([*[1.0] * 56, 1.3, 1.3])) == [("first_bad", 55, 56)], "no other figure is odd"


def test_changes_do_not_pass_for_noise():
    """Differences between neighbours are small, except for a few."""
    found = judged(np.repeat([1, 1.25, 1, 1.3, 0.9], 15))
    assert told(found) == [
        ("first_bad", 14, 15),
        ("first_fixed", 29, 30),
        ("first_bad", 44, 45),
        ("first_fixed", 59, 60),
    ]


def test_a_drift_does_not_pass_for_noise():
    (change,) = judged(np.linspace(1, 1.4, 60)).changes
    assert change.kind == "drift"


def test_an_improvement_is_told_but_is_no_finding():
    found = judged(np.concatenate([ONE, 0.7 * ONE]))
    assert told(found) == [("better", 24, 25)]
    assert found.verdict != "worse"


@pytest.mark.parametrize("sigma", [0, 0.02, 0.1])
@pytest.mark.parametrize("versions", [8, 20, 60])
def test_equal_versions_are_quiet(sigma, versions):
    """A history without a change is accused with a chance of less than 1 %."""
    assert sum(bool(judged(np.ones(versions), sigma=sigma, seed=seed).changes) for seed in range(100)) <= 1


def test_too_few_tell_nothing():
    assert judged(np.ones(7)).noise is None
    assert judged(np.ones(2), rounds=3).noise is not None
    assert judged(np.ones(1), rounds=3).noise is None


def test_what_shows_is_said():
    """For single figures, the minimum detectable effect is not that of a single version."""
    alone, three = judged(np.ones(40)), judged(np.ones(40), rounds=3)
    assert (alone.lasting, three.lasting) == (4, 1)
    assert three.visible is not None
    assert 0.03 < three.visible < 0.1


def test_a_change_in_the_series_is_no_noise_in_what_shows():
    """Beside "first bad: 2.01 times" it said that only a change of more than tenfold would have shown."""
    changed, even = judged([1, 1, 1, 1, 1, 2, 2, 2, 2], sigma=0.01), judged(np.ones(9), sigma=0.01)

    assert told(changed) == [("first_bad", 4, 5)]
    assert changed.visible is not None
    assert even.visible is not None
    assert changed.visible < 2 * even.visible


def following(correlation: float, versions: int, seed: int, *, change: Floats | float = 1.0) -> SeriesVerdict:
    """Return the verdict on a history whose noise follows itself, and which is quiet without a `change`."""
    noise = np.random.default_rng(seed).normal(0, 0.03, versions)
    for place in range(1, versions):
        noise[place] = correlation * noise[place - 1] + np.sqrt(1 - correlation**2) * noise[place]
    names = [str(place) for place in range(versions)]
    return judge_figures((change * np.exp(noise))[None, :], names, history="x", limit=0.03)


def test_load_that_lasts_accuses_no_version() -> None:
    """Of quiet histories whose figures follow one another, seven in ten were accused, and the more they did so, the
    smaller was the change that was said to show."""
    shown = []
    for correlation in (0.0, 0.3, 0.6, 0.8):
        found = [following(correlation, 60, seed) for seed in range(60)]
        assert sum(one.verdict == "worse" for one in found) <= 3
        shown.append(np.median([one.visible or np.inf for one in found]))
    assert shown == sorted(shown)
    assert shown[3] > 2 * shown[0]


@pytest.mark.parametrize("versions", [8, 12])
def test_half_of_the_changes_that_are_said_to_show_do(versions):
    """It was a fifth for eight versions: the change itself is one of the differences that the noise is taken from."""
    shown = 0
    for seed in range(80):
        visible = judged(np.ones(versions), seed=seed).visible
        assert visible is not None
        newest = np.where(np.arange(versions) < versions - 4, 1.0, 1 + max(visible, TENTH))
        shown += bool(judged(newest, seed=seed).changes)
    assert 0.35 < shown / 80 < 0.75
