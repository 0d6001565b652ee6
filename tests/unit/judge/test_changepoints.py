"""Tables of rounds and versions: changes of a version are found, effects of the machine are not."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.special import chdtri

from harness.judge.comparison.noise import spread_within, without_rounds
from harness.judge.history.changepoints import (
    NOISES,
    Levels,
    find_levels,
    lay_out,
    least_found,
    level_evidence,
    likeliest_bounds,
    place_chances,
    place_change,
)
from harness.model import Floats, Spread
from tests.nightly import many

TEN_PER_CENT = math.log(1.1)
LIMIT = math.log(1.03)


def made(
    levels: list[float] | Floats, *, rounds: int = 5, sigma: float = 0.01, seed: int = 0, scale: float = TEN_PER_CENT
) -> Floats:
    """Return a table of logs; `levels` are in steps of ten per cent."""
    noise = np.random.default_rng(seed).normal(0, sigma, (rounds, len(levels)))
    return np.asarray(noise + np.asarray(levels) * scale)


def found(table: Floats) -> list[tuple[int, int]]:
    """Return the sides of the changes that are as large as the limit."""
    return [(shift.before, shift.after) for shift in levels_of(table).shifts if abs(shift.size) >= LIMIT]


def levels_of(table: Floats, *, least: float = LIMIT) -> Levels:
    return find_levels(lay_out(table), least=least, alpha=0.005)


STEP = [0] * 8 + [1] * 8


@pytest.mark.parametrize("first", range(1, 12))
def test_a_step_is_named_wherever_it_is(first):
    (shift,) = levels_of(made([0] * first + [1] * (12 - first), seed=first)).shifts
    assert (shift.before, shift.first, shift.after) == (first - 1, first, first)
    assert shift.size == pytest.approx(TEN_PER_CENT, abs=0.025)
    assert shift.interval[0] < shift.size < shift.interval[1]
    assert shift.interval[1] - shift.interval[0] < 0.04


def test_a_single_bad_version_under_a_step_too_small_to_count():
    """The small step fits more versions, and must not hide the large one."""
    assert found(made([0] * 5 + [1] + [0] * 4 + [0.2] * 10)) == [(4, 5), (5, 6)]


def test_what_a_round_does_is_no_version():
    """The machine is twice as slow in half of the rounds."""
    table = made(STEP)
    table[[1, 3]] += math.log(2)
    assert found(table) == [(7, 8)]


@pytest.mark.parametrize("version", [7, 8, 0, 15])
def test_one_launch_beside_a_neighbour_moves_nothing(version):
    """One launch of the last good version is twice as slow: its mean alone would make it the first bad one."""
    table = made(STEP, rounds=3)
    table[1, version] += math.log(2)
    assert found(table) == [(7, 8)]
    quiet = made([0] * 16, rounds=3)
    quiet[1, version] += math.log(2)
    assert found(quiet) == []


def test_versions_that_cannot_be_told_apart_are_an_interval():
    table = made(STEP, sigma=0.08, rounds=8, seed=4)
    (answer,) = found(table)
    assert answer[1] - answer[0] > 1
    assert answer[0] < 8 <= answer[1]


def test_figures_that_repeat_exactly():
    table = np.tile(np.array([0, 0, 0, 0, 1, 1], dtype=float), (3, 1))
    assert found(table) == [(3, 4)]
    assert found(np.zeros((3, 6))) == []
    assert found(np.tile([0.0, 1.0], (3, 1))) == [(0, 1)]


@pytest.mark.parametrize("versions", [2, 3, 4, 8])
def test_equal_versions_are_seldom_told_apart(versions):
    """The limit is no help here: the noise is 5 % in three rounds."""
    alarms = sum(bool(found(made([0] * versions, rounds=3, sigma=0.05, seed=seed))) for seed in range(150))
    assert alarms <= 3


seeds = st.integers(0, 2**31)


@given(seeds, st.permutations(range(5)))
@settings(max_examples=many(15, 150))
def test_the_order_of_rounds_changes_no_answer(seed, order):
    table = made([0] * 4 + [1] * 4, seed=seed, sigma=0.02)
    one, other = levels_of(table), levels_of(table[list(order)])
    assert [(k.before, k.after) for k in one.shifts] == [(k.before, k.after) for k in other.shifts]
    assert one.means == pytest.approx(other.means, abs=1e-9)


@given(seeds, st.floats(-10, 10))
@settings(max_examples=many(15, 150))
def test_a_faster_machine_changes_no_answer(seed, log_of_factor):
    table = made([0] * 4 + [1] * 4, seed=seed, sigma=0.02)
    assert found(table) == found(table + log_of_factor)


@given(seeds)
@settings(max_examples=many(15, 150))
def test_read_backwards_a_change_is_at_the_same_place(seed):
    table = made([0] * 5 + [1] * 4, seed=seed, sigma=0.01)
    assert found(table[:, ::-1]) == [(8 - after, 8 - before) for before, after in found(table)]


def test_the_noise_is_what_rounds_and_versions_do_not_explain():
    table = made(STEP, rounds=50, sigma=0.02) + np.arange(50)[:, None]
    spread = spread_within(table, np.isfinite(table))
    assert spread.deviation == pytest.approx(0.02, rel=0.05)
    assert spread.freedom == 49 * 15


def test_only_what_is_far_out_is_drawn_in():
    table = made(STEP, rounds=4)
    plain = table - table.mean(axis=1, keepdims=True)
    table[2, 3] += 5
    assert np.abs(without_rounds(table)[0] - plain).max() < 0.05
    pair = made([0, 1], rounds=3)
    assert without_rounds(pair)[0] == pytest.approx(pair - pair.mean(axis=1, keepdims=True))


@pytest.mark.parametrize(("versions", "times"), [(8, 5), (8, 12), (16, 8)])
def test_one_version_that_is_only_noisier_is_accused_of_nothing(versions, times):
    """The noise of all launches together stands for none of its own: its mean alone is far from the others."""
    accused, count = 0, many(40, 400)
    for seed in range(count):
        deviations = np.where(np.arange(versions) == seed % versions, 0.02 * times, 0.02)
        noise = np.random.default_rng(seed).normal(0, deviations, (3, versions))
        accused += bool([shift for shift in levels_of(noise).shifts if abs(shift.size) >= TEN_PER_CENT])
    assert accused <= 0.04 * count + 3 * math.sqrt(0.04 * count)


def test_a_thousand_versions():
    """The number of stretches grows with the square of the versions; the time must not."""
    assert found(made([0] * 400 + [1] * 600, rounds=3)) == [(399, 400)]


def wandering(rounds, versions, noise, seed):
    """Return a table of levels that change at random."""
    rng = np.random.default_rng(seed)
    steps = np.random.default_rng(seed).choice([0, 0, 0, 0.1, -0.1, 0.3], versions)
    return rng.normal(0, noise, (rounds, versions)) + np.cumsum(steps)


tables = st.builds(wandering, st.integers(2, 4), st.integers(2, 40), st.floats(0.001, 0.3), seeds)


def overlapping():
    """Return a table of stairs, in which one launch of the second one took half as long again."""
    table = made([0, 2, 2, 4, 4, 6, 8], rounds=4, sigma=0.02, seed=3)
    table[2, 2] += 0.4
    return table


@given(tables)
@example(wandering(2, 24, 0.03125, 24))  # a change right after a drift
@example(overlapping())  # either step may be at the launch that took longer
@settings(max_examples=many(32, 800))
def test_no_two_changes_are_at_one_place_and_each_is_between_its_levels(table):
    """ "First bad 19 to 20" and "first fixed 19 to 20" were both said of one series."""
    levels = levels_of(table)
    firsts = [shift.first for shift in levels.shifts]
    assert firsts == sorted(set(firsts))
    for old, new, shift in zip(levels.means, levels.means[1:], levels.shifts, strict=False):
        assert 0 <= shift.before < shift.first <= shift.after < table.shape[1]
        assert shift.interval[0] <= shift.size <= shift.interval[1]
        if not shift.drift:
            assert shift.size == pytest.approx(new - old, abs=0.02)
            assert (shift.size > 0) == (new > old)
    for one, other in zip(levels.shifts, levels.shifts[1:], strict=False):
        assert one.before < other.before
        assert one.after < other.after


@pytest.mark.parametrize("seed", range(6))
def test_levels_that_come_and_go_are_all_found(seed):
    """No stretch of them differs much from the rest."""
    table = made((np.arange(80) // 10) % 2, rounds=3, sigma=0.02, seed=seed)
    assert found(table) == [(first - 1, first) for first in range(10, 80, 10)]


@pytest.mark.parametrize("versions", [10, 24, 50, 90])
@pytest.mark.parametrize("bad", [0, 3, -1])
def test_one_bad_version_is_found_in_three_rounds(versions, bad):
    """This matters most for the newest version, because users ask about that one."""
    level = [0.0] * versions
    level[bad] = 1.0
    place = bad % versions
    sides = [(place - 1, place), (place, place + 1)]
    assert found(made(level, rounds=3, sigma=0.015, seed=versions)) == [
        (old, new) for old, new in sides if old >= 0 and new < versions
    ]


def test_many_changes_of_a_long_series_take_no_more_than_they_must():
    assert len(found(made((np.arange(400) // 10) % 2, rounds=3, sigma=0.02))) == 39


def test_one_launch_of_each_version_says_what_is_missing():
    with pytest.raises(ValueError, match="show no noise"):
        lay_out(np.zeros((1, 5)))


@pytest.mark.parametrize("seed", range(10))
def test_levels_just_above_the_limit_are_found_though_one_of_them_looks_smaller(seed):
    """A change every ten versions, a little above the limit: noise takes some levels below the
    limit, but not the rest.
    """
    truth = [10, 20, 30, 40, 50, 60, 70]
    table = made([1.05 * ((version // 10) % 2) for version in range(80)], rounds=3, sigma=0.02, seed=seed)
    shifts = find_levels(lay_out(table), least=TEN_PER_CENT, alpha=0.005).shifts
    assert len(shifts) >= 3
    assert all(any(shift.before < first <= shift.after for first in truth) for shift in shifts)
    assert all(one.size * other.size < 0 for one, other in itertools.pairwise(shifts)), "each rise ends in a fall"


@pytest.mark.parametrize("bad", [3, -1])
def test_a_version_that_varies_more_than_the_others_is_not_accused(bad):
    """In 13 of 100 rows of equal versions, the one whose launches varied 12 times as much was accused."""
    wrong = 0
    for seed in range(60):
        table = made([0.0] * 8, seed=seed)
        table[:, bad] *= 12
        wrong += any(abs(shift.size) >= TEN_PER_CENT for shift in levels_of(table).shifts)
    assert wrong <= 1


def test_levels_that_differ_by_less_than_the_limit_stay_distinct():
    found = levels_of(made([0.0] * 10 + [0.9] * 10 + [0.02] * 10 + [1.1] * 10 + [0.2] * 10), least=TEN_PER_CENT)
    assert [shift.first for shift in found.shifts] == [10, 20, 30, 40]
    assert found.means[3] - found.means[0] == pytest.approx(1.1 * TEN_PER_CENT, abs=0.01)


series = st.lists(st.floats(-3, 3), min_size=1, max_size=7).map(np.array)


def left(means: Floats) -> float:
    return float(((means - means.mean()) ** 2).sum())


@given(series, st.floats(0.1, 3), st.floats(0.1, 10))
@settings(max_examples=many(24, 600))
def test_no_other_split_is_better(means, variance, penalty):
    """A change that is missed at this point is never found again."""

    def cost(bounds: tuple[int, ...]) -> float:
        parts = itertools.pairwise((0, *bounds, len(means)))
        return sum(left(means[begin:end]) / variance + penalty for begin, end in parts)

    found = likeliest_bounds(means, variance=variance, penalty=penalty)
    every = [
        cost(bounds)
        for count in range(len(means))
        for bounds in itertools.combinations(range(1, len(means)), count)
    ]  # fmt: skip
    assert cost(tuple(found)) == pytest.approx(min(every), abs=1e-6)


ALPHA = 0.0064


@given(st.integers(2, 7), st.integers(4, 200), st.integers(20, 500))
@settings(max_examples=many(24, 600))
def test_more_rounds_hide_less(rounds, versions, freedom):
    spread = Spread(deviation=0.02, freedom=freedom)
    fewer, more = (least_found(spread, rounds=each, versions=versions, alpha=ALPHA) for each in (rounds, rounds + 1))
    assert more < fewer


@pytest.mark.parametrize(("rounds", "versions"), [(2, 2), (2, 24), (3, 3), (3, 6), (3, 24), (3, 90), (5, 24)])
def test_one_bad_version_of_twice_what_is_visible_is_found(rounds, versions):
    """Among 90 versions in three rounds, 4.3 % was promised, but 10 % was found in none of three histories."""
    found, count = 0, many(10, 20)
    for seed in range(count):
        rng = np.random.default_rng([seed, rounds, versions])
        table, bad = rng.normal(0, 0.02, (rounds, versions)), int(rng.integers(versions))
        spread = lay_out(table).spread
        table[:, bad] += 2 * least_found(spread, rounds=rounds, versions=versions, alpha=ALPHA)
        shifts = find_levels(lay_out(table), least=0.01, alpha=ALPHA).shifts
        found += any(shift.before < bad <= shift.after for shift in shifts) or (bad == 0 and bool(shifts))
    assert found >= 0.95 * count


# ---------------------------------------------------------------- which versions may be the first of a level

LOTS = 100_000
"""Degrees of freedom for known noise."""
few_means = st.lists(st.floats(-1, 1), min_size=3, max_size=6).map(np.array)


def evidence(level_of: Floats, variance: float) -> float:
    """Return the evidence for one level of these versions, with the level integrated out by formula (flat prior); not a
    log.
    """
    count, rest = len(level_of), level_of - level_of.mean()
    density = (2 * math.pi * variance) ** (-(count - 1) / 2) / math.sqrt(count)
    return density * math.exp(-float(rest @ rest) / (2 * variance))


@given(few_means, st.floats(0.3, 1.0))
@settings(max_examples=many(24, 600))
def test_the_probability_of_each_place_is_that_of_both_levels_beside_it(means, deviation):
    """Everything that is named depends on these probabilities."""
    count, likely = len(means), np.zeros(len(means) - 1)
    found = place_chances(means, np.arange(1, count), rounds=1, spread=Spread(deviation=deviation, freedom=3))
    for variance in map(float, deviation**2 * 3 / chdtri(3, (np.arange(NOISES) + 0.5) / NOISES)):
        likely += [evidence(means[:at], variance) * evidence(means[at:], variance) for at in range(1, count)]
    assert found == pytest.approx(likely / likely.sum(), abs=1e-9)


def test_the_level_is_integrated_out():
    """Quadrature over the level gives the same result."""
    from scipy import integrate  # here, because every process of pytest imports every file

    values, variance = np.array([0.1, 0.3, 0.25]), 0.04
    density = lambda level: math.prod(  # noqa: E731
        math.exp(-((value - level) ** 2) / (2 * variance)) / math.sqrt(2 * math.pi * variance) for value in values
    )
    whole, _ = integrate.quad(density, -5, 5)
    assert math.exp(level_evidence(values, np.array([0, 3]), variance=variance)[0, 1]) == pytest.approx(
        whole / 1.0, rel=1e-6
    )


def place(means: list[float], deviation: float, near: int) -> tuple[int, int, int]:
    places = range(max(1, near - 100), min(len(means), near + 100))
    return place_change(np.array(means), places, rounds=4, spread=Spread(deviation=deviation, freedom=LOTS))


def test_a_clear_step_has_a_name():
    assert place([0, 0, 0, 1, 1, 1], 0.1, 3) == (3, 3, 3)


def test_a_version_halfway_belongs_to_neither_side():
    _, low, high = place([0, 0, 0, 0.5, 1, 1, 1], 0.5, 3)
    assert low <= 3
    assert high >= 4


@given(st.floats(0.01, 3.0), st.floats(-2, 2), st.integers(0, 2**31))
@settings(max_examples=many(8, 200))
def test_units_and_offsets_are_no_matter(factor, offset, seed):
    means = np.random.default_rng(seed).normal(0, 0.3, 8) + np.array([0, 0, 0, 1, 1, 1, 1, 1])
    assert place(list(means), 0.3, 3) == place(list(means * factor + offset), 0.3 * factor, 3)


@given(st.integers(0, 2**31))
@settings(max_examples=many(8, 200))
def test_read_backwards_the_same_place_is_found(seed):
    means = np.random.default_rng(seed).normal(0, 0.3, 9) + np.array([0, 0, 0, 0, 1, 1, 1, 1, 1])
    (_, low, high), (_, *other) = place(list(means), 0.3, 4), place(list(means[::-1]), 0.3, 5)
    assert [9 - each for each in reversed(other)] == [low, high]


def test_a_long_series_is_as_cheap_near_its_change():
    means = np.zeros(5000)
    means[2500:] = 1.0
    assert place(list(means), 0.1, 2500) == (2500, 2500, 2500)
