"""The step times of launches that took turns, compared by the cycles that they share."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from harness.judge.comparison.compared_levels import modes_of
from harness.judge.comparison.level_rules import by_cycles, median_s
from harness.judge.comparison.round_tables import level_columns, level_table, pair_differences
from harness.judge.history.precision import wants_round
from harness.model import Limits, Look, Steps, Trace, Trial, Trials
from tests.players.trials import made_trial

CYCLES, ROWS = 40, 25
STEPS = Steps(first=500, budget=CYCLES * ROWS)


def launches(*ms: float, round_: int = 1, first: int = 1, rng: np.random.Generator, apart: bool = False) -> list[Trial]:
    """Return launches with these step times on a host whose pace changes by a third from one cycle to the next."""
    paces = np.exp(rng.normal(0, 0.3, CYCLES))
    trials = []
    for place, own in enumerate(ms):
        if apart:
            paces = np.exp(rng.normal(0, 0.3) + rng.normal(0, 0.3, CYCLES))
        step_s = np.repeat(paces, ROWS) * own / 1e3 * rng.lognormal(0, 0.05, CYCLES * ROWS)
        columns = {"step_s": step_s, "rss_kib": np.full(CYCLES * ROWS, 5e4)}
        if not apart:
            columns["slice"] = np.repeat(np.arange(CYCLES) + float(first), ROWS)
            columns["step_s"][::ROWS] = np.nan
        trace = Trace(step=np.arange(1.0, CYCLES * ROWS + 1), columns=columns)
        trials.append(
            made_trial(
                cell_id=str(place), number=round_ + 1, key="k", end="completed", run="r", round=round_,
                last_step=CYCLES * ROWS, trace=trace,
            )
        )  # fmt: skip
    return trials


def log_ratio(one: Trial, other: Trial, name: str = "step_time") -> float:
    columns = level_columns(name, [[one], [other]], steps=STEPS)
    return math.log(columns[1]["r", 1] / columns[0]["r", 1])


def with_cpu(trial: Trial) -> Trial:
    """Return the trial with a look at its end that has the processor time of its steps."""
    assert trial.trace is not None
    look = Look(step=CYCLES * ROWS, values={"cpu_s": float(np.nansum(trial.trace.columns["step_s"]))})
    return replace(trial, trace=replace(trial.trace, looks=(look,)))


def test_pairs_show_a_change_that_the_pace_of_the_host_hides() -> None:
    """The host's pace changes by 30 %; launches of equal work, one after the other, differ by more than that."""
    rng = np.random.default_rng(1)
    sliced, apart = (
        [log_ratio(*launches(1.0, 1.05, rng=rng, apart=is_apart)) for _ in range(20)] for is_apart in (False, True)
    )
    assert abs(np.mean(sliced) - math.log(1.05)) < 0.005
    assert np.std(sliced) < 0.01
    assert np.std(apart) > 0.1


def test_throughput_is_compared_by_pairs_too() -> None:
    """Its figure was that of the whole launch: steps that other programs held up hid a fall by a tenth."""
    rng = np.random.default_rng(1)
    logs = []
    for _ in range(20):
        both = launches(1.0, 1.1, rng=rng)
        for trial in both:
            assert trial.trace is not None
            trial.trace.columns["step_s"][rng.integers(0, CYCLES * ROWS, 5)] += rng.exponential(0.05, 5)
            trial.trace.columns["items"] = np.full(CYCLES * ROWS, 32.0)
        logs.append(log_ratio(*both, name="throughput"))
    assert abs(np.mean(logs) - math.log(1.1)) < 0.01
    assert np.std(logs) < 0.02


def test_launches_alone_leave_the_comparison_once_three_rounds_took_turns() -> None:
    rng = np.random.default_rng(1)
    rounds = [launches(1.0, 1.0, round_=0, rng=rng, apart=True)]
    for number in (1, 2, 3):
        assert set(level_columns("step_time", list(zip(*rounds, strict=True)), steps=STEPS)[0]) == {
            ("r", each) for each in range(number)
        }
        rounds.append(launches(1.0, 1.0, round_=number, first=100 * number, rng=rng))
    left = level_columns("step_time", list(zip(*rounds, strict=True)), steps=STEPS)
    assert set(left[0]) == set(left[1]) == {("r", 1), ("r", 2), ("r", 3)}


def test_a_launch_alone_is_not_compared_with_slices_of_its_round() -> None:
    """Steps in slices take up to a tenth longer: the version that ran alone would look faster, or the others slower."""
    rng = np.random.default_rng(1)
    before, now = launches(1.0, 1.0, 1.0, round_=0, rng=rng, apart=True), launches(1.1, 1.1, round_=1, rng=rng)
    now += launches(1.0, 1.0, 1.0, round_=1, rng=rng, apart=True)[2:]
    columns = level_columns("step_time", list(zip(before, now, strict=True)), steps=STEPS)
    assert [len(column) for column in columns.values()] == [2, 2, 1]


def test_a_tail_that_seems_longer_is_launched_until_it_can_be_named() -> None:
    """The first launches, which run alone, count for tails and not for step times: such tails ended as `suspect`."""
    rng = np.random.default_rng(1)
    rounds = [launches(1.0, 1.0, round_=0, rng=rng, apart=True)]
    rounds += [launches(1.0, 1.0, round_=number, first=100 * number, rng=rng) for number in (1, 2, 3)]
    for _, newer in rounds:
        assert newer.trace is not None
        newer.trace.columns["step_s"][5::50] *= 20
    trials, asked = list(zip(*rounds, strict=True)), Trials(least=2, most=5)
    reason = wants_round(trials, limits=Limits(), steps=STEPS, trials_asked=asked)
    assert reason == "tail of the step time seems to differ, and 5 rounds are needed to show it"


def test_the_noise_of_launches_alone_gives_up_no_row_that_goes_on_in_slices() -> None:
    """By the noise of the first round, which ran alone, no further one could find a rise by 5 %: it was not found."""
    rng = np.random.default_rng(1)
    rounds = [launches(1.0, 1.0, 1.05, round_=0, rng=rng, apart=True)]
    rounds += [launches(1.0, 1.0, 1.05, round_=number, first=100 * number, rng=rng) for number in (1, 2)]
    limits, asked = Limits(signals={"step_time": 0.02}), Trials(least=3, most=8)
    assert wants_round(list(zip(*rounds, strict=True)), limits=limits, steps=STEPS, trials_asked=asked) is not None


def test_processor_time_is_that_of_launches_in_slices_once_three_rounds_took_turns() -> None:
    """It has the noise of the pace of the host, as the step time has."""
    rng = np.random.default_rng(1)
    rounds = [launches(1.0, 1.0, round_=0, rng=rng, apart=True)]
    rounds += [launches(1.0, 1.0, round_=number, first=100 * number, rng=rng) for number in (1, 2, 3)]
    looked = [[with_cpu(trial) for trial in both] for both in rounds]
    columns = level_columns("cpu_time", list(zip(*looked, strict=True)), steps=STEPS)
    assert set(columns[0]) == set(columns[1]) == {("r", 1), ("r", 2), ("r", 3)}
    assert all(abs(math.log(columns[1][each] / columns[0][each])) < 0.02 for each in columns[0])
    assert len(pair_differences("cpu_time", [(one, two) for one, two in looked], steps=STEPS)) == 3


def test_launches_of_other_signals_all_count() -> None:
    rng = np.random.default_rng(1)
    rounds = [launches(1.0, 1.0, round_=0, rng=rng, apart=True)]
    rounds += [launches(1.0, 1.0, round_=number, first=100 * number, rng=rng) for number in (1, 2, 3)]
    assert len(level_columns("peak_memory", list(zip(*rounds, strict=True)), steps=STEPS)[0]) == 4


def test_a_launch_that_was_repeated_is_no_pair_of_its_round() -> None:
    """It has the same round, but it took turns with nobody of it."""
    rng = np.random.default_rng(1)
    (one,), (other,) = launches(1.0, rng=rng), launches(1.0, first=500, rng=rng)
    medians = [float(np.nanmedian(each.trace.columns["step_s"][250:])) for each in (one, other) if each.trace]
    columns = level_columns("step_time", [[one], [other]], steps=STEPS)
    assert [next(iter(columns[place].values())) for place in (0, 1)] == medians


def test_the_noise_of_pairs_that_took_turns_is_theirs_alone() -> None:
    """Else the noise of the first round would hide every change that later rounds show."""
    rng = np.random.default_rng(2)
    pairs = [launches(1.0, 1.0, round_=number, first=100 * number, rng=rng) for number in (1, 2, 3)]
    before = [launches(1.0, 1.0, round_=9, rng=rng, apart=True)]
    differences = pair_differences("step_time", [(one, two) for one, two in [*before, *pairs]], steps=STEPS)
    assert len(differences) == 3
    assert max(map(abs, differences)) < 0.03


def test_a_launch_of_a_few_steps_ends_no_sweep() -> None:
    """None of its steps had a time: the first of a slice has none. The judge raised ValueError."""
    one, other = launches(1.0, 1.0, rng=np.random.default_rng(1))
    assert one.trace is not None
    one.trace.columns["step_s"][:] = np.nan
    assert by_cycles([one, other], median_s, warm_up=0.25) == {}


def test_two_modes_show_in_slices_on_a_host_whose_pace_hides_them() -> None:
    """The ratios of a round are exact, though each launch alone would differ by more than the gap."""
    found = []
    for is_apart in (False, True):
        rng = np.random.default_rng(1)
        slow = rng.random((12, 2)) < 0.4
        rounds = [
            launches(1, 1, *(1 + 0.27 * own), round_=number, first=100 * number, rng=rng, apart=is_apart)
            for number, own in enumerate(slow)
        ]
        table = level_table("step_time", list(zip(*rounds, strict=True)), steps=STEPS)
        assert table is not None
        found.append(modes_of(table, least=math.log(1.1), noise=None))
    sliced, apart = found
    assert sliced is not None
    assert sliced.counts(4) == [(0, 12), (0, 12), *((int(own), 12) for own in slow.sum(axis=0))]
    assert math.isclose(sliced.gap, math.log(1.27), rel_tol=0.05)
    assert apart is None
