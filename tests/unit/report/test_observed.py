"""Observations between versions: "Could not load libcudnn" explains a slow step that no verdict explains."""

from __future__ import annotations

from dataclasses import replace

from harness.model import Observation, RunResult
from harness.report.document import document
from harness.report.exports import markdown
from harness.report.terminal import run_report
from tests.unit.report import build


def noticing(*texts: str) -> RunResult:
    result = build.quickstart()
    told = tuple(
        Observation(series=row.series.name, lane=row.lane, variant=row.variant, signal="log",
                    before=row.cells[0].image.version, after=row.cells[1].image.version, text=text)
        for text in texts
        for row in result.plan.rows[:2]
    )  # fmt: skip
    return replace(result, observations=told)


def test_a_new_line_is_told_once_in_all_reports() -> None:
    result = noticing("Could not load libcudnn; falling back to CPU")
    for text in (run_report.text(result, width=200), markdown.render(result)):
        assert text.count("Could not load libcudnn") == 1
    assert document(build.quickstart()).lines_of("observed") == ()


def test_a_flood_of_new_lines_is_cut() -> None:
    lines = document(noticing(*(f"line {number}" for number in range(100)))).lines_of("observed")
    assert len(lines) == 21
    assert lines[-1] == "and 80 more: see result.json"


def test_what_an_image_prints_is_no_markup_and_no_escape() -> None:
    text = run_report.text(noticing("\x1b[31m[bold]red"), width=200)
    assert "\x1b" not in text
    assert "[bold]red" in text


def test_a_number_is_named_once() -> None:
    """It read `loss: loss 0.3 → 0.4`."""
    result = noticing("loss 0.3 → 0.4")
    result = replace(result, observations=tuple(replace(one, signal="metrics.loss") for one in result.observations))
    (line,) = document(result).lines_of("observed")
    assert line == "multidict 6.0.5 → 6.1.0, local, multidict_pop: loss 0.3 → 0.4"
