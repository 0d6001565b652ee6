"""The site in a real browser: from disk, offline, in light and dark mode, on a phone, without errors in the browser's
log.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from harness.cli import cli
from tests.players.pages import Browser, _is_the_browsers_own, complaints
from tests.unit.history import made

pytestmark = pytest.mark.chromium

PAGES = (
    "index.html", "findings.html", "findings-2026.html", "m-nightly/index.html", "m-nightly/series-app.html",
    "m-nightly/run-20260302t040000z-0002.html", "runs-2026-03.html",
)  # fmt: skip


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("published")
    made.three_days(folder / "reports")
    made.write_run(
        folder / "reports", 4, {"1.3": made.good(), "1.4" + "x" * 80: made.bad()},
        findings=[made.begins("1.3", "1.4" + "x" * 80)], verdict="regression",
    )  # fmt: skip
    done = CliRunner().invoke(cli, ["publish", "--in", str(folder / "reports"), "--out", str(folder / "site")])
    assert done.exit_code == 0, done.output
    return folder / "site"


@pytest.mark.parametrize("page", PAGES)
def test_it_renders_from_disk_without_a_complaint_or_a_question(
    browser: Browser, tmp_path: Path, site: Path, page: str
) -> None:
    log = tmp_path / "net.json"
    ended = browser.run(site / page, "--dump-dom", f"--log-net-log={log}")
    assert complaints(ended.stderr) == []
    assert "<h1>" in ended.stdout
    urls = re.findall(r'"url":"([a-z]+:[^"]*)"', log.read_text())
    assert [url for url in urls if not url.startswith("file:") and not _is_the_browsers_own(url)] == []


def asked(page: Path, question: str, folder: Path) -> Path:
    """Return a copy of a page with a script, which its policy would not allow: the answer becomes its title."""
    text = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page.read_text())
    copy = folder / "asked.html"
    copy.write_text(text.replace("</body>", f"<script>document.title = JSON.stringify({question})</script></body>"))
    return copy


def answer(dump: str) -> str:
    return re.findall(r"<title>(.*?)</title>", dump)[0]


@pytest.mark.parametrize("page", PAGES)
def test_no_page_is_wider_than_a_phone(browser: Browser, tmp_path: Path, site: Path, page: str) -> None:
    question = "(document.body.style.width = '390px', document.body.scrollWidth <= document.body.offsetWidth)"
    ended = browser.run(asked(site / page, question, tmp_path), "--dump-dom", "--window-size=500,900")
    assert answer(ended.stdout) == "true"


@pytest.mark.parametrize(("flags", "dark"), [((), False), (("--blink-settings=preferredColorScheme=0",), True)])
def test_it_follows_the_reader_into_the_dark(
    browser: Browser, tmp_path: Path, site: Path, flags: tuple[str, ...], dark: bool
) -> None:
    question = (
        "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).reduce((all, one) => all + +one, 0) < 200"
    )
    ended = browser.run(asked(site / "index.html", question, tmp_path), "--dump-dom", *flags)
    assert answer(ended.stdout) == ("true" if dark else "false")


@pytest.mark.parametrize("flags", [(), ("--blink-settings=preferredColorScheme=0",)])
@pytest.mark.parametrize("page", ["index.html", "m-nightly/series-app.html"])
def test_every_text_can_be_read_in_light_and_dark(
    browser: Browser, tmp_path: Path, site: Path, page: str, flags: tuple[str, ...]
) -> None:
    """A verdict in a colour too close to that of the page cannot be seen. WCAG 2.2 requires a contrast of 4.5 (AA)."""
    ended = browser.run(asked(site / page, CONTRAST, tmp_path), "--dump-dom", *flags)
    assert answer(ended.stdout) == "[]"


CONTRAST = """(() => {
  const rgb = text => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map(one => one / 255).map(one => one <= 0.04045 ? one / 12.92
    : ((one + 0.055) / 1.055) ** 2.4).reduce((all, one, at) => all + one * [0.2126, 0.7152, 0.0722][at], 0);
  const under = one => { for (; one; one = one.parentElement) {
    const at = rgb(getComputedStyle(one).backgroundColor); if (at.length < 4 || at[3] > 0) return at; }
    return rgb(getComputedStyle(document.documentElement).backgroundColor); };
  const told = [...document.querySelectorAll("h1,h2,h3,p,a,li,th,td,span,summary")].filter(one =>
    [...one.childNodes].some(node => node.nodeType === 3 && node.data.trim()));
  return told.map(one => { const pair = [light(rgb(getComputedStyle(one).color)), light(under(one))];
    return [one.textContent.trim().slice(0, 30), (Math.max(...pair) + 0.05) / (Math.min(...pair) + 0.05)]; })
    .filter(one => one[1] < 4.5);
})()"""


def test_its_policy_stops_every_script_and_style_but_its_own(browser: Browser, tmp_path: Path, site: Path) -> None:
    text = (site / "index.html").read_text()
    copy = tmp_path / "index.html"
    copy.write_text(text.replace("</body>", "<script>document.title = 'taken over'</script></body>"))
    ended = browser.run(copy, "--dump-dom")
    assert "<title>taken over" not in ended.stdout
    assert any("Content Security Policy" in line for line in complaints(ended.stderr))
