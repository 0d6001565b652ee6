"""What cells show of their signals. A reader must be able to rely on ✓: what was not measured is never called good."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.model import BAD, GROUPS, SIGNALS, CellVerdict, Limits, Program, RunResult, SignalVerdict, Variant
from harness.report.content import version_table
from harness.report.document import document
from harness.report.exports import cells_csv, junit, markdown, summary_json
from harness.report.page import html_page
from harness.report.terminal import run_report
from harness.report.text import cell_words, headline, not_decided, signal_words
from tests.unit.report import build
from tests.unit.report.test_terminal import shown

GOOD = SignalVerdict(seen="good")


def one_row(verdict: CellVerdict) -> RunResult:
    """Return a run of one variant, in which all versions are alike."""
    return build.run([(build.ORJSON, [build.HERE], [build.DELETED])], lambda *_: verdict, verdict="ok")


def first_cell(verdict: CellVerdict) -> version_table.Shown:
    (cell, *_) = version_table.tables(one_row(verdict))[0].shown
    return cell


# ---------------------------------------------------------------- the strip


def test_the_strip_has_a_mark_for_each_group_in_a_fixed_place() -> None:
    bad = {name: SignalVerdict(seen="bad") for name in ("outcome", "shm", "first_step")}
    blind = {"tail": build.BLIND}
    strip = signal_words.strip(build.seen(build.flat(), **bad, **blind))
    assert signal_words.marks(strip) == "✗✓✗?✗·"
    assert signal_words.strip_text(strip) == (
        "outcome bad, memory good, other growth bad, step time not decided, start-up bad, results not checked"
    )
    assert len(signal_words.GROUP_NAMES) == len(GROUPS) == len(strip)
    assert signal_words.strip(build.flat()) == ()


def test_a_group_is_not_good_by_a_lesser_signal_alone() -> None:
    """After a crash following the last step, memory was not judged, but had ✓ because its peak was good."""
    good, none = SignalVerdict(seen="good"), SignalVerdict(seen="none")
    signals = {"memory": none, "peak_memory": good, "step_time": none, "tail": good, "setup_time": good}
    assert signal_words.marks(signal_words.strip(replace(build.flat(), signals=signals))) == "····✓·"
    signals |= {"peak_memory": SignalVerdict(seen="bad"), "tail": build.BLIND}
    assert signal_words.marks(signal_words.strip(replace(build.flat(), signals=signals))) == "·✗·?✓·"


seen = st.sampled_from(["good", "bad", "suspect", "blind", "none"])
some_signals = st.dictionaries(
    st.sampled_from([*SIGNALS, "metrics.loss"]), st.builds(SignalVerdict, seen=seen), max_size=8
)


@given(known=some_signals, provisional=st.booleans(), own=st.sampled_from(["flat", "plateau", "suspect", "leak"]))
def test_no_cell_is_good_that_has_a_doubt(known: dict[str, SignalVerdict], own: Any, *, provisional: bool) -> None:
    verdict = replace(build.flat(), verdict=own, verdicts=(own,), signals=known, provisional=provisional)
    open_ = {one.seen for one in known.values()} & {"bad", "suspect", "blind"}
    tone, marks = verdict.state, signal_words.marks(signal_words.strip(verdict))
    assert (tone == "good") == (not open_ and not provisional and own in ("flat", "plateau"))
    assert (tone == "bad") == (own in BAD or "bad" in open_)
    assert not (provisional and "✓" in marks)
    assert ("✗" in marks) == ("bad" in open_)
    assert all(cell_words.cell_words(verdict, least=3)[0:1])


def test_of_several_bad_signals_the_cause_is_shown() -> None:
    """Open files that pile up take memory and slow the steps: a user who reads "step time" looks in the wrong place."""
    bad = {name: SignalVerdict(seen="bad", value=1.0) for name in ("memory", "open_files", "step_time")}
    assert signal_words.matter(build.seen(build.flat(), **bad)) == "open_files"
    assert signal_words.matter(
        build.seen(build.flat(), tail=build.BLIND, setup_time=replace(GOOD, seen="suspect"))
    ) == ("setup_time")
    assert signal_words.matter(build.seen(build.flat())) is None


@pytest.mark.parametrize(
    ("name", "one", "word", "figure"),
    [
        ("step_time", build.BLIND, "step time", "only ±36 %"),
        ("step_time", replace(build.BLIND, visible=2e7), "step time", "only >10×"),
        ("step_time", replace(build.BLIND, visible=None), "step time", "cannot be judged"),
        ("tail", replace(build.BLIND, visible=3.1), "tail", "only 4.1×"),
        ("open_files", SignalVerdict(seen="blind", visible=0.3), "open files", "only 0.3 files/step"),
        ("setup_time", SignalVerdict(seen="bad", value=2.1), "setup time", "2.10 s"),
        ("metrics.loss", SignalVerdict(seen="bad", value=1.5), "loss", "1.5"),
    ],
)
def test_a_cell_that_is_good_alone_shows_what_is_not(name: str, one: SignalVerdict, word: str, figure: str) -> None:
    cell = first_cell(build.seen(build.flat(), **{name: one}))
    assert (cell.word, cell.figure) == (word, figure)
    assert cell.tone == ("bad" if one.seen == "bad" else "unsure")


def test_what_grows_is_called_by_its_name_and_nan_by_its_metric() -> None:
    words_of = [(cell.word, cell.figure) for cell in version_table.tables(build.signalled())[0].rows[0].cells if cell]
    assert ("open files", "1 file/step") in words_of
    assert ("NaN or inf", "in loss") in words_of
    growing = next(one.verdict for one in build.signalled().cells if one.verdict.verdict == "growth")
    assert cell_words.cell_text(growing) == "open files 1 file/step"
    assert cell_words.verdict_word(replace(growing, verdicts=("leak", "growth"))) == "leak, open files"


def test_a_version_that_is_bad_already_is_not_first_bad_again_by_what_follows() -> None:
    """6.3.0 leaks, and its steps are slower since 6.3.1 at the latest: two ▼ would mean two leaks."""
    slow = SignalVerdict(seen="bad", value=2e-5, limit=0.1)

    def judge(version: str, *_: object) -> CellVerdict:
        return (
            build.seen(build.leak(7.8), step_time=slow) if version in ("6.3.0", "6.3.1") else build.seen(build.flat())
        )

    found = [
        build.finding(build.MULTIDICT, build.HERE, build.POP, before="6.2.0", after="6.3.0"),
        build.finding(build.MULTIDICT, build.HERE, build.POP, before="6.2.0", after="6.3.1", metric="step_time",
                      verdict="slower", consequence_of="memory"),
    ]  # fmt: skip
    result = build.run([(build.MULTIDICT, [build.HERE], [build.POP])], judge, findings=found)
    verdicts, medians = version_table.tables(result)[0].rows
    assert [cell.symbol for cell in verdicts.cells[2:5] if cell] == ["✓", "▼", "✗"]
    assert medians.cells[4] is not None
    assert medians.cells[4].symbol == "▼"


def test_a_row_of_figures_calls_nothing_good_that_the_row_of_verdicts_does_not() -> None:
    def judge(version: str, *_: object) -> CellVerdict:
        if version == "1.19.2":
            return replace(_of_lrn(version), provisional=True)
        return build.seen(_of_lrn(version), **({"step_time": build.BLIND} if version == "1.20.0" else {}))

    (slower,) = [one for one in build.varied().findings if one.metric == "step_time"]
    result = build.run([(build.LRN, [build.HERE], [build.LRN_STEP])], judge, findings=[slower])
    assert [cell.symbol for cell in version_table.tables(result)[0].rows[1].cells if cell] == ["?", "?", "✓", "▼", "✗"]


def test_a_drift_has_no_first_bad_version() -> None:
    drift = build.finding(build.LRN, build.HERE, build.LRN_STEP, before="1.19.2", after="1.21.1", kind="drift",
                          metric="step_time", verdict="slower")  # fmt: skip
    result = build.run([(build.LRN, [build.HERE], [build.LRN_STEP])], _of_lrn, findings=[drift])
    marks = [cell.symbol for row in version_table.tables(result)[0].rows for cell in row.cells if cell]
    assert marks == ["✓"] * 9 + ["✗"]


def test_what_never_ran_has_no_strip() -> None:
    none = {name: SignalVerdict(seen="none") for name in SIGNALS}
    assert first_cell(replace(build.unknown("untested", "no image"), signals=none)).strip == ()


# ---------------------------------------------------------------- blind, and so far


def test_what_is_too_coarse_says_how_coarse_the_limit_and_what_helps() -> None:
    """`±? ±0.673 %` next to a name was a riddle, and a limit that could not be checked had a ✓."""
    told = "step time: only ±36 % would have shown (limit 10 %)"
    assert signal_words.blindness("step_time", build.BLIND) == told
    assert signal_words.sentence("step_time", build.BLIND) == f"{told}; {build.BLIND.why}"
    judged = replace(build.BLIND, why="", remedy="more launches")
    assert signal_words.sentence("step_time", judged) == f"{told}; more launches"
    assert signal_words.whole_reason("step_time", judged) == "only ±36 % would have shown; more launches"
    result = one_row(build.seen(build.flat(), step_time=build.BLIND))
    assert not_decided.lines(result) == [
        f"{told}: 3.7.7, 3.7.8, 3.7.9 and 3.7.10 (orjson on local, orjson_deleted): {build.BLIND.why}"
    ]
    assert document(result).totals.startswith("4 cells: 4 good in part; ")
    for page in (
        run_report.text(result, width=300),
        markdown.render(result).replace("\\", ""),
        html_page.render(result),
    ):
        assert told in page
        assert "±?" not in page


def test_what_is_blind_for_want_of_launches_is_not_called_coarse() -> None:
    """`only a change of 2 % would have shown, the limit is 10 %` is nonsense."""
    few = SignalVerdict(seen="blind", value=1.43e-5, limit=0.1, visible=0.02, why="too few rounds")
    assert signal_words.sentence("step_time", few) == "step time: cannot be judged (limit 10 %); too few rounds"
    row = version_table.tables(one_row(build.seen(build.flat(), step_time=few, tail=few)))[0].verdicts[0]
    assert "step time 14.3 → 14.3 µs (no change; a change of 2 % would have shown)" in old_to_new.line(row)
    assert "tail" not in old_to_new.line(row)


def test_rows_that_are_blind_for_one_reason_share_a_line() -> None:
    verdicts = {"rfft": 0.352, "fft": 0.5}
    result = build.run(
        [(build.ORJSON, [build.HERE], build.SIGNAL)],
        lambda _version, _lane, of: build.seen(
            build.flat(), step_time=replace(build.BLIND, visible=verdicts[str(of.params[0][1])])
        ),
    )
    (line,) = not_decided.lines(result)
    assert line.startswith(
        "step time: at worst, only ±50 % would have shown (limit 10 %): 3.7.7, 3.7.8, 3.7.9 and 3.7.10 (orjson"
    )
    assert "4 variants" in line


def test_a_line_of_some_cells_does_not_name_every_variant_of_every_version() -> None:
    """`3.7.7 and 3.7.8 (…, 2 variants)` also accused the two cells that had all their launches."""
    early = {("3.7.7", "rfft"), ("3.7.8", "fft")}
    result = build.run(
        [(build.ORJSON, [build.HERE], build.SIGNAL[::2])],
        lambda version, _lane, of: replace(build.flat(), provisional=(version, of.params[0][1]) in early),
    )
    assert not_decided.lines(result)[0].startswith(
        "flat so far: 2 cells of 3.7.7 and 3.7.8 (orjson on local, 2 variants): "
    )
    assert "its verdict" not in not_decided.lines(result)[0], "there are two verdicts"


def test_what_has_too_few_launches_is_good_so_far_and_no_more() -> None:
    result = one_row(replace(build.seen(build.flat()), provisional=True, trials=1))
    cell = next(version_table.tables(result)[0].shown)
    assert (cell.symbol, cell.word, cell.figure) == ("?", "good so far", "1 of 3 launches")
    assert document(result).totals.startswith("4 cells: 4 good so far; ")
    assert not_decided.lines(result)[0].startswith("flat so far: 3.7.7, 3.7.8, 3.7.9 and 3.7.10 (orjson on local")
    for page in (run_report.text(result), markdown.render(result), html_page.render(result)):
        assert "1 of 3 launches" in page
        assert not re.search(r"✓(?! good)", re.sub(r'<span class="key.*', "", page))
    assert {case[0].tag for case in _cases(result)} == {"skipped"}
    assert [row["provisional"] for row in _rows(result)] == ["true"] * 4


def _cases(result: RunResult) -> list[ElementTree.Element]:
    return list(ElementTree.fromstring(junit.render(result).encode()).iter("testcase"))


def _rows(result: RunResult) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(cells_csv.render(result))))


def test_junit_skips_what_is_blind_and_fails_what_is_bad() -> None:
    """A CI server that shows a version as passed although its limit was not checked lets it through."""
    blind = _cases(one_row(build.seen(build.flat(), step_time=build.BLIND)))
    assert {case[0].tag for case in blind} == {"skipped"}
    assert "only ±36 % would have shown (limit 10 %)" in blind[0][0].get("message", "")
    slow = _cases(one_row(build.seen(build.flat(), setup_time=SignalVerdict(seen="bad", value=2.1, limit=0.5))))
    assert {(case[0].tag, case[0].get("type")) for case in slow} == {("failure", "setup_time")}


# ---------------------------------------------------------------- never looked at


def test_what_was_not_looked_at_is_told_once_with_the_reason() -> None:
    assert gaps.not_looked_at(build.signalled()) == [
        "not checked: peak GPU memory and peak of the GPU pool (no GPU), throughput (the scenario has no items); "
        "in multidict_read: results (the scenario returns none)"
    ]
    none = SignalVerdict(seen="none", why="the command's exit code decides")
    only_outcome = build.seen(build.flat(), **{name: none for name in SIGNALS if name != "outcome"})
    assert gaps.not_looked_at(one_row(only_outcome)) == [
        "not checked: memory, other growth, step time and start-up (the command's exit code decides), "
        "results (the scenario returns none)"
    ]
    assert gaps.not_looked_at(one_row(build.flat())) == [], "runs of before there were signals tell nothing of them"


def test_a_pattern_that_no_line_matched_is_named_with_a_line_that_was_printed() -> None:
    """`results (the scenario returns none)` left users guessing which of their patterns was wrong."""
    printed = (("loss", "loss: {}"), ("cost", "cost={}"))
    program = Program(path=Path("train.py"), printed=printed)
    variant = build.variant("train")
    variant = replace(variant, scenario=replace(variant.scenario, script=None, program=program))
    seen = build.seen(build.flat(), **{"metrics.cost": SignalVerdict(seen="good", value=0.5)})
    result = build.run([(build.ORJSON, [build.HERE], [variant])], lambda *_: seen)
    launch = replace(result.cells[0].trials[0], last_step=500, output_head="begin\nstep 0 cost=0.500\n")
    result = replace(result, cells=tuple(replace(cell, trials=(launch,)) for cell in result.cells))
    assert not_decided.lines(result) == [
        "printed: train: no line matched 'loss: {}'; it printed, e.g.: step 0 cost=0.500"
    ]
    silent = replace(launch, output_head="", output_tail="")
    result = replace(result, cells=tuple(replace(cell, trials=(silent,)) for cell in result.cells))
    assert not_decided.lines(result)[0].endswith("; it printed nothing")


# ---------------------------------------------------------------- old → new


def test_each_row_tells_both_ends_the_change_and_what_would_have_shown() -> None:
    (row,) = version_table.tables(build.run([(build.LRN, [build.HERE], [build.LRN_STEP])], _of_lrn))[0].verdicts
    assert old_to_new.line(row) == (
        "1.19.2 → 1.21.1: step time 0.405 → 2.25 ms (5.5×; a change of 8 % would have shown); "
        "peak memory 31.2 → 31.2 MiB (no change; a change of 2 % would have shown); "
        "memory does not grow in 1.19.2 and 1.21.1 (more than 0.017 KiB/step would have shown)"
    )


def _of_lrn(version: str, *_: object) -> CellVerdict:
    return build.seen(build.flat(step_ms=build.LRN_MS[version]))


def test_what_is_bad_between_the_ends_is_told_and_what_is_blind() -> None:
    lines = [old_to_new.line(row) for row in version_table.tables(build.signalled())[0].verdicts]
    assert "setup time 310 → 310 ms, but 2,100 ms in 6.3.0 (no change; a change of 22 % would have shown)" in lines[0]
    assert "memory does not grow in 6.0.5 and 6.6.4, but grows by 7.84 KiB/step in 6.3.1" in lines[0]
    assert "(no change; only a change of 36 % would have shown, the limit is 10 %)" in lines[1]


EARLY_WHY = "RSS grows 7.3 KiB/step (0 to 17.4): too early to distinguish it from a buffer that fills"


def _suspect_in(suspect: str) -> version_table.Row:
    """Return a row in which the growth of one version is not decided, and the others do not grow."""
    early = replace(build.unknown("suspect", EARLY_WHY), trials=1, steps=30, rate_kib_per_step=7.3, rate_ci=(0.0, 17.4))
    signal = SignalVerdict(seen="suspect", value=7.3, ci=(0.0, 17.4), limit=0.5, visible=0.0278, why=EARLY_WHY)
    early = build.seen(early, memory=signal)

    def judge(version: str, *_: object) -> CellVerdict:
        return early if version == suspect else build.seen(build.flat())

    (row,) = version_table.tables(build.run([(build.MULTIDICT, [build.HERE], [build.POP])], judge))[0].verdicts
    return row


def test_a_growth_that_is_not_decided_is_neither_denied_nor_given_a_resolution() -> None:
    """It read "memory does not grow in 6.0.5", where it grows by 0 to 17.4 KiB/step, with "0.017
    would have shown".
    """
    row = _suspect_in("6.0.5")
    told = f"memory may grow by 7.3 (0 to 17.4) KiB/step in 6.0.5 and does not grow in 6.6.4 ({EARLY_WHY})"
    assert told in old_to_new.line(row)
    memory = next(both for both in old_to_new.of(row) if both.name == "memory")
    assert (memory.figures, memory.visible) == ("7.3 (0 to 17.4) KiB/step → none", "")


def test_what_is_suspected_between_the_ends_has_its_version() -> None:
    """After "memory does not grow in 6.0.5 and 6.6.4" stood how much it grows in another version, without its name."""
    assert f"(6.3.0: {EARLY_WHY})" in old_to_new.line(_suspect_in("6.3.0"))


def test_the_interval_of_a_figure_has_its_unit() -> None:
    """It read `1.95 (0 to 4,000) MiB/step`."""
    signal = SignalVerdict(seen="suspect", value=2000.0, ci=(0.0, 4000.0), limit=0.5)
    unsure = replace(build.unknown("suspect", ""), trials=1, rate_kib_per_step=2000.0, rate_ci=(0.0, 4000.0))
    (row,) = version_table.tables(one_row(build.seen(unsure, memory=signal)))[0].verdicts
    memory = next(both for both in old_to_new.of(row) if both.name == "memory")
    assert memory.old == "1.95 (0 to 3.91) MiB/step"


def test_a_value_that_one_version_returned_is_missed_only_in_the_others() -> None:
    """It read "no step returned `extra`" for a row and for the run, although the newest version returned it."""
    why = "no step returned `extra`"

    def judged(*returning: str) -> RunResult:
        def judge(version: str, *_: object) -> CellVerdict:
            lacking = SignalVerdict(seen="blind", why=why)
            extra = SignalVerdict(seen="good", value=1.0) if version in returning else lacking
            return build.seen(build.flat(), **{"metrics.extra": extra})

        return build.run([(build.ORJSON, [build.HERE], [build.DELETED])], judge, verdict="inconclusive")

    def told(result: RunResult) -> str:
        both = old_to_new.of(version_table.tables(result)[0].rows[0])
        return next(one.why for one in both if one.name == "metrics.extra")

    assert told(judged()) == why
    some = judged("3.7.8", "3.7.10")
    assert told(some) == f"in 3.7.7 and 3.7.9, {why}"
    assert f"Nothing bad found, but in 3.7.7 and 3.7.9, {why}." in headline.sentence(some)


def test_a_value_that_no_step_returned_has_one_line_and_one_clause() -> None:
    """A mistyped name gave a line for each set of other values, and a clause for each in the first sentence."""

    def judge(version: str, _lane: object, of: Variant) -> CellVerdict:
        lacking = {
            f"metrics.{name}": SignalVerdict(seen="blind", why=f"no step returned `{name}`") for name in ("typo", "b")
        }
        own = {f"metrics.{of.params[0][1]}": SignalVerdict(seen="good", value=1.0)}
        if version == "3.7.8" and of is build.SIGNAL[0]:
            lacking["metrics.b"] = SignalVerdict(seen="good", value=1.0)
        return build.seen(build.flat(), **lacking, **own)

    result = build.run([(build.ORJSON, [build.HERE], build.SIGNAL[::2])], judge, verdict="inconclusive")
    typo, *others = sorted(not_decided.lines(result), key=lambda line: not line.startswith("typo"))
    assert typo.startswith("typo: cannot be judged: 3.7.7, 3.7.8, 3.7.9 and 3.7.10 (orjson on local, 2 variants): ")
    assert typo.endswith("no step returned `typo`; other values returned: b, fft and rfft")
    assert len(others) == 1
    assert "7 cells of 3.7.7, 3.7.8, 3.7.9 and 3.7.10" in others[0]  # in the order of the series
    assert headline.sentence(result) == (
        "Nothing bad found, but no step returned `typo`; in 7 of 8 cells, no step returned `b`."
    )


def test_a_version_that_has_no_figure_is_no_end() -> None:
    """A crash has no step time: the figures of another version must not appear under its name."""

    def judge(version: str, *_: object) -> CellVerdict:
        return build.crash() if version == "3.7.10" else build.seen(build.flat())

    (row,) = version_table.tables(build.run([(build.ORJSON, [build.HERE], [build.DELETED])], judge))[0].verdicts
    assert old_to_new.line(row).startswith("3.7.7 → 3.7.9: step time 14.3 → 14.3 µs (no change; ")
    nothing = build.run([(build.ORJSON, [build.HERE], [build.DELETED])], lambda *_: build.unknown("untested", "x"))
    assert old_to_new.line(version_table.tables(nothing)[0].rows[0]) == ""


def test_what_was_not_compared_says_so() -> None:
    alone = replace(build.flat(), smallest_visible=None, excluded_kib_per_step=None)
    (row,) = version_table.tables(one_row(alone))[0].verdicts
    assert "step time 14.3 µs in 3.7.7, 14.3 µs in 3.7.10 (not compared)" in old_to_new.line(row), "no arrow"


def test_outcomes_are_not_called_uncompared() -> None:
    ended = {True: build.seen(build.crash(), outcome=SignalVerdict(seen="bad", value=1.0)),
             False: build.seen(build.flat(), outcome=SignalVerdict(seen="good", value=0.0))}  # fmt: skip
    rows = [(build.ORJSON, [build.HERE], [build.DELETED])]
    (row,) = version_table.tables(build.run(rows, lambda version, *_: ended[version == "3.7.10"]))[0].verdicts
    assert old_to_new.line(row).endswith("outcome 0 → 100 % failed")


def beside(result: RunResult, untimed: Iterable[str]) -> RunResult:
    """Return a result in which these versions ran side by side with others, so that they have no step time."""
    cells = tuple(
        replace(
            entry, verdict=replace(entry.verdict, step_ms=None),
            trials=tuple(replace(trial, beside=3) for trial in entry.trials),
        ) if entry.cell.image.version in untimed else entry
        for entry in result.cells
    )  # fmt: skip
    return replace(result, cells=cells)


def test_a_row_says_which_step_times_it_lacks_and_why() -> None:
    """One row had a step time and the next had none, and nothing said that the launches ran side by side."""
    off = SignalVerdict(seen="none", why="the limit is none")
    result = one_row(replace(build.flat(), smallest_visible=None, signals={"step_time": off}))
    (some,) = version_table.tables(beside(result, ["3.7.9", "3.7.10"]))[0].verdicts
    assert (
        "step time 14.3 µs in 3.7.7, 14.3 µs in 3.7.8 (not compared: the limit is none; "
        "not measured in 2 of 4 versions, whose launches ran side by side); "
    ) in old_to_new.line(some)
    alone = beside(result, [image.version for image in build.ORJSON.images])
    (none,) = version_table.tables(alone)[0].verdicts
    assert "step time not measured (the limit is none; the launches ran side by side); " in old_to_new.line(none)
    assert html_page.render(alone).count('<td class="">not measured</td>') == 4


def test_a_legend_explains_what_is_there_and_nothing_else() -> None:
    """It explained `only ±35 %`, which no cell had, and six signs of which one occurred."""
    assert version_table.legend(version_table.tables(build.quiet())) == [
        "✓ good", "figures, in KiB per step: after ≤, the smallest leak that `flat` rules out",
    ]  # fmt: skip
    told = version_table.legend(version_table.tables(build.signalled()))
    assert "only ±36 %: not decided, because only a change as large as that would have shown" in " ".join(told)
    page = html_page.render(build.quiet())
    assert re.findall(r'<span class="key [^"]*">(.*?)</span>', page) == ["good"]


def test_a_ratio_of_one_launch_each_is_told_as_one() -> None:
    """An interrupted sweep reported `+1.7 %` as if it were a result."""
    once = replace(build.flat(), smallest_visible=None, trials=1, provisional=True, compared_step_ms=0.0143)
    (row,) = version_table.tables(one_row(once))[0].verdicts
    told = "step time 14.3 → 14.3 µs (no change; too few launches to distinguish it from noise)"
    assert told in old_to_new.line(row)


def test_the_terminal_tells_both_ends_of_few_rows_and_of_many_where_to_look() -> None:
    assert "old → new" in run_report.text(build.quickstart())
    many = run_report.text(build.large(versions=4, variants=7))
    assert "old → new\n" not in many
    assert "old → new: --wide, and report.html" in many
    for report in (markdown.render(build.large(versions=4, variants=7)), html_page.render(build.large(4, 7))):
        assert report.count("would have shown)") >= 7


def test_wide_tells_every_signal_of_every_row() -> None:
    text = run_report.text(build.signalled(), width=160, wide=True)
    for signal in SIGNALS.values():
        assert signal.kind == "observation" or f" {signal.title} " in text
    assert re.search(r"✗ setup time +310 → 310 ms, but 2,100 ms in 6.3.0 +no change +50 % and 0.5 s +22 %", text)
    assert " - peak GPU memory, peak of the GPU pool: no GPU" in text
    assert "--wide" not in text


@pytest.mark.parametrize("width", [20, 40, 80, 200])
@pytest.mark.parametrize("wide", [True, False])
def test_signals_fit_any_width(width: int, *, wide: bool) -> None:
    lines = run_report.text(build.signalled(), width=width, wide=wide).splitlines()
    assert all(len(line) <= width for line in lines if not line.startswith(("Report: ", "   next: ")))


def test_a_terminal_without_unicode_has_marks_of_ascii() -> None:
    assert "+++?+-" in shown(build.signalled(), encoding="ascii")


# ---------------------------------------------------------------- figures


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("step_time", 0.000647, "0.647 ms"), ("cpu_time", 0.002, "2.00 ms/step"), ("peak_memory", 31949, "31.2 MiB"),
        ("memory", 7.838, "7.84 KiB/step"), ("open_files", 1.0, "1 file/step"), ("zombies", 0.5, "0.5 zombies/step"),
        ("image_size", 3.1e9, "2.89 GiB"), ("output", 120.0, "120 B/step"), ("late_step_time", 1.3, "1.3×"),
        ("outcome", 0.5, "50 % failed"), ("throughput", 1234.5, "1,234 items/s"), ("metrics.loss", 2.3, "2.3"),
        ("metrics.loss", float("nan"), "not finite"), ("step_time", None, ""),
    ],
)  # fmt: skip
def test_figures_have_the_unit_that_suits_them(name: str, value: float | None, text: str) -> None:
    assert signal_words.value_text(name, value) == text


@pytest.mark.parametrize(
    ("name", "limit", "text"),
    [
        ("step_time", 0.1, "10 %"), ("setup_time", 0.5, "50 % and 0.5 s"), ("peak_memory", 0.1, "10 % and 1 MiB"),
        ("memory", 0.5, "0.5 KiB/step"), ("open_files", 0.01, "0.01 files/step"), ("metrics.checksum", 0.0, "equal"),
        ("metrics.loss", 0.01, "1 %"), ("outcome", None, ""),
        ("image_size", 0.5, "50 % and 50 MiB"),
    ],
)  # fmt: skip
def test_limits_in_words(name: str, limit: float | None, text: str) -> None:
    assert signal_words.limit_text(name, limit) == text


def test_every_signal_has_words_for_each_of_its_figures() -> None:
    """A new entry of the table needs no change here."""
    for name, signal in SIGNALS.items():
        assert signal_words.value_text(name, 1.5)
        assert signal_words.visible_text(name, 0.3)
        assert Limits().of(name) is None or signal_words.limit_text(name, signal.limit)


# ---------------------------------------------------------------- for programs


def test_the_schema_knows_every_signal() -> None:
    schema = json.loads((files("harness") / "data" / "summary.schema.json").read_text())
    kinds = ("finding", "attribution")
    assert all(schema["$defs"][kind]["properties"]["metric"] == {"$ref": "#/$defs/metric"} for kind in kinds)
    assert schema["$defs"]["metric"]["oneOf"][0]["enum"] == list(SIGNALS)


def test_a_cell_of_the_summary_has_its_signals_with_their_units() -> None:
    cell = json.loads(summary_json.encoded(build.signalled()))["cells"][0]
    assert cell["provisional"] is False
    assert cell["signals"]["tail"] | {"value": None, "ci": None} == {
        "seen": "good", "value": None, "ci": None, "limit": 1.0, "visible": 0.4, "why": "", "unit": "s",
    }  # fmt: skip
    row = one_row(build.seen(build.flat(), step_time=build.BLIND))
    blind = json.loads(summary_json.encoded(row))["cells"][0]["signals"]
    assert (blind["step_time"]["seen"], blind["step_time"]["visible"]) == ("blind", 0.352)


@pytest.mark.parametrize("result", [build.signalled(), build.varied(), one_row(build.flat())])
def test_the_summary_has_a_line_for_each_cell(result: RunResult) -> None:
    assert len(summary_json.encoded(result).splitlines()) >= len(result.cells)


def test_the_csv_has_a_figure_and_what_was_seen_of_each_signal() -> None:
    row = _rows(build.signalled())[3]
    assert (row["setup_time"], row["setup_time_seen"]) == ("2.1", "bad")
    assert (row["gpu_peak"], row["gpu_peak_seen"]) == ("", "none")
    assert float(row["step_time"]) == pytest.approx(0.0143e-3)
    assert {"metrics.loss", "metrics.loss_seen"} <= row.keys()
    old = _rows(one_row(build.flat()))[0]
    assert (old["step_time_seen"], old["setup_time"], old["setup_time_seen"]) == ("", "", "")


# ---------------------------------------------------------------- the page


def test_the_page_tells_the_marks_to_who_cannot_see_them() -> None:
    page = html_page.render(build.signalled())
    assert 'aria-label="outcome good, memory good, other growth good, step time not decided, ' in page
    assert '<i class="unsure" title="step time: not decided">?</i>' in page
    assert page.count('<span class="strip"') == 20
    assert "All signals, old → new" in page
    assert 'class="strip"' not in html_page.render(build.quickstart())


def test_names_of_metrics_are_text() -> None:
    evil = build.seen(build.flat(), **{"metrics.<script>\x1b[2J": SignalVerdict(seen="bad", value=1.0)})
    for page in (html_page.render(one_row(evil)), markdown.render(one_row(evil)), run_report.text(one_row(evil))):
        assert "\x1b" not in page
    assert "<script>" not in html_page.render(one_row(evil))


@pytest.mark.parametrize("visible", [0.2504, 0.251, 0.2999, 0.0101, 1.004, 8.31])
def test_a_change_as_large_as_the_figure_that_is_named_would_have_shown(visible: float) -> None:
    """`only ±25 % would have shown (limit 25 %)`: the figure was rounded down, and was not true."""
    figure = signal_words.visible_text("cpu_time", visible)
    number, _, unit = figure.partition(" ")
    told = float(number) - 1 if unit == "times" else float(number) / 100
    assert visible <= told <= visible * 1.1


def test_a_change_beyond_all_of_a_value_is_told_in_times() -> None:
    """It read `only ±890 % would have shown`, but nothing falls by 890 %."""
    told = signal_words.blindness("step_time", replace(build.BLIND, visible=8.9))
    assert told == "step time: only a change to 9.9 times would have shown (limit 10 %)"
