from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from harness.model import (
    CellResult,
    CellVerdict,
    Conditions,
    Lane,
    Limits,
    RunResult,
    SignalVerdict,
    Skip,
    Trace,
    Variant,
)
from harness.model.measured import Facts
from harness.report.content import version_table
from harness.report.document import document, warnings
from harness.report.exports import markdown, summary_json
from harness.report.page import html_page
from harness.report.terminal import run_report
from harness.report.text import finding_words, names, not_decided, signal_words
from tests.players import build

GOOD_END = SignalVerdict(seen="good")
"""All that a cell by `judge: exit` has: it said "flat", and no memory was measured."""


def quiet_lines(begin: str, result: RunResult) -> list[str]:
    """Return the lines on what a good verdict does not cover that begin so."""
    return [line for line in not_decided.quiet(result) if line.startswith(begin)]


@pytest.mark.parametrize(
    ("verdict", "text"),
    [
        (build.leak(7.838), "leak 7.84 KiB/step"),
        (build.leak(7.838, also=["slowdown"]), "leak 7.84 KiB/step, slowdown"),  # 7.84 is of the leak
        (build.flat(0.0174), "flat ≤0.0174 KiB/step"),
        (replace(build.flat(), signals={"outcome": GOOD_END}), "exit 0"),
        (build.crash(), "crash SIGSEGV"),
        (build.crash(signal=None), "crash"),
        (build.crash(signal=999), "crash signal 999"),
        (replace(build.flat(), verdicts=("slowdown",), drift=0.23), "slowdown +23 %"),
        (replace(build.flat(), verdicts=("plateau",)), "plateau ≤0.017 KiB/step"),
        (replace(build.leak(1.5), verdicts=("suspect",)), "suspect 1.5 KiB/step"),
        (build.unknown("inconclusive", "trials disagree"), "inconclusive"),
        (build.unknown("untested", "no image"), "untested"),
    ],
)
def test_cell_text(verdict: CellVerdict, text: str) -> None:
    assert signal_words.cell_text(verdict) == text


def test_a_cell_says_how_often_and_why() -> None:
    entry = build.varied().cells[7]
    assert signal_words.cell_sentence(entry) == (
        "crash SIGSEGV (3 of 3 launches failed): crash in 3 of 3 launches: signal 11, died by SIGSEGV after step 1"
    )


def test_a_cell_that_the_matrix_leaves_out_gives_the_matrix_reason() -> None:
    entry = build.quickstart().cells[0]
    left_out = replace(entry, cell=replace(entry.cell, excluded="too long for a weekly run"),
                       verdict=build.unknown("untested", ""))  # fmt: skip
    assert signal_words.cell_sentence(left_out) == "untested: excluded: too long for a weekly run"


def test_a_change_that_is_smaller_than_any_that_is_named_is_none() -> None:
    """It read `+0.000005 %`."""
    assert signal_words.changed(1.0, 1.00000005) == "no change"
    assert signal_words.changed(1.0, 1.0001) == "+0.01 %"


def test_findings_say_where_how_large_and_how_sure() -> None:
    first, fixed, *_ = build.quickstart().findings
    assert first.p is None
    assert finding_words.place(first) == "multidict on local, multidict_pop"
    assert finding_words.text(first) == ("memory leak since 6.3.0 (last good 6.2.0): 7.84 (7.83 to 7.85) KiB/step")
    assert finding_words.text(fixed).startswith("memory leak gone in 6.3.2 (last bad 6.3.1)")
    oldest = replace(first, kind="bad_from_start", before=None, after="6.0.5", effect=None, p=None)
    assert finding_words.text(oldest) == "memory leak since 6.0.5 or earlier"


def test_a_drift_names_its_ends() -> None:
    first = build.quickstart().findings[0]
    drift = replace(first, kind="drift", metric="step_time", verdict="slower", effect=None, p=None)
    assert finding_words.text(drift) == "slower steps gradually, from 6.2.0 to 6.3.0"


def test_a_finding_with_a_single_launch_on_a_side_says_so() -> None:
    """A reader would otherwise consider it as certain as the others."""
    thin = replace(build.quickstart().findings[0], confirmed=False)
    assert finding_words.text(thin).endswith("; not confirmed: one side has fewer than two launches")


def test_what_a_search_launched_once_is_not_shown_as_a_result() -> None:
    once = replace(build.leak(1.4), verdicts=("suspect",), trials=1)
    once = build.told(once, "memory", seen="suspect")
    result = build.run([(build.MULTIDICT, [build.HERE], [build.POP])], lambda *_: once)
    assert {cell.word for cell in version_table.tables(result)[0].rows[0].cells if cell} == {"suspect, 1 launch"}
    assert not_decided.lines(result)[0].startswith("suspect, launched once: ")


def test_how_likely_a_change_of_a_level_is_by_chance() -> None:
    """A leak rests on launches that agree; a level on a test."""
    leaps = build.varied().findings[0]
    assert finding_words.text(leaps) == ("slower steps since 1.21.0 (last good 1.20.1): 5.62× (5.5 to 5.7), p < 0.0001")


def test_a_gap_never_blames_a_version_that_did_not_run() -> None:
    finding = build.varied().findings[3]
    assert finding_words.text(finding).startswith(
        "memory leak since 22.12-tf1-py3 or earlier (last good 21.08-tf1-py3); "
        "21.09-tf1-py3 and 21.10-tf1-py3 cannot be judged"
    )
    assert names.version_range(["a", "b", "c"]) == "a to c (3 versions)"


@pytest.mark.parametrize(
    ("shape", "step"),
    [
        ("epoch #", "a line that the program prints, from the third such line on"),
        ("train bar", "a count of its progress bar"),
        (" bar by 3", "3 counts of its progress bar"),
    ],
)
def test_a_step_that_is_counted_by_a_progress_bar_is_not_called_a_line(shape: str, step: str) -> None:
    """`the program ends by itself after 833 steps`, of a bar of 2,500, and a step was said to be a line."""
    result = build.run([(build.ORJSON, [build.HERE], [build.DELETED])], lambda *_: replace(build.flat(), per="line"))
    cells = [
        replace(cell, trials=tuple(replace(one, last_step=99, facts=Facts(step_shape=shape)) for one in cell.trials))
        for cell in result.cells
    ]
    (line,) = quiet_lines("in ", replace(result, cells=tuple(cells)))
    assert line.endswith(f", a step is {step}")


def test_a_leak_of_a_program_of_lines_is_ruled_out_up_to_a_line() -> None:
    """It read "a leak above 0.017 KiB/line up to step 4,000"."""
    result = build.run([(build.ORJSON, [build.HERE], [build.DELETED])], lambda *_: replace(build.flat(), per="line"))
    (line,) = quiet_lines("flat", result)
    assert line.startswith("flat rules out a leak above 0.017 KiB/line up to line 4,000;")


def test_totals_and_what_flat_is_worth() -> None:
    result = build.varied()
    assert document(result).totals == (
        "49 cells: 22 good, 5 bad, 2 unsure, 20 not measured; 97 launches in 3 min 20 s; seed 1"
    )
    assert "; 97 launches and 3 A/A replicates in 3 min" in document(replace(result, replicates=3)).totals, (
        "all launches"
    )
    assert quiet_lines("flat", result) == [
        "flat rules out a leak above 0.017 KiB/step up to step 4,000; a smaller leak could go unnoticed"
    ]
    assert quiet_lines("flat", replace(result, cells=())) == []
    exited = replace(
        result.cells[0], verdict=build.told(replace(result.cells[0].verdict, steps=3), "memory", visible=None)
    )
    assert quiet_lines("flat", replace(result, cells=(*result.cells, exited))) == quiet_lines("flat", result)


def test_a_report_says_which_change_in_step_time_would_have_shown() -> None:
    result = build.run([(build.ORJSON, [build.HERE], [build.DELETED])], lambda *_: build.flat())
    cells = [replace(cell, verdict=build.told(cell.verdict, "step_time", visible=0.0312)) for cell in result.cells]
    trace = Trace(step=np.array([1.0]), columns={"slice": np.array([7.0])})
    cells[0] = replace(cells[0], trials=tuple(replace(one, trace=trace) for one in cells[0].trials))
    cells[1] = replace(cells[1], trials=tuple(replace(one, conditions=Conditions(parked=3)) for one in cells[1].trials))
    launches = sum(len(cell.trials) for cell in cells)
    assert quiet_lines("on ", replace(result, cells=tuple(cells))) == [
        f"on {build.HERE}, a change in step time below 3.2 % would not have shown"
        f" (launches in slices: {len(cells[0].trials)} of {launches})"
    ]


def test_a_launch_that_a_machine_lost_is_counted_whatever_its_cell_became() -> None:
    """Ten launches were reported as seven trials: those of untested cells counted, those of inconclusive cells did
    not, so a user could not tell what the run had cost."""
    result = build.varied()
    lost = [replace(entry, verdict=replace(entry.verdict, trials=0)) for entry in result.cells]
    assert document(replace(result, cells=tuple(lost))).totals == document(result).totals


def test_what_was_not_needed_is_told_by_variant() -> None:
    """A version that one variant did not need may be the one that another variant found to be bad."""

    def judged(version: str, lane: Lane, of: Variant) -> CellVerdict:
        skipped = version in (("6.2.0",) if "random" in str(of) else ("6.1.0", "6.2.0"))
        return build.unknown("untested", "") if skipped else build.flat()

    ran = build.run([(build.MULTIDICT, [build.HERE], build.SIGNAL)], judged)
    cells = [
        replace(one, skipped=Skip(by="search", why="…") if one.verdict.verdict == "untested" else None)
        for one in ran.cells
    ]
    assert "".join(quiet_lines("not needed", replace(ran, cells=tuple(cells)))) == (
        "not needed by the search: 6 of 40 cells ("
        "multidict on local, signal op=rfft input=random and signal op=fft input=random: 6.2.0; "
        "multidict on local, signal op=rfft input=constant and signal op=fft input=constant: 6.1.0 and 6.2.0)"
    )


def test_one_clear_line_for_each_host_that_is_gone() -> None:
    assert warnings(build.unreachable()) == [
        "host old could not be used: ssh://lab-3090: connection refused; start dockerd there and try again"
    ]
    assert warnings(build.quiet()) == []


def test_a_version_that_alone_fails_before_the_first_step_may_be_called_bad() -> None:
    """A version that fails at its import was untested, and nothing said how to make that count as bad; then only the
    long report did."""

    def gap(*, trials: int = 2, others: CellVerdict | None = None, variant: Variant = build.POP) -> str:
        failed = replace(build.unknown("untested", "ModuleNotFoundError: No module named 'x'"), trials=trials)
        result = build.run(
            [(build.MULTIDICT, [build.HERE], [variant])],
            lambda version, *_: failed if version == "6.3.0" else others or build.flat(),
        )
        line = not_decided.lines(result)[0]
        assert others or line.partition("): ")[2] in not_decided.gist(result)
        return line

    assert gap().endswith("No module named 'x'; to call this bad, set `limits: {setup: bad}`")
    assert gap(trials=0).endswith("No module named 'x'")
    variant = replace(build.POP, scenario=replace(build.POP.scenario, limits=Limits(setup_bad=False)))
    assert gap(variant=variant).endswith("No module named 'x'"), "the matrix says that it is untested"
    assert "to call this bad" not in gap(others=replace(build.unknown("untested", "no module"), trials=2))


def test_gaps_are_told_once_for_many_variants() -> None:
    assert not_decided.lines(build.varied()) == [
        "untested: 21.09-tf1-py3 and 21.10-tf1-py3 (ngc on old/RTX 3090, 4 variants): "
        "manifest unknown; push it or take it out",
        "inconclusive: 21.08-tf1-py3 (ngc on old/RTX 3090, signal op=fft input=constant): "
        "8 of 8 launches: RSS is too noisy to tell (up to step 4000); more steps (`budget`) would settle it",
        "incompatible: 20.12-tf1-py3 (ngc on new/RTX 4090, 4 variants): "
        "CUDA 11.1 knows no sm_89 (RTX 4090); it needs 11.8 or later",
        "untested: 21.09-tf1-py3 and 21.10-tf1-py3 (ngc on new/RTX 4090, 4 variants): "
        "manifest unknown; push it or take it out",
        "inconclusive: 21.08-tf1-py3 (ngc on new/RTX 4090, signal op=fft input=constant): "
        "8 of 8 launches: RSS is too noisy to tell (up to step 4000); more steps (`budget`) would settle it",
    ]


def test_versions_without_a_base_share_a_line_and_its_remedy() -> None:
    """A newcomer's first sweep without a registry: eight times the same line, with the remedy cut off each time."""

    def lost(*_: object) -> CellVerdict:
        return build.unknown("untested", "python:3.11: cannot be pulled; set HARNESS_BASE=harness-base:bookworm")

    (line,) = not_decided.lines(build.run([(build.MULTIDICT, [build.HERE], [build.POP])], lost))
    assert line.endswith("): python:3.11: cannot be pulled; set HARNESS_BASE=harness-base:bookworm")


def hindered(entry: CellResult) -> CellResult:
    return replace(entry, problem="local: connection lost; start dockerd and run again")


def test_a_verdict_that_rests_on_less_than_was_planned_says_so() -> None:
    """The run exits with 3: a user who looks for the reason must find it, even if the cell is good or bad."""
    good, leaking = (hindered(build.quickstart().cells[place]) for place in (0, 3))
    assert signal_words.cell_sentence(leaking).startswith(
        "leak 7.84 KiB/step (3 launches, 4,000 steps): not measured as planned: local: connection lost; start dockerd"
    )
    assert not_decided.lines(replace(build.quickstart(), cells=(good, leaking))) == [
        "flat, not measured as planned: 6.0.5 (multidict on local, multidict_pop): "
        "local: connection lost; start dockerd and run again",
        "leak, not measured as planned: 6.3.0 (multidict on local, multidict_pop): "
        "local: connection lost; start dockerd and run again",
    ]


def test_a_problem_is_told_once() -> None:
    """The verdict's reason, or the lost host, may name it already."""
    entry = build.varied().cells[11]
    assert entry.problem
    assert signal_words.why(entry) == entry.problem
    result = build.unreachable()
    assert not_decided.lines(result) == []
    lost = replace(build.quickstart().cells[0], problem=result.hosts[0].problem or "")
    assert not_decided.lines(replace(result, cells=(lost,))) == []


def test_a_problem_whose_words_occur_in_the_reason_is_told() -> None:
    """It was searched in the reason: a short problem that the reason happened to contain was not told."""
    leaking = replace(build.quickstart().cells[3], problem="launches")
    assert leaking.problem in leaking.verdict.why
    assert signal_words.why(leaking) == f"not measured as planned: launches; {leaking.verdict.why}"


@pytest.mark.parametrize(
    ("rate", "low", "verdict", "told"),
    [
        (0.492, 0.4908, "flat", True),
        (0.492, 0.4908, "plateau", True),
        (0.492, -0.01, "flat", False),
        (0.13, 0.04, "plateau", False),
        (0.492, 0.4908, "inconclusive", False),
    ],
)
def test_a_growth_just_below_the_limit_is_told_though_it_is_good(
    rate: float, low: float, verdict: str, told: bool
) -> None:
    """A steady 0.49 KiB/step appeared as "Nothing bad"; only a cell's reason said that it grows."""

    def judge(version: str, *_: object) -> CellVerdict:
        if version < "6.3":
            return build.flat()
        return build.told(replace(build.flat(), verdicts=(verdict,)), "memory", value=rate, ci=(low, 0.4936))

    result = build.run([(build.MULTIDICT, [build.HERE], [build.POP])], judge, verdict="ok")
    said = (
        "multidict on local, multidict_pop: 6.3.0, 6.3.1, 6.3.2, 6.4.4, 6.5.0, 6.6.3 and 6.6.4 grow by up to 0.49 "
        'KiB/step, below the limit of 0.5: "leak: 0.25KiB" would report it'
    )
    assert not_decided.slow_growth(result) == ([said] if told else [])
    assert (said in " ".join(run_report.text(result, width=300).split())) == told
    assert ("below the limit of 0.5" in markdown.render(result)) == told
    assert ("below the limit of 0.5" in html_page.render(result)) == told


def test_what_was_not_compared_is_told_where_nothing_bad_is() -> None:
    """Otherwise "ok" would mean that no version is slower."""
    result = build.quiet()
    assert quiet_lines("not checked", result) == []
    limits = Limits(signals={"step_time": None})

    def without(entry: CellResult) -> CellResult:
        scenario = replace(entry.cell.variant.scenario, limits=limits)
        return replace(entry, cell=replace(entry.cell, variant=replace(entry.cell.variant, scenario=scenario)))

    result = replace(result, cells=tuple(map(without, result.cells)))
    said = "not checked: step time (the limit is none)"
    assert quiet_lines("not checked", result) == [said]
    for shown in (run_report.text(result, wide=True), markdown.render(result), html_page.render(result)):
        assert said in shown


def test_a_warning_of_several_variants_is_told_once() -> None:
    result = build.run([], lambda *_: build.flat(), warnings=["a is not b", "a is not b", "c"])
    assert warnings(result) == ["a is not b", "c"]


def test_a_program_that_ends_by_itself_is_not_told_to_raise_its_budget() -> None:
    """`more steps (budget) would settle it` was said of a program that had made all its steps."""
    result = build.varied()
    told = next(line for line in not_decided.lines(result) if "too noisy" in line)
    assert told.endswith("more steps (`budget`) would settle it")

    def ends(entry: CellResult) -> CellResult:
        return replace(entry, trials=tuple(replace(trial, facts=Facts(run_s=2.0)) for trial in entry.trials))

    result = replace(result, cells=tuple(map(ends, result.cells)))
    told = next(line for line in not_decided.lines(result) if "too noisy" in line)
    assert told.endswith("a longer run would settle it, because the program ends by itself after 4,000 steps")


def test_small_growth_is_marked_in_the_table_even_beside_a_blind_signal() -> None:
    """The cell read `? step time only ±14 %`, and its leak of 0.47 KiB a step stood in no table."""
    slow = SignalVerdict(seen="good", value=0.471, ci=(0.46, 0.48), limit=0.5)
    small = build.seen(build.flat(), memory=slow, step_time=build.BLIND)
    result = build.run(
        [(build.MULTIDICT, [build.HERE], [build.POP])],
        lambda version, *_: small if version == "6.3.0" else build.flat(),
        verdict="inconclusive",
    )
    assert "! small growth 0.471" in run_report.text(result, width=200)
    assert "! small growth 0.471" in markdown.render(result)
    cells = json.loads(summary_json.encoded(result))["cells"]
    assert [cell["small_growth"] for cell in cells if cell["image"] == "6.3.0"] == [["memory"]]
