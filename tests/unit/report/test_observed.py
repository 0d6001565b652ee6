"""Observations between versions: "Could not load libcudnn" explains a slow step that no verdict explains."""

from __future__ import annotations

import json
from dataclasses import replace
from xml.etree import ElementTree

from harness.model import Observation, RunResult
from harness.report.document import document
from harness.report.exports import junit, markdown, summary_json
from harness.report.terminal import run_report
from harness.report.text import headline
from tests.players import build


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
    for text in (run_report.text(result, width=200, wide=True), markdown.render(result)):
        assert text.count("Could not load libcudnn") == 1
    assert document(build.quickstart()).lines_of("observed") == ()


def test_a_flood_of_new_lines_is_cut() -> None:
    lines = document(noticing(*(f"line {number}" for number in range(100)))).lines_of("observed")
    assert len(lines) == 21
    assert lines[-1] == "and 80 more: see result.json"


def test_what_an_image_prints_is_no_markup_and_no_escape() -> None:
    text = run_report.text(noticing("\x1b[31m[bold]red"), width=200, wide=True)
    assert "\x1b" not in text
    assert "[bold]red" in text


def test_a_number_is_named_once() -> None:
    """It read `loss: loss 0.3 → 0.4`."""
    result = noticing("loss 0.3 → 0.4")
    result = replace(result, observations=tuple(replace(one, signal="metrics.loss") for one in result.observations))
    (line,) = document(result).lines_of("results")
    assert line == "multidict 6.0.5 → 6.1.0, local, multidict_pop: loss 0.3 → 0.4"


def test_one_screen_says_that_a_result_is_no_longer_reproducible() -> None:
    """A seeded run differed from launch to launch, and only the long report said so."""
    result = noticing("loss was the same in all launches and now differs")
    assert "now differs" not in run_report.text(result, width=200), "it was a line of the log"
    result = replace(result, observations=tuple(replace(one, signal="metrics.loss") for one in result.observations))
    assert "loss was the same in all launches and now differs" in run_report.text(result, width=200)


def erring(result: RunResult, *, signal: str = "error") -> RunResult:
    row = result.plan.rows[0]
    told = Observation(series=row.series.name, lane=row.lane, variant=row.variant, signal=signal, before="6.0.5",
                       after="6.1.0", text="step # loss nan")  # fmt: skip
    return replace(result, observations=(told,), verdict="inconclusive" if result.verdict == "ok" else result.verdict)


def test_a_new_error_is_in_the_headline_and_in_its_cell() -> None:
    """It stood at the end of a long page whose headline was `Nothing bad: all 10 cells are good`."""
    result = erring(build.quiet())
    told = "All 10 cells are good, with 1 thing to look at: multidict 6.1.0 prints a new error: step # loss nan."
    assert headline.sentence(result) == told
    cells = [f"{cell.symbol} {cell.word}" for cell in document(result).tables[0].rows[0].cells if cell is not None]
    assert cells[:3] == ["✓ flat", "! new error", "✓ flat"]
    assert "multidict 6.1.0 prints a new error: step # loss nan." in headline.sentence(erring(build.quickstart()))


def test_an_error_is_told_beside_a_finding_unless_that_is_the_failure_itself() -> None:
    """`six prints more since 1.16.0` was all that was said of a version that printed a traceback."""
    result = erring(build.quickstart())
    (told,) = result.observations
    at_leak = replace(result, observations=(replace(told, before="6.2.0", after="6.3.0"),))
    assert "multidict 6.3.0 prints a new error: step # loss nan." in headline.sentence(at_leak)
    nan = replace(at_leak.findings[0], metric="metrics.loss", verdict="nan")
    assert "prints a new error" not in headline.sentence(build.with_findings(at_leak, (nan,)))


def test_a_program_that_reads_the_results_sees_observations() -> None:
    result = erring(build.quiet())
    (told,) = json.loads(summary_json.encoded(result))["observations"]
    assert (told["signal"], told["after"], told["text"]) == ("error", "6.1.0", "step # loss nan")
    (skipped,) = ElementTree.fromstring(junit.render(result)).iter("skipped")
    assert skipped.get("message") == "new error: step # loss nan"
    lines = [out.text for out in ElementTree.fromstring(junit.render(noticing("a"))).iter("system-out")]
    assert "log: a" in lines
