"""What a sweep launches and says if some of its versions were measured on an earlier day and others are new."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest

from harness.judge.beside import propose_beside
from harness.judge.row import judge_row
from harness.model import CellRun, Limits, MetricLimit, RowRun, Trial, Trials
from harness.store.journal import some_trials
from tests.players.searching import row
from tests.players.trials import changed, row_run
from tests.unit.test_full_scheduler import Measure, launched, names, play

ASKED = Trials(least=3, most=6)


def measure(ms: Mapping[str, float], *, run: int, day: float = 1.0) -> Callable[[CellRun, int], Trial]:
    """Return what launches versions that take so long per step, on a day that is slower by a factor."""
    rng = random.Random(run)

    def launch(cell: CellRun, number: int) -> Trial:
        step_s = 1e-3 * day * ms.get(cell.cell.image.version, 1.0) * rng.lognormvariate(0, 0.003)
        return launched(cell, number, step_s=step_s, run=f"run {run}")

    return launch


def on_the_next_day(played: RowRun, *, versions: int, limits: Limits | None = None) -> RowRun:
    """Return the row of the next sweep, which takes over launches and has more versions."""
    runs, known = row(versions, limits=limits), {run.cell.id: run.trials for run in played.cells}
    for run in runs:
        run.trials += some_trials(known.get(run.cell.id, ()), ASKED)
        run.adopted = len(run.trials)
    return row_run(runs, propose_beside, asked=ASKED)


def swept(versions: int, ms: Mapping[str, float], *, without: Sequence[int] = ()) -> RowRun:
    cells = [run for place, run in enumerate(row(versions)) if place not in without]
    first = row_run(cells, propose_beside, asked=ASKED)
    play(first, measure(ms, run=1))
    return first


SLOWER = {"3": 1.5, "4": 1.5, "5": 1.5}


@pytest.mark.parametrize(("ms", "known"), [({}, {"0", "4"}), (SLOWER, {"0", "2", "4"})])
def test_a_version_of_the_next_day_is_launched_beside_the_oldest_the_last_good_and_the_last(
    ms: Mapping[str, float], known: set[str]
) -> None:
    """It was launched alone, and its step times were compared with nothing: `--fresh measures all versions`."""
    later = on_the_next_day(swept(5, ms), versions=6)
    first, beside, *rounds = play(later, measure(ms, run=2, day=1.3))
    assert (names(first), names(beside)) == ({"5"}, known)
    assert first.round == beside.round
    assert [names(each) for each in rounds] == [{*known, "5"}] * 2
    assert not play(on_the_next_day(later, versions=6), measure(ms, run=3)), "and then never again"


@pytest.mark.parametrize("day", [1.0, 1.3])
def test_the_new_version_is_judged_and_the_others_keep_their_verdicts_and_figures(day: float) -> None:
    """`?` was the answer on the image that was published today, whatever it was like."""
    for ms, changes in (
        ({}, []),
        ({"5": 1.5}, [("first_bad", "4", "5")]),
        ({"3": 1.5, "4": 1.5}, [("first_bad", "2", "3"), ("first_fixed", "4", "5")]),
        (SLOWER, [("first_bad", "2", "3")]),
        (SLOWER | {"5": 3.0}, [("first_bad", "2", "3"), ("worse", "4", "5")]),
    ):
        before = judge_row(first := swept(5, ms))
        later = on_the_next_day(first, versions=6)
        play(later, measure(ms, run=2, day=day))
        judged = judge_row(later)
        times = [one for one in judged.findings if one.metric == "step_time"]
        assert [(one.kind, one.before, one.after) for one in times] == changes
        old = [each.verdict.of("step_time") for each in before.cells]
        *same, new = [each.verdict.of("step_time") for each in judged.cells]
        assert same == old
        assert new.is_compared
        assert new.value == pytest.approx(1e-3 * ms.get("5", 1.0), rel=0.02), "as on the day of the others"
        assert any("5 on" in text and "compared with 0, " in text for text in judged.warnings)


def test_a_new_version_that_makes_no_step_costs_no_launches_of_others() -> None:
    """Each sweep tries it again, because what was missing may be there."""
    later = on_the_next_day(swept(3, {}), versions=4)
    played = play(later, lambda run, number: launched(run, number, end="setup", last_step=0, trace=None))
    assert [names(each) for each in played] == [{"3"}] * 2


def test_versions_of_several_days_keep_their_verdicts() -> None:
    """If a sweep took over only the newest launches, the first day had lost the versions that later ones ran beside."""
    played = swept(4, {})
    for versions in (5, 6, 7):
        played = on_the_next_day(played, versions=versions)
        play(played, measure({"5": 1.5, "6": 1.5}, run=versions, day=1 + versions / 10))
    judged = judge_row(played)
    assert [(one.kind, one.before, one.after) for one in judged.findings] == [("first_bad", "4", "5")]
    assert all(each.verdict.of("step_time").is_compared for each in judged.cells)
    assert [len(run.own) for run in played.cells] == [3, 0, 0, 0, 3, 3, 3]


@pytest.mark.parametrize("ms", [{}, {"9": 1.5}, {str(place): 1.5 for place in range(9, 20)}])
def test_many_days_that_added_versions_leave_few_launches_and_the_verdicts(ms: Mapping[str, float]) -> None:
    """Each day launched the baseline three times, all were taken over for ever, and two rare crashes made it bad."""
    played = swept(3, ms)
    for day in range(14, 28):
        played = on_the_next_day(played, versions=day - 10)
        measured = measure(ms, run=day, day=1 + day % 7 / 20)

        def launch(run: CellRun, number: int, *, day: int = day, measured: Measure = measured) -> Trial:
            crashes = run.cell.image.version == "0" and day in (18, 24) and not run.own
            return replace(measured(run, number), end="crash") if crashes else measured(run, number)

        play(played, launch)
        assert all(len(run.trials) <= 3 * ASKED.most for run in played.cells)
    judged = judge_row(played)
    assert judged.cells[0].verdict.verdicts == ("flat",)
    assert all(each.verdict.of("step_time").is_compared for each in judged.cells)
    ends = {0: [], 1: [("first_bad", "8", "9"), ("first_fixed", "9", "10")]}.get(len(ms), [("first_bad", "8", "9")])
    assert [(one.kind, one.before, one.after) for one in judged.findings] == ends
    assert not play(on_the_next_day(played, versions=17), measure(ms, run=31)), "nothing is launched twice"


def test_launches_that_settled_a_doubt_count_in_a_plan_with_fewer() -> None:
    """After `--trials 3:48`, the plain sweep left 29 of 48 launches out, and what was confirmed became a doubt."""
    cell = row(1)[0]
    runs = ["run 1"] * 16 + ["run 2"] * 32
    trials = [launched(cell, number, step_s=1e-3, run=run) for number, run in enumerate(runs)]
    assert some_trials(trials, Trials(least=3, most=8)) == tuple(trials)


def test_a_version_that_failed_between_the_last_good_and_a_slow_one_hides_no_change() -> None:
    """A day later, the launches of the last good version beside the slow one were not taken over."""
    played, ms = swept(4, {}), {str(place): 1.5 for place in range(5, 10)}
    for day in range(15, 19):
        played = on_the_next_day(played, versions=day - 10)
        measured = measure(ms, run=day)

        def launch(run: CellRun, number: int, *, measured: Measure = measured) -> Trial:
            ends = {"end": "crash"} if run.cell.image.version == "4" else {}
            return changed(measured(run, number), **ends)

        play(played, launch)
    times = [(one.kind, one.before, one.after) for one in judge_row(played).findings if one.metric == "step_time"]
    assert times == [("first_bad", "3", "5")]


def test_versions_that_an_earlier_sweep_measured_alone_are_compared_now() -> None:
    """`--fresh measures all versions` stayed the answer, though three versions are enough."""
    first = swept(4, {})
    alone = row(5)[4]
    alone.trials += [measure({"4": 1.5}, run=2, day=2.0)(alone, number) for number in range(3)]
    later = on_the_next_day(first, versions=5)
    later.cells[4].trials += alone.trials
    later.cells[4].adopted = 3
    played = play(later, measure({"4": 1.5}, run=3))
    assert [names(each) for each in played] == [{"4"}, {"0", "3"}, {"0", "3", "4"}, {"0", "3", "4"}]
    assert [(one.before, one.after) for one in judge_row(later).findings] == [("3", "4")]


@pytest.mark.parametrize(("added", "twice"), [((0, 1), "2t"), ((4, 5), "0t")])
def test_the_image_that_is_launched_twice_is_a_known_one(added: Sequence[int], twice: str) -> None:
    """It was a new one if that is the oldest, though a known one has had such launches before, which were not taken
    over."""
    later = on_the_next_day(swept(6, {}, without=added), versions=6)
    later.measures_noise = True
    played = play(later, measure({}, run=2))
    assert {name for batch in played for name in names(batch) if name.endswith("t")} == {twice}


def test_an_interrupted_sweep_goes_on_as_it_began() -> None:
    """Its versions ran in the same rounds: no known version is launched beside those that lack the last one."""
    first = swept(4, {})
    later = on_the_next_day(first, versions=4)
    for run in later.cells[2:]:
        del run.trials[2:]
        run.adopted = 2
    assert names(play(later, measure({}, run=2))[0]) == {"2", "3"}


@pytest.mark.parametrize("first_bad", range(1, 7))
@pytest.mark.parametrize("added", [(0,), (2,), (2, 3), (1, 2, 3, 4, 5)])
def test_versions_that_are_added_between_others_make_a_finding_narrower(added: Sequence[int], first_bad: int) -> None:
    """Who adds the versions between the last good and the first bad one wants to know which of them it was."""
    ms = {str(place): 1.5 for place in range(first_bad, 7)}
    later = on_the_next_day(swept(7, ms, without=added), versions=7)
    play(later, measure(ms, run=2, day=1.3))
    times = [one for one in judge_row(later).findings if one.metric == "step_time"]
    assert [(one.kind, one.before, one.after) for one in times] == [("first_bad", str(first_bad - 1), str(first_bad))]


@pytest.mark.parametrize("added", [(1,), (4,), (1, 4), (2,), (3,)])
def test_versions_that_are_added_around_a_fault_that_was_fixed_make_it_narrower(added: Sequence[int]) -> None:
    """A good version between the last good and the first bad one changed nothing: no bad version ran beside it."""
    ms = {"2": 1.5, "3": 1.5}
    later = on_the_next_day(swept(7, ms, without=added), versions=7)
    play(later, measure(ms, run=2, day=1.3))
    times = [(one.kind, one.before, one.after) for one in judge_row(later).findings if one.metric == "step_time"]
    assert times == [("first_bad", "1", "2"), ("first_fixed", "3", "4")]


def test_a_number_that_varies_is_compared_with_the_versions_beside_it() -> None:
    """The images per second that a program prints differ from day to day as its step times do."""
    limits = Limits(metrics=(MetricLimit(metric="rate", rule="drop", limit=0.1),))

    def rated(run: int, day: float) -> Callable[[CellRun, int], Trial]:
        rng = random.Random(run)

        def launch(cell: CellRun, number: int) -> Trial:
            one = measure({}, run=run)(cell, number)
            assert one.trace is not None
            rate = 100 / day / (1.5 if cell.cell.image.version == "5" else 1.0) * rng.lognormvariate(0, 0.003)
            columns = {**one.trace.columns, "rate": np.full(len(one.trace.step), rate)}
            return replace(one, trace=replace(one.trace, columns=columns))

        return launch

    first = row_run(row(5, limits=limits), propose_beside, asked=ASKED)
    play(first, rated(1, day=1.0))
    later = on_the_next_day(first, versions=6, limits=limits)
    play(later, rated(2, day=1.3))
    rates = [one for one in judge_row(later).findings if one.metric == "metrics.rate"]
    assert [(one.kind, one.before, one.after) for one in rates] == [("first_bad", "4", "5")]
