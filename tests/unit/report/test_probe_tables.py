"""What probes found, in the page and in Markdown: a user who gets a report need not look for another file."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from harness.probes import printed as probes_output
from harness.probes import tables as probe_tables
from harness.report import html_page
from harness.report.blocks import TextTable
from harness.report.exports import markdown
from tests.players import build
from tests.players.build import found, with_probes
from tests.players.pages import HOSTILE, Page


def test_every_probe_has_its_figures_in_both_reports() -> None:
    page, text = html_page.render(with_probes()), markdown.render(with_probes())
    for figure in ("0.200", "3.000", "15×", "5.00", "100.0", "1.000", "batch that fits: 8", "1 (30)", "tf.rfft.svg"):
        assert figure in page, figure
        assert figure in text, figure
    assert "step 10, ms" in page
    assert '<th scope="col" class="number">step 120, ms</th>' in page
    assert re.search(r"\| 7 +\| +2\.000 \| +1\.000 \|", text)
    assert '<td class="why">    keep(tf.rfft)</td>' in page


def test_a_run_that_nobody_probed_has_no_word_of_probes() -> None:
    assert 'id="probes"' not in html_page.render(build.quickstart())
    assert "harness probe" not in markdown.render(build.quickstart())


@cache
def harmless_page() -> Page:
    return Page(html_page.render(with_probes("harmless")))


@pytest.mark.parametrize("text", HOSTILE)
def test_what_a_probed_image_says_is_text(text: str) -> None:
    """Names of operations, lines and stacks come from the image."""
    harmless, page = harmless_page(), Page(html_page.render(with_probes(text)))
    assert (page.tags, page.attributes) == (harmless.tags, harmless.attributes)
    tables = re.sub(r"\\.", "", markdown.render(with_probes(text)).replace("<!-- -->", "\0")).replace("**", "")
    assert not re.search(r"[<>`*_\[\]$~&]", tables)
    rows = [block for block in tables.split("\n\n") if block.startswith("|")]
    assert all(len({line.count("|") for line in block.splitlines()}) == 1 for block in rows)


def test_long_traces_are_cut_and_say_so() -> None:
    many = found()[0]
    longer = replace(many, ops=many.ops * 50)
    (section,) = probe_tables.sections([longer])
    table = next(block for block in section.blocks if isinstance(block, TextTable))
    assert len(table.rows) == probe_tables.MOST_ROWS
    assert table.title.endswith("20 of 50")


@pytest.mark.parametrize("name", ["two\nlines\r\nof it", "x" * 3000, "\033[2J\u2028y"])
def test_a_name_from_the_image_keeps_the_terminals_tables_whole(name: str) -> None:
    shape = [line.startswith("  ") for line in probes_output.render(found(), Path("/x")).splitlines()]
    lines = probes_output.render(found(name), Path("/x")).splitlines()
    assert [line.startswith("  ") for line in lines] == shape
    head, row = [line for line in lines if re.search(r" kind +step 10|RFFT", line)]
    assert head.index("kind") == row.index("RFFT") < 200
    assert next(len(line) for line in lines if "keep(" in line) < 300


def test_losses_that_were_not_all_counted_are_marked() -> None:
    """`0 (0)` from a truncated report looked as if nothing was lost."""
    whole = next(each for each in found() if each.leaks)
    (kept,) = whole.leaks
    cut = replace(whole, leaks=(replace(kept, kind="StillReachable"),), problem="valgrind's report is incomplete")
    for each, marked in ((whole, False), (cut, True)):
        figure = "0 (0) *" if marked else "1 (30)"
        (beside, _) = probe_tables.sections([each])
        text = probes_output.render([each], Path("/x"))
        (table,) = beside.blocks
        assert isinstance(table, TextTable)
        assert table.rows[0][1] == figure
        assert figure in text
        assert (probe_tables.NOT_WHOLE in text, probe_tables.NOT_WHOLE in table.title) == (marked, marked)
