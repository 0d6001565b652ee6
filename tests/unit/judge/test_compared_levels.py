"""The levels that reports show next to a finding are those that it compared."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.judge.comparison.compared_levels import modes_of
from harness.judge.comparison.level_rules import RULES, launch_figure_of, usable
from harness.judge.comparison.printed_lines import fewer_steps, mask, new_lines, other_lines
from harness.judge.comparison.round_tables import RoundTable
from harness.judge.history.changes import find_changes
from harness.judge.history.precision import wants_round
from harness.judge.history.transitions import mode_changes
from harness.judge.row import judge_row
from harness.judge.run import corrected, judge_run
from harness.model import SIGNALS, Cell, CellRun, Floats, JudgedRow, Look, Printed, Series, Steps, Trial, Trials
from harness.model.measured import Facts
from harness.model.signals import least_per
from harness.report.finding_boxes import boxes
from tests.nightly import many
from tests.players import build
from tests.players.trials import LIMITS, STEPS, cell_of, of_row, row_run, shown, trial_of


def launches(
    ms: float, *, more_kib: float = 0.0, steps: int = 1000, run: str = "", spike_kib: float = 0.0
) -> list[Trial]:
    """Return three launches; each takes `more_kib` in addition to its noise, and `spike_kib` only in the last step."""
    trials = [trial_of(number, ms=ms, seed=int(1000 * ms), steps=steps, run=run) for number in range(3)]
    for trial in trials:
        assert trial.trace is not None
        trial.trace.columns["rss_kib"][:] += more_kib
        trial.trace.columns["rss_kib"][-1] += spike_kib
    return trials


@settings(max_examples=many(10, 250))
@given(slower=st.floats(1.3, 3), more_kib=st.floats(30_000, 300_000), longer=st.sampled_from([1000, 2000, 4000]))
def test_the_ratio_of_two_levels_is_the_finding_s_size(slower: float, more_kib: float, longer: int) -> None:
    """A reader who divides the two numbers next to a finding must get its size. Steps that only one version ran, where
    it took much more memory, are part of neither number.
    """
    trials = [launches(1.0), launches(slower, more_kib=more_kib, steps=longer, spike_kib=900_000 * (longer > 1000))]
    cells = shown(trials)
    found = {one.metric: one.effect for one in find_changes(of_row(trials))}
    for metric in ("step_time", "peak_memory"):
        effect, before, after = found[metric], cells[0].of(metric).value, cells[1].of(metric)
        assert effect is not None
        assert after.value is not None
        assert after.value / (before or 0.0) == pytest.approx(effect.value, rel=1e-6)
        low, high = after.ci or (math.inf, 0.0)
        assert low <= after.value <= high


@pytest.mark.parametrize("searched", [False, True])
def test_the_unit_is_that_of_the_launches_own(searched: bool) -> None:
    trials = [launches(1.0), launches(2.0, more_kib=80_000)]
    for cell, own in zip(shown(trials, searched=searched), map(cell_of, trials), strict=True):
        for name in ("step_time", "peak_memory"):
            assert cell.of(name).value == pytest.approx(own.of(name).value, rel=0.02)


@pytest.mark.parametrize("searched", [False, True])
def test_the_peak_of_a_leak_is_compared_with_nothing(searched: bool) -> None:
    leaking = [trial_of(number, rate=24.0, seed=9) for number in range(3)]
    cells = shown([launches(1.0, steps=4000), leaking, launches(1.0, steps=4000)], searched=searched)
    assert not cells[1].of("peak_memory").is_compared
    assert cells[1].of("peak_memory").value == cell_of(leaking).of("peak_memory").value
    assert cells[1].of("step_time").is_compared
    assert (cells[0].of("peak_memory").value or 0.0) / 1024 == pytest.approx(78.2, abs=0.2)


def test_a_small_leak_does_not_hide_a_large_peak() -> None:
    """Only the leak was told of versions that kept 0.7 KiB a step, and of which the new one took 2 GiB at its start."""
    rows = [[trial_of(number, rate=0.7, seed=9) for number in range(3)] for _ in range(2)]
    for trial in rows[1]:
        assert trial.trace is not None
        trial.trace.columns["rss_kib"][:] += 2 << 20
    assert ("peak_memory", 1) in {(each.metric, each.after) for each in find_changes(of_row(rows))}


@pytest.mark.parametrize("brief", [0, 1, 2])
def test_a_peak_that_comes_late_is_not_hidden_by_a_brief_launch(brief: int) -> None:
    """A buffer of 60 MB in step 1500 of 2000 was `peak memory good`: one launch had ended after 1000 steps."""
    rows = [launches(1.0, steps=4000), launches(1.0, steps=4000, spike_kib=100_000)]
    for version in range(2):
        rows[version][:brief] = launches(1.0, steps=1000)[:brief]
    found = [(each.metric, each.after) for each in find_changes(of_row(rows))]
    assert found == [("peak_memory", 1)] * (brief < 2)
    even = find_changes(of_row([rows[0], launches(1.0, steps=4000)]))
    assert not even


def test_what_ran_on_another_day_has_its_own_figures_alone() -> None:
    trials = [launches(1.0, run="monday"), launches(1.0, run="monday"), launches(1.0, run="tuesday")]
    cells = shown(trials)
    assert not cells[2].of("step_time").is_compared
    assert cells[0].of("step_time").value == pytest.approx(0.001, rel=0.05)


# ---------------------------------------------------------------- new lines of output


def printing(*texts: str) -> list[Trial]:
    return [
        replace(trial_of(number, steps=64), output=replace(trial_of(number, steps=64).output, head=text))
        for number, text in enumerate(texts)
    ]


def test_a_warning_is_told_without_the_line_of_code_below_it() -> None:
    """One warning was told as two new errors."""
    warned = (
        '/x/a.py:6: RuntimeWarning: overflow encountered in multiply\n  warnings.warn("overflow", RuntimeWarning)\n'
    )
    (found,) = new_lines([printing("done\n", "done\n"), printing(warned + "done\n", warned + "done\n")])
    assert (found.signal, found.text) == ("error", "/x/a.py:6: RuntimeWarning: overflow encountered in multiply")


def test_a_line_that_no_version_before_printed_is_told_once() -> None:
    old, new = printing("ready 1\n", "ready 2\n"), printing("ready 3\nno libcudnn 8\n", "ready 4\nno libcudnn 9\n")
    (found,) = new_lines([old, new, [], new, old])
    assert (found.before, found.after, found.last, found.text) == (0, 1, 3, "no libcudnn 8")


def test_a_line_of_one_launch_of_three_is_chance() -> None:
    assert new_lines([printing("a\n", "a\n", "a\n"), printing("a\n", "a\n", "a\nodd\n")]) == ()


def test_an_id_makes_no_new_line() -> None:
    one, other = (
        f"model 3f of {name}"
        for name in ("1b4e28ba-2fa1-11d2-883f-0016d3cca427", "9c8f63d2-0a4e-4d13-8d2a-aaaa1fee0bcd")
    )
    assert new_lines([printing(one), printing(other)]) == ()
    assert len(new_lines([printing(one), printing(other.replace("model", "lost"))])) == 1


@given(st.integers(0, 10**12), st.integers(0, 2**64))
def test_numbers_and_addresses_make_no_new_line(number: int, address: int) -> None:
    assert mask(f"step {number} at {hex(address)}") == mask("step 7 at 0x1f")


def test_a_flood_is_cut() -> None:
    flood = "\n".join(f"line {chr(97 + n % 26)}{chr(97 + n // 26)}" for n in range(300))
    found = new_lines([printing("", ""), printing(flood, flood)])
    assert len(found) == 6
    assert found[-1].text.startswith("and ")


ERRORS = [
    "Traceback (most recent call last):", "RuntimeError: worker 3 died; continuing with fewer workers",
    "step 51 loss nan",
    "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB", "epoch 3: loss=nan acc=0.1",
    '{"loss": NaN}', "NVRM: Xid (PCI:0000:65:00): 79, GPU has fallen off the bus", "rank0 NCCL WARN Call failed",
    "falling back to CPU", "Segmentation fault (core dumped)", "Killed", "KeyError", "[ERROR] no such device",
    "Exception in thread Thread-3:", "ERROR worker 3 died", "RuntimeWarning: overflow encountered in scalar add",
    "a.py:3: RuntimeWarning: invalid value encountered in divide", "divide by zero encountered in log",
    "WARNING: failed to save checkpoint: no space", "CUDA error: an illegal memory access was encountered",
    "serve: error: no such model", "thread '<unnamed>' panicked at src/lib.rs:10:5:",
]  # fmt: skip
HARMLESS = [
    "mean squared error: 0.12", "MeanSquaredError: 0.5", "Error: 0.1", "0 errors", "reading nan.txt", "Nan Goldin",
    "enemies killed: 12", "xid 47", "dropped 3 nan rows", "skilled", "/tmp/nan/x", "no Error", "error rate 0.3",
    "terminal=xterm-nan-x", "fallback font", "checked for NaN", "ERROR: 0",
    "buffer overflow: 3",
    "val_loss failed to improve, stop", "no such value encountered", "3 failed, 7 passed",
    "loss function: MeanSquaredError",
    "mean absolute error: train 0.3, val 0.4", "job 3: error: none", "Error: None", "error: null",
]  # fmt: skip


@pytest.mark.parametrize("line", [*ERRORS, *HARMLESS])
def test_a_line_that_tells_of_an_error_is_no_mere_line(line: str) -> None:
    """`step # loss nan` was the last line of a long page under `Nothing bad: all 3 cells are good`."""
    (found,) = new_lines([printing("ready", "ready"), printing(f"ready\n{line}", f"ready\n{line}")])
    assert found.signal == ("error" if line in ERRORS else "log")


def test_a_line_of_digits_does_not_keep_the_judge() -> None:
    """A launch that printed numbers of 4,000 digits took the judge 14 s, in time quadratic in their length."""
    began = time.process_time()
    assert new_lines([printing("", ""), printing("7" * 20_000, "8" * 20_000)])
    assert time.process_time() - began < 0.5


def test_a_progress_bar_is_no_new_line() -> None:
    """Each redraw of a bar was a new line of the log, because it is as long as the loop has come."""
    old = "start\n\r  0%|          | 0/100 [00:00<?, ?it/s]\r 37%|###7      | 37/100 [00:01<00:02, 30.5it/s]\ndone\n"
    new = "start\r\n\rloading 1\rloading\x1b[K 7\n\r 50%|#####     | 50/100 [00:50<00:50, 1.20s/it]\x1b[A\ndone\n"
    lines = [one.text for one in new_lines([printing(old, old), printing(new, new)])]
    assert len(lines) == 1
    assert lines[0].startswith("loading")


def test_a_version_that_ends_after_fewer_steps_is_never_simply_good() -> None:
    """A loop that stopped at a third of its epochs was faster in each figure, and good."""

    def version(*steps: int, run_s: float | None = 2.0) -> list[Trial]:
        facts = {} if run_s is None else {"run_s": run_s}
        return [trial_of(number, steps=made, facts=facts, end="completed") for number, made in enumerate(steps)]

    ((fewer),) = fewer_steps([version(300, 300), version(100, 100)])
    assert (fewer.signal, fewer.before, fewer.after) == ("fewer_steps", 0, 1)
    assert fewer.text == "it ends after 100 steps; the version before makes 300"
    (fewer,) = fewer_steps([version(300, 300), version(100, 100), version(110, 110), version(300, 300)])
    assert (fewer.after, fewer.last) == (1, 2)
    assert len(list(fewer_steps([version(300, 300, run_s=None), version(100, 100)]))) == 1, "it was cut at its budget"
    assert not list(fewer_steps([version(300, 300), version(290, 290)]))
    assert not list(fewer_steps([version(300, 90), version(100, 80)])), "it ends when it has learned enough"
    assert not list(fewer_steps([version(300, 300), version(100, 100, run_s=None)]))


def whole_runs(*texts: str) -> list[Trial]:
    """Return launches that ended by themselves and printed these texts."""
    trial = replace(trial_of(end="completed", facts=Facts(run_s=2.0)), trace=None)
    return [replace(trial, output=Printed(head=text, tail=text)) for text in texts]


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("top item3 10\ntop item14 9\n", "top item0 0\ntop item11 1\n", "top item3 10 → top item0 0"),
        ("digest 3fa81c02\n", "digest 91bc0e77\n", "digest 3fa81c02 → digest 91bc0e77"),
        ("winner: bob\n", "winner: eve\n", "winner: bob → winner: eve"),
        ("[3, 1, 2]\nbye 1\n", "[1, 2, 3]\nbye 1\n", "[3, 1, 2] → [1, 2, 3]"),
        ("fig\npear\n", "pear\nfig\n", "fig → pear"),
        ("mean 3.14159265\n", "mean 3.14159266\n", None),
        ("numpy 1.26\nversion 1.26.4\nsplit 1.26.4\n", "numpy 2.0\nversion 2.0.1\nsplit 2.0.1\n", None),
        ("Copyright 2024 Foo\nrev 412\n", "Copyright 2025 Foo\nrev 431\n", None),
        ("took 3 s\n412 MiB used\n5 it/s\n", "took 4 s\n519 MiB used\n7 it/s\n", None),
        ("wrote /env/a3f901/x1.bin at 0x7f01\n", "wrote /env/b77e02/x2.bin at 0x7f02\n", None),
        ("x.py:12: FutureWarning: no 3\n", "x.py:15: FutureWarning: no 4\n", None),
        ("INFO: loaded alpha\n", "INFO: loaded beta\n", None),
        ("a 1\n", "a 2\na 3\n", None),
        ("layer conv1: cuda\n", "layer conv1: cpu\n", "layer conv1: cuda → layer conv1: cpu"),
        ("using TF32\n", "using FP32\n", "using TF32 → using FP32"),
        ("Using cuda\n", "Using cpu\n", "Using cuda → Using cpu"),
        ("2 GPUs\n", "1 GPUs\n", "2 GPUs → 1 GPUs"),
        ("3 passed in 0.02s\n", "2 passed, 1 skipped in 0.03s\n", "3 passed in 0.02s → 2 passed, 1 skipped in 0.03s"),
        ("=== 20 passed in 1.2s ==\n", "== 8 passed in 1s ==\n", "=== 20 passed in 1.2s == → == 8 passed in 1s =="),
        ("gpu memory: 512\nCUDA 12.1 on x\nfit: 9 s\n", "gpu memory: 519\nCUDA 12.4 on x\nfit: 1 min 2 s\n", None),
        ("lib1 loaded\n", "lib2 loaded\n", None),
    ],
)
def test_a_result_without_a_name_that_all_launches_print_otherwise_is_told(
    old: str, new: str, told: str | None
) -> None:
    """A program that printed its best rows in another order was good in all versions, and nothing was told."""

    def found(*launches: list[Trial]) -> list[str]:
        return [each.text for each in other_lines(launches, ["1.26.4", "2.0.1"])]

    same, other = whole_runs(old, old, old), whole_runs(new, new, new)
    assert found(same, other) == ([told] if told else [])
    assert not found(same, whole_runs(new, old, new)), "it comes by chance"
    assert not found(whole_runs(old, new, old), other), "it came by chance before"
    assert not found(same, same)
    assert not found(same, whole_runs(new)), "one launch shows nothing"
    assert not found(same[:2], other[:2]), "one of eight results with two values comes out so"


def named(name: str, value: float, *texts: str) -> list[Trial]:
    """Return launches that printed these texts, in which one number was read by its name."""
    trace = trial_of(end="completed").trace
    assert trace is not None
    columns = {**trace.columns, name: np.full(len(trace.step), value)}
    return [replace(trial, trace=replace(trace, columns=columns)) for trial in whole_runs(*texts)]


@pytest.mark.parametrize(
    ("name", "old", "new", "told"),
    [
        ("cls_a", ["cls_a  0.90 0.80"], ["cls_a  0.90 0.60"], True),
        ("loss", ["loss 0.90 (0.80)"], ["loss 0.90 (0.60)"], True),
        ("weights", ["weights: 0.1 0.80 0.3"], ["weights: 0.1 0.60 0.3"], True),
        ("loss", ["loss -0.90 (0.80)"], ["loss 0.90 (0.60)"], False),
        ("loss", ["1 loss 0.90 (0.90)", "2 loss 0.50 (0.70)"], ["1 loss 0.90 (0.90)", "2 loss 0.52 (0.71)"], False),
        ("loss", ["1 loss 0.90 (0.90)", "2 loss 0.50 (0.70)"], ["1 loss 0.90 (0.80)", "2 loss 0.52 (0.66)"], False),
        ("loss", ["loss (a mean of it) 0.90"], ["loss (a mean of it) 0.80"], False),
        ("loss", ["loss 0.90 (0.80) in 12 s"], ["loss 0.90 (0.60) in 14 s"], True),
        ("loss", ["loss 0.90 (0.80) in 12 s"], ["loss 0.90 (0.80) in 14 s"], False),
        ("f1", ["f1: 0.910"], ["f1: 0.840"], False),
        ("accuracy", ["Accuracy: 9800/10000 (98%)"], ["Accuracy: 9810/10000 (99%)"], False),
        (
            "eval/f1",
            ['{"event": "eval", "epoch": 6, "eval/f1": 0.90}'],
            ['{"event": "eval", "epoch": 6, "eval/f1": 0.60}'],
            False,
        ),
    ],
)
def test_another_number_on_the_line_of_one_that_is_judged_by_its_name_is_told(
    name: str, old: list[str], new: list[str], *, told: bool
) -> None:
    """The usual line of an average, `loss 0.90 (0.80)`, was skipped, as its first number is judged. Where that differs,
    it is what is told, and the others follow it."""

    def found(*launches: list[str]) -> list[str]:
        sides = [named(name, 0.9, *("\n".join(lines) for lines in each)) for each in (launches[:3], launches[3:])]
        return [each.text for each in other_lines(sides, ["1", "2"])]

    assert bool(found(old, old, old, new, new, new)) is told
    assert not found(old, new, old, new, new, new), "it comes by chance"


def told_of(old: Sequence[str], new: Sequence[str]) -> list[str]:
    """Return the differences that are told of two versions whose launches printed these texts."""
    return [each.text for each in other_lines([whole_runs(*old), whole_runs(*new)], ["1", "2"])]


def test_of_a_long_output_that_ends_earlier_the_last_lines_are_told() -> None:
    """A program that makes 100 of 200 steps was said to print `step 151 → step 52`: where the kept ends begin."""
    old, new = ("".join(f"step {step}\n" for step in range(steps)) for steps in (200, 101))
    assert told_of([old] * 3, [new] * 3) == ["step 199 → step 100"]


@pytest.mark.parametrize(
    ("versions", "line"),
    [
        (["app:1", "app:2"], "running {}"),
        (["repo/app:1.0", "repo/app:1.1"], "tag: {tag}"),
        (["O1", "O2"], "loaded cfg_{}.yaml with level {}"),
        (["-O2", "-O1"], "flags {}"),
        (["gloo", "nccl"], "backend: {}"),
        (["1.17.0", "1.18.0"], "six {} is here"),
        (["11.8", "12.1"], "release: v{}"),
        (["2", "3"], "level {}"),
    ],
)
def test_a_program_that_prints_which_version_it_is_has_no_other_lines(versions: list[str], line: str) -> None:
    """`--vary IMAGE=app:1,app:2` of a healthy program that prints its variable had other results, and exit code 4."""

    def found(*results: int) -> list[str]:
        launches = [
            whole_runs(*[f"{line.format(name, name, tag=name.rpartition(':')[2])}\nbest {result}\n"] * 3)
            for name, result in zip(versions, results, strict=True)
        ]
        return [each.text for each in other_lines(launches, versions)]

    assert not found(7, 7)
    assert found(7, 9) == ["best 7 → best 9"]


def test_other_lines_are_told_of_each_later_version_that_prints_them() -> None:
    """The newest version still printed the wrong accuracy, and had a plain ✓ as if it were cured."""

    def found(*accuracies: int, name: str = "accuracy: {}") -> list[tuple[int, int | None]]:
        launches = [whole_runs(*[f"start 1\n{name.format(each)}\n"] * 3) for each in accuracies]
        return [(one.after, one.last) for one in other_lines(launches, "abcd")]

    assert found(55, 41, 41, 41) == [(1, 3)]
    assert found(55, 41, 41, 55) == [(1, 2), (3, 3)]
    assert found(55, 41, 40, 40) == [(1, 1), (2, 3)]
    assert found(55, 55, 41, 41, name="top {} of 60") == [(2, 3)]


def test_a_result_that_is_one_of_the_names_of_versions_is_compared() -> None:
    launches = [whole_runs(*[f"winner: {name}\n"] * 3) for name in ("slow", "eve")]
    assert [each.text for each in other_lines(launches, ["fast", "slow"])] == ["winner: slow → winner: eve"]
    assert not list(other_lines([launches[0], launches[0]], ["fast", "slow"]))


@pytest.mark.parametrize(
    ("name", "values", "is_told"),
    [
        ("app", (1, 2, 3), False),
        ("app", (1, 2, 2), True),
        ("app", (7, 8, 9), True),
        ("loss", (1, 2, 3), True),  # a name that tells of a result
    ],
)
def test_a_number_that_each_version_has_in_its_name_is_no_result(
    name: str, values: tuple[int, ...], is_told: bool
) -> None:
    """`running app:2` was read as the result `app`, with the advice to make it a finding."""
    series = build.series("IMAGE", ["app:1", "app:2", "app:3"])
    runs = []
    for image, value in zip(series.images, values, strict=True):
        launches = []
        for trial in (trial_of(number) for number in range(3)):
            assert trial.trace is not None
            columns = {**trial.trace.columns, name: np.full(len(trial.trace.step), float(value))}
            launches.append(replace(trial, trace=replace(trial.trace, columns=columns)))
        runs.append(CellRun(cell=Cell(image=image, lane=build.HERE, variant=build.POP), trials=launches))
    judged = judge_row(row_run(runs))
    told = [one.signal for one in judged.observations] + [one.metric for one in judged.findings]
    told += [signal for cell in judged.cells for signal in cell.verdict.signals if signal.startswith("metrics.")]
    assert bool(told) is is_told


def test_of_results_that_changed_the_one_that_changed_most_is_told_first() -> None:
    """`eval/f1`, `eval/f1 (1)` and `(2)` came first, and the loss, 2.67 times as large, was in `and 6 more`.
    Of what is printed several times under one name, as in each turn of a loop, the last is told."""
    values = {"f1": (0.7, 0.8), "f1 (1)": (0.1, 0.9), "total": (5.0, 6.0), "train/loss": (0.8, 0.3)}
    runs = []
    for place, image in enumerate(build.series("V", ["1", "2"]).images):
        trials = [trial_of(number) for number in range(3)]
        columns = {name: np.full(len(trials[0].trace.step), both[place]) for name, both in values.items()}  # type: ignore[union-attr]
        cell = Cell(image=image, lane=build.HERE, variant=build.POP)
        runs.append(CellRun(cell=cell, trials=[with_columns(trial, columns) for trial in trials]))
    told = [one.text.partition(" ")[0] for one in judge_row(row_run(runs)).observations]
    assert told == ["train/loss", "f1"]


def with_columns(trial: Trial, columns: dict[str, Floats]) -> Trial:
    assert trial.trace is not None
    return replace(trial, trace=replace(trial.trace, columns={**trial.trace.columns, **columns}))


def test_lines_that_threads_print_are_compared_in_any_order() -> None:
    """One of twelve results of a pool was wrong in all launches, and nothing was told."""
    old = ["job 1: 5\njob 2: 7\n", "job 2: 7\njob 1: 5\n", "job 1: 5\njob 2: 7\n"]
    new = ["job 2: 8\njob 1: 5\n", "job 1: 5\njob 2: 8\n", "job 2: 8\njob 1: 5\n"]
    assert told_of(old, new) == ["job 2: 7 → job 2: 8"]
    assert not told_of(old, old[::-1])


def test_the_time_before_a_logged_result_hides_no_other_result() -> None:
    """Each line of a program that logs with the time counted as one that comes by chance, and nothing was told."""

    def logged(second: int, *messages: str) -> str:
        return "".join(f"2026-03-01 12:00:{second + n:02},123 {each}\n" for n, each in enumerate(messages))

    for old, new in (("best row 3", "best row 4"), ("winner: bob", "winner: eve")):
        sides = [
            [logged(start, "ready", each) for start in (first, first + 7, first + 19)]
            for each, first in ((old, 1), (new, 30))
        ]
        assert told_of(*sides) == [f"2026-03-01 12:00:02,123 {old} → 2026-03-01 12:00:31,123 {new}"]
        assert not told_of(sides[0], [logged(start, "ready", old) for start in (3, 4, 5)])
    orders = [[logged(start, *order) for start in (1, 8, 20)] for order in (("fig", "pear"), ("pear", "fig"))]
    assert told_of(*orders) == ["2026-03-01 12:00:01,123 fig → 2026-03-01 12:00:01,123 pear"]


def test_a_number_that_varies_hides_nothing_beside_it() -> None:
    """One number that differed from launch to launch made its whole line one that comes by chance."""
    sides = [[f"layer fc: {device}, 7 rows, load {load}\n" for load in (0.1, 0.2, 0.4)] for device in ("cuda", "cpu")]
    assert told_of(*sides) == ["layer fc: cuda, 7 rows, load 0.1 → layer fc: cpu, 7 rows, load 0.1"]
    assert not told_of(sides[0], [line.replace("0.", "1.") for line in sides[0]])


def test_two_long_lines_are_told_by_where_they_differ() -> None:
    """Both were cut at the same place, before their difference: `X → X`."""
    line = "the ten best rows of the whole table, in the order of their scores: " + "alpha beta " * 4
    (told,) = told_of([f"{line}17 {'z' * 90}\n"] * 3, [f"{line}19 {'z' * 90}\n"] * 3)
    old, new = told.split(" → ")
    assert (old.replace("17", "19"), old[0], old[-1], len(old)) == (new, "…", "…", 72)
    assert told_of(["7" * 40 + "1" * 60 + "\n"] * 3, ["7" * 40 + "2" * 60 + "\n"] * 3) == [
        f"…{'7' * 35}{'1' * 35}… → …{'7' * 35}{'2' * 35}…"
    ]


def test_of_lines_that_are_steps_the_last_one_that_differs_is_told() -> None:
    """Of 60 epochs whose accuracy fell from 93 to 88 %, the first was told: `10.93 % → 10.34 %`."""

    def epochs(best: float) -> str:
        bars = ("░░░", "█░░", "███")
        return "".join(f"\r第{n}轮 |{bar}| 准确率: {best * n / 3:.2f}%" for n, bar in enumerate(bars, 1)) + "\n"

    assert told_of([epochs(93)] * 3, [epochs(88)] * 3) == ["第3轮 |███| 准确率: 93.00% → 第3轮 |███| 准确率: 88.00%"]


def test_the_banner_of_an_image_is_no_result_of_its_program() -> None:
    """The end of the output began with it, so that it was compared, and all other lines twice."""

    def version(banner: str, text: str) -> list[Trial]:
        runs = whole_runs(text, text, text)
        return [replace(one, output=Printed(head=text, tail=f"{banner}\n{text}")) for one in runs]

    found = other_lines([version("release: blue", "a 1\n"), version("release: red", "a 1\n")], ["1", "2"])
    assert not list(found)


def test_a_notice_of_removal_is_no_error() -> None:
    old, line = printing("a", "a"), "FutureWarning: `x` is deprecated and will be removed in 2.0"
    assert [one.signal for one in new_lines([old, printing(line, line)])] == ["deprecated"]


def test_a_new_line_is_told_as_it_was_printed() -> None:
    """`FutureWarning: mylib.Trainer(fp#=True) is deprecated and will be removed in #` was told."""
    line = "FutureWarning: mylib.Trainer(fp16=True) is deprecated and will be removed in 3.0"
    texts = [f"\r 50%|#####     | 5/10 [00:01<00:01, 4.9it/s]\r\x1b[33m{line}\x1b[0m in {pid} s\n" for pid in (71, 90)]
    (found,) = new_lines([printing("", ""), printing(*texts), printing(*texts[::-1])])
    assert (found.text, found.last) == (f"{line} in 71 s", 2)
    text = "/tmp/harness-trial-a1/scenario/train.py:3: Warning: https://ada:pw@host is gone, hf_abcdefgh12 too"
    (found,) = new_lines([printing("", ""), printing(text, text)])
    assert found.text == "scenario/train.py:3: Warning: https://host is gone, [token] too"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("ValueError: shape 3x4 and 5x6 do not match", "ValueError: shape 3x4 and 5x6 do not match"),
        ("Error: no model mixtral-8x7B", "Error: no model mixtral-8x7B"),
        ("failed to use key 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b", "failed to use key #"),
        ("failed to connect to 10.1.2.3:5432", "failed to connect to #:5432"),
        ("failed to log in with --password=hunter2", "failed to log in with --password=[withheld]"),
    ],
)
def test_a_new_line_is_told_with_its_numbers_alone(text: str, told: str) -> None:
    """`3x4` is masked otherwise after its digits became zeros, and ended the sweep; a key was told in full."""
    found = new_lines([printing("", ""), printing(text, text)])
    assert [each.text for each in found] == [told]


def test_a_new_line_of_two_rows_is_told_once() -> None:
    """With the time, it would be another one in each row."""
    result = build.run(
        [(build.series("app", ["1", "2"]), [build.HERE], [build.POP, build.ZEROS])], lambda *_: build.flat()
    )
    rows = []
    for second, cells in enumerate(zip(*[iter(result.plan.cells)] * 2, strict=True)):
        texts = ["ready\n", f"ready\n12:00:0{second} no libcudnn 8\n"]
        both = [
            [replace(one, cell_id=cell.id) for one in printing(text, text, text)]
            for cell, text in zip(cells, texts, strict=True)
        ]
        rows.append(judge_row(row_run([CellRun(cell=cell, trials=own) for cell, own in zip(cells, both, strict=True)])))
    told = judge_run(result.plan, rows, directory=Path("none"))
    assert [each.text for each in told.observations] == ["# no libcudnn 8"] * 2


def test_an_error_is_told_before_a_flood_and_before_its_traceback() -> None:
    flood = "\n".join(f"line {chr(97 + n)}" for n in range(20))
    text = f"{flood}\nTraceback (most recent call last):\n  File x\nValueError: no\n"
    found = new_lines([printing("", ""), printing(text, text)])
    assert (found[0].signal, found[0].text) == ("error", "ValueError: no")
    assert [one.text for one in found if one.signal == "error"] == [
        "ValueError: no",
        "Traceback (most recent call last):",
    ]


@pytest.mark.parametrize(
    "line",
    [
        "\x1b[1;31mRuntimeError: CUDA error: broke\x1b[0m",
        "50%|### | 5/10 [00:01<00:01, 4.90it/s]RuntimeError: CUDA error: broke",
        "\r90%|####  | 9/10\rRuntimeError: CUDA error: broke",
    ],
)
def test_a_coloured_error_or_one_behind_a_progress_bar_is_told(line: str) -> None:
    """A terminal shows them as any other line, and "nothing bad" was said of a version that printed one."""
    bar = "50%|### | 5/10 [00:01<00:01, 4.90it/s]\n"
    found = new_lines([printing(bar, bar), printing(f"{bar}{line}\n", f"{bar}{line}\n")])
    assert [(one.signal, one.text) for one in found] == [("error", "RuntimeError: CUDA error: broke")]


def test_one_line_more_of_a_whole_run_is_no_flood() -> None:
    """A traceback of 130 bytes in a run without steps was `prints more`, and the traceback itself was not told."""
    stepping = replace(trial_of(steps=64), output=Printed(bytes=630))
    assert RULES["output"].prepare([[stepping]])(stepping) == 10, "of 63 steps: what the first one prints is left out"
    assert stepping.trace is not None
    columns = {name: values for name, values in stepping.trace.columns.items() if name != "step_s"}
    whole = replace(stepping, trace=replace(stepping.trace, columns=columns), facts=Facts(run_s=0.2))
    assert RULES["output"].prepare([[whole]])(whole) == 630
    assert RULES["output"].least([[whole]]) == 16384 == least_per(SIGNALS["output"], "run"), "as the report says"
    assert RULES["output"].least([[stepping]]) == 10


@pytest.mark.parametrize("name", ["bytes_read", "bytes_written"])
def test_a_step_that_moves_a_hundred_times_as_many_bytes_is_seen(name: str) -> None:
    """In the same time, from the page cache: nothing else showed it."""

    def version(a_step: float) -> list[Trial]:
        made = trial_of(steps=1000)
        assert made.trace is not None
        looks = tuple(Look(step=step, values={name: a_step * (step - 1)}) for step in (500, 1000))
        return [replace(made, trace=replace(made.trace, looks=looks))] * 2

    launches = [version(4096), version(409_600)]
    assert usable(name, launches, steps=Steps()) == launches
    figure = launch_figure_of(name, launches)
    assert [figure(trials[0]) for trials in launches] == [4096, 409_600]
    assert figure(version(40)[0]) == SIGNALS[name].least / 10, "what the agent itself reads is no difference"


def test_the_bytes_of_few_steps_are_divided_by_the_steps_that_read_them() -> None:
    """Three epochs after the first line of four read 8 MiB each, and the report said 6 MiB a line."""
    made = trial_of(steps=4)
    assert made.trace is not None
    looks = (Look(step=4, values={"bytes_read": 3 * 8.0 * 2**20, "cpu_s": 0.9}),)
    few = replace(made, trace=replace(made.trace, looks=looks), output=Printed(bytes=600))
    assert RULES["bytes_read"].prepare([[few]])(few) == 8 * 2**20
    assert RULES["cpu_time"].prepare([[few]])(few) == pytest.approx(0.3)
    assert RULES["output"].prepare([[few]])(few) == 200


def test_whole_runs_are_compared_at_their_ends() -> None:
    """The bytes and the processor time of a longer run were compared up to the last sample of the shorter one."""

    def run(*looks: tuple[int, float]) -> Trial:
        made = trial_of(steps=looks[-1][0])
        assert made.trace is not None
        columns = {name: values for name, values in made.trace.columns.items() if name != "step_s"}
        seen = tuple(Look(step=step, values={"cpu_s": figure, "bytes_read": 1e8 * figure}) for step, figure in looks)
        return replace(
            made, trace=replace(made.trace, columns=columns, looks=seen), facts=Facts(run_s=looks[-1][0] / 10)
        )

    short, long = run((100, 5.0), (121, 6.0)), run((100, 5.0), (181, 9.0))
    for name in ("cpu_time", "bytes_read"):
        launches = [[short] * 2, [long] * 2]
        assert usable(name, launches, steps=Steps()) == launches
        figure = launch_figure_of(name, launches)
        assert figure(long) == 1.5 * (figure(short) or 0)


def test_what_a_run_without_steps_holds_at_its_end_is_compared() -> None:
    """A program that printed no counter left 799 files open, and nothing of it was judged."""
    stepping = trial_of(steps=100)
    assert stepping.trace is not None
    counts = {"step": np.array([1.0]), "open_files": np.array([799.0]), "threads": np.array([3.0])}
    columns = {name: values for name, values in stepping.trace.columns.items() if name != "step_s"}
    whole = replace(stepping, trace=replace(stepping.trace, columns=columns, counts=counts), facts=Facts(run_s=9.0))
    assert launch_figure_of("held", [[whole]])(whole) == 802
    assert launch_figure_of("held", [[stepping]])(stepping) is None
    counts |= {"disk": np.array([24.0]), "shm": np.array([6000.0])}
    assert launch_figure_of("left", [[whole]])(whole) == 6024, "temporary files were left"
    short = replace(stepping, last_step=30, trace=replace(stepping.trace, counts=counts), facts=Facts(run_s=9.0))
    assert launch_figure_of("held", [[short]])(short) == 802, "30 epochs are too few to judge their growth"


def test_what_samples_do_not_show_of_a_command_s_end_is_not_called_good() -> None:
    """A command of 0.2 s that kept 40 files open was good in 3 of 5 tries, by a sample from before it opened them."""
    long = trial_of(steps=100)
    assert long.trace is not None
    columns = {name: values for name, values in long.trace.columns.items() if name != "step_s"}
    counts = {"step": np.array([1.0]), "open_files": np.array([44.0]), "disk": np.array([0.0])}
    long = replace(long, trace=replace(long.trace, columns=columns, counts=counts))
    long = replace(long, facts=Facts(run_s=9.0, probes=("rss",)))
    short = replace(long, facts=Facts(run_s=0.2, probes=("rss",)))
    assert launch_figure_of("held", [[long]])(long) == 44
    assert launch_figure_of("held", [[short]])(short) is None
    assert launch_figure_of("left", [[long]])(long) is None


def test_output_of_a_launch_that_was_cut_is_compared_by_the_sample() -> None:
    """A command that takes 9 s printed 100 times what one of 11 s prints, whose first round ends after 10 s."""
    cut = trial_of(steps=100, output=Printed(bytes=990))
    assert cut.trace is not None
    columns = {name: values for name, values in cut.trace.columns.items() if name != "step_s"}
    cut = replace(cut, trace=replace(cut.trace, columns=columns))
    whole = replace(cut, facts=Facts(run_s=9.0))
    figure = RULES["output"].prepare([[cut], [whole]])
    assert figure(cut) == figure(whole) == 10
    assert RULES["output"].least([[cut], [whole]]) == RULES["output"].least([])


# ---------------------------------------------------------------- launches in two modes


SLOW = 1.27


def series_of(versions: int) -> Series:
    return build.series("msgpack", [f"1.{number}" for number in range(versions)])


def row(slow: list[set[int]], *, launches: int = 12, seed: int = 1) -> JudgedRow:
    """Return a judged row of versions of which these launches are slower."""
    series = series_of(len(slow))
    cells = tuple(Cell(image=image, lane=build.HERE, variant=build.POP) for image in series.images)
    trials = [
        [trial_of(number, ms=SLOW if number in own else 1.0, seed=seed * 100 + place) for number in range(launches)]
        for place, own in enumerate(slow)
    ]
    runs = [CellRun(cell=cell, trials=own) for cell, own in zip(cells, trials, strict=True)]
    return corrected([judge_row(row_run(runs))])[0]


def test_a_version_with_two_modes_is_named_with_its_count_and_the_others_stay_good() -> None:
    """It was called unclear together with all other versions, whose launches hardly differed."""
    judged = row([set(), set(), set(), {0, 3, 4, 7, 9}, {1, 2, 6, 8, 11}])
    (finding,) = judged.findings
    assert (finding.metric, finding.verdict, finding.after) == ("step_time", "two modes", "1.3")
    assert finding.effect is not None
    assert math.isclose(finding.effect.value, SLOW, rel_tol=0.02)
    seen = [cell.verdict.of("step_time") for cell in judged.cells]
    assert [signal.seen for signal in seen] == ["good", "good", "blind", "bad", "bad"], "1.2 may have the fault"
    assert seen[3].why == "5 of 12 launches take 28 % longer than the others"
    assert seen[3].slow == (5, 12)
    assert all(math.isclose(signal.value or 0.0, 1e-3, rel_tol=0.02) for signal in seen), "that of the usual mode"


def test_the_answer_and_its_evidence_have_the_counts() -> None:
    """The levels of the usual mode are equal, so that they show neither the fault nor a repair."""
    judged = row([set(), set(), {0, 3, 4, 7, 9}, {1, 2, 6, 8}], launches=16)
    made = build.run([(series_of(4), [build.HERE], [build.POP])], lambda *_: build.flat(), findings=judged.findings)
    cells = [replace(own, verdict=new.verdict) for own, new in zip(made.cells, judged.cells, strict=True)]
    result = build.with_findings(replace(made, cells=tuple(cells)), judged.findings)
    (box,) = boxes(result)
    assert box.sentence.startswith("msgpack")
    assert "takes 26.8 % longer per step in 9 of 32 launches since" in box.sentence
    assert "fixed" not in box.sentence
    assert box.texts["evidence"].startswith("5 of 16 launches were slow, before 0 of 16; p = ")
    assert "figures" not in box.texts
    doubted = judged.cells[1].verdict.of("step_time")
    assert doubted.seen == "blind"
    assert doubted.why == "16 launches without it are too few to rule out the fault of the neighbouring version"


def test_modes_ask_for_more_launches() -> None:
    """A version whose few slow launches hardly disturb the comparison of all got no more launches."""
    trials = [list(cell.trials) for cell in row([set()] * 11 + [{1, 3}], launches=5).cells]
    asked = Trials(least=3, most=8)
    assert wants_round(trials, limits=LIMITS, steps=STEPS, trials_asked=asked) is not None


def test_two_slow_launches_of_five_are_told_though_chance_may_have_made_them() -> None:
    judged = row([set(), set(), {1, 4}], launches=5)
    assert not judged.findings
    signal = judged.cells[2].verdict.of("step_time")
    assert signal.seen == "suspect"
    assert signal.why == "2 of 5 launches take 27 % longer than the others"


@pytest.mark.parametrize("slow", [[{1, 5}, {3, 8}, {0, 4, 7}, {2, 9}], [{3}, set(), set(), set()]])
def test_modes_of_the_host_and_single_launches_accuse_nobody(slow: list[set[int]]) -> None:
    judged = row(slow)
    assert not judged.findings
    assert "suspect" not in {cell.verdict.of("step_time").seen for cell in judged.cells}


def test_a_version_that_repairs_the_modes_ends_the_finding() -> None:
    judged = row([set(), {0, 1, 3, 5, 6, 8, 9, 11}, set()], launches=14)
    assert [(finding.kind, finding.after) for finding in judged.findings] == [
        ("first_bad", "1.1"),
        ("first_fixed", "1.2"),
    ]
    assert [cell.verdict.of("step_time").seen for cell in judged.cells] == ["good", "bad", "good"]


def test_a_slower_version_one_launch_of_which_is_fast_has_another_level() -> None:
    judged = row([set(), set(), set(range(1, 8)), set(range(8))], launches=8)
    assert [(finding.verdict, finding.after) for finding in judged.findings] == [("slower", "1.2")]


def table(values: Floats) -> RoundTable:
    rounds, versions = values.shape
    return RoundTable(
        values=values, positions=tuple(range(versions)), rounds=tuple(("", each) for each in range(rounds))
    )


@pytest.mark.parametrize("versions", [2, 3, 6])
def test_noise_of_every_kind_is_no_mode(versions: int) -> None:
    """Heavy tails, one launch beside another program, and a host that is slow in half of the rounds."""
    for seed in range(100):
        rng = np.random.default_rng([seed, versions])
        tails = rng.standard_t(3, (8, versions)) * 0.01
        outlier = rng.normal(0, 0.01, (8, versions))
        outlier[rng.integers(8), rng.integers(versions)] += math.log(2)
        rounds = rng.normal(0, 0.01, (8, versions)) + math.log(SLOW) * (rng.random((8, 1)) < 0.5)
        for values in (tails, outlier, rounds):
            modes = modes_of(table(values), least=math.log(1.1), noise=None)
            assert modes is None or not mode_changes(modes, versions=versions, baseline=None)
