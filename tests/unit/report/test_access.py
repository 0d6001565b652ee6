"""The page for readers with impaired vision: what an accessibility checker of a browser would report."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Mapping
from importlib.resources import files

import pytest

from harness.model import RunResult
from harness.report import html_page
from tests.players import build
from tests.players.build import with_probes
from tests.players.pages import Elements

CSS = (files("harness.report") / "templates" / "report.css").read_text(encoding="utf-8")
TEXT, GRAPHIC = 4.5, 3.0
"""Lowest contrasts according to WCAG 2.2, level AA."""
PAIRS = [
    ("ink", "ground"), ("ink", "raised"), ("ink", "hot"), ("ink", "unsure-ground"), ("dim", "ground"),
    ("dim", "raised"), ("dim", "good-ground"), ("good", "ground"), ("good", "good-ground"), ("bad", "ground"),
    ("bad", "raised"), ("bad", "bad-ground"), ("unsure", "ground"), ("unsure", "unsure-ground"),
    ("good", "unsure-ground"), ("dim", "unsure-ground"), ("unsure", "good-ground"),
]  # fmt: skip


def palette(theme: str) -> Mapping[str, str]:
    begin, end = {"light": (0, CSS.index("@media")), "dark": (CSS.index("@media"), CSS.index("* {"))}[theme]
    return dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", CSS[begin:end]))


def luminance(colour: str) -> float:
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize(("ink", "ground"), PAIRS)
def test_text_can_be_read(theme: str, ink: str, ground: str) -> None:
    colours = palette(theme)
    assert contrast(colours[ink], colours[ground]) >= TEXT


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("line", range(1, 9))
def test_lines_can_be_seen(theme: str, line: int) -> None:
    colours = palette(theme)
    assert contrast(colours[f"t{line}"], colours["ground"]) >= GRAPHIC


@pytest.mark.parametrize(
    "result",
    [build.varied(), build.quickstart(), build.signalled(), build.large(versions=12, variants=3), with_probes()],
)
def test_a_screen_reader_finds_its_way(result: RunResult) -> None:
    found = Elements(html_page.render(result, library="0;")).found
    tags = [tag for tag, _ in found]
    assert {"header", "main"} <= set(tags)
    headings = [int(tag[1]) for tag in tags if re.fullmatch("h[1-6]", tag)]
    assert (headings.count(1), headings[0]) == (1, 1)
    assert all(later <= earlier + 1 for earlier, later in itertools.pairwise(headings))
    assert all(attributes.get("scope") in ("col", "row", "rowgroup") for tag, attributes in found if tag == "th")
    regions = [attributes for _, attributes in found if attributes.get("role") in ("region", "img")]
    assert all(attributes.get("aria-label") for attributes in regions)
    assert all("tabindex" in attributes for attributes in regions if attributes["role"] == "region")


@pytest.mark.parametrize("result", [build.varied(), build.signalled(), build.large(versions=12, variants=3)])
def test_every_link_leads_somewhere(result: RunResult) -> None:
    found = Elements(html_page.render(result, library="0;")).found
    ids = Counter(attributes["id"] for _, attributes in found if "id" in attributes)
    assert set(ids.values()) == {1}
    links = {attributes["href"][1:] for tag, attributes in found if tag == "a"}
    labels = {attributes["aria-labelledby"] for _, attributes in found if "aria-labelledby" in attributes}
    assert links | labels <= set(ids)


def test_versions_go_downwards_where_they_would_be_out_of_sight() -> None:
    """The newest versions come last, and most faults are among them."""
    many = html_page.render(build.large(versions=12, variants=3))
    assert re.findall(r'<th scope="row">([^<]*)</th>', many)[:2] == ["1.0.0", "1.1.0"]
    assert '<th scope="col">1.19.2</th>' in html_page.render(build.varied())
