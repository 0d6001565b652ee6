"""One cell: launches must agree before anything is called bad, and "flat" needs a launch that ran to the end."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.judge.cell import judge_cell, needs_whole_budget, wants_more
from harness.judge.comparison.which_launches import per_of
from harness.judge.history.transitions import growth_changes
from harness.judge.trace import trace_verdict
from harness.model import Failure, Growth, Limits, Look, Trace, Trial, Trials
from harness.model.measured import Facts
from harness.report.text.signal_words import strip, strip_text, verdict_word
from tests.nightly import many
from tests.players.trials import LIMITS, STEPS, cell_of, failed, memory, of_row, times, trace_of, trial_of

ASKED = Trials(least=3, most=5)


def more(trials: list[Trial]) -> str | None:
    return wants_more(trials, trials_asked=ASKED, limits=LIMITS, steps=STEPS)


def three(**each) -> list[Trial]:
    return [trial_of(number, **each) for number in range(3)]


def test_two_leaks_that_agree_are_a_leak():
    cell = cell_of(three(rate=12.0))
    assert cell.verdicts == ("leak",)
    assert cell.of("memory").value == pytest.approx(12, rel=0.01)
    low, high = cell.of("memory").ci or (0.0, 0.0)
    assert low < 12 < high
    assert (cell.trials, cell.failed, cell.steps, cell.of("memory").visible) == (3, 0, 4000, None)


def test_one_leak_is_suspect_and_asks_for_another():
    """One launch is not evidence against an image."""
    single = [trial_of(rate=12.0)]
    assert cell_of(single).verdict == "suspect"
    late = [*single, trial_of(1, steps=500), trial_of(2, steps=500)]
    assert cell_of(late).verdict == "suspect"
    assert more(late) is not None
    assert needs_whole_budget(late, limits=LIMITS, steps=STEPS)


def test_a_leak_against_clean_launches_is_inconclusive():
    mixed = [trial_of(0, rate=12.0), trial_of(1), trial_of(2)]
    cell = cell_of(mixed)
    assert cell.verdict == "inconclusive"
    assert "two must agree, so more launches are needed" in cell.why
    assert more(mixed) is not None
    assert more([*mixed, trial_of(3), trial_of(4)]) is None


def test_leaks_of_different_rates_do_not_agree():
    assert cell_of([trial_of(0, rate=2.0), trial_of(1, rate=20.0)]).verdict == "inconclusive"


def test_flat_needs_a_launch_over_the_whole_budget():
    """A leak that starts late is flat at 500 steps, which misled the author of one story."""
    short = three(steps=500)
    assert cell_of(short).verdict == "inconclusive"
    assert more(short) == "no launch ran the whole budget"
    cell = cell_of([*short, trial_of(3)])
    assert (cell.verdict, cell.steps) == ("flat", 4000)
    assert 0 < (cell.of("memory").visible or 0) < 0.05


def by_itself(number: int, *, steps: int, **more) -> Trial:
    told = f"the program ended by itself after {steps} of 4000 steps; let it make more, or lower `budget`"
    return trial_of(number, steps=steps, message=told, shortfall="own_end", **more)


@pytest.mark.parametrize("steps", [1, 7, 499, 500, 700, 3999])
def test_a_program_that_ends_before_its_budget_is_never_good(steps):
    """Its missing steps were not measured: a version with 60 flat steps of 4,000 was called good."""
    short = [by_itself(number, steps=steps) for number in range(3)]
    cell = cell_of(short)
    assert cell.verdict == "inconclusive"
    assert f"ended by itself after {steps} of 4000 steps" in cell.why
    assert {name for name, signal in cell.signals.items() if signal.seen == "good"} == set()
    assert more(short) is None, "another launch would end in the same way"


@pytest.mark.parametrize(("rate", "verdict"), [(0.0, "flat"), (12.0, "leak")])
def test_a_program_that_ends_by_itself_before_its_budget_is_judged_as_far_as_it_goes(rate: float, verdict: str) -> None:
    """In a matrix file it was inconclusive whatever it did; `try` lowered its budget and judged it."""
    ended = [by_itself(number, steps=700, rate=rate, facts=Facts(run_s=2.0)) for number in range(3)]
    cell = cell_of(ended)
    assert (cell.verdict, cell.steps, cell.of("outcome").seen) == (verdict, 700, "good")
    assert more(ended) is None
    fast, slow = (
        [by_itself(number, steps=100, ms=ms, facts=Facts(run_s=2.0)) for number in range(3)] for ms in (1.0, 2.0)
    )
    assert of_row([fast, slow]).levels("step_time")[1][0] == pytest.approx(0.002, rel=0.1)


def test_the_program_s_own_end_is_the_reason_although_another_launch_was_stopped_before_it():
    """The advice was to raise `timeout`, which has no effect."""
    short = [trial_of(0, steps=2000), by_itself(1, steps=2100), by_itself(2, steps=2100)]
    assert cell_of(short).why.startswith("the program ended by itself after 2100 of 4000 steps")


def test_a_program_that_ends_early_can_still_be_bad():
    assert cell_of([by_itself(number, steps=2000, rate=12.0) for number in range(3)]).verdict == "leak"


def test_a_launch_without_a_row_is_not_good():
    """Seven steps of a budget of a million make no row, because only every fifth step has one."""
    cell = cell_of([replace(by_itself(number, steps=7), trace=None) for number in range(3)])
    assert cell.verdict == "inconclusive"
    assert "ended by itself after 7 of 4000 steps" in cell.why


def whole_run(number: int, *, run_s: float = 2.0, steps: int = 1, **more: Any) -> Trial:
    """Return a program that ended by itself: without a step, or after a few."""
    end = {"end": "completed", "shortfall": "no_step"} if steps == 1 else {"end": "stopped", "shortfall": "own_end"}
    trial = trial_of(number, steps=steps, facts=Facts(run_s=run_s), peak_rss_kib=50_000.0, **end, **more)
    look = Look(step=steps, values={"cpu_s": run_s, "rss_peak_kib": 50_000.0})
    return replace(trial, trace=None if trial.trace is None else replace(trial.trace, looks=(look,)))


@pytest.mark.parametrize(("steps", "made"), [(1, "no step was seen"), (20, "it made 20 steps")])
def test_a_program_that_ends_by_itself_is_good_but_its_growth_is_not_judged(steps: int, made: str) -> None:
    """Programs without a step were untested, and those with few steps were inconclusive, whatever they did."""
    trials = [whole_run(number, steps=steps, rate=900.0) for number in range(3)]
    cell = cell_of(trials)
    assert (cell.verdict, cell.steps) == ("flat", 0 if steps == 1 else steps)
    assert cell.why == f"3 of 3 launches ended well; growth is not judged: {made}, and at least 64 are needed"
    assert {name: cell.of(name).seen for name in ("outcome", "memory", "open_files")} == {
        "outcome": "good", "memory": "none", "open_files": "none",
    }  # fmt: skip
    assert cell.of("memory").why == f"growth is not judged: {made}, and at least 64 are needed"
    assert more(trials) is None
    assert not needs_whole_budget(trials, limits=LIMITS, steps=STEPS)
    assert verdict_word(cell) == "whole run"
    assert "memory" not in strip_text(strip(cell)).replace("memory not checked", "")


def test_samples_of_a_command_are_not_called_steps() -> None:
    trials = [whole_run(number, steps=20) for number in range(3)]
    for trial in trials:
        assert trial.trace is not None
        trial.trace.columns["step_s"][:] = np.nan  # type: ignore[index]
    assert "it ended after 20 samples, and at least 64 are needed" in cell_of(trials).why


def test_one_short_launch_does_not_hide_that_growth_was_judged_in_the_others() -> None:
    """A cell was said to be a plateau with growth up to 2.2 KiB/s, and also not to be judged."""
    cell = cell_of([whole_run(0, steps=20), *map(trial_of, (1, 2))])
    assert cell.of("memory").seen == "good"
    assert cell.why.startswith("flat in 2 of 3 launches; the longest: ")


def test_rounds_of_boosting_are_no_leak() -> None:
    """Each round adds a tree: LightGBM was said to leak 3.4 KiB a step."""
    cell = cell_of(three(rate=12.0, facts=Facts(step_kind="lightgbm")))
    assert (cell.verdict, cell.of("memory").seen) == ("flat", "none")
    assert cell.why.endswith("each round of boosting adds a tree to the model")
    assert cell_of(three(rate=12.0, facts=Facts(step_kind="line"))).verdict == "leak"
    own_end = {"step_kind": "xgboost", "run_s": 2.0}
    assert cell_of([by_itself(number, steps=200, facts=own_end) for number in range(3)]).verdict == "flat"


@pytest.mark.parametrize("noises", [(4000.0, 20000.0), (20000.0, 4000.0, 4000.0), (16.0, 400.0, 100.0)])
def test_a_cell_rules_out_what_its_reason_says(noises):
    """The figure was the smallest of all launches, but the reason quoted another launch: 0.16 and 7.2."""
    trials = []
    for number, noise_kib in enumerate(noises):
        trace = trace_of(memory(seed=number, noise_kib=noise_kib), step_s=times(seed=number))
        trials.append(replace(trial_of(number), trace=trace))
    cell = cell_of(trials)
    excluded = cell.of("memory").visible or 0.0
    figure = f"{excluded:{'.0f' if excluded >= 100 else '.2g'}}"
    assert f"a leak of more than {figure} KiB/step is ruled out" in cell.why


def test_a_leak_beside_a_slowdown():
    cell = cell_of(three(rate=12.0, drift=1.5))
    assert cell.verdicts == ("leak", "slowdown")
    assert cell.drift is not None
    assert cell.drift > 0.5


def test_a_slowdown_keeps_what_memory_did():
    assert cell_of(three(drift=1.5)).verdicts == ("slowdown", "flat")


def test_crashes_need_the_same_signal():
    assert cell_of([failed(0), failed(1), trial_of(2)]).verdict == "crash"
    assert cell_of([failed(0), failed(1, signal=6), trial_of(2)]).verdict == "inconclusive"


def test_a_rare_crash_is_counted():
    cell = cell_of([failed(0), failed(1), *(trial_of(n) for n in range(2, 8))])
    assert (cell.verdict, cell.failed, cell.trials, cell.signal) == ("crash", 2, 8, 11)
    assert "SIGSEGV" in cell.why


@pytest.mark.parametrize(("end", "verdicts"), [("oom", ("oom", "crash")), ("hang", ("crash", "hang"))])
def test_the_strongest_comes_first(end, verdicts):
    trials = [failed(0, end=end, signal=None), failed(1, end=end, signal=None), failed(2), failed(3)]
    assert cell_of(trials).verdicts == verdicts


def test_a_leak_that_ends_in_a_crash_is_both():
    trials = [trial_of(n, rate=50.0, end="crash", signal=11, message="SIGSEGV") for n in range(2)]
    assert cell_of(trials).verdicts[:2] == ("crash", "leak")


def test_setup_says_nothing_about_the_image():
    trials = [failed(n, end="setup", signal=None, message="ImportError: no module x") for n in range(2)]
    cell = cell_of(trials)
    assert (cell.verdict, cell.why) == ("untested", "ImportError: no module x")
    assert judge_cell(trials, limits=Limits(setup_bad=True), steps=STEPS).verdict == "crash"
    assert more(trials[:1]) == "setup failed once"
    assert more(trials) is None


def test_why_names_the_error_and_not_the_folder_of_a_trial():
    """Tables cut the reason off: what was left was the path of a deleted folder, different in each trial."""
    error = "step 1: KeyError: 'missing' (bad.py:3 in helper)"
    trace = f'Traceback (most recent call last):\n  File "/tmp/harness-trial-1/scenario/bad.py", line 3\n{error}'
    crashed = [failed(n, signal=None, message=trace) for n in range(3)]
    assert cell_of(crashed).why.startswith(f"crash in 3 of 3 launches: {error}")
    assert cell_of([failed(n, end="setup", signal=None, message=trace) for n in range(3)]).why == error


@pytest.mark.parametrize(
    ("message", "last_step", "told"),
    [
        ("step 3: killed by SIGSEGV", 2, "step 3: killed by SIGSEGV"),
        ("after sample 2: killed by SIGSEGV", 2, "after sample 2: killed by SIGSEGV"),
        ("after the last step: killed by SIGSEGV", 2, "after the last step: killed by SIGSEGV"),
        ("3 of 9 requests failed\nafter request 9: gone", 9, "after request 9: gone; 3 of 9 requests failed"),
        ("", 0, "crash"),
    ],
)
def test_why_names_the_step_once(message, last_step, told):
    """It read "after sample 2: killed by SIGSEGV after step 2". A finding told a note instead of the end."""
    crashed = [
        Trial(cell_id="c", number=n, key="k", end="crash", message=message, last_step=last_step) for n in range(3)
    ]
    assert cell_of(crashed).why == f"crash in 3 of 3 launches: {told}"


def test_infrastructure_is_never_bad():
    """A lost connection must not be reported as the image's crash."""
    lost = [failed(n, end="infrastructure", message="connection lost") for n in range(3)]
    assert cell_of(lost).verdict == "untested"
    assert "connection lost" in cell_of(lost).why
    assert cell_of([*lost, *three()]).verdict == "flat"
    assert cell_of([]).verdict == "untested"


def test_a_command_without_a_trace_is_good_if_it_ends_well():
    good = [Trial(cell_id="c", number=n, key="k", end="completed", last_step=0) for n in range(3)]
    assert cell_of(good).verdict == "flat"
    assert more(good) is None


def exited(number: int, code: int, end: str) -> Trial:
    """Return a short command: two samples of its memory, far too few to judge."""
    trace = trace_of(np.array([34_000.0, 41_800.0]))
    message = f"exit code {code}" if code else ""
    return Trial(
        cell_id="c",
        number=number,
        key="k",
        end=end,
        failure=Failure(exit_code=code),
        message=message,
        last_step=2,
        trace=trace,
    )


@pytest.mark.parametrize(
    ("code", "end", "verdict", "why"),
    [
        (0, "completed", "flat", "exit 0 in 3 of 3 launches"),
        (3, "crash", "crash", "crash in 3 of 3 launches: exit code 3"),
        (125, "setup", "untested", "exit code 125"),
    ],
)
def test_the_exit_code_alone_decides(code, end, verdict, why):
    trials = [exited(number, code, end) for number in range(3)]
    cell = judge_cell(trials, limits=replace(LIMITS, exit_only=True), steps=STEPS)
    assert cell.verdict == verdict
    assert why in cell.why
    assert "step" not in cell.why, "they say nothing"
    assert wants_more(trials, trials_asked=ASKED, limits=replace(LIMITS, exit_only=True), steps=STEPS) is None
    assert needs_whole_budget(trials, limits=replace(LIMITS, exit_only=True), steps=STEPS)


def test_an_exit_of_125_is_the_scenario_s_own_word():
    """Even if a failure before the first step counts as a crash, 125 means that the version could not be tested."""
    for code, verdict in ((125, "untested"), (127, "crash")):
        trials = [exited(number, code, "setup") for number in range(3)]
        assert judge_cell(trials, limits=Limits(setup_bad=True, exit_only=True), steps=STEPS).verdict == verdict


def test_one_bad_exit_among_good_ones_is_no_verdict():
    trials = [exited(0, 3, "crash"), exited(1, 0, "completed"), exited(2, 0, "completed")]
    assert judge_cell(trials, limits=replace(LIMITS, exit_only=True), steps=STEPS).verdict == "inconclusive"
    assert wants_more(trials, trials_asked=ASKED, limits=replace(LIMITS, exit_only=True), steps=STEPS) is not None


def test_too_few_samples_are_said_in_one_way():
    cell = cell_of([exited(number, 0, "completed") for number in range(3)])
    assert cell.verdict == "inconclusive"
    assert "too few samples to judge: 2 of at least 64" in cell.why


def test_shorter_launches_that_agree_are_counted():
    """Two launches that stopped early are flat, too: "1 of 3 launches" would look like a disagreement."""
    cell = cell_of([trial_of(0), trial_of(1, steps=500), trial_of(2, steps=500)])
    assert cell.why.startswith("flat in 3 of 3 launches; the longest: RSS is flat")
    assert cell.why.endswith("(up to step 4000)")


@given(st.permutations(range(5)))
@settings(max_examples=many(15, 150))
def test_the_order_of_launches_changes_nothing(order):
    trials = [trial_of(0, rate=9), trial_of(1, rate=9.1), trial_of(2), failed(3), trial_of(4, drift=1.5)]
    one, other = cell_of(trials), cell_of([trials[place] for place in order])
    assert one.verdicts == other.verdicts
    for name in ("memory", "step_time"):
        assert one.of(name).value == other.of(name).value


def test_enough_is_enough():
    assert more(three()) is None
    assert more(three(rate=12.0)) is None
    assert more(three()[:2]) == "2 of at least 3 launches"
    assert more([failed(n, end="infrastructure") for n in range(3)]) is None


def test_the_first_launch_runs_the_whole_budget():
    assert needs_whole_budget([], limits=LIMITS, steps=STEPS)
    assert not needs_whole_budget([trial_of()], limits=LIMITS, steps=STEPS)


def test_a_time_limit_is_named():
    """Steps too slow for the budget: more launches would end in the same way."""
    told = "time limit reached after 1200 s"
    cut = [
        replace(
            trial_of(n, steps=1300), message=told, failure=replace(trial_of(n, steps=1300).failure, shortfall="timeout")
        )
        for n in range(3)
    ]
    assert "raise `timeout`" in cell_of(cut).why
    assert more(cut) is None
    assert "raise `timeout`" not in cell_of(three(steps=500)).why, "a look ended these: no limit of time did"


def with_probes(rates: dict[str, float], looks: tuple[Look, ...] = ()) -> list[Trial]:
    trials = three(rate=20.0)
    return [
        replace(
            trial,
            trace=replace(
                trial.trace,
                looks=looks,
                columns={
                    **trial.trace.columns,
                    **{name: 1e5 + rate * trial.trace.step for name, rate in rates.items()},
                },
            ),
        )
        for trial in trials
        if trial.trace is not None
    ]


@pytest.mark.parametrize(
    ("rates", "looks", "layer"),
    [
        ({"heap_kib": 20.0, "blocks": 0.0}, (), "native heap"),
        ({"heap_kib": 1.0, "blocks": 3.0}, (), "python objects"),
        (
            {"heap_kib": 0.0, "blocks": 0.0},
            (Look(step=4000, values={"rss_kib": 160_000.0, "rss_trimmed_kib": 90_000.0}),),
            "allocator retention",
        ),
        (
            {"heap_kib": 0.0, "blocks": 0.0},
            (Look(step=4000, values={"rss_kib": 160_000.0, "rss_trimmed_kib": 159_000.0}),),
            "direct mmap",
        ),
        (
            {},
            (Look(step=2000, values={"rss_shmem_kib": 0.0}), Look(step=4000, values={"rss_shmem_kib": 40_000.0})),
            "shared memory",
        ),
        ({}, (), None),
    ],
)
def test_the_layer_is_named_where_it_can_be_told(rates, looks, layer):
    assert cell_of(with_probes(rates, looks)).layer == layer


def test_launches_that_cannot_tell_the_layer_outvote_none_that_can():
    """One launch of three had enough samples: its layer is the layer of the cell."""
    trials = [*three(rate=20.0)[:2], with_probes({"blocks": 3.0})[2]]
    assert cell_of(trials).layer == "python objects"


@pytest.mark.parametrize("ms", [0.001, 0.014, 1.0])
def test_steps_of_any_length_are_comparable(ms):
    assert cell_of(three(ms=ms)).of("step_time").ci is not None


def test_noise_in_one_launch_does_not_undo_the_others():
    trials = three()
    rng = random.Random(1)
    walk = [80_000.0]
    for _ in range(3999):
        walk.append(walk[-1] + rng.gauss(0, 300))
    noisy = trial_of(3, trace=trace_of(np.array(walk), step_s=times()))
    assert cell_of([noisy]).verdict in ("inconclusive", "suspect")
    assert cell_of([*trials, noisy]).verdict == "flat"


def test_a_training_with_a_noisy_heap_is_good_in_what_was_seen() -> None:
    """A healthy training with JAX, whose heap rises and falls by 60 MiB, was inconclusive in 12 of 12 launches."""
    noise = np.random.default_rng(4).normal(0, 20_000, (4, 4000))
    noisy = [trial_of(number, trace=trace_of(200_000 + noise[number], step_s=times())) for number in range(4)]
    for trials in (noisy, [*noisy[:3], trial_of(3)]):
        cell = cell_of(trials)
        assert cell.verdict == "flat"
        memory = cell.of("memory")
        assert (memory.seen, memory.limit) == ("blind", 0.5)
        assert (memory.visible or 0) > 1
        assert memory.remedy == (
            "more steps (`steps: {budget: …}`) or a wider limit in the matrix (`limits: {leak: …}`, or none) would help"
        )
        assert cell.of("outcome").seen == "good"
        assert more(trials) is None
    ended = [replace(trial, facts=Facts(run_s=9.0)) for trial in noisy]
    assert cell_of(ended).of("memory").remedy.startswith("a longer run of the program, which ends by itself, or ")
    assert cell_of([*noisy[:2], trial_of(2), trial_of(3), trial_of(4)]).of("memory").seen == "good"
    assert cell_of([*noisy, trial_of(3, rate=12.0)]).verdict in ("inconclusive", "suspect")
    short = replace(noisy[0], end="stopped", last_step=2000)
    assert cell_of([noisy[0], short]).verdict == "inconclusive", "it was not seen to its end"


def test_a_short_program_whose_allocator_still_takes_memory_is_not_suspected() -> None:
    """80 rounds of polars grew by 10 MiB in every version, and one launch of 15 looked like a leak."""
    warming = 80_000 + 1200 * np.sqrt(np.arange(80.0)) + np.random.default_rng(2).normal(0, 600, (5, 80)).cumsum(axis=1)
    ended = [by_itself(n, steps=80, facts=Facts(run_s=2.0)) for n in range(6)]
    taking = [
        replace(one, trace=trace_of(rss, step_s=times(steps=80))) for one, rss in zip(ended, warming, strict=False)
    ]
    leaks = replace(ended[5], trace=trace_of(80_000 + 350 * np.arange(80.0), step_s=times(steps=80)))
    assert {verdict for one in taking for verdict in cell_of([one]).verdicts} & {"suspect", "inconclusive"}
    cell = cell_of([*taking, leaks])
    assert (cell.verdict, cell.of("memory").seen) == ("flat", "blind")
    flat = [by_itself(number, steps=80, facts=Facts(run_s=2.0)) for number in range(3)]
    assert cell_of([*flat, leaks]).verdict == "flat"
    assert cell_of([*taking[:3], leaks, replace(leaks, number=9)]).verdict == "leak", "two agree"
    long = by_itself(7, steps=2000, rate=12.0, facts=Facts(run_s=2.0))
    assert cell_of([*[replace(one, last_step=2000) for one in taking], long]).verdict != "flat"


def test_a_suspect_cell_tells_what_is_suspected():
    """The reason must not be that its other launches were too noisy."""
    noise = np.random.default_rng(4).normal(0, 3000, (2, 4000))
    noisy = [trial_of(number, trace=trace_of(80_000 + noise[number], step_s=times())) for number in range(2)]
    slowing = trial_of(2, trace=trace_of(80_000 + 400 * np.arange(4000.0) ** 0.5, step_s=times()))
    assert cell_of(noisy).of("memory").seen == "blind"
    cell = cell_of([*noisy, slowing])
    assert cell.verdict == "suspect"
    assert cell.why.startswith("1 of 3 launches: RSS grows")


def test_a_suspect_cell_quotes_a_whole_launch_rather_than_a_brief_one():
    """It told of 5.406 KiB/step up to step 499 for a cache that fills, while whole launches grow by 0.347."""
    filling = 80_000 + 400 * np.arange(4000.0) ** 0.5
    brief = trial_of(0, steps=500, trace=trace_of(filling[:500], step_s=times(steps=500)))
    whole = [trial_of(number, trace=trace_of(filling, step_s=times())) for number in (1, 2)]
    cell = cell_of([brief, *whole])
    assert cell.verdict == "suspect"
    assert "(up to step 4000)" in cell.why
    assert cell.why == cell_of([*whole, brief]).why


IN_TIME = replace(STEPS, time_s=300.0)


def in_time(steps: int, *, ms: float, **each) -> list[Trial]:
    """Return three launches whose time ended after this many steps of this many milliseconds."""
    return [trial_of(number, steps=steps, ms=ms, end="completed", **each) for number in range(3)]


def test_a_training_step_of_300_ms_is_judged_by_what_its_time_shows():
    """Otherwise 4,000 steps took 20 minutes per launch, and fewer steps were not a whole launch."""
    flat = judge_cell(in_time(996, ms=300), limits=LIMITS, steps=IN_TIME)
    assert flat.verdict == "flat"
    assert "(up to step 996); its time of 300 s ran out" in flat.why
    assert 0 < (flat.of("memory").visible or 0) < LIMITS.leak_kib_per_step

    leak = judge_cell(in_time(996, ms=300, rate=64.0), limits=LIMITS, steps=IN_TIME)
    assert leak.verdict == "leak", "up to step 1000 it would be suspect, if its time went on"


def test_so_few_steps_in_the_time_that_they_show_nothing_are_not_called_flat():
    few = judge_cell(in_time(12, ms=25_000), limits=LIMITS, steps=IN_TIME)
    assert few.verdict == "inconclusive"


def short(number: int, *, rate: float) -> Trial:
    """Return a launch that stopped at its first look."""
    return trial_of(number, rate=rate, steps=500)


def test_a_clear_leak_takes_one_whole_launch_and_a_short_one():
    """Three launches of 4,000 steps said no more about 60 KiB/step than one such launch and two of 500 steps."""
    found = cell_of([short(0, rate=60.0), trial_of(1, rate=60.0)])
    assert found.verdicts == ("leak",)
    assert not needs_whole_budget([short(0, rate=60.0), trial_of(1, rate=60.0)], limits=LIMITS, steps=STEPS)


@pytest.mark.parametrize("rates", [(60.0, 60.0), (60.0, 2.0), (2.0, 60.0)])
def test_short_launches_alone_or_of_another_rate_call_nothing_a_leak(rates: tuple[float, float]):
    """A cache that fills grows in the first 500 steps of every launch."""
    early = [short(number, rate=rates[0]) for number in range(2)]
    assert cell_of(early).verdict != "leak"
    assert needs_whole_budget(early, limits=LIMITS, steps=STEPS)
    if rates[0] != rates[1]:
        assert "leak" not in cell_of([short(0, rate=rates[0]), trial_of(1, rate=rates[1])]).verdicts


def test_growth_that_ends_is_no_leak_however_clear_its_beginning_was():
    filled = np.minimum(np.arange(4000), 900) * 60.0 + 80_000
    whole = replace(trial_of(1), trace=trace_of(filled, step_s=times()))
    assert "leak" not in cell_of([short(0, rate=60.0), whole, short(2, rate=60.0)]).verdicts


def test_the_first_look_at_all_versions_is_brief_and_the_next_launch_is_whole():
    assert not needs_whole_budget([], limits=LIMITS, steps=STEPS, depth="brief")
    assert needs_whole_budget([short(0, rate=0.0)], limits=LIMITS, steps=STEPS)


def in_shm(number: int, *, grows: bool, **more: Any) -> Trial:
    step = np.arange(1.0, STEPS.budget + 1, 100)
    counts = {"step": step, "shm": 8 * step if grows else 0 * step}
    trial = trial_of(number, fingerprint={"engine": "process"}, **more)
    return replace(trial, trace=replace(trial.trace, counts=counts))


def test_files_in_shared_memory_that_a_neighbour_may_have_written_accuse_no_version():
    """Launches without containers share /dev/shm: a launch that wrote nothing there was inconclusive."""
    mixed = [in_shm(number, grows=True, beside=1) for number in range(3)]
    seen = cell_of(mixed).signals["shm"]
    assert (seen.seen, "other launches used the same /dev/shm" in seen.why) == ("blind", True)
    assert needs_whole_budget(mixed, limits=LIMITS, steps=STEPS)
    assert more(mixed) == "its files could not be distinguished from those of other launches"
    alone = [*mixed, in_shm(3, grows=False)]
    assert cell_of(alone).signals["shm"].seen == "good"
    assert more(alone) is None
    agreed = cell_of([*mixed, in_shm(3, grows=True), in_shm(4, grows=True)])
    assert (agreed.verdict, agreed.signals["shm"].seen) == ("growth", "bad")


def test_files_on_disk_that_a_parked_neighbour_may_have_written_accuse_no_version():
    """A version that rewrites a file in /tmp was accused of the files that another one kept, as they took turns."""
    step = np.arange(1.0, STEPS.budget + 1, 100)
    alone = trial_of(0, fingerprint={"engine": "process"})
    alone = replace(alone, trace=replace(alone.trace, counts={"step": step, "disk": 8 * step}))
    trial = replace(alone, conditions=replace(alone.conditions, parked=1))
    seen = cell_of([trial, trial]).signals["disk"]
    assert (seen.seen, "the same temporary folders at the same time" in seen.why) == ("blind", True)
    assert cell_of([alone, alone]).signals["disk"].seen == "bad"


def test_files_of_others_in_shared_memory_that_come_and_go_hide_no_growth():
    trial = in_shm(0, grows=False, beside=1)
    assert trial.trace is not None
    trial.trace.counts["shm"][:] = 16 * (np.arange(len(trial.trace.counts["shm"])) % 5 == 3)
    assert cell_of([trial, trial]).signals["shm"].seen == "good"


@pytest.mark.parametrize(("engine", "grows"), [("docker", True), ("process", False)])
def test_shared_memory_is_judged_beside_others_in_a_container_or_where_nobody_uses_it(engine, grows):
    beside = [replace(in_shm(n, grows=grows, beside=1), fingerprint={"engine": engine}) for n in range(3)]
    assert cell_of(beside).signals["shm"].seen == ("bad" if grows else "good")
    assert more(beside) is None


def test_the_reason_of_a_cell_and_of_its_signal_count_the_same_launches():
    """One said "1 of 8 launches" and the other "1 of 7 launches": the eighth launch ended before its counts could be
    judged.
    """
    cell = cell_of([in_shm(0, grows=True), in_shm(1, grows=False), short(2, rate=0.0)])
    assert "in 1 of 3 launches" in cell.why
    assert cell.signals["shm"].why.endswith("in 1 of 3 launches")


def test_a_trace_is_judged_once_for_each_limit(monkeypatch: pytest.MonkeyPatch):
    """A sweep asks for the verdict at each decision, and judging takes processor time from running launches."""
    judged: list[Trace] = []
    judge_column = trace_verdict.judge_column

    def counted(trace: Trace, name: str, **settings: Any) -> Growth:
        judged.append(trace)
        return judge_column(trace, name, **settings)

    monkeypatch.setattr(trace_verdict, "judge_column", counted)
    trials = three(rate=12.0)
    assert cell_of(trials) == cell_of(
        [replace(trial, conditions=replace(trial.conditions, cold=True)) for trial in trials]
    )
    assert len(judged) == 3
    judge_cell(trials, limits=Limits(signals={"memory": 100.0}), steps=STEPS)
    assert len(judged) == 6


def test_rates_are_counted_by_what_a_step_is():
    """A program without steps had `610 ms/step` of processor time, and one whose lines are steps leaked `KiB/step`."""
    stepping = trial_of()
    assert stepping.trace is not None
    assert per_of([stepping]) == "step"
    assert per_of([replace(stepping, facts=Facts(step_kind="line"))]) == "line"
    nothing = {**stepping.trace.columns, "step_s": np.full(len(stepping.trace.step), np.nan)}
    whole = replace(stepping, trace=replace(stepping.trace, columns=nothing), facts=Facts(run_s=1.0))
    assert per_of([whole]) == "run"


def test_reasons_and_findings_say_what_a_rate_is_counted_by():
    """The table said `19.6 KiB/line`; its reason, `history` and JUnit said `KiB/step`."""
    cells = [cell_of([replace(one, facts=Facts(step_kind="line")) for one in three(rate=rate)]) for rate in (0.0, 12.0)]
    assert [("KiB/line" in cell.why, "up to line" in cell.why, "step" in cell.why) for cell in cells] == [
        (True, True, False)
    ] * 2
    (change,) = growth_changes("memory", cells, baseline=None, limit=0.5)
    assert change.effect is not None
    assert change.effect.unit == "KiB/line"


def printing(rss_kib: Any, *, number: int = 0) -> Trial:
    """Return a launch of a program that ended by itself; each line that it printed is a step."""
    trace = trace_of(rss_kib, step_s=times(steps=len(rss_kib), seed=number))
    facts = Facts(step_kind="line", run_s=1.0)
    return trial_of(number, end="stopped", steps=len(rss_kib), trace=trace, facts=facts)


def test_what_a_whole_run_hardly_grows_by_is_no_leak():
    """A real pandas grew by 0.62 KiB a line, 123 KiB in its whole run: `most of it fixed`, said the report."""
    little, much = ([printing(memory(rate, steps=200), number=n) for n in range(3)] for rate in (0.62, 40.0))
    assert cell_of(little).verdicts == ("flat",)
    assert (cell_of(little).of("memory").seen, cell_of(little).of("memory").limit) == (
        "good",
        pytest.approx(1024 / 200),
    )
    assert cell_of(much).verdicts == ("leak",)
    strict = judge_cell(little, limits=Limits(signals={"memory": 0.1}), steps=STEPS)
    assert strict.of("memory").limit == 0.1


def test_a_whole_run_needs_no_question_mark_for_what_it_did_not_grow_by():
    """Memory that rises by 240 KiB in a few uneven steps, and then ends, was `unclear <9.96 KiB/line`."""
    uneven = np.repeat([14_132.0, 14_152.0, 14_208.0, 14_232.0, 14_372.0], 30)
    cell = cell_of([printing(uneven, number=number) for number in range(3)])
    assert cell.verdicts == ("flat",)
    assert cell.of("memory").seen == "good"
    assert "rose by 240 KiB in the whole run" in cell.why
    steep = cell_of([printing(14_000 + 100 * (uneven - uneven[0]), number=number) for number in range(3)])
    assert steep.of("memory").seen != "good"


def test_two_unlike_exceptions_do_not_agree_on_a_crash():
    """A server that is away now and then and a function that a version lacks were one crash in every version."""
    away, gone = (failed(signal=None, message=f"step 3: {told}") for told in ("ConnectionError: refused", "TypeError"))
    good = [trial_of(number) for number in range(2, 5)]
    assert cell_of([away, replace(gone, number=1), *good]).verdicts == ("inconclusive",)
    assert cell_of([gone, replace(gone, number=1), *good]).verdict == "crash"
