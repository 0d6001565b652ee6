"""Memory over time of programs with few steps or none: what grows to the end is named, and what is filled is not."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from harness.judge.cell import judge_cell
from harness.judge.comparison.which_launches import per_of
from harness.judge.launches import over_time
from harness.judge.row import judge_row
from harness.judge.run import judge_run
from harness.model import CellRun, Failure, Floats, Limits, RunResult, Steps, Trial
from harness.report.text.fault_sentences import sentence, worst_first
from tests.players import build
from tests.players.trials import facts_of, made_trial, row_run, trace_of

SECONDS, ROWS = 5.0, 100
AT_S = np.linspace(SECONDS / ROWS, SECONDS, ROWS)
SHARE = AT_S / SECONDS


FEW = 20
EPOCH_S = 0.2
"""The steps of a program that makes few: it starts in the first second, and each takes as long."""


def run_of(anon_kib: Floats, number: int) -> Trial:
    """Return a launch of a program without steps, of which only the memory over time is known."""
    noise = np.random.default_rng(number).integers(-2, 3, len(anon_kib)) * 4.0
    kept = {"at_s": AT_S[: len(anon_kib)], "rss_kib": anon_kib + noise + 9000, "anon_kib": anon_kib + noise}
    trace = trace_of(np.array([12_000.0]), over_time=kept)
    peak_kib, facts = float(kept["rss_kib"].max()) + 40 * (number % 7), {"run_s": SECONDS + 0.01 * (number % 3)}
    return made_trial(
        number=number, round=number % 10, run="now", last_step=1, trace=trace, shortfall="no_step", output_bytes=10,
        peak_rss_kib=peak_kib, facts=facts_of(facts),
    )  # fmt: skip


def loaded(kib: float, *, until: float = 0.1) -> Floats:
    """Return memory that is loaded in the first part of a run, and then stays."""
    return np.asarray(kib * np.minimum(SHARE / until, 1.0))


def lost(kib_s: float, *, since: float = 0.0) -> Floats:
    """Return memory of which so much is lost in each second."""
    return loaded(8000) + np.floor(np.maximum(SHARE - since, 0.0) * SECONDS * kib_s / 64) * 64


def with_steps(trial: Trial) -> Trial:
    """Return the launch of a program that tells of `FEW` steps, the first of which ends after `SECONDS` less the time
    of the others. Its container took three seconds to start, before the program did."""
    assert trial.trace is not None
    assert trial.run_s is not None
    columns = {"step_s": np.full(FEW, EPOCH_S), "rss_kib": np.full(FEW, 12_000.0)}
    trace = replace(trial.trace, step=np.arange(1.0, FEW + 1), columns=columns)
    facts = replace(trial.facts, start_s=3.0, setup_s=trial.run_s - FEW * EPOCH_S, first_step_s=EPOCH_S)
    return replace(trial, last_step=FEW, trace=trace, failure=replace(trial.failure, shortfall=None), facts=facts)


def judged(*versions: Floats, launches: int = 4, change: Callable[[Trial], Trial] = lambda trial: trial) -> RunResult:
    """Return the run of a program whose versions have this memory over time."""
    series = build.series("app", [f"1.{place}" for place in range(len(versions))])
    result = build.run([(series, [build.HERE], [build.POP])], lambda *_: build.flat())
    runs = [
        CellRun(
            cell=cell, trials=[change(replace(run_of(own, 10 * place + n), cell_id=cell.id)) for n in range(launches)]
        )
        for place, (cell, own) in enumerate(zip(result.plan.cells, versions, strict=True))
    ]
    told = judge_run(result.plan, [judge_row(row_run(runs))], directory=Path("none"))
    return replace(
        result, cells=told.cells, findings=told.findings, attribution=told.attribution, warnings=told.warnings
    )


def seen(result: RunResult) -> list[str]:
    return [cell.verdict.of("memory").seen for cell in result.cells]


@pytest.mark.parametrize("since", [0.0, 0.5])
def test_a_leak_of_a_program_without_steps_is_no_mere_peak(since: float) -> None:
    """Of a program whose memory grew from its first second to its last, the answer was `needs 95.9 % more memory`."""
    result = judged(lost(0), lost(0), lost(12_288, since=since), lost(12_288, since=since))
    found = {one.metric: one for one in result.findings}
    leak = found["memory"]
    assert (leak.before, leak.after, leak.verdict) == ("1.1", "1.2", "leak")
    assert leak.effect is not None
    assert (leak.effect.value, leak.effect.unit) == (pytest.approx(12_288, rel=0.1), "KiB/s")
    assert seen(result) == ["good", "good", "bad", "bad"]
    assert not {name for name, one in found.items() if not (name == "memory" or one.consequence_of == "memory")}
    (fault,) = worst_first(result)
    assert re.match(r"app grows by 1[23] MiB/s while it runs since 1\.2", sentence(fault, result))


@pytest.mark.parametrize(
    "more", [loaded(40_000, until=0.3), loaded(40_000, until=0.7), 40_000 * (1 - np.exp(-5 * SHARE))]
)
def test_memory_that_is_filled_once_is_a_larger_peak_and_no_leak(more: Floats) -> None:
    """A model that is loaded, a pool and a cache grow for a while, and then no more."""
    result = judged(lost(0), lost(0), lost(0) + more, lost(0) + more)
    assert {one.metric for one in result.findings} == {"peak_memory"}
    assert not {"bad", "suspect", "blind"} & set(seen(result)), "nor is it a question"
    told = [cell.verdict.of("memory") for cell in result.cells]
    assert all(each.value is None for each in told if each.seen == "none"), "a rate beside it looks like a leak"


def test_garbage_that_is_collected_now_and_then_is_no_leak() -> None:
    teeth = np.arange(ROWS) % 12 * 1024.0
    assert not judged(lost(0) + teeth, lost(0) + teeth).findings


def test_a_program_that_keeps_its_results_grows_alike_in_all_versions() -> None:
    """It is told, and no version is accused; one that keeps three times as much is."""
    result = judged(lost(3000), lost(3300), lost(2900))
    assert not result.findings
    assert seen(result) == ["none"] * 3
    assert "about 3,0" in result.cells[0].verdict.of("memory").why
    assert any("memory grows by up to 15 MiB in a launch, alike in every version" in each for each in result.warnings)
    more = judged(lost(3000), lost(3000), lost(9000))
    assert [(one.kind, one.after) for one in more.findings if one.metric == "memory"][-1] == ("worse", "1.2")


def test_a_quicker_version_grows_by_as_much() -> None:
    """It keeps the same results in 70 % of the time, which is 43 % more a second."""
    quick = np.interp(SHARE[:70] / 0.7, SHARE, lost(3000))
    assert "memory" not in {one.metric for one in judged(lost(3000), lost(3000), quick).findings}


def test_growth_of_which_no_other_version_is_known_to_be_free_is_not_blamed_on_one() -> None:
    """Memory that rises in a few large jumps may grow as much: the peak is compared, and nothing is said to leak."""
    jumps = loaded(8000) + np.floor(SHARE * 3) * 5000
    result = judged(jumps, jumps, lost(3000))
    assert "memory" not in {one.metric for one in result.findings}


def test_a_leak_of_few_steps_is_named_by_the_step() -> None:
    """Of a program of 20 epochs, a leak was only a larger peak, and hid behind one."""
    result = judged(lost(0), lost(0), lost(12_288), lost(12_288), change=with_steps)
    leak = next(one for one in result.findings if one.metric == "memory")
    assert leak.effect is not None
    assert (leak.after, leak.effect.unit) == ("1.2", "KiB/step")
    assert leak.effect.value == pytest.approx(12_288 * EPOCH_S, rel=0.1)
    assert seen(result) == ["good", "good", "bad", "bad"]


@pytest.mark.parametrize("more", [loaded(40_000, until=0.2), loaded(40_000, until=0.7)])
def test_what_few_steps_fill_once_is_no_leak(more: Floats) -> None:
    result = judged(lost(0), lost(0), lost(0) + more, lost(0) + more, change=with_steps)
    assert {one.metric for one in result.findings} == {"peak_memory"}
    assert not {"bad", "suspect", "blind"} & set(seen(result)), "nor is it a question"


def test_few_steps_that_keep_their_results_in_all_versions_accuse_none() -> None:
    result = judged(lost(3000), lost(3300), lost(2900), change=with_steps)
    assert not result.findings
    assert seen(result) == ["none"] * 3


def test_a_run_that_is_too_short_has_no_growth() -> None:
    assert over_time(run_of(lost(9000)[:60], 1)) is None
    assert over_time(run_of(lost(9000), 1)) is not None


def test_times_after_the_end_do_not_count() -> None:
    """An image that tells of samples only after its run stopped the judge, then and at each later reading."""
    trial = run_of(loaded(8000), 1)
    assert over_time(replace(trial, facts=replace(trial.facts, run_s=AT_S[0] / 2))) is None


def test_a_launch_that_its_time_limit_ended_is_judged_over_time_like_its_neighbours() -> None:
    """Its leak was a rate per sample beside rates per second: the warning told of ten times the growth."""
    trial = run_of(lost(3000), 1)
    cut = replace(trial, end="stopped", facts=replace(trial.facts, run_s=None))
    assert over_time(cut) is not None
    assert per_of([cut]) == per_of([trial]) == "run"


def test_a_run_with_few_samples_of_memory_is_told_in_seconds() -> None:
    """On a busy machine 37 of 79 samples had the memory, and a launch of 8 seconds was flat up to second 79."""
    few = run_of(lost(0)[:37], 1)
    assert few.trace is not None
    columns = {"rss_kib": np.full(79, 12_000.0)}
    trial = replace(
        few, last_step=79, failure=Failure(), trace=replace(few.trace, step=np.arange(1.0, 80), columns=columns)
    )
    assert judge_cell([trial], limits=Limits(), steps=Steps()).steps <= SECONDS
