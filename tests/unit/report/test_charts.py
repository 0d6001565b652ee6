"""The charts: one definition for the page and for files, and the script that the page contains."""

from __future__ import annotations

import json
import math
import os
import re
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.model import CellResult, CellVerdict, Effect, Setting, SignalVerdict
from harness.model.answers import Issue
from harness.report import html_page, version_table
from harness.report.blocks import Charts, Drawing, ReportSection, TextTable
from harness.report.charts import library, traces
from harness.report.charts import vega_charts as charts
from harness.report.issue import bug_report, reproduction
from harness.report.terminal import compare_output
from tests.players import build
from tests.players.pages import HOSTILE, poisoned
from tests.players.trials import facts_of, trace_of, trial_of


def first_history(result: Any) -> ReportSection:
    anchors = {entry.cell.id: str(number) for number, entry in enumerate(result.cells)}
    return next(html_page.histories(version_table.tables(result), result, anchors, html_page.shown_in_full(result)))


def drawings_of(section: ReportSection) -> tuple[Drawing, ...]:
    return tuple(drawing for block in section.blocks if isinstance(block, Charts) for drawing in block.drawn)


def parts_of(section: ReportSection, name: str) -> list[ReportSection]:
    return [block for block in section.blocks if isinstance(block, ReportSection) and block.name == name]


def tables_of(section: ReportSection) -> list[TextTable]:
    return [block for block in section.blocks if isinstance(block, TextTable)]


def test_a_history_is_drawn_with_its_changes_and_what_is_ruled_out() -> None:
    rate, _step, peak = drawings_of(first_history(build.quickstart()))
    assert [one["version"] for one in rate.rows["changes"]] == ["6.3.0", "6.3.2", "6.5.0", "6.6.4"]
    points = rate.rows["points"]
    assert (points[3]["value"], points[3]["tone"], points[0]["excluded"]) == (7.838, "bad", 0.017)
    assert peak.rows["changes"] == []
    assert {point["tone"] for point in peak.rows["points"]} == {"good"}


def test_the_latencies_of_a_server_are_drawn_up_to_where_enough_requests_are_slower() -> None:
    """A percentile beyond the last few requests would show nothing but chance."""
    result = build.quickstart()

    def served(number: int, entry: CellResult) -> CellResult:
        latencies = np.tile(np.linspace(0.001, 0.002, 100), 10) * (1 + number)
        trials = [trial_of(each, steps=1000, facts={"step_kind": "request"}) for each in range(2)]
        return replace(entry, trials=tuple(replace(each, trace=trace_of(step_s=latencies)) for each in trials))

    cells = tuple(served(number, entry) for number, entry in enumerate(result.cells))
    *_, drawn = drawings_of(first_history(replace(result, cells=cells)))
    assert drawn.chart == "latency"
    assert len(drawn.rows["lines"]) <= 8
    first = drawn.rows["lines"][0]
    assert dict(zip(first["share"], first["value"], strict=True))["50 %"] == pytest.approx(1.5, rel=0.05)
    assert first["share"][-1] == "99.5 %"
    assert "latency" not in [each.chart for each in drawings_of(first_history(result))]


def test_a_version_without_a_figure_has_its_verdict_in_its_place() -> None:
    (crashed,) = (one for one in build.varied().cells if one.verdict.verdict == "crash")
    result = replace(
        build.varied(), cells=tuple(one for one in build.varied().cells if one.cell.image.series == "orjson")
    )
    points = drawings_of(first_history(result))[0].rows["points"]
    assert [(point["version"], point["text"]) for point in points if point["value"] is None] == [
        (crashed.cell.image.version, "crash SIGSEGV")
    ]


def test_a_figure_that_was_not_measured_has_no_verdict_of_another_figure_in_its_place() -> None:
    """The chart of the step time showed `leak 7.84 KiB/step`, in red, and other words of the leak."""
    result = build.quickstart()
    cells = tuple(
        replace(entry, verdict=build.told(entry.verdict, "step_time", value=None)) if number else entry
        for number, entry in enumerate(result.cells)
    )
    _, step, _ = drawings_of(first_history(replace(result, cells=cells)))
    assert step.rows["changes"] == []
    assert {(point["text"], point["tone"]) for point in step.rows["points"][1:]} == {("not measured", "unsure")}


def test_a_number_that_is_nan_is_not_called_unmeasured() -> None:
    """The chart of the loss read `not measured` at the version whose loss was NaN."""
    result = build.quickstart()
    fine, nan = SignalVerdict(seen="good", value=1.0), SignalVerdict(seen="bad", value=math.nan)
    signals = [{"metrics.loss": nan if number else fine} for number in range(len(result.cells))]
    cells = tuple(
        replace(entry, verdict=replace(entry.verdict, signals=some))
        for entry, some in zip(result.cells, signals, strict=True)
    )
    (loss,) = (one for one in drawings_of(first_history(replace(result, cells=cells))) if one.title == "loss")
    assert [(point["value"], point["text"]) for point in loss.rows["points"][1:3]] == [(None, "NaN or >1e30")] * 2


def test_words_at_changes_neither_overlap_nor_leave_the_chart() -> None:
    """At 1200 px, `good again` ended outside its chart."""
    rate, *_ = drawings_of(first_history(build.quickstart()))
    assert [(one["version"], one["word"], one["side"]) for one in rate.rows["changes"]] == [
        ("6.3.0", "first bad", "right"), ("6.3.2", "good again", "right"),
        ("6.5.0", "first bad", "right"), ("6.6.4", "good again", "left"),
    ]  # fmt: skip
    near = [("1.0", "flat"), ("1.1", "leak"), ("1.2", "flat"), ("1.3", "leak"), ("1.4", "flat"), *(
        (f"1.{number}", "flat") for number in range(5, 12)
    )]  # fmt: skip
    known = dict(near)
    of = build.series("wheel", known)
    found = [
        build.finding(of, build.HERE, build.POP, before=before, after=after, kind=kind)
        for before, after, kind in (
            ("1.0", "1.1", "first_bad"), ("1.1", "1.2", "first_fixed"),
            ("1.2", "1.3", "first_bad"), ("1.3", "1.4", "first_fixed"),
        )
    ]  # fmt: skip
    result = build.run(
        [(of, [build.HERE], [build.POP])],
        lambda version, *_: build.leak(7.8) if known[version] == "leak" else build.flat(),
        findings=found,
    )
    words = [one["word"] for one in drawings_of(first_history(result))[0].rows["changes"]]
    assert words == ["first bad", "good again", "", ""]


@pytest.mark.parametrize("number", range(2))
def test_the_same_definition_makes_files(number: int) -> None:
    history = first_history(build.quickstart())
    drawing = (drawings_of(history)[0], drawings_of(parts_of(history, "cell")[0])[0])[number]
    picture = charts.svg(drawing)
    assert picture.startswith("<svg")
    assert drawing.title in picture
    assert charts.png(drawing).startswith(b"\x89PNG")


@pytest.mark.parametrize("values", [(100.0, 200.0), (99.97, 200.04), (80.0, 80.0), (0.0, 5.0)])
def test_the_outermost_points_are_drawn_whole(values: tuple[float, float]) -> None:
    """A rounded scale ends at the highest value: half of its point was outside the plot."""
    points = [
        {"version": f"{place}", "value": value, "low": value, "high": value, "tone": "good", "text": "flat",
         "excluded": None, "told": ""}
        for place, value in enumerate(values)
    ]  # fmt: skip
    rows: dict[str, Any] = {"points": points, "changes": []}
    picture = charts.svg(Drawing(chart="history", title="peak memory, MiB", description="x", rows=rows))
    heights = [float(y) for y in re.findall(r'roledescription="point"[^>]*translate\([^,]+,([^)]+)\)', picture)]
    assert len(heights) == 2
    assert all(5 <= y <= 145 for y in heights)


def test_traces_of_all_trials_with_their_looks() -> None:
    entry = build.quickstart().cells[3]
    full = replace(entry, trials=tuple(replace(trial, trace=build.full_trace()) for trial in entry.trials))
    drawn = {one.title: one for one in traces.drawings(full, name="x", points=50)}
    assert list(drawn) == ["resident memory, MiB", "C heap in use, MiB", "Python objects, thousands", "step time, ms"]
    memory = drawn["resident memory, MiB"].rows
    assert [line["trial"] for line in memory["lines"]] == [1, 2, 3]
    assert memory["looks"][0]["step"] == [500, 1000, 2000, 4000]
    assert {len(line["step"]) for line in memory["lines"]} == {50}
    assert len(traces.look_rows(full.trials)) == 3 * 4


def test_what_measuring_cost_is_told() -> None:
    """A reader who doubts a step time first asks what the measuring cost: the most of any launch."""
    result = build.quickstart()
    bad = result.cells[3]
    trials = tuple(replace(one, probe_cost=cost) for one, cost in zip(bad.trials, (0.002, 0.0041, None), strict=True))
    cells = tuple(replace(bad, trials=trials) if one is bad else one for one in result.cells)
    pages = parts_of(first_history(replace(result, cells=cells)), "cell")
    told = [dict(tables_of(page)[0].rows).get("measurement overhead") for page in pages]
    assert told.count("0.41 % of the steps' time") == 1
    assert dict(tables_of(pages[0])[0].rows).keys() >= {"why"}


def test_what_was_never_sampled_is_not_drawn() -> None:
    trial = build.quickstart().cells[0].trials[0]
    assert trial.trace is not None
    silent = replace(trial, trace=replace(trial.trace, columns={"rss_kib": np.full(trial.trace.step.size, np.nan)}))
    entry = replace(build.quickstart().cells[0], trials=(silent,))
    assert traces.drawings(entry, name="x", points=50) == []


def test_figures_that_are_not_finite_are_not_drawn() -> None:
    """JSON has no notation for them: one of them would leave the whole page without charts."""
    result = build.quickstart()
    odd = build.told(result.cells[0].verdict, "memory", value=float("nan"), ci=(float("-inf"), 1.0))
    page = html_page.render(
        replace(result, cells=(replace(result.cells[0], verdict=odd), *result.cells[1:])), library="0;"
    )
    assert embedded(page)["drawings"][0]["datasets"]["points"][0]["value"] is None


def test_an_issue_shows_the_change_as_the_page_does() -> None:
    """Versions with slower steps are bad there, although their memory is flat."""
    result = build.varied()
    cells = tuple(one for one in result.cells if one.cell.image.series == "onnxruntime")
    (slower,) = [one for one in result.findings if one.metric == "step_time"]
    issue = Issue(finding=slower, history=cells, bad=cells[3], good=cells[2], trial=None, recipe=None, difference=None)
    drawn = bug_report.pictures(issue)
    page = next(one for one in drawings_of(first_history(replace(result, cells=cells))) if one.title == "step time, ms")
    assert drawn["versions"].rows == page.rows
    assert [point["tone"] for point in page.rows["points"]] == ["good"] * 3 + ["bad"] * 2
    assert [one["version"] for one in page.rows["changes"]] == ["1.21.0"]


def test_a_version_that_was_not_compared_is_drawn_neither_bad_nor_good() -> None:
    """A newest version of another day was red because the version before it is slower; nothing was compared with it. In
    the page's chart a leak made it red.
    """
    apart = SignalVerdict(seen="blind", value=2.1, limit=0.5, why="it was measured on another day")
    slow = SignalVerdict(seen="bad", value=2.1, ci=(2.0, 2.2), limit=0.5, visible=0.22)

    def judge(version: str, *_: object) -> CellVerdict:
        setup = {"3.7.9": {"setup_time": slow}, "3.7.10": {"setup_time": apart}}.get(version, {})
        return build.seen(build.leak(7.8) if version == "3.7.10" else build.flat(), **setup)

    slower = build.finding(
        build.ORJSON, build.HERE, build.DELETED, before="3.7.8", after="3.7.9", metric="setup_time", verdict="slower",
        effect=Effect(value=6.77, unit="ratio", ci=(6.1, 7.2)), p=0.0002,
    )  # fmt: skip
    place = [(build.ORJSON, [build.HERE], [build.DELETED])]
    for findings in ([slower], []):
        history = first_history(build.run(place, judge, findings=findings))
        drawing = next(one for one in drawings_of(history) if one.title == "setup time, s")
        assert drawing.rows["points"][-1]["tone"] == "unsure"


def test_a_version_is_bad_only_in_the_charts_of_what_is_bad() -> None:
    """A version that left files open was red in the chart of its memory, which was flat."""
    drawings = {one.title: one.rows for one in drawings_of(first_history(build.signalled()))}
    files, memory = drawings["open files, files/step"], drawings["growth, KiB/step (grey: more is ruled out)"]
    assert [point["version"] for point in files["points"] if point["tone"] == "bad"] == ["6.2.0"]
    assert [point["version"] for point in memory["points"] if point["tone"] == "bad"] == ["6.3.1"]
    assert [change["version"] for change in files["changes"]] == ["6.2.0"]
    assert [point["version"] for point in memory["points"] if point["tone"] == "unsure"] == ["6.3.2"], "so far"


def test_a_frontier_names_every_setting() -> None:
    """The page does not contain what it never draws."""
    settings = [Setting(name=name, peak_mib=peak, items_a_s=speed, on_frontier=best)
                for name, peak, speed, best in (("batch=1", 90, 10, True), ("<b>", 200, 8, False))]  # fmt: skip
    picture = compare_output.frontier_svg(settings)
    assert picture.startswith("<svg")
    assert "batch=1" in picture
    assert "&lt;b&gt;" in picture
    assert set(embedded(html_page.render(build.quiet(), library="0;"))["definitions"]) == {
        "history",
        "trace",
        "latency",
    }


def test_launches_that_failed_are_drawn_where_there_were_any() -> None:
    cells = tuple(one for one in build.varied().cells if one.cell.image.series == "orjson")
    failed = next(
        one
        for one in drawings_of(first_history(replace(build.varied(), cells=cells)))
        if one.title.startswith("launches")
    )
    assert [point["value"] for point in failed.rows["points"]] == [0, 0, 100, 0]


# ---------------------------------------------------------------- in the page


def embedded(page: str) -> dict[str, Any]:
    (text,) = re.findall(r'<script type="application/json" id="charts">(.*?)</script>', page)
    found: dict[str, Any] = json.loads(text)
    return found


@pytest.mark.parametrize("text", [*HOSTILE, "</script><script>alert(1)</script>"])
def test_no_name_ends_the_data_of_the_charts(text: str) -> None:
    page = html_page.render(poisoned(text), library="0;")
    assert page.count("<script") == 3
    data = json.dumps(embedded(page), ensure_ascii=False)
    assert not {"\x1b", "\u202e", "\x00"} & set(data)


def test_the_policy_names_each_script_and_no_other() -> None:
    page = html_page.render(build.quiet(), library="0;</script>")
    assert len(re.findall(r"'sha256-[\w+/=]{44}'", page)) == 2
    assert "0;<\\/script>" in page
    assert "script-src" not in html_page.render(build.quiet())


def test_without_the_library_there_is_no_script() -> None:
    assert not re.search(r"<script|data-chart", html_page.render(build.varied()))


# ---------------------------------------------------------------- the library


def test_the_library_is_packed_once(tmp_path: Path) -> None:
    environ = {"HARNESS_CACHE": str(tmp_path)}
    (kept,) = [tmp_path / f"charts-{library.version('vl-convert-python')}.js"]
    kept.write_text("kept")
    kept.chmod(0o644)
    assert library.chart_library(environ, pytest.fail) == "kept"


@pytest.mark.parametrize("kind", ["writable", "link", "pipe", "large", "foreign"])
def test_a_script_that_others_can_write_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """In a cache of several users, each could put a script into the reports of the others."""
    monkeypatch.setattr(library, "_packed", lambda: "packed")
    kept, other = tmp_path / f"charts-{library.version('vl-convert-python')}.js", tmp_path / "other.js"
    other.write_text("theirs")
    if kind == "link":
        kept.symlink_to(other)
    elif kind == "pipe":
        os.mkfifo(kept)
    else:
        kept.write_text("theirs")
        kept.chmod(0o666 if kind == "writable" else 0o644)
    if kind == "large":
        monkeypatch.setattr(library, "MOST_BYTES", 5)
    if kind == "foreign" and os.geteuid() == 0:
        os.chown(kept, 12345, 12345)
    elif kind == "foreign":
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert library.chart_library({"HARNESS_CACHE": str(tmp_path)}, pytest.fail) == "packed"
    assert other.read_text() == "theirs"
    assert kept.read_text() == "packed", "it took the place of the other"


def test_a_cache_that_is_full_keeps_no_part_of_it(tmp_path: Path) -> None:
    (tmp_path / "charts.js").mkdir()
    with pytest.raises(OSError, match="directory"):
        library._keep(tmp_path / "charts.js", "script")
    assert [path.name for path in tmp_path.iterdir()] == ["charts.js"]


def test_a_report_without_charts_is_better_than_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho no vl_convert here >&2\nexit 1\n")
    broken.chmod(broken.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setattr(library.sys, "executable", str(broken))
    told: list[str] = []
    assert library.chart_library({"HARNESS_CACHE": str(tmp_path)}, told.append) == ""
    assert told == [
        "report.html has no charts: vl-convert cannot bundle the chart library: no vl_convert here; "
        "reinstall vl-convert"
    ]


# ---------------------------------------------------------------- what differs, and how to do it again


def test_the_page_tells_what_differs_between_the_sides_of_a_change() -> None:
    """As in `harness diff`, a library is one thing in two versions, and names with escapes are shown as text."""
    told = {
        "6.2.0": {"python": "3.8.10", "packages": {"numpy": "1.18.5", "six": "1"}, "libraries": ["libcufft.so.10"]},
        "6.3.0": {"python": "3.8.10", "packages": {"numpy": "1.19.5"}, "libraries": ["libcufft.so.11"],
                  "environment": {"TF_X": "\x1b[31m1"}},
    }  # fmt: skip
    result = build.quickstart()
    cells = tuple(
        replace(one, trials=(replace(one.trials[0], facts=facts_of(told.get(one.cell.image.version, {}))),))
        for one in result.cells
    )
    apart, *others = parts_of(first_history(replace(result, cells=cells)), "apart")
    assert set(tables_of(apart)[0].rows) == {
        ("other packages", "numpy", "1.18.5", "1.19.5"),
        ("other packages", "six", "1", "-"),
        ("loaded libraries", "libcufft.so", "10", "11"),
    }
    assert "the same on both sides (number of facts): Python (1)" in apart.blocks
    assert any(str(block).startswith("not known: environment: ") for block in apart.blocks)
    assert others
    assert not any(map(tables_of, others))


def test_a_command_touches_nothing_of_a_hostile_name() -> None:
    result = build.run([(build.series("s x", ["1"]), [build.HERE], [build.variant("v", op="$(touch x)", on=True)])],
                       lambda *_: build.flat())  # fmt: skip
    assert reproduction.of_history(result.cells[0], result) == (
        "harness sweep matrix.yaml --fresh --series 's x' --host local --only 'v op=$(touch x) on=true'"
    )
    repro = reproduction.of_cell(result.cells[0], result)
    assert re.fullmatch(r"harness repro reports/quickstart/20250301T120000Z-1a2b [\w.-]+", repro)


def test_a_drawing_lies_over_its_definition() -> None:
    drawing = Drawing(chart="trace", title="t", description="d", rows={"lines": [], "looks": []})
    definition = charts.definitions(charts.PAGE)["trace"] | drawing.fill
    assert (definition["title"], definition["datasets"]) == ("t", {"lines": [], "looks": []})
    assert "var(--t1)" in json.dumps(definition)
    assert "var(" not in json.dumps(charts.definitions(charts.PAPER))
