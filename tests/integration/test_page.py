"""The page in a real browser: it renders from disk, offline, without errors in the browser's log."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from harness.model import RunResult
from harness.probes.results import ProbedCells
from harness.report import html_page
from tests.players import build
from tests.players.build import found
from tests.players.pages import (
    HOSTILE,
    READS_FRAMES,
    Browser,
    answer,
    asked,
    complaints,
    complaints_and_urls,
    in_frames,
    poisoned,
    saved,
)

pytestmark = pytest.mark.chromium


def test_the_page_renders_from_disk_without_a_complaint(browser: Browser, tmp_path: Path, library: str) -> None:
    question = """
        const drawn = () => document.querySelectorAll('.chart svg.marks').length;
        dispatchEvent(new Event('beforeprint'));
        while (drawn() < 10) await new Promise((done) => setTimeout(done, 50));
        return drawn();
    """
    page = asked(html_page.render(build.varied(), library=library), question)
    ended = browser.run(saved(tmp_path, page), "--dump-dom")
    assert complaints(ended.stderr) == []
    assert "onnxruntime takes 5.62 times as long per step since 1.21.0" in ended.stdout
    assert ended.stdout.count('aria-label="memory over the steps"') == 29  # of 49 cells, those that were measured
    assert answer(ended.stdout) >= 10  # type: ignore[operator]


def test_a_page_that_does_complain_is_noticed(browser: Browser, tmp_path: Path) -> None:
    """The test above would otherwise pass with a browser that does not log errors."""
    page = html_page.render(build.quiet()).replace("</body>", "<script>console.log(1)</script></body>")
    assert complaints(browser.run(saved(tmp_path, page), "--dump-dom").stderr)


def test_its_policy_stops_every_script_but_its_own(browser: Browser, tmp_path: Path, library: str) -> None:
    page = html_page.render(build.quiet(), library=library)
    page = "<script>document.title = 'taken over'</script></body>".join(page.rsplit("</body>", 1))
    ended = browser.run(saved(tmp_path, page), "--dump-dom")
    assert "<title>taken over" not in ended.stdout
    assert any("Content Security Policy" in line for line in complaints(ended.stderr))


def test_it_asks_nothing_of_a_network(browser: Browser, tmp_path: Path, library: str) -> None:
    page = saved(tmp_path, html_page.render(build.varied(), library=library))
    assert complaints_and_urls(browser, page) == ([], [])


@pytest.mark.parametrize("text", ["</script><script>alert(1)</script>", "<!--<script>", *HOSTILE[:1]])
def test_names_that_try_to_act_are_text(browser: Browser, tmp_path: Path, library: str, text: str) -> None:
    """This includes names that the charts draw, and names of operations and lines from probes."""
    result = replace(poisoned(text), added=(ProbedCells(results=found(text)),))
    ended = browser.run(saved(tmp_path, html_page.render(result, library=library)), "--dump-dom")
    assert complaints(ended.stderr) == []
    assert ended.stdout.count("<script") == 3


def test_without_scripts_all_is_said(browser: Browser, tmp_path: Path, library: str) -> None:
    page = re.sub("script-src [^;]*;", "script-src 'none';", html_page.render(build.varied(), library=library))
    dump = browser.run(saved(tmp_path, page), "--dump-dom").stdout
    assert "onnxruntime takes 5.62 times as long per step since 1.21.0" in dump.split("</header>")[0]
    assert dump.count("<caption>") == html_page.render(build.varied()).count("<caption>")
    assert 'class="marks"' not in dump


def test_keys_move_between_cells_and_tell_of_them(browser: Browser, tmp_path: Path, library: str) -> None:
    """A table is one Tab stop; arrow keys move within it, and Enter leads to the traces."""
    question = """
        const links = [...document.querySelectorAll('.heat [data-tip]')], tip = document.getElementById('tip');
        const press = (key) => document.activeElement.dispatchEvent(new KeyboardEvent('keydown', {key, bubbles: true}));
        const stops = links.filter((link) => link.tabIndex === 0).length;
        links[0].focus();
        for (const key of ['ArrowDown', 'ArrowDown', 'ArrowDown', 'ArrowLeft']) press(key);
        const at = links.indexOf(document.activeElement), told = tip.hidden ? '' : tip.textContent;
        press('Escape');
        const gone = tip.hidden;
        document.activeElement.click();
        await new Promise((done) => addEventListener('hashchange', () => setTimeout(done, 50)));
        const open = document.getElementById(location.hash.slice(1)).open;
        return [stops, at, told.slice(0, 18), gone, open];
    """
    page = saved(tmp_path, asked(html_page.render(build.quickstart(), library=library), question))
    assert answer(browser.run(page, "--dump-dom").stdout) == [1, 3, "leak 7.84 KiB/step", True, True]


@pytest.mark.parametrize(("flags", "dark"), [((), False), (("--blink-settings=preferredColorScheme=0",), True)])
def test_it_follows_the_reader_into_the_dark(
    browser: Browser, tmp_path: Path, library: str, flags: tuple[str, ...], dark: bool
) -> None:
    """Its charts do so, too: they use the page's own colours."""
    question = """
        const { definitions, drawings } = JSON.parse(document.getElementById('charts').textContent);
        const { chart, ...fill } = drawings[0], place = document.body.appendChild(document.createElement('div'));
        await vegaEmbed(place, { ...definitions[chart], ...fill }, { ast: true, renderer: 'svg' });
        const sum = (text) => text.match(/\\d+/g).slice(0, 3).reduce((all, part) => all + Number(part), 0);
        const title = place.querySelector('.marks .role-title-text text');
        return [sum(getComputedStyle(document.body).backgroundColor), sum(getComputedStyle(title).fill)];
    """
    page = saved(tmp_path, asked(html_page.render(build.quickstart(), library=library), question))
    ground, ink = answer(browser.run(page, "--dump-dom", *flags).stdout)  # type: ignore[misc]
    assert (ground < 200, ink > 600) == (dark, dark)


def test_it_prints(browser: Browser, tmp_path: Path, library: str) -> None:
    paper = tmp_path / "report.pdf"
    browser.run(saved(tmp_path, html_page.render(build.varied(), library=library)), f"--print-to-pdf={paper}")
    assert paper.read_bytes().startswith(b"%PDF")


def test_no_page_is_wider_than_its_window(browser: Browser, tmp_path: Path, library: str) -> None:
    """Wide tables scroll within the page."""
    results = {"large": build.large(versions=20, variants=3), "signals": build.signalled()}
    framed = []
    for name, result in results.items():
        (tmp_path / name).mkdir()
        text = html_page.render(replace(result, added=(ProbedCells(results=found()),)), library=library)
        framed += [(saved(tmp_path / name, text), width) for width in (390, 1280)]
    page = in_frames(tmp_path, framed, "page => page.documentElement.scrollWidth")
    assert answer(browser.run(page, "--dump-dom", READS_FRAMES).stdout) == [390, 1280, 390, 1280]


def with_all_columns(result: RunResult) -> RunResult:
    """Return a result with traces like those of real trials: five columns and looks."""
    return replace(
        result,
        cells=tuple(
            replace(cell, trials=tuple(replace(trial, trace=build.full_trace()) for trial in cell.trials))
            for cell in result.cells
        ),
    )


def test_a_hundred_cells_with_their_traces_can_be_mailed(library: str) -> None:
    page = html_page.render(with_all_columns(build.large(versions=25, variants=4)), library=library)
    assert len(page.encode()) <= 3_000_000
    assert page.count('class="cell"') == 100


def test_a_thousand_cells_answer_to_a_key_before_the_charts_are_drawn(
    browser: Browser, tmp_path: Path, library: str
) -> None:
    """The first cell of a big run can be read immediately: charts out of sight are not drawn for that."""
    question = """
        document.querySelector('.heat [data-tip]').focus();
        const tip = document.getElementById('tip');
        const placed = tip.getBoundingClientRect();
        return {
            says: tip.textContent,
            area: placed.width * placed.height,
            drawn: document.querySelectorAll('.chart svg.marks').length,
            cells: document.querySelectorAll('.heat [data-tip]').length,
        };
    """
    page = saved(tmp_path, asked(html_page.render(build.large(versions=50, variants=20), library=library), question))
    there = answer(browser.run(page, "--dump-dom").stdout)
    assert isinstance(there, dict)
    assert there["cells"] == 1000
    assert there["says"].startswith("flat")
    assert there["area"] > 0
    assert there["drawn"] == 0
