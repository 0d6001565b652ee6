"""What cells show of their signals. A reader must be able to rely on ✓: what was not measured is never called good."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.cli import results
from harness.model import BAD, GROUPS, SIGNALS, CellVerdict, Effect, Limits, RunResult, SignalVerdict
from harness.report import html_page, version_table
from harness.report.document import document
from harness.report.exports import cell_table, junit, markdown, summary_json
from harness.report.terminal import run_report
from harness.report.text import headline, not_decided, signal_words
from tests.players import build

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
        "outcome bad, memory good, other growth bad, step time not decided or blind, start-up bad, results not checked"
    )
    assert len(signal_words.GROUP_NAMES) == len(GROUPS) == len(strip)
    assert signal_words.strip(build.flat()) == ()


def test_a_group_is_not_good_by_a_lesser_signal_alone() -> None:
    """After a crash following the last step, memory was not judged, but had ✓ because its peak was good."""
    good, none = SignalVerdict(seen="good"), SignalVerdict(seen="none")
    signals = {
        "outcome": none,
        "memory": none,
        "peak_memory": good,
        "step_time": none,
        "tail": good,
        "setup_time": good,
    }
    assert signal_words.marks(signal_words.strip(replace(build.flat(), signals=signals))) == "····✓·"
    signals |= {"peak_memory": SignalVerdict(seen="bad"), "tail": build.BLIND}
    assert signal_words.marks(signal_words.strip(replace(build.flat(), signals=signals))) == "·✗·?✓·"


seen = st.sampled_from(["good", "bad", "suspect", "blind", "none"])
some_signals = st.dictionaries(
    st.sampled_from([*SIGNALS, "metrics.loss"]), st.builds(SignalVerdict, seen=seen), max_size=8
)


@given(known=some_signals, provisional=st.booleans(), own=st.sampled_from(["flat", "plateau", "suspect", "leak"]))
def test_no_cell_is_good_that_has_a_doubt(known: dict[str, SignalVerdict], own: Any, *, provisional: bool) -> None:
    verdict = replace(
        build.flat(), verdicts=(own,), signals={"outcome": SignalVerdict(seen="none"), **known}, provisional=provisional
    )
    open_ = {one.seen for one in known.values()} & {"bad", "suspect", "blind"}
    tone, marks = verdict.state, signal_words.marks(signal_words.strip(verdict))
    assert (tone == "good") == (not open_ and not provisional and own in ("flat", "plateau"))
    assert (tone == "bad") == (own in BAD or "bad" in open_)
    assert not (provisional and "✓" in marks)
    assert ("✗" in marks) == ("bad" in open_)
    assert all(signal_words.cell_words(verdict, least=3)[0:1])


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
        ("step_time", build.BLIND, "step time", "unclear <36 %"),
        ("step_time", replace(build.BLIND, visible=2e7), "step time", "unclear <10 times"),
        ("step_time", replace(build.BLIND, visible=None), "step time", "cannot be judged"),
        ("tail", replace(build.BLIND, visible=3.1), "tail", "unclear <4.1 times"),
        ("open_files", SignalVerdict(seen="blind", visible=0.3), "open files", "unclear <0.3 files/step"),
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
    assert ("NaN or >1e30", "in loss") in words_of
    growing = next(one.verdict for one in build.signalled().cells if one.verdict.verdict == "growth")
    assert signal_words.cell_text(growing) == "open files 1 file/step"
    both = build.told(replace(growing, verdicts=("leak", "growth")), "memory", value=1.11)
    assert signal_words.word_and_figure(both) == ("leak", "1.11, open files"), "1.11 KiB/step are no files"
    assert signal_words.cell_text(both) == "leak 1.11 KiB/step, open files"


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
    verdicts, medians = version_table.tables(result)[0].lines
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
    assert [cell.symbol for cell in version_table.tables(result)[0].lines[1].cells if cell] == ["?", "?", "✓", "▼", "✗"]


def test_a_drift_has_no_first_bad_version() -> None:
    drift = build.finding(build.LRN, build.HERE, build.LRN_STEP, before="1.19.2", after="1.21.1", kind="drift",
                          metric="step_time", verdict="slower")  # fmt: skip
    result = build.run([(build.LRN, [build.HERE], [build.LRN_STEP])], _of_lrn, findings=[drift])
    marks = [cell.symbol for row in version_table.tables(result)[0].lines for cell in row.cells if cell]
    assert marks == ["✓"] * 9 + ["✗"]


def test_no_version_before_a_drift_is_bad_because_a_later_one_is_good_again() -> None:
    """scipy's peak rose from 1.13.1 to 1.15.0 and fell in 1.16.0, and the oldest version had a cross."""
    series = build.LRN
    drift, fixed = (
        build.finding(series, build.HERE, build.LRN_STEP, before=before, after=after, kind=kind, metric="step_time",
                      verdict="slower")
        for kind, before, after in (("drift", "1.19.2", "1.21.0"), ("first_fixed", "1.21.0", "1.21.1"))
    )  # fmt: skip
    result = build.run([(series, [build.HERE], [build.LRN_STEP])], _of_lrn, findings=[drift, fixed])
    cells = version_table.tables(result)[0].lines[1].cells
    assert [cell.symbol for cell in cells if cell] == ["✓", "✓", "✓", "✗", "▲"]


def test_an_amount_by_which_a_figure_falls_has_a_minus() -> None:
    """The time to end fell from 1,188 to 72 ms, and the table told it as `+1.12 s`."""
    changes = [
        build.finding(build.LRN, build.HERE, build.LRN_STEP, before=before, after=after, kind=kind, metric="step_time",
                      verdict="slower", effect=Effect(value=1.12, unit="s"))
        for kind, before, after in (("first_bad", "1.19.2", "1.20.0"), ("first_fixed", "1.20.0", "1.20.1"))
    ]  # fmt: skip
    result = build.run([(build.LRN, [build.HERE], [build.LRN_STEP])], _of_lrn, findings=changes)
    cells = version_table.tables(result)[0].lines[1].cells
    assert [cell.figure for cell in cells if cell and cell.figure] == ["+1.12 s", "-1.12 s"]


def test_what_never_ran_has_no_strip() -> None:
    none = {name: SignalVerdict(seen="none") for name in SIGNALS}
    assert first_cell(replace(build.unknown("untested", "no image"), signals=none)).strip == ()


# ---------------------------------------------------------------- blind, and so far


def test_both_lines_count_the_same_cells_as_undecided() -> None:
    """One line had "1 partly undecided", and another one "Not decided in 3 cells": two of them were also worse."""
    bad = {"run_time": SignalVerdict(seen="bad")}

    def judge(version: str, *_: object) -> CellVerdict:
        return build.seen(build.flat(), step_time=build.BLIND, **({} if version == "3.7.7" else bad))

    result = build.run([(build.ORJSON, [build.HERE], [build.DELETED])], judge, verdict="ok")
    assert document(result).totals.startswith("4 cells: 1 partly undecided, 3 worse than before; ")
    assert not_decided.gist(result).startswith("Not decided in 1 cell and 3 cells worse than before: step time")
    worse = replace(result, cells=result.cells[1:])
    assert not_decided.gist(worse).startswith("Not decided in 3 cells worse than before: step time")


@pytest.mark.parametrize(("why", "told"), [("noisy\x1b[2J", "4 inconclusive): noisy."), ("", "4 inconclusive).")])
def test_the_headline_has_the_reason_that_all_undecided_cells_share(why: str, told: str) -> None:
    result = replace(one_row(build.unknown("inconclusive", why)), verdict="inconclusive")
    assert told in headline.sentence(result)


def test_one_line_says_what_kept_all_undecided_cells_from_being_measured() -> None:
    """Data that were changed during a sweep: `Not decided in 2 cells: inconclusive`, without a reason."""
    result = one_row(build.unknown("inconclusive", "so far: exit 0 in 1 of 1 launch"))
    cells = [replace(entry, problem="/data was changed during the sweep") for entry in result.cells]
    told = not_decided.gist(replace(result, cells=cells))
    assert told.startswith("Not decided in 4 cells: inconclusive: /data was changed during the sweep")
    foreign = one_row(build.unknown("incompatible", "the image is for arm64"))
    assert not_decided.gist(foreign).startswith("Not decided in 4 cells: incompatible: the image is for arm64")


def test_what_has_too_few_launches_is_good_so_far_and_no_more() -> None:
    result = one_row(replace(build.seen(build.flat()), provisional=True, trials=1))
    cell = next(version_table.tables(result)[0].shown)
    assert (cell.symbol, cell.word, cell.figure) == ("?", "good so far", "1 of 3 launches")
    assert document(result).totals.startswith("4 cells: 4 good so far; ")
    assert not_decided.lines(result)[0].startswith("flat so far: 3.7.7, 3.7.8, 3.7.9 and 3.7.10 (orjson on local")
    for page in (run_report.text(result, wide=True), markdown.render(result), html_page.render(result)):
        assert "1 of 3 launches" in page
        assert not re.search(r"✓(?! good)", re.sub(r'<span class="key.*', "", page))
    assert {case[0].tag for case in _cases(result)} == {"skipped"}
    assert [row["provisional"] for row in _rows(result)] == ["true"] * 4


def _cases(result: RunResult) -> list[ElementTree.Element]:
    return list(ElementTree.fromstring(junit.render(result).encode()).iter("testcase"))


def _rows(result: RunResult) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(cell_table.cells_csv(result))))


def test_junit_skips_what_is_blind_and_fails_what_is_bad() -> None:
    """A CI server that shows a version as passed although its limit was not checked lets it through."""
    blind = _cases(one_row(build.seen(build.flat(), step_time=build.BLIND)))
    assert {case[0].tag for case in blind} == {"skipped"}
    assert "a rise of up to 36 % is not ruled out (limit 10 %)" in blind[0][0].get("message", "")
    slow = _cases(one_row(build.seen(build.flat(), setup_time=SignalVerdict(seen="bad", value=2.1, limit=0.5))))
    assert {(case[0].tag, case[0].get("type")) for case in slow} == {("failure", "setup_time")}


# ---------------------------------------------------------------- never looked at


# ---------------------------------------------------------------- old → new


def _of_lrn(version: str, *_: object) -> CellVerdict:
    return build.seen(build.flat(step_ms=build.LRN_MS[version]))


def beside(result: RunResult, untimed: Iterable[str]) -> RunResult:
    """Return a result in which these versions ran side by side with others, so that they have no step time."""
    cells = tuple(
        replace(
            entry, verdict=build.told(entry.verdict, "step_time", value=None, ci=None),
            trials=tuple(replace(trial, conditions=replace(trial.conditions, beside=3)) for trial in entry.trials),
        ) if entry.cell.image.version in untimed else entry
        for entry in result.cells
    )  # fmt: skip
    return replace(result, cells=cells)


def test_a_legend_explains_what_is_there_and_nothing_else() -> None:
    """It explained `unclear <35 %`, which no cell had, and six signs of which one occurred."""
    assert version_table.legend(version_table.tables(build.quiet())) == [
        "✓ good", "figures, in KiB/step: after ≤, the smallest leak that `flat` rules out",
    ]  # fmt: skip
    told = version_table.legend(version_table.tables(build.signalled()))
    assert "unclear <36 %: a change of this size is not ruled out" in " ".join(told)
    page = html_page.render(build.quiet())
    assert re.findall(r'<span class="key [^"]*">(.*?)</span>', page) == ["good"]


def test_wide_tells_every_signal_of_every_row() -> None:
    text = run_report.text(build.signalled(), width=160, wide=True)
    for signal in SIGNALS.values():
        assert signal.kind == "observation" or f"{signal.title} " in text
    assert re.search(r"setup time +✗ bad +310 ms +310 ms +2,100 ms +50 % and 500 ms +500 ms", text), "22 % are 68 ms"
    assert " - peak GPU memory, peak of the GPU pool: no GPU" in text
    assert "--wide" not in text


@pytest.mark.parametrize("width", [20, 40, 80, 200])
@pytest.mark.parametrize("wide", [True, False])
def test_signals_fit_any_width(width: int, *, wide: bool) -> None:
    lines = run_report.text(build.signalled(), width=width, wide=wide).splitlines()
    assert all(len(line) <= width for line in lines if not line.startswith(("Report: ", "Reasons: ", "   next: ")))


# ---------------------------------------------------------------- figures


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("step_time", 0.000647, "0.647 ms"), ("cpu_time", 0.002, "2.00 ms/step"), ("peak_memory", 31949, "31.2 MiB"),
        ("memory", 7.838, "7.84 KiB/step"), ("open_files", 1.0, "1 file/step"), ("zombies", 0.5, "0.5 zombies/step"),
        ("image_size", 3.1e9, "2.89 GiB"), ("output", 120.0, "120 B/step"), ("late_step_time", 1.3, "1.3×"),
        ("outcome", 0.5, "50 % of launches"), ("throughput", 1234.5, "1,234 items/s"), ("metrics.loss", 2.3, "2.3"),
        ("metrics.loss", float("nan"), "NaN or >1e30"), ("step_time", None, ""),
        ("shm", -6.8, "no growth"), ("memory", -0.01, "no growth"), ("metrics.score", -6.8, "-6.8"),
    ],
)  # fmt: skip
def test_figures_have_the_unit_that_suits_them(name: str, value: float | None, text: str) -> None:
    assert signal_words.value_text(name, value) == text


@pytest.mark.parametrize(
    ("name", "limit", "text"),
    [
        ("step_time", 0.1, "10 %"), ("setup_time", 0.5, "50 % and 500 ms"), ("peak_memory", 0.1, "10 % and 1 MiB"),
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


@pytest.mark.parametrize("result", [build.signalled(), build.varied(), one_row(build.flat())])
def test_the_summary_has_a_line_for_each_cell(result: RunResult) -> None:
    assert len(summary_json.encoded(result).splitlines()) >= len(result.cells)


# ---------------------------------------------------------------- the page


def test_the_page_tells_the_marks_to_who_cannot_see_them() -> None:
    page = html_page.render(build.signalled())
    assert 'aria-label="outcome good, memory good, other growth good, step time not decided or blind, ' in page
    assert '<i class="unsure" title="step time: not decided or blind">?</i>' in page
    assert page.count('<span class="strip"') == 20
    assert "All signals</summary>" in page
    assert 'class="strip"' not in html_page.render(build.quickstart())


def test_names_of_metrics_are_text() -> None:
    evil = build.seen(build.flat(), **{"metrics.<script>\x1b[2J": SignalVerdict(seen="bad", value=1.0)})
    for page in (html_page.render(one_row(evil)), markdown.render(one_row(evil)), run_report.text(one_row(evil))):
        assert "\x1b" not in page
    assert "<script>" not in html_page.render(one_row(evil))


@pytest.mark.parametrize("visible", [0.2504, 0.251, 0.2999, 0.0101, 1.004, 8.31])
def test_a_change_as_large_as_the_figure_that_is_named_would_have_shown(visible: float) -> None:
    """`a change below 25 % would not have shown (limit 25 %)`: the figure was rounded down, and was not true."""
    figure = signal_words.visible_text("cpu_time", visible)
    number, _, unit = figure.removeprefix("±").partition(" ")
    told = float(number) - 1 if unit == "times" else float(number) / 100
    assert visible <= told <= visible * 1.1


def test_a_change_beyond_all_of_a_value_is_told_in_times() -> None:
    """It read `a change below 890 % would not have shown`, but nothing falls by 890 %."""
    told = signal_words.state_text("step_time", replace(build.BLIND, visible=8.9))
    assert told == "step time: a rise of up to 9.9 times is not ruled out (limit 10 %)"


def test_all_signals_in_a_pipe_break_no_word(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`harness report latest --wide | less` said `processes/ste` and, on the next line, `p`."""
    monkeypatch.delenv("COLUMNS", raising=False)
    counted = SignalVerdict(seen="good", value=0.0, limit=0.01, visible=0.00133)
    verdict = build.seen(build.flat(), processes=counted, zombies=counted, threads=counted, peak_memory=counted)
    results.print_result(one_row(verdict), wide=True)
    assert capsys.readouterr().out.count("processes/step") == 4


def test_a_change_that_is_not_confirmed_is_named_with_its_sizes() -> None:
    """The headline read `seems bad first: it seems to have changed`, and no word said what."""
    why = "5.73 times that of the version before, in 1 launch"
    old, new = SignalVerdict(seen="good", value=0.004), SignalVerdict(seen="suspect", value=0.007, limit=0.1, why=why)
    before, entry = (one_row(build.seen(build.flat(), step_time=signal)).cells[0] for signal in (old, new))
    assert signal_words.looks_bad_because(entry, before) == f"step time 4.00 → 7.00 ms: {why}"
    assert signal_words.looks_bad_because(entry, None) == f"step time 7.00 ms: {why}"


def test_a_value_that_cannot_be_judged_in_one_version_is_not_good_in_the_table_of_signals() -> None:
    """The table said `good`, `any change` ruled out, of an accuracy that the headline told to have fallen."""
    name = "metrics.accuracy"
    old = SignalVerdict(seen="good", value=0.91, limit=0.01, visible=0.0)
    new = replace(old, seen="none", value=0.8, why="another result", remedy="`metrics: …` judges it")
    entries = [one_row(build.seen(build.flat(), **{name: signal})).cells[0] for signal in (old, new)]
    shown = tuple(version_table.Shown(tone="good", word="", figure="", result=entry) for entry in entries)
    table = version_table.signal_table(version_table.Row(label="s", cells=shown))
    assert table is not None
    (told,) = (row for row in table.rows if row[0] == "accuracy")
    assert (getattr(told[1], "text", ""), told[6]) == ("· not checked", "")
