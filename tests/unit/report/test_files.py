"""The reports that are written into a run's directory: JUnit, Markdown, the page, and its lines."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from rich.console import Console

from harness import amounts
from harness.model import RunResult, Skip, Trace, Trial
from harness.report import html_page
from harness.report.charts import traces
from harness.report.exports import cell_table, junit, markdown
from harness.report.terminal import run_report
from harness.report.text import finding_words, headline
from tests.players import build


@cache
def junit_schema() -> Any:
    import xmlschema  # here, because every process of pytest imports every file

    return xmlschema.XMLSchema(Path(__file__).with_name("junit.xsd"))


def searched() -> RunResult:
    """Return a run whose search did not need two cells."""
    result = build.quickstart()
    skipped = "not needed: between 6.0.5 and 6.3.0, both good"
    cells = tuple(
        replace(cell, verdict=build.unknown("untested", skipped), skipped=Skip(by="search", why=skipped), trials=())
        if cell.cell.image.version in ("6.1.0", "6.2.0")
        else cell
        for cell in result.cells
    )
    return replace(result, cells=cells)


def outcomes(result: RunResult) -> dict[str, str]:
    """Return version -> the tag of its first test's outcome, for the first series."""
    suite = ElementTree.fromstring(junit.render(result).encode())[0]
    return {case.get("name", ""): case[0].tag if len(case) else "passed" for case in suite.iter("testcase")}


@pytest.mark.parametrize("result", [build.quickstart(), build.varied(), build.unreachable(), searched()])
def test_junit_is_what_ci_servers_take(result: RunResult) -> None:
    junit_schema().validate(junit.render(result).encode())


def test_the_schema_of_junit_refuses_what_ci_servers_refuse() -> None:
    assert not junit_schema().is_valid(
        junit.render(build.quickstart()).replace("<testsuites ", "<testsuites skipped='1' ")
    )


def test_junit_counts_add_up() -> None:
    root = ElementTree.fromstring(junit.render(build.varied()).encode())
    for kind, tag in (("failures", "failure"), ("errors", "error"), ("tests", "testcase")):
        assert int(root.get(kind, "")) == len(list(root.iter(tag))) == sum(int(one.get(kind, "")) for one in root)


def test_junit_tells_infrastructure_from_what_could_not_be_asked() -> None:
    assert set(outcomes(build.unreachable()).values()) == {"error"}
    result = build.run(
        [(build.ORJSON, [build.HERE], [build.DELETED])], lambda *_: build.unknown("untested", "import error")
    )
    assert set(outcomes(result).values()) == {"error"}
    failed_setup = tuple(replace(cell, problem="") for cell in result.cells)
    assert set(outcomes(replace(result, cells=failed_setup)).values()) == {"skipped"}
    left_out = tuple(replace(cell, cell=replace(cell.cell, excluded="slow")) for cell in failed_setup)
    assert set(outcomes(replace(result, cells=left_out)).values()) == {"skipped"}


def test_junit_has_an_image_that_cannot_be_had_as_an_error() -> None:
    """The run exits with 3: a CI server that shows the version as skipped would be green."""
    root = ElementTree.fromstring(junit.render(build.varied()).encode())
    errors = [case for case in root.iter("testcase") if case.find("error") is not None]
    assert {case.get("name") for case in errors} == {"21.09-tf1-py3", "21.10-tf1-py3"}
    assert "manifest unknown" in errors[0][0].get("message", "")


def test_junit_tells_what_kept_a_cell_with_a_verdict_from_being_measured_as_planned() -> None:
    result = build.quickstart()
    cells = tuple(replace(cell, problem="local: connection lost") for cell in result.cells)
    root = ElementTree.fromstring(junit.render(replace(result, cells=cells, findings=())).encode())
    told = [case[0].text or case[0].get("message", "") for case in root.iter("testcase")]
    assert len(told) == 10
    assert all("local: connection lost" in text for text in told)
    tags = {case[0].tag for case in root.iter("testcase")}
    assert tags == {"failure", "system-out"}


def test_a_change_is_as_large_in_every_report() -> None:
    """One source for each figure: otherwise a user who reads two reports of a run would doubt both."""
    result = build.varied()
    (slower,) = [one for one in result.findings if one.metric == "step_time"]
    assert slower.effect is not None
    told, size = finding_words.text(slower), amounts.change(slower.effect)
    assert (size, told.count(size)) == ("5.62×", 1)
    assert f"▼ 2.30 ms {size}" in markdown.render(result)
    page = html_page.render(result)
    assert re.search(rf"▼</span> 2.30 ms <span class=\"figure\">{size}</span>", page)
    assert told.replace("<", "&lt;") in page
    assert f'<td class="bad">▼ 2.30 ms {size}</td>' in page
    assert f"{size.removesuffix('×')} times as long" in headline.sentence(result)
    rows = list(csv.DictReader(io.StringIO(cell_table.cells_csv(result))))
    assert [row["image"] for row in rows if told in row["changes"]] == ["1.21.0"]
    assert told in [case.get("name") for case in ElementTree.fromstring(junit.render(result).encode()).iter("testcase")]


@pytest.mark.parametrize("sign", "=+-@＝＋－＠﹦")
def test_no_cell_of_the_csv_is_a_formula(sign: str) -> None:
    """Spreadsheets of some languages treat full-width characters as plain ones."""
    result = build.run(
        [(build.series("s", [f"{sign}HYPERLINK(1)"]), [build.HERE], [build.POP])], lambda *_: build.flat()
    )
    assert next(csv.DictReader(io.StringIO(cell_table.cells_csv(result))))["image"] == f"'{sign}HYPERLINK(1)"


def _on_a_terminal(result: RunResult) -> str:
    console = Console(file=io.StringIO(), width=200, legacy_windows=False)
    run_report.render(result, console, wide=True)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize("render", [_on_a_terminal, html_page.render, markdown.render])
def test_what_a_search_did_not_need_is_no_gap(render: Callable[[RunResult], str]) -> None:
    page = render(searched())
    assert "not needed by the search: 2 of 10 cells (multidict on local, multidict_pop: 6.1.0 and 6.2.0)" in (
        page.replace("\\", "").replace("\n", " ")
    )
    assert page.count("not run") >= 2
    assert "Not measured or not decided" not in page
    assert "4 good, 4 bad, 2 not needed" in page


@pytest.mark.parametrize("render", [_on_a_terminal, html_page.render, markdown.render, junit.render])
def test_every_report_shows_the_warnings(render: Callable[[RunResult], str]) -> None:
    lost = replace(build.unreachable(), warnings=("numpy on local: 2.0.2 ran on another day",))
    page = render(lost)
    assert "numpy on local: 2.0.2 ran on another day" in page
    assert "host old could not be used: ssh" in page


def test_markdown_fits_a_step_summary() -> None:
    """It contains what matters: the sentence and the findings."""
    result = build.large(versions=10, variants=6)
    lanes = [replace(build.HERE, gpu=f"{'GPU ' * 600}{number}") for number in range(36)]
    tables = tuple(
        replace(cell, cell=replace(cell.cell, lane=lane, variant=build.variant(f"{'long' * 100}{cell.cell.id}")))
        for lane in lanes
        for cell in result.cells
    )
    text = markdown.render(replace(result, cells=tables))
    assert 500_000 < len(text.encode()) <= 1 << 20
    assert "further tables would make this report too long" in text
    assert "### Findings" in text


def test_markdown_of_hundreds_of_unmeasured_cells_with_long_names_fits_too() -> None:
    """Each of their lines has names of 4,096 characters: 300 lines were two megabytes."""
    many = [build.variant(f"{number}" + "_" * 4000, size="*" * 4000) for number in range(300)]
    history = build.series("wheel" + "*" * 4000, ["1." + "0" * 4000, "2." + "0" * 4000])
    result = build.run(
        [(history, [build.HERE], many)],
        lambda version, _, of: build.unknown("untested", f"{of.scenario.name[:4]} {version[0]}: no such file"),
        warnings=[f"{number}" + "*" * 4000 for number in range(300)],
        verdict="infrastructure",
    )
    text = markdown.render(result)
    assert len(text.encode()) <= markdown.MOST_BYTES
    for title in ("Not measured or not decided", "Warnings"):
        (of_list,) = re.findall(rf"### {title}\n\n(.*?)\n\n", f"{text}\n", re.DOTALL)
        *shown, rest = of_list.splitlines()
        told = re.fullmatch(r"- and (\d+) more: see report.html", rest)
        assert told
        assert 0 < len(shown) == {"Warnings": 300}.get(title, 600) - int(told[1])


def test_a_page_shows_no_backticks() -> None:
    """The legend showed `flat` with its backticks, which are the markup of another format."""
    result = build.run(
        [(build.MULTIDICT, [build.HERE], [build.POP])],
        lambda *_: build.unknown("untested", "an error: <b>; `docker login` first"),
        warnings=["see `nvidia-smi`"],
    )
    page = html_page.render(build.with_signals(result))
    assert "`" not in page
    assert "<code>docker login</code> first" in page
    assert "<li>see <code>nvidia-smi</code></li>" in page
    assert "&lt;b&gt;" in page


def test_markdown_counts_what_it_leaves_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(markdown, "MOST_ITEMS", 1)
    text = markdown.render(build.quickstart())
    assert "leaks 7.8 KiB/step since 6.3.0 (fixed in 6.3.2).**" in text
    assert "- and 1 more: see report.html" in text


def test_the_page_needs_nothing_from_elsewhere() -> None:
    page = html_page.render(build.varied())
    assert not re.findall(r"<script|<link(?! rel=\"icon\" href=\"data:,\")|<img|https?://|@import|url\(", page)


def test_a_page_of_a_large_run_stays_small() -> None:
    assert len(html_page.render(build.large())) < 2_500_000


# ---------------------------------------------------------------- lines


def trials(steps: int, rate: float) -> list[Trial]:
    return [replace(build.trial("x", 1, build.flat()), trace=build.trace(rate, steps=steps))]


@pytest.mark.parametrize("steps", [2, 50, 100_000])
def test_lines_are_bounded(steps: int) -> None:
    growing = trials(steps, 7.8)
    picture = traces.sparkline(growing, scale_kib=traces.scale_kib([growing]), tone="bad")
    drawn = re.findall(r"\d+,[\d.]+", picture)
    assert len(drawn) == min(steps, traces.MOST_POINTS)
    pairs = [tuple(map(float, point.split(","))) for point in drawn]
    assert all(0 <= x <= traces.WIDTH and 0 <= y <= traces.HEIGHT for x, y in pairs)
    assert pairs[0][1] > pairs[-1][1]


def test_a_line_without_growth_is_level_and_noise_is_not_magnified() -> None:
    assert traces.scale_kib([trials(400, 0.0), []]) == traces.LEAST_SCALE_KIB


def test_what_was_not_sampled_has_no_line() -> None:
    step = np.arange(1.0, 5.0)
    silent = Trace(step=step, columns={"rss_kib": np.full(4, np.nan)})
    no_rss = Trace(step=step, columns={})
    for trace in (silent, no_rss, None):
        trial = replace(build.trial("x", 1, build.flat()), trace=trace)
        assert traces.sparkline([trial], scale_kib=1.0, tone="bad") == ""
