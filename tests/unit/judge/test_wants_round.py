"""Rounds go on as long as the comparison is too wide, whatever it shows; the noise of equal images is a lower bound."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from harness.judge.comparison.compared_levels import Compared
from harness.judge.comparison.noise import floor, noise_of, pooled
from harness.judge.comparison.round_tables import RoundTable
from harness.judge.history.changes import find_changes, known_levels
from harness.judge.history.precision import rises, rises_of_levels, too_wide, wants_round
from harness.model import TIMES, Change, Limits, Noise, Spread, Trial, Trials
from tests.nightly import many
from tests.players.trials import LIMITS, STEPS, cell_of, failed, of_row, trial_of

ASKED = Trials(least=3, most=8)


def row(ms: list[float], *, rounds: int = 3, spread: float = 0.0, seed: int = 0) -> list[list[Trial]]:
    """Return trials whose launches differ by `spread`, in addition to 1 %."""
    factors = np.exp(np.random.default_rng(seed).normal(0, spread, (rounds, len(ms))))
    return [
        [trial_of(n, ms=each * factors[n, place], seed=place + 100 * seed, steps=1000) for n in range(rounds)]
        for place, each in enumerate(ms)
    ]


def wanted(trials: list[list[Trial]], *, limits: Limits = LIMITS, **more) -> str | None:
    return wants_round(trials, limits=limits, steps=STEPS, trials_asked=ASKED, **more)


def test_quiet_launches_are_enough():
    assert wanted(row([1, 1, 1, 1, 1.5, 1.5])) is None


def test_a_version_that_is_bad_because_of_nan_asks_for_no_rounds():
    """Its steps do other work, so its times are compared with nothing: it had 8 launches in place of 3."""
    trials = [[returning(trial, 0.5) for trial in version] for version in row([1] * 6)]
    noisy = row([1] * 6, spread=0.1)[2]
    trials[2] = [returning(trial, 0.5) for trial in noisy]
    assert wanted(trials) is not None
    trials[2] = [replace(returning(trial, math.nan), not_finite={"loss": (1000, 1)}) for trial in noisy]
    assert wanted(trials) is None


def returning(trial: Trial, loss: float) -> Trial:
    """Return the trial with the same loss in each step."""
    assert trial.trace is not None
    columns = {**trial.trace.columns, "loss": np.full(len(trial.trace.step), loss)}
    return replace(trial, trace=replace(trial.trace, columns=columns))


def test_noisy_launches_ask_for_more_and_say_why():
    reason = wanted(row([1] * 6, spread=0.1))
    assert reason is not None
    assert reason.startswith("step time may have risen by up to ")
    assert reason.endswith("the limit is 10.0%")


def test_a_version_that_is_certainly_bad_asks_for_no_rounds():
    """A step by a factor of three is obvious: nobody waits for its third digit."""
    quiet, changed = row([1] * 6, spread=0.1), row([1, 1, 1, 3, 3, 3], spread=0.02)
    assert wanted(quiet) is not None
    assert wanted(changed) is None


@pytest.mark.parametrize(("spread", "reason"), [(0.5, "output seems to have changed"), (0.05, ""), (0.0, "")])
def test_what_seems_to_have_changed_is_launched_until_chance_does_not_explain_it(spread: float, reason: str):
    """A server took 3 s in place of 0.15 s to be ready, in four launches of four, and the sweep ended with "may be due
    to chance", though many launches were left."""
    noise, trials = np.random.default_rng(0), row([1] * 3)
    for version, size in zip(trials, (1e6, 1e7, 1e7), strict=True):
        factors = np.exp(noise.normal(0, spread, len(version)))
        version[:] = [
            replace(trial, output=replace(trial.output, bytes=int(size * factor)))
            for trial, factor in zip(version, factors, strict=True)
        ]
    assert (wanted(trials) or "").startswith(reason)
    assert bool(wanted(trials)) is bool(reason)


@pytest.mark.parametrize("launches", [(-0.11, -0.16, -0.20), (0.10, 0.10, 0.08, 0.33)])
def test_a_version_that_may_only_be_noisier_is_launched_again_before_one_is_accused(launches: tuple[float, ...]):
    """Of equal versions, one varied more than the others. In three launches it was quicker by chance, and the version
    after it was accused; or three of four launches were alike, and the fourth counted as an outlier."""
    logs = np.random.default_rng(4).normal(0, 0.02, (len(launches), 8))
    logs[:, 4] = launches
    table = RoundTable(values=logs, positions=tuple(range(8)))
    assert known_levels("step_time", table, limit=0.1).changes()
    assert too_wide("step_time", table, limit=0.1, most=8) is not None


def test_rounds_that_could_not_decide_anything_are_not_asked_for():
    """A healthy loader of a noisy store took 64 launches and ended with a question mark all the same."""
    assert wanted(row([1] * 4, spread=0.1)) is not None
    ended = [wanted(row([1] * 4, rounds=5, spread=0.8, seed=seed)) is None for seed in range(12)]
    assert sum(ended) >= 7


def test_a_tighter_limit_takes_more_rounds():
    trials = row([1] * 6)
    assert wanted(trials, limits=Limits(signals={"step_time": 0.01})) is not None


def test_what_the_limits_leave_out_is_not_compared():
    """A user who asks only for leaks pays for no rounds, and reads nothing about step times."""
    trials, limits = (
        row([1, 1, 1, 1, 3, 3], spread=0.3),
        Limits(signals=dict.fromkeys(TIMES)),
    )
    assert wanted(trials, limits=limits) is None
    assert list(rises_of_levels(of_row(trials, limits=limits))) == ["peak_memory"]
    slower = row([1, 1, 1, 1, 3, 3])
    cells = [cell_of(each) for each in slower]
    told = [
        bool(find_changes(Compared(cells=cells, trials=slower, steps=STEPS, limits=each))) for each in (LIMITS, limits)
    ]
    assert told == [True, False]


def test_there_is_an_end():
    assert wanted(row([1] * 4, rounds=8, spread=0.3)) is None


def test_a_version_that_has_had_all_its_launches_ends_the_comparison():
    """Rounds of the other versions have no place in a table of full rounds: their launches were wasted."""
    trials = row([1] * 4, spread=0.1)
    assert wanted(trials) is not None
    trials[1] += [trial_of(number, steps=1000) for number in range(100, 100 + ASKED.most - 3)]
    assert wanted(trials) is None


def test_single_versions_and_failures_ask_for_nothing():
    assert wanted(row([1], spread=0.3)) is None
    assert wanted([]) is None
    assert wanted([[failed(n) for n in range(3)], *row([1], spread=0.3)]) is None


def test_a_version_that_cannot_run_is_left_out():
    assert wanted([*row([1, 1, 1]), []]) is None
    assert wanted([*row([1] * 4, spread=0.1), []]) is not None


def test_known_noise_helps_two_versions():
    """Three rounds of two versions leave two degrees of freedom."""
    trials = row([1, 1], spread=0.07, seed=1)
    assert wanted(trials) is not None
    assert wanted(trials, noise={"step_time": Spread(deviation=0.01, freedom=20)}) is None


def test_memory_peaks_ask_for_rounds_too():
    peaks = np.log(80_000.0) + np.random.default_rng(0).normal(0, 0.15, (3, 6))
    table = RoundTable(values=peaks, positions=tuple(range(6)))
    reason = too_wide("peak_memory", table, limit=0.1, most=8)
    assert reason is not None
    assert "peak memory" in reason
    small = RoundTable(values=peaks - math.log(80), positions=table.positions)
    assert too_wide("peak_memory", small, limit=0.1, most=8) is None


# ---------------------------------------------------------------- what can be seen


def ruled_out(trials: list[list[Trial]], metric: str = "step_time", **more) -> list[float]:
    """Return the change, a log, that is ruled out for each version."""
    known = rises_of_levels(of_row(trials, **more))
    return [rise.high for rise in known[metric].values()]


def test_what_is_ruled_out_is_told_by_metric():
    assert 0.002 < min(ruled_out(row([1] * 8))) <= max(ruled_out(row([1] * 8))) < 0.04
    assert max(ruled_out(row([1] * 8), "peak_memory")) < 0.01
    assert not rises_of_levels(of_row([]))


@pytest.mark.parametrize(("versions", "rounds"), [(3, 2), (4, 3), (6, 2), (6, 5)])
def test_what_is_ruled_out_is_seldom_there(versions, rounds):
    """A version that is slower by what a tick rules out would be a lie: it may happen in one of twenty cases."""
    lies, count = [], many(40, 400)
    for seed in range(count):
        slower = row([1] * (versions - 1) + [1.1], rounds=rounds, seed=seed, spread=0.05)
        lies.append(ruled_out(slower)[-1] < math.log(1.1))
    assert sum(lies) <= 0.05 * count + 3 * math.sqrt(0.05 * count)


@pytest.mark.parametrize(("versions", "slower"), [(4, 2), (8, 4), (8, 7)])
def test_a_rise_that_neighbours_share_is_ruled_out_no_more_often(versions, slower):
    """Each slower version was compared with the mean of all others, the slower ones among them: with seven slower ones
    of eight, 20 of 40 such versions had a tick."""
    lies, count = [], many(40, 400)
    for seed in range(count):
        table = np.random.default_rng(seed).normal(0, 0.08, (4, versions))
        table[:, versions - slower :] += math.log(1.1)
        known = known_levels("step_time", RoundTable(values=table, positions=tuple(range(versions))), limit=0.1)
        lies.append(rises(known, None)[versions - 1].high < math.log(1.1))
    assert sum(lies) <= 0.05 * count + 3 * math.sqrt(0.05 * count)


def test_a_version_is_compared_with_the_one_before_too():
    """1.1 is faster by a third and 1.2 as slow as 1.0 again: its rise is not ruled out."""
    high = ruled_out(row([3, 3, 2, 2, 3, 3]))
    assert max(high[:4]) < 0.05
    assert min(high[4:]) > math.log(1.4)


def test_more_noise_hides_more():
    assert np.median(ruled_out(row([1] * 8, spread=0.1))) > 3 * np.median(ruled_out(row([1] * 8)))


def test_never_below_what_equal_images_differ_by():
    noise = {"step_time": Spread(deviation=0.2, freedom=6)}
    assert min(ruled_out(row([1] * 8), noise=noise)) >= floor(noise["step_time"], rounds=3)


# ---------------------------------------------------------------- A/A


def pairs(spread: float, count: int = 12) -> list[tuple[Trial, Trial]]:
    (one,), (replicate,) = row([1], rounds=count, spread=spread), row([1], rounds=count, spread=spread, seed=9)
    return list(zip(one, replicate, strict=True))


def test_twins_tell_the_noise_of_one_launch():
    noise = noise_of(pairs(0.08, count=40), steps=STEPS)
    assert noise is not None
    assert noise["step_time"].deviation == pytest.approx(0.08, rel=0.3)
    assert noise["step_time"].freedom == 40
    assert noise["peak_memory"].deviation < 0.001


def test_a_neighbour_of_one_twin_hides_nothing():
    """Two states of the machine in every pair are noise; load during one launch is not."""
    usual = pairs(0.01, count=8)
    loud = [(one, trial_of(number, ms=2.0, steps=1000)) for number, (one, _) in enumerate(usual)]
    once, often = noise_of([*usual[1:], loud[0]], steps=STEPS), noise_of([*usual[:4], *loud[4:]], steps=STEPS)
    assert once is not None
    assert once["step_time"].deviation < 0.05
    assert often is not None
    assert often["step_time"].deviation > 0.2


def test_pairs_that_say_nothing():
    one, replicate = pairs(0.01)[0]
    assert noise_of([], steps=STEPS) is None
    assert noise_of([(one, failed())], steps=STEPS) is None
    assert noise_of([(replace(one, trace=None), replicate)], steps=STEPS) is None


def test_noises_of_two_variants_are_pooled():
    one = {"step_time": Spread(deviation=0.01, freedom=3), "peak_memory": Spread(deviation=0.1, freedom=3)}
    other = {"step_time": Spread(deviation=0.03, freedom=6)}
    both = pooled([one, None, other])
    assert both is not None
    assert both["step_time"].deviation == pytest.approx(math.sqrt((3 * 0.01**2 + 6 * 0.03**2) / 9))
    assert {name: spread.freedom for name, spread in both.items()} == {"step_time": 9, "peak_memory": 3}
    assert pooled([None]) is None


def test_a_change_as_large_as_the_noise_of_equal_images_is_none():
    trials = row([1, 1, 1, 1, 1.2, 1.2, 1.2, 1.2])
    compared = of_row(trials)

    def changes(noise: Noise | None) -> tuple[Change[int], ...]:
        return find_changes(replace(compared, noise=noise))

    assert [change.after for change in changes(None)] == [4]
    assert [change.after for change in changes({"step_time": Spread(deviation=0.01, freedom=3)})] == [4]
    noise = dict.fromkeys(("step_time", "quick_steps"), Spread(deviation=0.2, freedom=9))
    assert changes(noise) == ()


def slow_now_and_then(trials: list[list[Trial]], *, times: float) -> list[list[Trial]]:
    """Return the trials with one step in fifty of the newest version slower by a factor."""
    return [*trials[:-1], [_with_tail(trial, times=times) for trial in trials[-1]]]


def _with_tail(trial: Trial, *, times: float) -> Trial:
    assert trial.trace is not None
    step_s = trial.trace.columns["step_s"].copy()
    step_s[::50] *= times
    return replace(trial, trace=replace(trial.trace, columns={**trial.trace.columns, "step_s": step_s}))


def test_a_longer_tail_is_shown_by_five_rounds_before_a_version_is_accused():
    """One busy moment of another program makes a tail; three launches of a version may all meet one."""
    reason = wanted(slow_now_and_then(row([1, 1, 1, 1]), times=5))
    assert reason == "tail of the step time seems to differ, and 5 rounds are needed to show it"
    assert wanted(slow_now_and_then(row([1, 1, 1, 1], rounds=5), times=5)) is None


def test_a_slower_version_takes_no_more_rounds_for_its_tail():
    assert wanted(row([1, 1, 1, 4])) is None
