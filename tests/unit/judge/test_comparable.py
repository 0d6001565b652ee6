"""Trials are compared only if they differ in nothing but the version; the differing field and both values are named."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from harness.judge.comparable import conditions, differences, set_apart, unlike_steps, whole_run
from harness.judge.comparison.level_rules import launch_figure_of
from harness.judge.history.changes import find_changes
from harness.judge.row import judge_row
from harness.model import Cell, CellRun, JudgedRow, Look, Trial
from harness.model.measured import Facts
from tests.players import build
from tests.players.trials import facts_of, of_row, row_run, times, trial_of

FINGERPRINT = {"engine": "docker 27.1", "name": "lab", "cpu": "EPYC 7742", "cpus": 8, "kernel": "6.1.0"}
CARD = {"uuid": "GPU-1", "name": "RTX 3090", "driver": "535.104.05"}
FACTS = {"agent": "1.0", "libc": "glibc 2.36", "probes": ["rss", "heap"], "gpus": [CARD]}


def trial(number: int = 0, *, ms: float = 1.0, seed: int = 0, facts: Any = None, **fingerprint: Any) -> Trial:
    return replace(
        trial_of(number, ms=ms, seed=seed, steps=1000),
        fingerprint={**FINGERPRINT, **fingerprint},
        facts=facts_of({**FACTS, **(facts or {})}),
    )


def told(one: Trial, other: Trial, *axis: str) -> list[str]:
    return [str(each) for each in differences(conditions(one), conditions(other), axis=axis)]


def test_the_field_and_both_values_are_named():
    assert told(trial(), trial(kernel="6.5.0"), "image") == ["host kernel 6.1.0 and 6.5.0"]
    assert told(trial(), trial(facts={"agent": "1.1"}), "image") == ["agent version 1.0 and 1.1"]
    newer = trial(facts={"gpus": [{**CARD, "driver": "550.54"}]})
    assert told(trial(), newer, "image") == ["GPU driver 535.104.05 and 550.54"]


def test_what_the_comparison_is_about_may_differ():
    other = trial(facts={"libc": "musl", "probes": ["rss"]}, kernel="6.5.0", name="new")
    assert told(trial(), other, "image", "host") == []
    assert told(trial(), other, "image", "host.kernel") == ["host name lab and new"]
    assert told(trial(), other, "host") == ["image libc glibc 2.36 and musl", "probes ['rss', 'heap'] and ['rss']"]


def test_what_a_lanes_gpus_bring_into_the_environment_is_not_the_images():
    """The engine writes the card's UUID into the environment: no two hosts with GPUs could be compared."""
    old = trial(facts={"environment": {"NVIDIA_VISIBLE_DEVICES": "GPU-1", "CUDA_VERSION": "11.8"}})
    new = trial(facts={"environment": {"NVIDIA_VISIBLE_DEVICES": "GPU-2", "CUDA_VERSION": "11.8"}})
    bare = trial(facts={"environment": {"TF_FORCE_GPU_ALLOW_GROWTH": "true", "CUDA_VERSION": "11.8"}})
    assert told(old, new, "host", "gpu") == told(old, bare, "host", "gpu") == []
    other = trial(facts={"environment": {"NVIDIA_VISIBLE_DEVICES": "GPU-1", "CUDA_VERSION": "12.0"}})
    assert told(old, other, "host", "gpu") == [
        "image environment {'CUDA_VERSION': '11.8'} and {'CUDA_VERSION': '12.0'}"
    ]


def test_what_one_side_does_not_know_is_no_difference():
    assert told(trial(), trial(kernel=None, facts={"gpus": []}), "image") == []
    assert told(trial(), trial_of(), "image") == []


def test_the_minority_is_set_apart():
    usual, odd = [trial(number) for number in range(3)], trial(3, kernel="6.5.0")
    kept, reasons = set_apart([usual, [odd, trial_of()]])
    assert [len(each) for each in kept] == [3, 1]
    assert [str(each) for each in reasons] == ["host kernel 6.1.0 and 6.5.0"]
    assert set_apart([]) == ((), ())


def test_versions_of_two_kernels_are_not_compared():
    """A version looked twice as slow, because the machine was updated in between."""
    trials = [[trial(n, seed=place) for n in range(3)] for place in range(5)]
    trials.append([trial(n, seed=5, ms=2.0, kernel="6.5.0") for n in range(3)])
    assert find_changes(of_row(trials)) == ()
    assert [str(each) for each in set_apart(trials)[1]] == ["host kernel 6.1.0 and 6.5.0"]
    same = [*trials[:5], [trial(n, seed=5, ms=2.0) for n in range(3)]]
    found = find_changes(of_row(same))
    assert [change.after for change in found] == [5]
    assert set_apart(same)[1] == ()


# ---------------------------------------------------------------- versions that count other steps


def counting(*kinds: tuple[str | None, str | None], **more: Any) -> JudgedRow:
    """Return msgpack whose versions count these steps. The newest takes ten times as long for a step, and grows."""
    series = build.series("msgpack", [f"1.{place}" for place in range(len(kinds))])
    cells = tuple(Cell(image=image, lane=build.HERE, variant=build.POP) for image in series.images)
    runs = []
    for place, (cell, (kind, shape)) in enumerate(zip(cells, kinds, strict=True)):
        other = place == len(kinds) - 1
        facts = {"step_kind": kind, "step_shape": shape, "run_s": 4.0}
        of = {"ms": 10.0, "rate": 20.0} if other else {}
        steps = 400 if other else 4000
        fields = {"steps": steps, "end": "completed", "facts": facts, "peak_rss_kib": 9e4, **of, **more}
        trials = [replace(trial_of(number, seed=place, **fields), cell_id=cell.id) for number in (1, 2, 3)]
        runs.append(CellRun(cell=cell, trials=trials))
    return judge_row(row_run(runs))


LINES, SPARSE = ("line", "epoch #"), ("line", "epoch # by 10")


@pytest.mark.parametrize("other", [SPARSE, ("torch", None), (None, None)])
def test_versions_that_count_other_steps_are_compared_as_whole_runs(other: tuple[str | None, str | None]) -> None:
    """A healthy version that printed each tenth epoch leaked ten times as much a step, and was ten times as slow."""
    accused = counting(LINES, LINES, LINES)
    assert "step_time" in {finding.metric for finding in accused.findings}
    row = counting(LINES, LINES, other)
    assert not row.findings
    assert [cell.verdict.verdict for cell in row.cells] == ["flat"] * 3
    assert {cell.verdict.signals["run_time"].seen for cell in row.cells} == {"good"}
    assert {cell.verdict.signals[name].seen for cell in row.cells for name in ("step_time", "memory")} == {"none"}
    (warning,) = row.warnings
    assert 'the versions count other steps (1.0, 1.1: lines like "epoch #"; 1.2: ' in warning
    assert "`steps_are`" in warning
    assert ("`steps_are: torch` leaves out lines" in warning) == (other[0] == "torch"), (
        "a download printed its progress"
    )
    assert row.cells[0].trials[0].last_step == 4000, "reports show what was measured"
    runs = [
        CellRun(
            cell=cell.cell,
            trials=[
                *(replace(one, end="stopped", facts=replace(one.facts, run_s=None)) for one in cell.trials[:2]),
                cell.trials[2],
            ],
        )
        for cell in row.cells
    ]
    brief = judge_row(row_run(runs))
    assert [cell.verdict.verdict for cell in brief.cells] == ["flat"] * 3, "the first rounds are brief"


def test_a_whole_run_is_judged_by_what_it_holds_and_used_at_its_end() -> None:
    """A program whose bar was drawn three times left 200 files open, and all its versions were good."""
    counts = {"step": np.array([1.0, 400.0]), "open_files": np.array([5.0, 207.0]), "zombies": np.array([0.0, 3.0])}
    looks = tuple(Look(step=step, values={"cpu_s": step / 100}) for step in (75, 400))
    trial = trial_of(steps=400, facts=Facts(step_kind="line", run_s=2.0))
    assert trial.trace is not None
    whole = whole_run(replace(trial, trace=replace(trial.trace, counts=counts, looks=looks)))
    figures = {name: launch_figure_of(name, [[whole]])(whole) for name in ("held", "cpu_time")}
    assert figures == {"held": 210, "cpu_time": 4.0}


@pytest.mark.parametrize(
    ("shape", "counts", "drawn", "whole"),
    [
        ("epoch #", (400, 350, 300), None, False),
        ("epoch #", (400, 70, 86), None, True),
        ("epoch bar", (400, 390, 400), 100, False),
        ("inner bar by 1000", (400, 390, 400), 5, True),
    ],
)
def test_lines_that_come_by_chance_are_no_steps(
    shape: str, counts: tuple[int, ...], drawn: int | None, *, whole: bool
) -> None:
    """A bar that was drawn five times in half a second was said to have launches in a slow mode; lines of one kind of
    trial, of which 10 to 86 came by chance, to leak."""
    launches = []
    for number, steps in enumerate(counts):
        trial = trial_of(number, steps=steps, facts=Facts(step_kind="line", step_shape=shape, run_s=2.0))
        step_s = np.repeat(times(seed=number)[: drawn or steps], math.ceil(steps / (drawn or steps)))[:steps]
        assert trial.trace is not None
        trace = replace(trial.trace, columns={**trial.trace.columns, "step_s": step_s})
        launches.append(replace(trial, trace=trace))
    assert bool(unlike_steps([launches], ["1.1"])) == whole
    cut = [replace(one, facts=replace(one.facts, run_s=None)) for one in launches]
    assert not unlike_steps([cut], ["1.1"]), "the harness ended them"


@pytest.mark.parametrize(("together", "told"), [(1, ""), (5, "drawn only 16 times")])
def test_a_bar_is_also_drawn_in_the_steps_of_slices_that_have_no_time(together: int, told: str) -> None:
    """A bar that was drawn 80 times was said to be drawn 48 times: the first step of a slice has no time."""
    launch = trial_of(steps=80, facts=Facts(step_kind="line", step_shape="shard bar", run_s=2.0))
    step_s = np.repeat(times(seed=1)[: 80 // together], together)
    step_s[1::5] = step_s[3::5] = np.nan
    assert launch.trace is not None
    trace = replace(launch.trace, columns={**launch.trace.columns, "step_s": step_s})
    why = unlike_steps([[replace(launch, trace=trace)]], ["1.1"])
    assert told in why
    assert bool(told) == bool(why)


def test_steps_that_are_unlike_and_were_cut_are_not_compared_at_all() -> None:
    row = counting(LINES, SPARSE, facts=Facts(step_kind="line"))
    assert "step_time" in {finding.metric for finding in row.findings}, "an earlier run did not record their shape"
    cut = [facts_of({"step_kind": "line", "step_shape": shape}) for shape in ("epoch #", "epoch # by 10")]
    whole = counting(LINES, SPARSE)
    runs = [
        CellRun(cell=cell.cell, trials=[replace(trial, facts=facts) for trial in cell.trials])
        for cell, facts in zip(whole.cells, cut, strict=True)
    ]
    row = judge_row(row_run(runs))
    assert not row.findings
    assert [cell.verdict.verdict for cell in row.cells] == ["inconclusive"] * 2
    assert "count other steps" in row.cells[0].verdict.why


@pytest.mark.parametrize(
    ("kind", "newest", "is_told"), [("line", 20.0, False), ("line", 60.0, True), ("torch", 20.0, True)]
)
def test_a_program_that_keeps_its_results_leaks_in_no_version(kind: str, newest: float, *, is_told: bool) -> None:
    """A script that appends to a list in each epoch leaked in every version, although nothing differs."""
    series = build.series("msgpack", ["1.0", "1.1"])
    cells = tuple(Cell(image=image, lane=build.HERE, variant=build.POP) for image in series.images)
    facts = facts_of({"step_kind": kind, "step_shape": "epoch #" if kind == "line" else None, "run_s": 4.0})
    runs = [
        CellRun(cell=cell, trials=[replace(trial_of(n, rate=rate, facts=facts), cell_id=cell.id) for n in (1, 2, 3)])
        for cell, rate in zip(cells, (20.0, newest), strict=True)
    ]
    row = judge_row(row_run(runs))
    assert ("leak" in row.cells[1].verdict.verdicts) == is_told
    if not is_told:
        assert [cell.verdict.verdict for cell in row.cells] == ["flat", "flat"]
        assert not row.findings
        assert row.cells[0].verdict.of("memory").seen == "none"
        assert "20 KiB/line in every version" in row.cells[0].verdict.of("memory").why
