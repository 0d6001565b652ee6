"""Warnings next to the findings of one row: what a reader must know before blaming a version."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.judge.comparison.which_launches import limits_of_run
from harness.judge.next.bisect_records import Rules
from harness.judge.next.bisection import propose_search, with_searched
from harness.judge.row import judge_row
from harness.judge.run import corrected, judge_run
from harness.model import (
    LEVELS,
    Asked,
    Cell,
    CellResult,
    CellRun,
    CellVerdict,
    Change,
    ChangeKind,
    Effect,
    End,
    Finding,
    Host,
    JudgedRow,
    Lane,
    Limits,
    Look,
    MetricLimit,
    Observation,
    Printed,
    RunResult,
    Series,
    SignalVerdict,
    Skip,
    Trial,
    Trials,
    Variant,
    Varied,
)
from harness.model.measured import Facts
from harness.report import html_page
from harness.report.document import document
from harness.report.exports.cell_table import cell_json
from harness.report.terminal import run_report
from harness.report.text import headline
from harness.report.text.signal_words import per_of
from tests.players import build
from tests.players.faults import NEW, OLD
from tests.players.trials import LIMITS, changed, facts_of, failed, row_run, trial_of

PURE = "py3-none-any"
HOLLOW = "cp311-cp311-linux_x86_64, nothing compiled"
BUILT = "cp311-cp311-linux_x86_64"
PUBLIC = "cp311-cp311-manylinux_2_17_x86_64"


def judged(old: str | None, new: str | None, *, crashes: bool = True, skipped: bool = False) -> JudgedRow:
    """Return msgpack 1.0.4 and 1.0.5 from wheels with these tags, of which the newer one crashes; and 1.0.6, if a
    search skipped it.
    """
    series = build.series("msgpack", ["1.0.4", "1.0.5", *(["1.0.6"] if skipped else [])])
    cells = tuple(Cell(image=image, lane=build.HERE, variant=build.POP) for image in series.images)
    runs = []
    verdicts = (build.flat(), build.crash() if crashes else build.flat())
    for cell, verdict, tag in zip(cells[:2], verdicts, (old, new), strict=True):
        told = {} if tag is None else {"wheels": {"msgpack": tag}}
        trials = [
            replace(build.trial(cell.id, number, verdict), round=number, facts=facts_of(told)) for number in (1, 2, 3)
        ]
        runs.append(CellRun(cell=cell, trials=trials))
    skip = Skip(by="search", why="not needed: between others, both bad")
    runs += [CellRun(cell=cell, skipped=skip) for cell in cells[2:]]
    return judge_row(row_run(runs))


def test_much_output_is_told_once_with_its_version() -> None:
    """A version that printed 600 MB was slower, and nothing said that printing was a part of it."""
    series = build.series("msgpack", ["1.0.4", "1.0.5"])
    cells = tuple(Cell(image=image, lane=build.HERE, variant=build.POP) for image in series.images)
    for printed, duration_s, told in (
        (600_000_000, 600.0, ["msgpack 1.0.5 on local, multidict_pop: a launch printed 600 MB"]),
        (11_000_000, 8.0, ["msgpack 1.0.5 on local, multidict_pop: a launch printed 11 MB"]),
        (60_000_000, 600.0, []),
        (1_000_000, 0.1, []),
    ):
        runs = [CellRun(cell=cell) for cell in cells]
        for run, count in zip(runs, (1000, printed), strict=True):
            for number in (1, 2):
                trial = replace(build.trial(run.cell.id, number, build.flat()), round=number)
                run.trials.append(replace(trial, output=replace(trial.output, bytes=count), duration_s=duration_s))
        warnings = judge_row(row_run(runs, asked=Trials(least=2, most=8))).warnings
        assert [warning.partition(" MB")[0] + " MB" for warning in warnings if "printed" in warning] == told


@pytest.mark.parametrize("exit_only", [False, True])
def test_exit_codes_are_compared_whatever_steps_a_launch_was_asked_for(exit_only: bool) -> None:
    """The first launch of a command asks for more steps than the others, and `--fresh` cannot change that."""
    scenario = replace(build.POP.scenario, limits=replace(LIMITS, exit_only=exit_only))
    cells = [
        Cell(image=image, lane=build.HERE, variant=replace(build.POP, scenario=scenario))
        for image in build.series("msgpack", ["1.0.4", "1.0.5"]).images
    ]
    asked = [Asked(steps=steps) for steps in (12_000, 4000, 4000)]
    runs = [CellRun(cell=one, trials=[trial_of(at, asked=own) for at, own in enumerate(asked)]) for one in cells]
    warnings = judge_row(row_run(runs, asked=Trials(least=2, most=8))).warnings
    assert any("steps 4000 and 12000" in text for text in warnings) is not exit_only


def test_a_file_of_results_without_numbers_is_told_once_with_its_versions() -> None:
    """JSON lines were not read, and no report said so: an AUC that fell from 0.91 to 0.34 was good."""
    series = build.series("msgpack", ["1.0.4", "1.0.5"])
    for unread, told in (
        (("results: a.json: has no numbers", ""), "results: a.json: has no numbers (1.0.4), so"),
        (("", "results: a.json: was not written"), "results: a.json: was not written (1.0.5), so"),
        (("results: a.json: is no file",) * 2, "results: a.json: is no file (every version), so"),
    ):
        runs = [CellRun(cell=Cell(image=image, lane=build.HERE, variant=build.POP)) for image in series.images]
        for run, message in zip(runs, unread, strict=True):
            run.trials += [replace(trial_of(number), facts=Facts(unread=message)) for number in range(2)]
        warnings = judge_row(row_run(runs, asked=Trials(least=2, most=8))).warnings
        assert [text.partition(": ")[2].partition(" that")[0] for text in warnings if "results" in text] == [told]


@pytest.mark.parametrize(
    ("peaks_mib", "seen", "effect"),
    [
        ((0, 0, 0), "none", []),
        ((0, 13.3, 12.9), "none", []),
        ((0, 0, 113), "suspect", [None]),
        ((13.3, 13.3, 113), "suspect", [8.5]),
    ],
)
def test_a_peak_below_that_of_the_agent_is_unknown_and_no_change(
    peaks_mib: tuple[float, ...], seen: str, effect: list[float | None]
) -> None:
    """Samples just after exec told 199 KiB of a launch and 2,686 KiB of another one: 13.5 times as much."""
    series = build.series("msgpack", ["1.0.4", "1.0.5", "1.0.6"])
    runs = [CellRun(cell=Cell(image=image, lane=build.HERE, variant=build.POP)) for image in series.images]
    for place, (run, mib) in enumerate(zip(runs, peaks_mib, strict=True)):
        for number in range(3):
            some = trial_of(number, seed=place, peak_rss_kib=1024 * mib, facts=Facts(run_s=2.0))
            run.trials.append(replace(some, cell_id=run.cell.id))
    row = judge_row(row_run(runs, asked=Trials(least=2, most=8)))
    found = [each for each in row.findings if each.metric == "peak_memory"]
    assert [each.effect and each.effect.value for each in found] == [
        each and pytest.approx(each, rel=0.01) for each in effect
    ]
    signals = [cell.verdict.of("peak_memory") for cell in row.cells]
    assert [signal.value for signal in signals] == [pytest.approx(1024 * mib) if mib else None for mib in peaks_mib]
    assert signals[-1].seen == seen


def test_a_failure_that_may_have_become_more_frequent_is_told() -> None:
    """ "Bad from the start" alone hid that a crash came in 3 of 24 launches before, and in 8 of 16 since."""
    series = build.series("six", ["1.0", "1.1", "1.2", "1.3", "1.4"])
    for rates, told in (
        ((1, 1, 1, 4, 4), ["8 of 16 launches of 1.3 to 1.4 fail, and 3 of 24 launches of the other"]),
        ((2,) * 5, []),
    ):
        runs = [CellRun(cell=Cell(image=image, lane=build.HERE, variant=build.POP)) for image in series.images]
        for run, crashes in zip(runs, rates, strict=True):
            run.trials += [failed(number) if number < crashes else trial_of(number) for number in range(8)]
        warnings = judge_row(row_run(runs, asked=Trials(least=2, most=8))).warnings
        found = [warning.partition(": ")[2] for warning in warnings if "chance may explain" in warning]
        assert [each[: len(start)] for each, start in zip(found, told, strict=True)] == told


def test_a_failure_of_all_versions_is_told_beside_that_of_some() -> None:
    """A crash in half of the launches of every version had only crosses in the table: the sentence was about another
    failure, which began later."""
    series = build.series("six", ["1.0", "1.1", "1.2", "1.3", "1.4"])
    runs = [CellRun(cell=Cell(image=image, lane=build.HERE, variant=build.POP)) for image in series.images]
    for run, raises in zip(runs, (False, False, False, True, True), strict=True):
        own = [failed(number) if number % 2 else trial_of(number) for number in range(6)]
        errors = [failed(number, signal=None, message="TypeError: bad operand") for number in range(6)]
        run.trials += errors if raises else own
    judged = judge_row(row_run(runs, asked=Trials(least=2, most=8)))
    assert [(each.kind, each.after) for each in judged.findings] == [("first_bad", "1.3")]
    (told,) = (warning for warning in judged.warnings if "launches fail there, too" in warning)
    assert "six 1.0, 1.1, 1.2 on" in told
    assert told.endswith("crash in 3 of 6 launches: signal 11, SIGSEGV")


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (PURE, PUBLIC, ("pure Python (py3-none-any)", "as compiled (cp311-cp311-manylinux_2_17_x86_64) in 1.0.5")),
        (HOLLOW, PUBLIC, (f"pure Python ({HOLLOW})", "as compiled (cp311")),
        (BUILT, PUBLIC, ("compiled from source, it seems (cp311-cp311-linux_x86_64)", "as compiled (cp311")),
    ],
)
def test_a_change_across_which_the_package_became_another_kind_says_so(
    old: str, new: str, told: tuple[str, str]
) -> None:
    """A leak "since 1.0.5" was only in the first version that had a wheel: the older versions ran their Python
    fallback.
    """
    (warning,) = judged(old, new).warnings
    assert "in 1.0.4 and as" in warning
    assert all(part in warning for part in told)
    assert warning.endswith("whether that makes the difference was not tested")


@pytest.mark.parametrize(("old", "new"), [(PUBLIC, PUBLIC.replace("17", "28")), (PURE, PURE), (None, PUBLIC)])
def test_the_same_kind_or_one_that_is_not_known_needs_no_word(old: str | None, new: str) -> None:
    assert not judged(old, new).warnings


def test_no_change_no_word() -> None:
    found = judged(PURE, PUBLIC, crashes=False)
    assert (found.findings, found.warnings) == ((), ())


def test_versions_that_a_search_left_out_may_hide_another_change() -> None:
    """It leaked a second time between two good versions, and the report did not mention those that were not run."""
    told = "versions that were not launched may differ from their neighbours; --search full runs them all"
    assert [warning for warning in judged(PURE, PURE, skipped=True).warnings if warning.endswith(told)]
    assert not judged(PURE, PURE, crashes=False, skipped=True).warnings, "the search's own word is enough"


@pytest.mark.parametrize("versions", [4, 8, 16, 24])
@pytest.mark.parametrize("first_bad", [1, 2, -1])
def test_the_report_names_the_version_that_the_search_came_to(versions: int, first_bad: int) -> None:
    """The search ended with "1.2 is the first bad"; the finding said "between 1.0 and 1.2"."""
    found = searched(versions, first_bad=first_bad % versions)
    (one,) = found.findings
    assert (one.before, one.after, one.untestable) == (
        f"1.{first_bad % versions - 1}", f"1.{first_bad % versions}", ()
    )  # fmt: skip


@pytest.mark.parametrize("end", ["crash", "setup"])
def test_a_version_seen_bad_once_beyond_the_first_bad_one_is_said_to_need_no_more(end: End) -> None:
    """The report said that the newest version, with which the search began, needs more trials, which a search never
    makes.
    """
    found = searched(8, first_bad=3, end=end)
    whys = {cell.cell.image.version: cell.verdict.why for cell in found.cells if cell.verdict.verdict == "suspect"}
    assert "1.7" in whys
    told = "bad since 1.3, where launches agree: the search needed no more launches of this version"
    assert {why.partition("; ")[2] for why in whys.values()} == {told}
    assert all(why.startswith("crash: ") == (end == "crash") for why in whys.values())


def searched(versions: int, *, first_bad: int, end: End = "crash") -> JudgedRow:
    """Return msgpack from 1.0 on, which fails from one version on, as a search launches it."""
    series = build.series("msgpack", [f"1.{number}" for number in range(versions)])
    variant = replace(build.POP, scenario=replace(build.POP.scenario, limits=Limits(setup_bad=True)))
    cells = tuple(Cell(image=image, lane=build.HERE, variant=variant) for image in series.images)
    runs = tuple(CellRun(cell=cell) for cell in cells)
    search = row_run(runs, asked=Trials(least=3, most=8), searched=True)
    while (batch := propose_search(search)).runs:
        for run in batch.runs:
            is_bad = runs.index(run) >= first_bad
            trial = build.trial(run.cell.id, len(run.trials) + 1, build.crash() if is_bad else build.flat())
            run.trials.append(replace(trial, round=batch.round, end=end if is_bad else trial.end))
    return judge_row(search)


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ((0, 856, 8560), [("1.0.5", "B/step"), ("1.0.6", "ratio")]),
        ((5, 155, 155), [("1.0.5", "B/step")]),
        ((5, 95, 95), []),
    ],
)
def test_what_prints_more_than_a_version_that_hardly_prints(
    sizes: tuple[int, ...], expected: list[tuple[str, str]]
) -> None:
    """A ratio to output that hardly exists is no size: 856 B/step was "8.56 times" that of a silent version, the ratio
    to the smallest amount that is compared; the difference is a size. And 155 B/step after 5 B/step was called good,
    though the limit is 100 B.
    """
    series = build.series("msgpack", ["1.0.4", "1.0.5", "1.0.6"])
    cells = tuple(Cell(image=image, lane=build.HERE, variant=build.POP) for image in series.images)
    trials = [[build.trial(cell.id, number, build.flat()) for number in range(1, 5)] for cell in cells]
    runs = [
        CellRun(
            cell=cell,
            trials=[
                replace(one, round=place, output=replace(one.output, bytes=size * ((one.last_step or 1) - 1)))
                for place, one in enumerate(own)
            ],
        )
        for cell, own, size in zip(cells, trials, sizes, strict=True)
    ]
    found = [one for one in judge_row(row_run(runs)).findings if one.metric == "output"]
    assert [(one.after, one.effect and one.effect.unit) for one in found] == expected
    assert all(one.effect and one.effect.value == pytest.approx(sizes[1] - sizes[0]) for one in found[:1])


@pytest.mark.parametrize(("new_ms", "cause"), [(2.2, ""), (0.3, "step_time")])
def test_processor_time_that_rose_far_more_than_the_steps_is_a_finding_of_its_own(new_ms: float, cause: str) -> None:
    """Ten times the processor time was only "a consequence" of slightly longer steps: its size, a difference of small
    levels, had another unit than theirs."""
    series = build.series("msgpack", ["1.0.4", "1.0.5"])
    cells = tuple(Cell(image=image, lane=build.HERE, variant=build.POP) for image in series.images)
    runs = []
    for place, (cell, ms, cpu_ms) in enumerate(zip(cells, (20, 26), (0.15, new_ms), strict=True)):
        trials = [trial_of(number, ms=ms, seed=place, steps=1000) for number in range(1, 9)]
        for number, one in enumerate(trials):
            assert one.trace is not None
            looks = tuple(Look(step=step, values={"cpu_s": cpu_ms / 1000 * step}) for step in (500, 1000))
            trials[number] = replace(one, cell_id=cell.id, trace=replace(one.trace, looks=looks))
        runs.append(CellRun(cell=cell, trials=trials))
    judged = judge_row(row_run(runs))
    told = {one.metric: one for one in corrected([judged])[0].findings}
    assert told["step_time"].consequence_of == ""
    assert told["cpu_time"].consequence_of == cause
    assert told["cpu_time"].effect is not None
    assert told["cpu_time"].effect.unit == "s/step"


@pytest.mark.parametrize(
    ("ms", "run_s", "seen", "is_found"),
    [((0.1, 0.13), 1.0, "good", False), ((0.1, 0.13), 0.02, "blind", False), ((0.1, 1.0), 1.0, "good", True),
     ((5.0, 7.5), 1.0, "blind", True)],
)  # fmt: skip
def test_steps_that_are_nothing_for_the_run_leave_no_question_mark(
    ms: tuple[float, float], run_s: float, seen: str, is_found: bool
) -> None:
    """A healthy program of 100 steps of 0.1 ms in a run of a second was never good: 10 % of a step, 1 ms in the whole
    run, could not be seen. A change that lengthens the run by more is found as ever."""
    series = build.series("msgpack", ["1.0.4", "1.0.5"])
    cells = tuple(Cell(image=image, lane=build.HERE, variant=build.POP) for image in series.images)
    noise = np.array([[0.8, 1.2, 1.1, 0.9], [1.1, 0.9, 1.2, 0.9]])
    runs = []
    for cell, usual_ms, factors in zip(cells, ms, noise if not is_found else noise / noise, strict=True):
        trials = [trial_of(number, ms=usual_ms * factor, steps=100) for number, factor in enumerate(factors)]
        facts = facts_of({"run_s": run_s, "step_kind": "line", "step_shape": "step #"})
        runs.append(CellRun(cell=cell, trials=[replace(one, cell_id=cell.id, facts=facts) for one in trials]))
    judged = judge_row(row_run(runs))
    assert any(one.metric == "step_time" for one in judged.findings) == is_found
    assert is_found or judged.cells[1].verdict.of("step_time").seen == seen
    why = "all steps together take less than 2 % of the run, so the run time decides"
    is_nothing = judged.cells[1].verdict.of("stalls").why == why
    assert is_nothing == (run_s == 1.0 and ms[0] < 1), "a stall in one launch made the tail `suspect`"
    own = Limits(signals={**Limits().signals, "step_time": 0.3, "tail": 3.0})
    asked = limits_of_run(own, [run.trials for run in runs])
    assert [asked.of(name) for name in ("step_time", "tail")] == [0.3, 3.0], "a limit of the matrix file stays"


def returning(nan: set[int], ms: list[float], *, first: int = 101) -> JudgedRow:
    """Return versions with these step times; the loss of those in `nan` is NaN after step 100, told from `first`."""
    series = build.series("msgpack", [f"1.{number}" for number in range(len(ms))])
    cells = tuple(Cell(image=image, lane=build.HERE, variant=build.POP) for image in series.images)
    runs = []
    for place, cell in enumerate(cells):
        trials = [trial_of(number, ms=ms[place], seed=place) for number in range(1, 5)]
        for number, one in enumerate(trials):
            assert one.trace is not None
            loss = np.full(len(one.trace.step), 0.0156)
            told = {"loss": (3900, first)} if place in nan else {}
            if place in nan:
                loss[100:] = np.nan
            trace = replace(one.trace, columns={**one.trace.columns, "loss": loss})
            trials[number] = replace(
                one, cell_id=cell.id, trace=trace, not_finite=told, output=replace(one.output, bytes=1000)
            )
        runs.append(CellRun(cell=cell, trials=trials))
    return judge_row(row_run(runs))


def test_a_replicate_of_the_old_version_tells_that_its_result_varies_too() -> None:
    """`error was the same in all launches and now differs` was said, though launches of the old image differed."""
    cells = [cell.cell for cell in returning(set(), [1.0, 1.0]).cells]

    def launch(number: int, loss: float, cell_id: str) -> Trial:
        one = trial_of(number)
        assert one.trace is not None
        columns = {**one.trace.columns, "loss": np.full(len(one.trace.step), loss)}
        return replace(one, cell_id=cell_id, trace=replace(one.trace, columns=columns))

    losses = ([0.5, 0.5, 0.5], [0.5, 0.501, 0.502])
    runs = [
        CellRun(cell=cell, trials=[launch(*one, cell.id) for one in enumerate(own)])
        for cell, own in zip(cells, losses, strict=True)
    ]
    again = replace(cells[0], replicate=True)
    replicate = CellRun(cell=again, trials=[launch(number, 0.5 + number / 1000, again.id) for number in range(3)])
    rows = [row_run(runs, replicate=each) for each in (None, replicate)]
    told = [[one.text for one in judge_row(row).observations] for row in rows]
    assert [any("was the same in all launches" in text for text in texts) for texts in told] == [True, False]


def test_a_failure_of_a_replicate_is_one_of_its_version() -> None:
    """The oldest version seemed never to fail, so that nobody knew whether it has the failure of the next one."""
    ends: tuple[tuple[End, ...], ...] = (("completed",) * 4, ("crash", "completed") * 2)
    cells = [cell.cell for cell in returning(set(), [1.0, 1.0]).cells]

    def launches(cell: Cell, own: Sequence[End]) -> list[Trial]:
        return [replace(failed(at) if end == "crash" else trial_of(at), cell_id=cell.id) for at, end in enumerate(own)]

    runs = [CellRun(cell=cell, trials=launches(cell, own)) for cell, own in zip(cells, ends, strict=True)]
    again = replace(cells[0], replicate=True)
    rows = [row_run(runs, replicate=each) for each in (None, CellRun(cell=again, trials=launches(again, ends[1])))]
    judged = [judge_row(row) for row in rows]
    assert [row.findings[0].untestable for row in judged] == [("1.0",), ()]
    assert [(row.cells[0].verdict.failed, row.cells[0].verdict.trials) for row in judged] == [(0, 4), (2, 8)]


@pytest.mark.parametrize(
    ("limits", "seen"), [((MetricLimit(metric="loss", rule="rise", limit=0.05),), "blind"), ((), "none")]
)
def test_a_version_that_ran_on_another_kernel_does_not_keep_the_limit_of_its_loss(limits: Any, seen: str) -> None:
    """Its launches are set apart, so that nothing was compared: the row was good, without a word on the loss."""
    scenario = replace(build.POP.scenario, limits=Limits(metrics=limits))
    cells = [replace(cell.cell, variant=Variant(scenario=scenario)) for cell in returning(set(), [1.0, 1.0, 1.0]).cells]
    runs = []
    for place, cell in enumerate(cells):
        trials = []
        for one in (trial_of(number) for number in range(3)):
            assert one.trace is not None
            columns = {**one.trace.columns, "loss": np.full(len(one.trace.step), 1.0 + (place == 2))}
            trace, kernel = replace(one.trace, columns=columns), "6.5.0" if place == 2 else "6.1.0"
            trials.append(replace(one, cell_id=cell.id, trace=trace, fingerprint={"kernel": kernel}))
        runs.append(CellRun(cell=cell, trials=trials))
    told = judge_row(row_run(runs)).cells[2].verdict.of("metrics.loss")
    assert (told.seen, told.why) == (seen, "its launches ran under other conditions than those of the other versions")
    assert told.remedy == "`--fresh` measures all versions again, side by side"


def test_a_version_that_returns_nan_is_not_what_the_next_one_is_compared_with() -> None:
    """A version whose loss was NaN did almost no work, and the next version, as fast as those before, was accused of
    steps 219 times slower.
    """
    row = returning({2}, [0.77, 0.77, 0.0035, 0.77])
    assert [(one.metric, one.after) for one in row.findings] == [("metrics.loss", "1.2"), ("metrics.loss", "1.3")]
    bad, after = (row.cells[place].verdict.signals for place in (2, 3))
    told = {name: bad[name] for name in ("step_time", "tail", "peak_memory", "output")}
    assert {(one.seen, one.why) for one in told.values()} == {
        ("none", "this version is bad: NaN, infinity or a number beyond 1e30 in loss")
    }
    assert all(one.value is None or one.apart for one in told.values())
    assert all(bad[name].seen in ("none", "good") for name in LEVELS if name in bad), (
        "it is neither accused nor unclear"
    )
    assert after["step_time"].seen == "good"


def test_nan_of_the_oldest_version_is_a_regression_that_was_fixed() -> None:
    """The headline was `Nothing bad found, but .`, above finding 1, with exit code 4."""
    row = returning({0}, [0.77] * 3)
    plan = build.run(
        [(build.series("msgpack", ["1.0", "1.1", "1.2"]), [build.HERE], [build.POP])], lambda *_: build.flat()
    ).plan
    result = judge_run(plan, [row], directory=Path("none"))
    assert [(one.kind, one.before) for one in result.findings] == [("first_fixed", "1.0")]
    assert result.verdict == "regression"
    told = "msgpack returns NaN, infinity or a number beyond 1e30 as `loss` up to 1.0 (fixed in 1.1)."
    assert headline.sentence(result) == told


def test_nan_that_comes_after_the_last_step_of_every_launch_is_bad() -> None:
    """Four of four launches printed NaN after the last line that was a step, and the report said `in one launch`."""
    row = returning({1}, [0.77] * 2, first=4001)
    assert row.cells[1].trials[0].last_step == 4000
    assert [(one.metric, one.after) for one in row.findings] == [("metrics.loss", "1.1")]


def test_a_change_across_a_version_that_returns_nan_is_still_found() -> None:
    row = returning({2}, [0.77, 0.77, 0.0035, 1.54])
    found = [(one.before, one.after, one.untestable) for one in row.findings if one.metric == "step_time"]
    assert found == [("1.1", "1.3", ("1.2",))]


def test_versions_that_all_return_nan_are_compared_as_ever() -> None:
    """NaN in every version is not bad: a slower version among them must still be found."""
    row = returning({0, 1, 2, 3}, [0.77, 0.77, 1.54, 1.54])
    assert [one.after for one in row.findings if one.metric == "step_time"] == ["1.2"]


def test_the_median_of_finite_steps_is_not_told_as_the_loss_of_a_version_that_returns_nan() -> None:
    """A program read summary.json and took 0.0156, the median of the few steps before the first NaN, for a loss."""
    row = returning({2}, [0.77] * 4)
    assert [cell_json(cell)["metrics"].get("loss", "absent") for cell in row.cells] == [0.0156, 0.0156, None, 0.0156]
    assert "loss NaN or >1e30" in dict(html_page._facts(row.cells[2]))["own metrics"]


def test_rates_are_told_by_what_the_launched_versions_count() -> None:
    """The page said KiB/step of versions that print lines, because the oldest one was not launched."""
    skipped = replace(build.flat(), trials=0)
    assert per_of([skipped, replace(build.flat(), per="line")]) == "line"
    assert per_of([skipped]) == "step"


PROGRAM, WHOLE = {"script": None, "program": Path("train.py")}, {"is_whole": True}
DIED = {"message": "before the first step: ValueError"}
NO_STEP = {"shortfall": "no_step", "message": "no step was seen"}


@pytest.mark.parametrize(
    ("scenario", "row", "failure", "verdict"),
    [
        (PROGRAM, {}, DIED, "crash"),
        (PROGRAM, {}, {**DIED, "stacks": "Thread 1"}, "hang"),
        (PROGRAM, {}, {**DIED, "stacks": "Thread 1", "signal": 6}, "crash"),
        (PROGRAM, {}, {**DIED, "oom_in_setup": True}, "oom"),
        (PROGRAM, {}, NO_STEP, "untested"),
        (PROGRAM, WHOLE, NO_STEP, "crash"),
        (PROGRAM, {"setup_bad": False}, DIED, "untested"),
        ({"script": None, "command": ("make", "test")}, {}, DIED, "crash"),
        ({}, {}, DIED, "untested"),
        ({}, {"setup_bad": True}, DIED, "crash"),
    ],
)
def test_a_program_that_fails_before_its_first_step_where_others_run_is_bad(
    scenario: dict[str, Any], row: dict[str, Any], failure: dict[str, Any], verdict: str
) -> None:
    """A training that died while it imported the newer version was `untested`, and nothing said why. A version that may
    only print other lines, and a script that may not fit a version, stay untested."""
    limits = replace(LIMITS, setup_bad=row.get("setup_bad"))
    variant = replace(build.POP, scenario=replace(build.POP.scenario, limits=limits, **scenario))
    series = build.series("msgpack", ["1.0.4", "1.0.5"])
    cells = tuple(Cell(image=image, lane=build.HERE, variant=variant) for image in series.images)
    whole = {"end": "completed", "shortfall": "no_step", "last_step": 1, "facts": {"run_s": 2.0}}
    runs = [changed(trial_of(number), **(whole if "is_whole" in row else {})) for number in range(2)]
    fails = [changed(trial_of(number), end="setup", last_step=0, **failure) for number in range(2)]
    versions = [CellRun(cell=cell, trials=trials) for cell, trials in zip(cells, (runs, fails), strict=True)]
    judged = judge_row(row_run(versions, asked=Trials(least=2, most=8)))
    assert [cell.verdict.verdict for cell in judged.cells] == ["flat", verdict]
    assert bool(judged.findings) == (verdict != "untested")


# ---------------------------------------------------------------- which changes become findings


def row_of(series: Series, findings: list[Finding], *, launches: int, limit: float) -> JudgedRow:
    """Return a row whose versions have this many launches each, and these findings of one signal."""
    metric = findings[0].metric
    signal = SignalVerdict(seen="good", value=1.0, limit=limit)
    verdict = replace(build.flat(), trials=launches, signals={metric: signal})
    cells = (Cell(image=image, lane=build.HERE, variant=build.POP) for image in series.images)
    results = tuple(CellResult(cell=cell, trials=(), verdict=verdict) for cell in cells)
    return JudgedRow(cells=results, findings=tuple(findings), tested=(metric,))


@pytest.mark.parametrize(
    ("metric", "launches", "named"), [("tail", 3, False), ("tail", 5, True), ("step_time", 3, True)]
)
def test_no_version_is_accused_of_a_tail_by_fewer_than_five_launches(metric: str, launches: int, named: bool) -> None:
    """A busy moment of another program makes a tail: three equal versions were accused on a shared machine."""
    series, effect = build.series("msgpack", ["1.0.4", "1.0.5"]), Effect(value=2.0, unit="ratio")
    doubled = build.finding(
        series, build.HERE, build.POP, metric=metric, before="1.0.4", after="1.0.5", effect=effect, p=1e-9, verdict=""
    )
    [result] = corrected([row_of(series, [doubled], launches=launches, limit=1.0)])
    assert [one.metric for one in result.findings] == ([metric] if named else [])
    signal = result.cells[1].verdict.signals[metric]
    assert signal.seen == ("bad" if named else "suspect")
    assert named or signal.why == "5 launches of each version are needed to confirm this change"


@pytest.mark.parametrize("beginning", [1e-9, 0.4])
def test_no_version_is_bad_only_because_a_later_one_is_better(beginning: float) -> None:
    """A rise to 1.1 and a fall to 1.2: if the rise may be chance, 1.0 and 1.1 must not be called bad until 1.2."""
    series = build.series("msgpack", ["1.0", "1.1", "1.2", "1.3"])
    changes = [
        build.finding(
            series, build.HERE, build.POP, metric="step_time", kind=kind, before=before, after=after, p=p, effect=None,
            verdict="",
        )
        for kind, before, after, p in [
            ("first_bad", "1.0", "1.1", beginning), ("worse", "1.1", "1.2", 1e-9), ("first_fixed", "1.2", "1.3", 1e-9)
        ]
    ]  # fmt: skip
    [found] = corrected([row_of(series, changes, launches=5, limit=0.1)])
    is_sure = beginning < 0.01
    told = [(one.kind, one.after) for one in found.findings]
    assert told == [*([("first_bad", "1.1")] if is_sure else []), ("worse" if is_sure else "first_bad", "1.2"),
                    ("first_fixed", "1.3")]  # fmt: skip
    seen = [cell.verdict.signals["step_time"].seen for cell in found.cells]
    assert seen == ["good", "bad" if is_sure else "suspect", "bad", "good"]
    [alone] = corrected([row_of(series, changes[::2], launches=5, limit=0.1)])
    assert bool(alone.findings) == is_sure


def test_a_repair_needs_no_more_proof_than_the_fault_that_it_ends() -> None:
    """aiohttp 3.10.6 took ten times as long to end, 3.10.11 as long as before; the fall was above the corrected level,
    so that 3.10.11 was called bad at 72 ms, after a good version of 118 ms."""
    series = build.series("aiohttp", ["3.10.5", "3.10.6", "3.10.11"])
    changes = [
        build.finding(
            series, build.HERE, build.POP, metric="end_time", kind=kind, before=before, after=after, p=p, effect=None,
            verdict="",
        )
        for kind, before, after, p in [
            ("first_bad", "3.10.5", "3.10.6", 1e-9), ("first_fixed", "3.10.6", "3.10.11", 0.02)
        ]
    ]  # fmt: skip
    [found] = corrected([row_of(series, changes, launches=5, limit=0.5)])
    assert [(one.kind, one.after) for one in found.findings] == [("first_bad", "3.10.6"), ("first_fixed", "3.10.11")]
    assert [cell.verdict.signals["end_time"].seen for cell in found.cells] == ["good", "bad", "good"]


# ---------------------------------------------------------------- findings of a search


CELLS = [
    CellVerdict(
        verdicts=("flat",), why="", trials=3, signals={"peak_memory": SignalVerdict(seen="good", value=102_400.0)}
    )
] * 6
CRASH = Change(metric="outcome", kind="first_bad", before=2, after=3, p=0.1, verdict="crash")
FIXED = Change(metric="outcome", kind="first_fixed", before=3, after=4, p=0.1, verdict="crash")

LIMIT = math.log(1.1)
RULES = Rules(level_limit=LIMIT)


def outcome(before: int | None, after: int, *, kind: ChangeKind = "first_bad", confirmed: bool = True) -> Change[int]:
    return Change(metric="outcome", kind=kind, before=before, after=after, confirmed=confirmed)


def found(*changes: Change[int], searched: list[Change[int]], rules: Rules = RULES) -> list[tuple]:
    told = with_searched(changes, searched, cells=CELLS, rules=rules)
    return [(change.metric, change.kind, change.before, change.after) for change in told]


def test_a_change_is_as_wide_as_the_search_says() -> None:
    assert found(CRASH, searched=[outcome(1, 3)]) == [("outcome", "first_bad", 1, 3)]
    assert found(CRASH, searched=[outcome(2, 3)]) == [("outcome", "first_bad", 2, 3)]


def test_where_no_version_is_surely_good_none_is_called_the_last_good_one() -> None:
    """A rare failure may be older than all launched versions: an interval would not contain the truth."""
    (change,) = with_searched([CRASH], [outcome(None, 3, confirmed=False)], cells=CELLS, rules=RULES)
    assert (change.kind, change.before, change.after) == ("bad_from_start", None, 3)
    assert change.between == (0, 1, 2)


def test_a_fix_that_may_be_luck_is_none() -> None:
    assert found(FIXED, searched=[outcome(3, 4, kind="first_fixed", confirmed=False)]) == []
    assert found(FIXED, searched=[outcome(3, 4, kind="first_fixed")]) == [("outcome", "first_fixed", 3, 4)]


def test_a_series_that_begins_slower_than_its_baseline_is_bad() -> None:
    """Only the improvement was reported, and a run with nothing but an improvement exits with 0."""
    effect = Effect(value=1 / 1.5, unit="ratio")
    faster = Change(metric="step_time", kind="first_fixed", before=2, after=3, effect=effect, p=1e-6)
    rules = Rules(level_limit=LIMIT, baseline=5)
    told = [("step_time", "bad_from_start", None, 0), ("step_time", "first_fixed", 2, 3)]
    assert found(searched=[faster], rules=rules) == told
    (begins, _) = with_searched([], [faster], cells=CELLS, rules=rules)
    assert begins.effect is not None
    assert math.isclose(begins.effect.value, 1.5)


def test_a_baseline_that_could_not_run_says_nothing() -> None:
    """Its level is unknown, and no version may be called bad by a guess."""
    cells = [*CELLS[:5], CellVerdict(verdicts=("untested",), why="", trials=0)]
    effect = Effect(value=1 / 1.5, unit="ratio")
    faster = Change(metric="step_time", kind="first_fixed", before=2, after=3, effect=effect, p=1e-6)
    assert with_searched([], [faster], cells=cells, rules=Rules(level_limit=LIMIT, baseline=5)) == ()


def test_a_run_that_measured_nothing_is_not_good() -> None:
    """Every image was incompatible with the card, and the run ended with exit code 0."""
    series = build.series("msgpack", ["1.0.4", "1.0.5"])
    cells = tuple(Cell(image=image, lane=build.HERE, variant=build.POP) for image in series.images)
    runs = [CellRun(cell=cell, incompatible="CUDA 11.1 has no code for sm_89") for cell in cells]
    plan = build.run([(series, [build.HERE], [build.POP])], lambda *_: build.flat()).plan
    assert judge_run(plan, [judge_row(row_run(runs))], directory=Path("none")).verdict == "infrastructure"


@pytest.mark.parametrize(
    ("messages", "told"),
    [
        (("exit(1)", "exit(2)", "exit(2)"), "though not alike. six 1.15: exit(1); six 1.16 and 1.17: exit(2)."),
        (("exit(1)",) * 3, "alike. six 1.15, 1.16 and 1.17: exit(1)."),
        (["No file: /a/x"] * 3, "alike. six 1.15, 1.16 and 1.17: No file: /a/x."),
        (["No file: /a/x", "No file: /a/x", "No file: /b/x"], "alike. six 1.15, 1.16 and 1.17: No file: x."),
        (["No file: /a/x", "No file: /a/y", "No file: /a/x"],
         "though not alike. six 1.15 and 1.17: No file: /a/x; six 1.16: No file: /a/y."),
        ([f"CalledProcessError: '/env/{name}/bin/python -m pip' failed (a.py:{name} in f)" for name in (1, 2, 3)],
         "alike. six 1.15, 1.16 and 1.17: python: No module named pip; CalledProcessError: 'python -m pip' failed "
         "(a.py in f)."),
    ],
)  # fmt: skip
def test_versions_that_all_fail_before_a_step_are_undecided_with_the_reason(messages: Sequence[str], told: str) -> None:
    """Exit code 1, and 2 in later versions, was "nothing bad in what ran" with the exit code of a lost host. Later, one
    failure in environments with folders of their own was `not alike`, and did not say what the command lacked."""
    series = build.series("six", ["1.15", "1.16", "1.17"])
    cells = tuple(Cell(image=image, lane=build.HERE, variant=build.POP) for image in series.images)
    plan = build.run([(series, [build.HERE], [build.POP])], lambda *_: build.flat()).plan
    printed = Printed(tail="/env/1/bin/python: No module named pip\nTraceback (most recent call last):\n  x\nE: y")
    runs = [
        CellRun(cell=cell, trials=[trial_of(end="setup", message=message, output=printed) for _ in range(2)])
        for cell, message in zip(cells, messages, strict=True)
    ]
    result = judge_run(plan, [judge_row(row_run(runs))], directory=Path("none"))
    assert (result.verdict, result.exit_code) == ("inconclusive", 4)
    assert headline.sentence(result) == f"Nothing could be compared: every version fails, {told}"


def observing(names: Sequence[str], **fields: Any) -> RunResult:
    """Return a run of good versions, with an `other_end` of the newest one."""
    series = build.series("six", names)
    result = build.run([(series, [build.HERE], [build.POP])], lambda *_: build.flat(), verdict="inconclusive")
    seen = Observation(
        series="six", lane=build.HERE, variant=build.POP, signal="other_end", text="it leaves nothing on the disk",
        before=names[0], after=names[-1], last=names[-1],
    )  # fmt: skip
    return replace(result, observations=(seen,), **fields)


@pytest.mark.parametrize(("names", "good"), [(["1.15", "1.16"], "cell is"), (["1.15", "1.16", "1.17"], "2 cells are")])
def test_what_is_to_be_looked_at_comes_before_what_is_good(names: Sequence[str], good: str) -> None:
    """`All 2 cells are good, with 1 thing to look at` hid the thing."""
    told = f"six {names[-1]} ends in another way: it leaves nothing on the disk. The other {good} good."
    assert headline.sentence(observing(names)) == told


def test_a_failure_without_a_proven_end_or_beginning_is_told_of_its_version_alone() -> None:
    """Of 12 launches of each version, 3 of c hung: it was "12 % in every version from c", while d had a tick, and a and
    b, which passed as many, were "nothing good to compare with", and "no cell of this matrix can settle it"."""
    series = build.series("v", "abcd")
    images = tuple(replace(image, source=Varied(variable="V")) for image in series.images)
    here = Lane(host=Host(name="local", engine="process", gpus="none", where=build.WHERE))
    cells = tuple(Cell(image=image, lane=here, variant=build.POP) for image in images)
    plan = build.run([(replace(series, images=images), [here], [build.POP])], lambda *_: build.flat()).plan
    hung = [trial_of(number, steps=100, end="hang", message="step 101: no progress") for number in range(3)]
    runs = [
        CellRun(cell=cell, trials=[*(hung if cell.image.version == "c" else []), *map(trial_of, range(3, 12))])
        for cell in cells
    ]
    runs = [replace(run, trials=[*run.trials, *map(trial_of, range(12, 24 - len(run.trials)))]) for run in runs]
    plan = replace(plan, trials=Trials(least=5, most=12))
    result = judge_run(plan, [judge_row(row_run(runs))], directory=Path("none"))
    assert headline.lines(result)[0] == (
        "v hangs in 25 % of launches in c at least; b passed 12 launches, too few to rule the fault out (more: "
        "`--trials 5:24 --decide`), so the cause is undecided."
    )
    (row,) = document(result).tables[0].rows
    assert [cell.symbol for cell in row.cells if cell is not None] == ["?", "?", "▼", "?"]


@pytest.mark.parametrize(
    ("last", "told"), [("1.18", "since 1.16"), ("1.17", "in 1.16 and 1.17"), ("1.16", ""), (None, "")]
)
def test_the_first_version_that_shows_a_change_is_named_like_that_of_a_finding(last: str | None, told: str) -> None:
    """`six gives another result from 1.16 to 1.18: … → …` sounded as if 1.16 were good."""
    seen = replace(observing(["1.15", "1.18"]).observations[0], after="1.16", last=last)
    result = replace(observing(["1.15", "1.16", "1.17", "1.18"]), observations=(seen,))
    who = f"six ends in another way {told}" if told else "six 1.16 ends in another way"
    assert f"{who}: it leaves" in headline.sentence(result)
    where = told or ("1.15 → 1.16" if last is None else "in 1.16")
    assert f"six {where}, local, {build.POP}: other end: it leaves" in run_report.text(result, wide=True)


def test_a_result_on_the_last_line_that_vanishes_is_told_once() -> None:
    series = build.series("six", ["1.15", "1.16"])
    gone = build.finding(series, build.HERE, build.POP, before="1.15", after="1.16", metric="metrics.accuracy")
    assert headline.to_look_at(observing(["1.15", "1.16"], findings=(gone,)))
    assert not headline.to_look_at(observing(["1.15", "1.16"], findings=(replace(gone, verdict="vanished"),)))


@pytest.mark.parametrize(
    ("losses", "told"),
    [((1.5, 1.5, 1.6), "1.5"), ((1.04, 1.03, 1.05), ""), ((1.5, 1.0, 1.5), ""), ((0.5,) * 3, "0.5"), ((0.0,) * 3, "0")],
)
def test_a_result_that_another_card_has_in_all_versions_is_told(losses: tuple[float, ...], told: str) -> None:
    """A loss that was 50 % higher on the new card with every image was good in all cells."""
    series = build.series("msgpack", ["1.0.4", "1.0.5", "1.0.6"])
    on_new = dict(zip((image.version for image in series.images), losses, strict=True))

    def verdict(version: str, lane: Lane, _: object) -> CellVerdict:
        loss = on_new[version] if lane == NEW else 1.0
        number = SignalVerdict(seen="good", value=loss, limit=0.01, visible=0.0)
        return replace(build.flat(), signals={"metrics.loss": number})

    run = build.run([(series, [OLD, NEW], [build.POP])], verdict)
    rows = [JudgedRow(cells=tuple(cell for cell in run.cells if cell.cell.lane == lane)) for lane in (OLD, NEW)]
    result = judge_run(run.plan, rows, directory=Path("none"))
    assert [one.lane for one in result.observations] == [NEW] * bool(told)
    assert (f"loss 1 on {OLD}, {told} on {NEW}, and at least as far" in headline.sentence(result)) == bool(told)
    assert result.verdict == ("inconclusive" if told else "ok")


@pytest.mark.parametrize(("rate", "told"), [(500.0, True), (0.1, False)])
def test_growth_that_is_alike_in_all_versions_is_told(rate: float, told: bool) -> None:
    """A program whose lines are steps leaked 500 KiB a line in every version, and the run was good without a word."""
    series = build.series("msgpack", ["1.0.4", "1.0.5"])
    cells = [Cell(image=image, lane=build.HERE, variant=build.POP) for image in series.images]
    runs = [
        CellRun(
            cell=cell,
            trials=[trial_of(number, rate=rate, facts=facts_of({"step_kind": "line"})) for number in range(3)],
        )
        for cell in cells
    ]
    warnings = judge_row(row_run(runs)).warnings
    assert (
        any("memory grows by up to 1,953 MiB in a launch, alike in every version" in each for each in warnings) == told
    )


COUNTED = np.linspace(0.0, 4000.0, 41)


@pytest.mark.parametrize(("last", "bad"), [(20.0, False), (0.0, True)])
def test_the_results_that_every_version_writes_are_no_files_that_pile_up(last: float, bad: bool) -> None:
    """A program that writes a file of 20 KiB in each step `fills the disk in every version`, and nothing was good."""
    series = build.series("msgpack", ["1.0.4", "1.0.5", "1.0.6"])
    scenario = replace(build.POP.scenario, script=None, program=Path("train.py"))
    runs = []
    for image, rate in zip(series.images, (last, 20.0, 20.0), strict=True):
        made = [trial_of(number) for number in range(3)]
        traces = [replace(one.trace, counts={"step": COUNTED, "disk": rate * COUNTED}) for one in made if one.trace]
        trials = [replace(one, trace=trace) for one, trace in zip(made, traces, strict=True)]
        cell = Cell(image=image, lane=build.HERE, variant=replace(build.POP, scenario=scenario))
        runs.append(CellRun(cell=cell, trials=trials))
    runs[2] = replace(runs[2], trials=[failed(number, end="hang") for number in range(3)])
    judged = judge_row(row_run(runs))
    assert (judged.cells[1].verdict.verdict == "growth") == bad
    assert any("writes to the disk grows by up to 78 MiB in a launch" in each for each in judged.warnings) != bad
    assert judged.cells[1].verdict.of("disk").seen == ("bad" if bad else "none")


def test_launches_that_were_killed_from_outside_are_no_evidence() -> None:
    """Of a version whose agents were killed, a report said how to call it bad, as of one that fails in its setup."""
    cell = Cell(image=build.series("six", ["1.0"]).images[0], lane=build.HERE, variant=build.POP)
    trials = [replace(trial_of(number), end="infrastructure", message="killed from outside") for number in range(3)]
    assert CellRun(cell=cell, trials=trials, problem="killed from outside").result.verdict.trials == 0


@pytest.mark.parametrize(
    ("suspects", "told"), [(3, "1.0 seems bad, like all other versions"), (1, "1.2 seems bad first")]
)
def test_growth_that_all_versions_have_is_said_to_be_in_all(suspects: int, told: str) -> None:
    """A cache that filled alike in all versions was headlined as `1.0 seems bad`."""
    names = ["1.0", "1.1", "1.2"]

    def verdict(version: str, *_: object) -> CellVerdict:
        grown = SignalVerdict(seen="suspect", value=1.7, ci=(1.3, 2.2), limit=0.5)
        suspect = replace(build.flat(), verdicts=("suspect",), signals={"memory": grown})
        return suspect if version in names[3 - suspects :] else build.flat()

    result = build.run([(build.series("six", names), [build.HERE], [build.POP])], verdict, verdict="inconclusive")
    assert headline.sentence(result).startswith(f"Not confirmed: six {told} (provisional; ")
