"""The findings at the top of the page: a reader who stops there must have seen the figure, and what to do next."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.model import LARGEST, Observation
from harness.report.blocks import Figure, Point
from harness.report.charts import finding_chart
from harness.report.page import html_page
from tests.players import build
from tests.players.pages import Elements

known = st.floats(-LARGEST, LARGEST) | st.sampled_from([None, float("nan"), float("inf")])
points = st.lists(
    st.builds(
        Point,
        version=st.text(min_size=1, max_size=30),
        value=known,
        low=known,
        high=known,
        tone=st.sampled_from(["bad", "good", "unsure", "none"]),
        own=st.booleans(),
    ),
    max_size=60,
)


def figure(*values: float | None, unit: str = "KiB/step", bad: int = 2) -> Figure:
    """Return one version for each value, bad from that one on."""
    tones: list[Any] = ["good" if place < bad else "bad" for place in range(len(values))]
    made = [
        Point(version=f"1.{place}.0", value=value, low=None, high=None, tone=tone, own=tone == "bad")
        for place, (value, tone) in enumerate(zip(values, tones, strict=True))
    ]
    return Figure(title="memory", unit=unit, points=tuple(made))


@given(points=points, unit=st.sampled_from(["KiB/step", "ms", "failures", "s", "loss"]))
def test_whatever_was_measured_is_drawn_within_the_picture(points: list[Point], unit: str) -> None:
    drawn = finding_chart.svg(Figure(title="memory", unit=unit, points=tuple(points)))
    if drawn is None:
        return
    picture = ElementTree.fromstring(drawn)
    places = [(text.get("x"), text.get("y")) for text in picture.iter("text")]
    places += [tuple(place.split(",")) for line in picture.iter("polyline") for place in line.get("points", "").split()]
    places += [(mark.get("cx"), mark.get("cy")) for mark in picture.iter("circle")]
    for x, y in places:
        assert 0 <= float(x or -9) <= finding_chart.WIDTH
        assert -1 <= float(y or -9) <= finding_chart.HEIGHT


def drawn(*values: float | None, unit: str = "KiB/step") -> ElementTree.Element:
    return ElementTree.fromstring(finding_chart.svg(figure(*values, unit=unit)) or "<svg/>")


def test_a_change_is_seen_where_it_is_and_named() -> None:
    picture = drawn(0.0002, -0.0001, 7.8, 7.8, 7.9)
    (line,) = picture.iter("polyline")
    heights = [float(place.partition(",")[2]) for place in line.get("points", "").split()]
    assert heights[0] > 100
    assert heights[2] < 30
    assert [text.text for text in picture.iter("text")] == ["8.5", "0", "1.0.0", "1.4.0", "1.2.0"]
    assert "1.2.0: 7.8" in [title.text for title in picture.iter("title")]


def test_names_of_versions_do_not_lie_on_each_other() -> None:
    texts = drawn(*[float(place % 2) for place in range(40)]).iter("text")
    names = sorted((float(text.get("x", "")), text.text) for text in texts if str(text.text).endswith(".0"))
    assert (names[0][1], names[-1][1]) == ("1.0.0", "1.39.0")
    assert all(one < other for (one, _), (other, _) in itertools.pairwise(names))


@pytest.mark.parametrize("values", [(), (1.0,), (None, 1.0), (float("nan"), 1.0)])
def test_a_single_figure_is_no_chart(values: tuple[float | None, ...]) -> None:
    assert finding_chart.svg(figure(*values)) is None


def test_a_version_without_a_figure_leaves_a_gap_in_the_line() -> None:
    picture = drawn(1.0, 1.1, None, 2.0, 2.1)
    assert len(list(picture.iter("polyline"))) == 2
    assert "1.2.0" not in [str(title.text)[:5] for title in picture.iter("title")]


def test_seconds_and_bytes_have_short_labels() -> None:
    for unit, title in (("s", "memory, ms"), ("KiB", "memory, MiB"), ("failures", "memory, % of launches")):
        assert f"<figcaption>{title}<" in str(finding_chart.svg(figure(0.01, 0.02, unit=unit)))


def test_the_page_opens_with_a_box_for_each_finding() -> None:
    page = html_page.render(build.quickstart())
    found = Elements(page).found
    boxes = [attributes["id"] for tag, attributes in found if attributes.get("class") == "finding"]
    assert len(boxes) == 2, "a leak, its repair, and another one"
    assert page.index('class="findings"') < page.index('id="overview"')
    assert "harness issue reports/quickstart/20250301T120000Z-1a2b 1</code>" in page
    assert page.count('class="finding-chart" role="img" aria-label="memory, KiB/step, over the versions') == 2
    assert "Whose fault</h2>" not in page
    assert 'class="findings"' not in html_page.render(build.quiet())


def test_names_of_metrics_are_code_in_the_title_of_a_card() -> None:
    """The title read `returns 20 % more `count``, with the backticks."""
    result = build.quickstart()
    findings = [replace(one, metric="metrics.count", verdict="bad") for one in result.findings]
    page = html_page.render(build.with_findings(result, findings))
    titles = re.findall("<h3>(.*?)</h3>", page)
    assert any("<code>count</code>" in title for title in titles)
    assert not any("`" in title for title in titles)


def test_what_is_bad_by_another_finding_is_pale() -> None:
    page = html_page.render(build.quickstart())
    assert (page.count('<g class="bad">'), page.count('<g class="bad other">')) == (4, 4)


def test_what_else_is_new_there_stands_in_the_box() -> None:
    result = build.quickstart()
    first = result.findings[0]

    def at(version: str, text: str) -> Observation:
        return Observation(
            series=first.series, lane=first.lane, variant=first.variant, signal="log", before="6.2.0", after=version,
            text=text,
        )  # fmt: skip

    lines = [f"line {number}" for number in range(7)]
    told = replace(
        result, observations=(*(at("6.3.0", line) for line in ["<b>Could not load\x1b", *lines]), at("6.4.4", "else"))
    )
    page = html_page.render(told)
    assert "also new</dt><dd>log: &lt;b&gt;Could not load; log: line 0" in page
    assert "and 3 more" in page
    assert "log: else" not in page.partition('id="observed"')[0]  # it is not new information about the finding
    assert re.search("also new</dt>", html_page.render(result)) is None
