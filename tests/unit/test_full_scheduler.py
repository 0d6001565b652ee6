"""What is launched if every version is run: rounds side by side, one image twice, and more rounds if unclear."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.judge.api import length_of
from harness.judge.next.rounds import noise as noise_of_row
from harness.judge.row import judge_row
from harness.model import TIMES, CellRun, Facts, Limits, Proposal, RowRun, Trace, Trial, Trials, Where
from tests.nightly import many
from tests.players.searching import STEPS, _ready, row
from tests.players.trials import changed, made_trial, row_run

WHERE = Where(file="matrix.yaml", line=1, key="x")
Measure = Callable[[CellRun, int], Trial]


def launched(run: CellRun, number: int, /, *, step_s: float = 1e-3, **changes: Any) -> Trial:
    """Return a launch with quiet memory and steps of a given length."""
    step = np.arange(1.0, STEPS.budget + 1)
    columns = {"rss_kib": np.full(len(step), 50_000.0), "step_s": np.full(len(step), step_s)}
    quiet = made_trial(
        cell_id=run.cell.id, number=len(run.trials) + 1, run="run", round=number, last_step=STEPS.budget,
        trace=Trace(step=step, columns=columns),
    )  # fmt: skip
    return changed(quiet, **changes)


def timed(step_s: Callable[[], float]) -> Measure:
    return lambda run, number: launched(run, number, step_s=step_s())


def play(played: RowRun, measure: Measure, *, most: int = 200) -> list[Proposal]:
    """Do what a row proposes until it is done; return the proposals that were launched."""
    batches: list[Proposal] = []
    while (batch := played.propose(played)).runs:
        assert len(batches) < most, "it never ends"
        if batch.only_known:
            for run in batch.runs:
                run.prepared = _ready(run.cell.image)
            continue
        batches.append(batch)
        for run in batch.runs:
            run.trials.append(measure(run, batch.round))
    return batches


def names(batch: Proposal) -> set[str]:
    return {f"{run.cell.image.version}{'t' if run.cell.replicate else ''}" for run in batch.runs}


def test_every_round_has_every_version_and_one_of_them_twice() -> None:
    """A step time is comparable with others of the same minutes, and if it is known how much two
    equal images differ.
    """
    played = row_run(row(3), asked=Trials(least=3, most=3), measures_noise=True)
    batches = play(played, launched)
    first, caught_up, *later = batches
    assert names(first) == {"0", "1", "2"}
    assert (names(caught_up), caught_up.round) == ({"0t"}, first.round)
    assert [names(batch) for batch in later] == [{"0", "1", "2", "0t"}] * 2
    noise = noise_of_row(played)
    assert noise is not None
    assert noise["step_time"].freedom == 3


@pytest.mark.parametrize(("first", "has_tail"), [(96, False), (800, True)])
def test_a_row_that_shows_no_tail_says_nothing_about_the_noise_of_tails(first: int, has_tail: bool) -> None:
    """One request at a time made 96 steps in the first launches, and some hundreds in two later pairs, by whose few
    slow steps a tail of eight requests at a time, which repeated to 1 %, was unclear by 38 %."""
    rng = np.random.default_rng(7)

    def measure(run: CellRun, number: int) -> Trial:
        steps = first if not run.trials else 800
        columns = {"rss_kib": np.full(steps, 50_000.0), "step_s": 1e-3 * rng.lognormal(0, 0.5, steps)}
        return launched(run, number, last_step=steps, trace=Trace(step=np.arange(1.0, steps + 1), columns=columns))

    played = row_run(row(3), asked=Trials(least=3, most=3), measures_noise=True)
    play(played, measure)
    noise = noise_of_row(played)
    assert noise is not None
    assert "step_time" in noise
    assert ("tail" in noise) == has_tail


@pytest.mark.parametrize(("versions", "exit_only", "step_s"), [(1, False, 1e-3), (3, True, 1e-3), (4, False, 1e-6)])
def test_no_launch_is_spent_on_noise_that_nobody_needs(versions: int, exit_only: bool, step_s: float) -> None:
    """A single version, an exit code, many versions with short steps: none of these needs an A/A replicate."""
    runs = row(versions, limits=Limits(exit_only=exit_only))
    played = row_run(runs, asked=Trials(least=2, most=4), measures_noise=True)
    play(played, timed(lambda: step_s))
    assert played.replicate is None


@pytest.mark.parametrize(("noise", "launches", "reason"), [(0.1, 6, "limit"), (0.002, 2, "")])
def test_versions_go_on_together_until_the_comparison_is_clear(noise: float, launches: int, reason: str) -> None:
    """More launches of only one version would compare other times of the machine, and any later ones settle nothing."""
    rng = random.Random(3)
    played = row_run(row(4), asked=Trials(least=2, most=6), measures_noise=True)
    batches = play(played, timed(lambda: 1e-3 * rng.lognormvariate(0, noise)))
    assert len(batches[-1].runs) == 5
    assert {len(run.trials) for run in played.cells} == {launches}
    assert reason in batches[-1].reason


def test_the_others_go_on_without_a_version_that_always_hangs() -> None:
    """Each of 16 launches waited 30 s for its end, while the step times of the other versions were made precise."""
    rng = random.Random(4)
    played = row_run(row(3), asked=Trials(least=3, most=8))

    def measure(run: CellRun, number: int) -> Trial:
        made = launched(run, number, step_s=1e-2 * rng.lognormvariate(0, 0.1))
        return replace(made, end="hang") if run.cell.image.version == "2" else made

    play(played, measure)
    *others, hangs = [len(run.trials) for run in played.cells]
    assert hangs <= 5 < min(others)
    assert all(each.verdict.of("step_time").visible is not None for each in judge_row(played).cells[:2])


@pytest.mark.parametrize(("share", "is_told"), [(0.5, True), (0.02, False)])
def test_a_slowdown_of_a_busy_machine_says_so(share: float, *, is_told: bool) -> None:
    """Steps that take 1.5 times as long seemed to take 2.3 times as long, without a word, beside two busy processes."""
    played = row_run(row(2), asked=Trials(least=3, most=3))
    waited = Facts(kept_waiting=share)
    play(played, lambda run, number: launched(run, number, step_s=1e-3 * (run is played.cells[1]) + 1e-3, facts=waited))
    judged = judge_row(played)
    assert "step_time" in [change.metric for change in judged.findings]
    assert any("waited for a processor in 50 %" in text for text in judged.warnings) == is_told


def test_a_program_that_fails_once_in_its_setup_is_launched_until_that_is_settled() -> None:
    """One failure before the first step was left as it is, though the judge calls it bad."""
    runs = row(2, program=Path("s.py"))
    runs[1].trials.append(launched(runs[1], 0, end="setup", last_step=0, trace=None))
    play(row_run(runs, asked=Trials(least=2, most=6)), launched)
    assert len(runs[1].trials) > 3


def test_a_rare_crash_buys_launches_of_its_neighbours_alone() -> None:
    """Two good launches say little about a version next to one that crashes at times; the others need no more."""
    runs = row(5)

    def measure(run: CellRun, number: int) -> Trial:
        crashes = run.cell.image.version == "2" and number in (0, 3, 5)
        ended = {"end": "crash", "signal": 11, "last_step": 40, "trace": None} if crashes else {}
        return launched(run, number, step_s=1e-6, **ended)

    play(row_run(runs, asked=Trials(least=2, most=8)), measure)
    launches = [len(run.trials) for run in runs]
    assert launches[1] > 2
    assert launches[3] > 2
    assert launches[0] <= launches[1]


def test_a_crash_before_the_first_step_of_a_whole_run_is_named_at_the_first_call() -> None:
    """`1.16.0 passed 3 launches, too few` was the answer about a removed function, five launches into twelve."""

    def measure(run: CellRun, number: int) -> Trial:
        whole = {"last_step": 1, "steps_asked": 4000, "shortfall": "no_step", "facts": {"run_s": 2.0}}
        if run.cell.image.version == "1":
            return launched(run, number, end="setup", message="ValueError: removed")
        trace = Trace(step=np.array([1.0]), columns={"rss_kib": np.array([4e4])})
        return launched(run, number, trace=trace, **whole)

    runs = row(2, program=Path("s.py"))
    play(row_run(runs, asked=Trials(least=3, most=6)), measure)
    assert [len(run.measured) for run in runs] == [5, 2], "four and a confirming one: no luck after two failures"


def test_launches_run_their_whole_budget_once_one_failed_late() -> None:
    """Otherwise good versions stop at the first look, and say nothing about a later failure."""
    for after, expected in ((600, [False, True, True]), (40, [False] * 3)):

        def measure(run: CellRun, number: int, after: int = after) -> Trial:
            crash = {"end": "crash", "signal": 11, "last_step": after, "trace": None}
            return launched(run, number, step_s=1e-6, **(crash if run.cell.image.version == "2" else {}))

        batches = play(row_run(row(3), asked=Trials(least=3, most=3)), measure)
        assert [batch.depth == "whole" for batch in batches] == expected


def test_what_is_to_be_decided_is_launched_as_often_as_it_may_be() -> None:
    """`--decide` asked for a version that had passed too few launches, and launched nothing."""
    asked, runs = Trials(least=3, most=8), row(3)
    play(row_run(runs, asked=asked), timed(lambda: 1e-3))
    assert [len(run.trials) for run in runs] == [3] * 3
    for run in runs:
        run.adopted = len(run.trials)
    again = row_run(runs, asked=asked, only=frozenset({runs[2].cell.id}))
    proposals = play(again, timed(lambda: 1e-3))
    assert [len(run.trials) for run in runs] == [3, 3, 8]
    assert {each.depth for each in proposals if each.runs} == {"whole"}, "a failure may come late"


def test_rounds_end_whatever_happens() -> None:
    """A sweep on a machine that fails at random must end with a report, too."""
    for seed in range(many(10, 300)):
        rng = random.Random(seed)
        runs = row(3)

        def measure(run: CellRun, number: int, rng: random.Random = rng) -> Trial:
            trial = launched(run, number, step_s=1e-3 * rng.lognormvariate(0, 0.12))
            end = rng.choice(["completed", "crash", "infrastructure", "setup", "hang"])
            if end == "infrastructure":
                run.failures += 1
                run.problem = "gone" if run.failures > 2 else ""
            return trial if end == "completed" else replace(trial, end=end)  # type: ignore[arg-type]

        play(row_run(runs, asked=Trials(least=2, most=5), measures_noise=True), measure)
        assert all(len(run.measured) <= 5 for run in runs)


def test_an_interrupted_round_is_made_up_for() -> None:
    """After Ctrl-C in the first round and the same command again, no version may be missing from the comparison."""
    runs = row(3)
    runs[0].trials.append(launched(runs[0], 0, run="before"))
    runs[0].adopted = 1
    batches = play(row_run(runs, asked=Trials(least=3, most=6)), launched)
    assert sum(len(batch.runs) == 3 for batch in batches) == 3
    assert [len(run.trials) for run in runs] == [4, 4, 4]


def test_a_disturbed_launch_costs_a_round_and_no_version() -> None:
    """A throttled GPU clock, or a pull during the trial: the step times of that round are incomplete."""

    def measure(run: CellRun, number: int) -> Trial:
        disturbed = "hot" if (run.cell.image.version, number) == ("1", 1) else ""
        return launched(run, number, disturbed=disturbed)

    batches = play(row_run(row(3), asked=Trials(least=3, most=6)), measure)
    assert [len(batch.runs) for batch in batches] == [3, 3, 3, 3]
    assert "every version" in batches[-1].reason


def test_noisy_peaks_of_short_steps_get_rounds() -> None:
    """If steps are too short to be timed, only memory is compared, in rounds of all versions."""
    rng = random.Random(1)

    def measure(run: CellRun, number: int) -> Trial:
        trial = launched(run, number, step_s=1e-6)
        assert trial.trace is not None
        rss = trial.trace.columns["rss_kib"] * rng.lognormvariate(0, 0.12)
        trace = Trace(step=trial.trace.step, columns={**trial.trace.columns, "rss_kib": rss})
        return changed(trial, trace=trace)

    batches = play(row_run(row(4), asked=Trials(least=2, most=5)), measure)
    assert [len(batch.runs) for batch in batches] == [4] * 5


def test_what_was_bad_once_is_confirmed_before_the_second_round() -> None:
    """The first bad version was named only after two more rounds of versions that were plainly good."""

    def measure(run: CellRun, number: int) -> Trial:
        quiet = launched(run, number)
        assert quiet.trace is not None
        growth = 16.0 * quiet.trace.step if run.cell.image.version in "23" else 0.0
        columns = {**quiet.trace.columns, "rss_kib": quiet.trace.columns["rss_kib"] + growth}
        return changed(quiet, trace=Trace(step=quiet.trace.step, columns=columns))

    first, confirming, *later = play(row_run(row(5), asked=Trials(least=3, most=8)), measure)
    assert names(first) == {"0", "1", "2", "3", "4"}
    assert (names(confirming), confirming.kind) == ({"1", "2"}, "confirm")
    rounds = [batch.round for batch in later if len(batch.runs) == 5]
    assert len(rounds) >= 2, "levels are compared in three rounds of all versions"
    assert confirming.round not in (first.round, *rounds), "versions of one round ran side by side"


def test_where_every_launch_is_needed_for_rounds_a_round_confirms() -> None:
    """With `--trials 3` a confirmation would leave a comparison of step times with two rounds."""

    def measure(run: CellRun, number: int) -> Trial:
        hangs = {"signal": 11, "end": "hang"} if run.cell.image.version == "2" else {}
        return launched(run, number, **hangs)

    batches = play(row_run(row(4), asked=Trials(least=3, most=3)), measure)
    assert [names(batch) for batch in batches] == [{"0", "1", "2", "3"}] * 3


@pytest.mark.parametrize("times", [False, True])
def test_the_oldest_version_shows_its_steps_before_others_run_beside_it(times: bool) -> None:
    """With `step_time: none` a newer version started before the oldest one had shown a step, and had others."""
    runs = row(3, limits=None if times else Limits(signals=dict.fromkeys(TIMES)), program=Path("s.py"))
    first, *later = play(row_run(runs, asked=Trials(least=2, most=2)), launched)
    assert names(first) == ({"0", "1", "2"} if times else {"0"})
    assert [names(batch) for batch in later] == ([{"0", "1", "2"}] if times else [{"1", "2"}, {"0", "1", "2"}])


@pytest.mark.parametrize(("run_s", "whole"), [(12.0, True), (None, False)], ids=["ends by itself", "never ends"])
def test_a_command_without_steps_that_ends_by_itself_always_runs_to_its_end(run_s: float | None, whole: bool) -> None:
    """A launch of a command that took 18 s instead of 12 was ended after 10 s, because its memory was flat: good. It is
    sampled all the time that it has, else what it takes and holds late would not count."""
    runs = row(2, command=("bench",))
    runs[0].trials.append(launched(runs[0], 1, facts={"run_s": run_s}))
    asked = Proposal(kind="round", runs=tuple(runs), depth="brief")
    lengths = [length_of(run, runs, asked) for run in runs]
    assert [length.whole for length in lengths] == [whole] * 2
    assert [length.job["looks"][-1] if length.job else None for length in lengths] == [12_000 if whole else None] * 2


def test_only_versions_that_are_as_old_show_which_lines_are_steps() -> None:
    """A newer image that arrived first gave its flood of output to the oldest version as its steps."""
    runs = row(3, program=Path("s.py"))

    def hints() -> list[str | None]:
        asked = Proposal(kind="round", runs=tuple(runs))
        return [length_of(run, runs, asked).job.get("lines") for run in runs]

    runs[1].trials.append(launched(runs[1], 1, facts={"step_shape": "debug #"}))
    assert hints() == [None, "debug #", "debug #"]
    runs[0].trials.append(launched(runs[0], 1, facts={"step_shape": "epoch #"}))
    assert hints() == ["epoch #"] * 3
    runs[0].trials[0] = launched(runs[0], 1, facts={"step_shape": None})
    assert hints() == [""] * 3
