"""What users see first. The transcripts are complete, so that a change of appearance is visible in review."""

from __future__ import annotations

from dataclasses import replace
from textwrap import dedent

import pytest

from harness.model import RunResult, SignalVerdict
from harness.report.text.harmless_text import whole_clauses
from tests.players import build
from tests.players.pages import shown


def table_of(text: str, lines: int) -> str:
    """Return the first lines of the table in a report."""
    every = text.splitlines()
    first = every.index("multidict on local")
    return "\n".join(every[first : first + lines])


@pytest.mark.parametrize("width", [50, 60, 80])
@pytest.mark.parametrize("result", [build.varied(), build.signalled()])
def test_no_line_is_cut_within_a_word(result: RunResult, width: int) -> None:
    """It read "not checked: 5 sig…" and "6 launches agains…" in a terminal of 80 columns and in files."""
    assert "…" not in shown(result, width=width)


def test_what_does_not_fit_is_left_out_as_a_whole() -> None:
    """ "6 launches, 2 of which agree, against 6" must not become "6 launches"."""
    text = "open files 0 → 1 (0.9 to 1.1) file/step; 6 launches, 2 of which agree, against 6"
    assert whole_clauses(text, most=len(text)) == text
    assert whole_clauses(text, most=70) == "open files 0 → 1 (0.9 to 1.1) file/step"
    assert whole_clauses(text, most=36) == "open files 0 → 1 file/step", "no amount without its unit"
    assert whole_clauses("fails (with signal 11 in a step)", most=20) == "fails"
    ratio = "late step time 123 → 456 (400 to 500) ms; 3.7× (3.2 to 4.1); 15 launches against 15"
    assert whole_clauses(ratio, most=50) == "late step time 123 → 456 ms; 3.7×", "the ratio says more than its interval"
    share = "run time 1.59 → 2.42 (2.26 to 2.59) s; +51.7 (44.8 to 59) %; p < 0.0001"
    assert whole_clauses(share, most=45) == "run time 1.59 → 2.42 s; +51.7 %; p < 0.0001"


@pytest.mark.parametrize("result", [build.varied(), build.large(), build.signalled(), build.worsening()])
def test_an_answer_is_one_screen(result: RunResult) -> None:
    lines = shown(result).splitlines()
    assert len(lines) <= 50
    assert all(len(line) <= 100 for line in lines)


def test_a_terminal_without_unicode_gets_signs_of_ascii() -> None:
    assert table_of(shown(build.quickstart(), encoding="ascii"), 3) == dedent("""\
        multidict on local
                       6.0.5  6.1.0  6.2.0  6.3.0        6.3.1  6.3.2  6.4.4  6.5.0        6.6.3  6.6.4
        multidict_pop  +      +      +      v leak 7.84  x      ^      +      v leak 2.82  x      ^""")


def test_a_table_that_does_not_fit_goes_on_below() -> None:
    assert table_of(shown(build.quickstart(), width=80), 5) == dedent("""\
        multidict on local
                       6.0.5  6.1.0  6.2.0  6.3.0        6.3.1  6.3.2  6.4.4
        multidict_pop  ✓      ✓      ✓      ▼ leak 7.84  ✗      ▲      ✓
                       6.5.0        6.6.3  6.6.4
        multidict_pop  ▼ leak 2.82  ✗      ▲""")


@pytest.mark.parametrize("width", [20, 40, 80, 120, 200])
@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_it_fits_any_width(width: int, encoding: str) -> None:
    """The path of the report and the commands are not wrapped, because users copy them."""
    lines = shown(build.varied(), width=width, encoding=encoding).splitlines()
    assert all(len(line) <= width for line in lines if not line.startswith(("Report: ", "Reasons: ", "   next: ")))
    assert lines[-1] == "Report: reports/quickstart/20250301T120000Z-1a2b/report.html"


def test_of_fifty_versions_and_24_variants_those_are_told_that_differ() -> None:
    text = shown(build.large())
    assert "op=op1 input=in0  ✓         ✓       ▼ leak 24.1  ✗          ✗" in text
    assert "                  1.0.0  …  1.30.0  1.31.0       1.32.0  …  1.49.0" in text
    assert "and 14 more rows: ✓ in every version" in text
    wide = shown(build.large(), wide=True)
    assert (wide.count("▼ leak"), wide.count("✗ leak")) == (4, 4 * 18)


def test_a_tick_of_a_whole_run_says_that_growth_was_not_judged() -> None:
    """A ✓ alone reads as if memory had been looked at."""
    signals = {"outcome": SignalVerdict(seen="good"), "memory": SignalVerdict(seen="none")}
    whole = replace(build.flat(), signals=signals)
    text = shown(build.run([(build.MULTIDICT, [build.HERE], [build.POP])], lambda *_: whole))
    assert "✓ whole run" in text


def test_colours_are_there_beside_the_signs() -> None:
    assert "\x1b[1;31m▼ leak" in shown(build.quickstart(), color=True)
    assert "\x1b[" not in shown(build.quickstart())


def test_a_figure_that_is_suspect_is_told_beside_one_that_is_unclear() -> None:
    """Beside `? step time unclear <36 %`, a version whose step time had risen was a bare `?`."""
    blind = build.seen(build.flat(), step_time=build.BLIND)
    risen = build.seen(build.flat(), step_time=replace(build.BLIND, seen="suspect", value=0.0079))
    versions = build.series("app", ["1", "2"])
    judge = {"1": blind, "2": risen}
    text = shown(build.run([(versions, [build.HERE], [build.POP])], lambda version, *_: judge[version]), width=80)
    assert "? step time unclear <36 %  ? step time 7.90 ms" in text
