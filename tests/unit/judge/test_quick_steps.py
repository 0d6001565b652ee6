"""The quickest steps tell a slower version from an equal one where other load makes most steps wait."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np

from harness.judge.attribution.group_faults import with_consequences
from harness.judge.comparison.which_launches import limits_of_run
from harness.judge.history.changes import find_changes, two_modes
from harness.judge.history.precision import of_undecided
from harness.judge.row import judge_row
from harness.model import CellRun, Effect, Floats, Limits, Trial
from tests.nightly import many
from tests.players import build
from tests.players.trials import of_row, row_run, shown, trial_of

SERIES = build.series("app", "1234")
TIGHT = Limits(signals={"step_time": 0.025})


def row(*slower: float, seed: int = 0, rounds: int = 6) -> list[list[Trial]]:
    """Return launches on a busy machine: four of five steps wait, and in each launch for another time."""
    rng = np.random.default_rng(seed)

    def busy(ratio: float) -> Floats:
        waits_s = rng.exponential(0.006 * rng.lognormal(0, 0.4), 500) * (rng.random(500) < 0.8)
        return np.asarray(0.006 * ratio * rng.normal(1, 0.005, 500) + waits_s)

    launches = [[trial_of(number, steps=500) for number in range(rounds)] for _ in slower]
    for number in range(rounds):
        for version, ratio in zip(launches, slower, strict=True):
            trace = version[number].trace
            assert trace is not None
            trace.columns["step_s"][:] = busy(ratio)
    return launches


def test_a_version_that_is_slower_is_named_on_a_busy_machine() -> None:
    """A latency that was 5 % longer stayed undecided after 72 launches."""
    compared = of_row(row(1.0, 1.0, 1.05, 1.05), limits=TIGHT)
    (found,) = of_undecided(find_changes(compared), compared)
    assert (found.metric, found.kind, found.after) == ("quick_steps", "first_bad", 2)
    assert found.effect is not None
    assert 1.04 < found.effect.value < 1.06


def test_equal_versions_on_a_busy_machine_are_accused_of_nothing() -> None:
    seeds = range(many(40, 400))
    accused = sum(bool(find_changes(of_row(row(1.0, 1.0, 1.0, 1.0, seed=seed), limits=TIGHT))) for seed in seeds)
    assert accused <= 0.03 * len(seeds)


def test_steps_that_are_all_slower_are_one_finding() -> None:
    launches = [[trial_of(number, steps=500, ms=ms) for number in range(4)] for ms in (1.0, 1.0, 1.3)]
    assert [change.metric for change in find_changes(of_row(launches))] == ["step_time"]
    assert {cell.signals["quick_steps"].seen for cell in shown(launches)} <= {"good", "none"}


def test_the_limit_of_quick_steps_is_that_of_the_step_time_unless_it_has_its_own() -> None:
    assert TIGHT.of("quick_steps") == 0.025
    assert Limits(signals={"step_time": None}).of("quick_steps") is None
    for own in (0.1, 0.2, None):  # that of others is 10 %
        limits = Limits(signals={"step_time": 0.025, "quick_steps": own})
        assert limits.of("quick_steps") == limits_of_run(limits, row(1.0, 1.0)).of("quick_steps") == own


def test_quick_steps_that_vary_too_much_leave_no_version_undecided() -> None:
    """The last batch of each epoch is shorter, in one step of twenty: the quickest are now of the one kind, now of the
    other."""
    launches = row(1.0, 1.0, rounds=4)
    for number, trial in enumerate(trial for version in launches for trial in version):
        assert trial.trace is not None
        trial.trace.columns["step_s"][: 15 + 5 * (number % 5)] = 0.001
        trial.trace.columns["step_s"][:] = np.random.default_rng(number).permutation(trial.trace.columns["step_s"])
    assert {cell.signals["quick_steps"].seen for cell in shown(launches, TIGHT)} == {"none"}


def test_the_quickest_steps_say_how_much_slower_an_undecided_version_may_be() -> None:
    """Users saw `?` for a step time that was unclear by 25 %, and not that the quickest steps were equal within 2 %."""
    for cell in shown(row(1.0, 1.0), Limits()):
        assert cell.signals["step_time"].seen == "blind"
        assert re.fullmatch(r"a rise of its quick steps above 0\.\d+ % is ruled out", cell.signals["step_time"].why)


def test_fewer_quick_steps_of_equal_duration_are_no_fault() -> None:
    """The last batch of an epoch is shorter. With 21 batches in place of 19, it is one step of 21, and a version was
    said to take 3 times as long for its quickest steps, though its step time was known to 0.3 %."""
    launches = [[trial_of(number, steps=2000) for number in range(4)] for _ in range(4)]
    for batches, version in zip((19, 19, 21, 21), launches, strict=True):
        for trial in version:
            assert trial.trace is not None
            trial.trace.columns["step_s"][::batches] *= 0.3
    assert [change.metric for change in find_changes(of_row(launches))] == ["quick_steps"]
    result = build.run([(SERIES, [build.HERE], [build.variant("train")])], lambda *_: build.flat())
    (planned,) = result.plan.rows
    runs = [CellRun(cell=cell, trials=own) for cell, own in zip(planned.cells, launches, strict=True)]
    assert judge_row(row_run(runs)).findings == ()


def test_launches_in_a_slow_mode_do_not_make_the_quickest_steps_slower() -> None:
    """Five of eight launches take 30 % longer as a whole. It was told twice."""
    launches = [[trial_of(number, steps=500, seed=version) for number in range(8)] for version in range(4)]
    for trial in (trial for version in launches[2:] for trial in version[:5]):
        assert trial.trace is not None
        trial.trace.columns["step_s"][:] *= 1.3
    compared = of_row(launches)
    modes, slow_mode = two_modes(compared)
    assert [change.verdict for change in slow_mode] == ["two modes"]
    assert find_changes(replace(compared, modes=modes)) == ()


def test_slower_quick_steps_are_a_consequence_of_what_slower_steps_are() -> None:
    """A bisection tells the step time by other rounds than the quick steps."""
    longer, train = Effect(value=1.3, unit="ratio"), build.variant("train")
    quick, slower = (
        build.finding(SERIES, build.HERE, train, metric=metric, before="1", after="2", effect=longer)
        for metric in ("quick_steps", "step_time")
    )
    assert [one.consequence_of for one in with_consequences([quick, slower], "1234")] == ["step_time", ""]
