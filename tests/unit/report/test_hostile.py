"""Names and logs that try to act on a terminal or a page. In every format they must come out as text."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from harness.model import RunResult
from harness.report import html_page
from harness.report.exports import junit, markdown
from harness.report.exports.summary_json import encoded
from harness.report.terminal import run_report
from harness.report.text.harmless_text import plain
from tests.nightly import many
from tests.players.pages import HOSTILE, Page, poisoned


def on_terminal(result: RunResult) -> str:
    file = io.StringIO()
    run_report.render(result, Console(file=file, width=4000))
    return file.getvalue()


HARMLESS = Page(html_page.render(poisoned("harmless")))


@pytest.mark.parametrize("text", HOSTILE)
def test_terminal_shows_it_as_text(text: str) -> None:
    output = on_terminal(poisoned(text))
    assert plain(text) in output
    assert not set(map(ord, output)) & ({*range(32), 127} - {10})


@pytest.mark.parametrize("text", HOSTILE)
def test_page_shows_it_as_text(text: str) -> None:
    page = Page(html_page.render(poisoned(text)))
    assert (page.tags, page.attributes) == (HARMLESS.tags, HARMLESS.attributes)
    assert plain(text) in "".join(page.text)


@pytest.mark.parametrize("text", HOSTILE)
def test_junit_parses_and_gives_the_text_back(text: str) -> None:
    root = ElementTree.fromstring(junit.render(poisoned(text)).encode())
    assert root.get("name") == plain(text)
    assert plain(text) in [case.get("name") for case in root.iter("testcase")]


@pytest.mark.parametrize("text", HOSTILE)
def test_markdown_has_no_markup_of_theirs(text: str) -> None:
    output = markdown.render(poisoned(text)).replace("<!-- -->", "\0")
    unescaped = re.sub(r"\\.", "", output.replace("**", ""))
    assert not re.search(r"[<>`*_\[\]$~&]", unescaped)
    assert not re.search(r"@\w|://|#\d|:\w+:", unescaped)
    tables = [line for line in unescaped.splitlines() if line.startswith("|")]
    assert len({line.count("|") for line in tables}) == 1
    assert len(re.findall(r"^#", output, re.MULTILINE)) == 4


@pytest.mark.parametrize("text", HOSTILE)
def test_summary_keeps_it_as_it_is(text: str) -> None:
    loaded = json.loads(encoded(poisoned(text)))
    assert loaded["cells"][1]["image"] == text
    assert loaded["cells"][1]["params"] == {"param": text}


@given(text=st.text(st.characters(exclude_categories=()), max_size=40))
@settings(max_examples=many(10, 600))
@pytest.mark.parametrize("render", [on_terminal, markdown.render, html_page.render, junit.render])
def test_any_text_goes_through_every_report(render: Callable[[RunResult], str], text: str) -> None:
    output = render(poisoned(text))
    output.encode()
    assert "\x1b" not in output
    if render is html_page.render:
        assert Page(output).tags <= HARMLESS.tags
    if render is junit.render:
        ElementTree.fromstring(output.encode())
