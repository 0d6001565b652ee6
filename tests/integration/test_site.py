"""The site in a real browser: from disk, offline, in light and dark mode, on a phone, without errors in the browser's
log.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from harness.cli import cli
from tests.players.pages import READS_FRAMES, Browser, answer, complaints, complaints_and_urls, in_frames
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


def test_it_renders_from_disk_without_a_complaint_or_a_question(browser: Browser, tmp_path: Path, site: Path) -> None:
    page = in_frames(tmp_path, [(site / page, 1280) for page in PAGES])
    assert complaints_and_urls(browser, page) == ([], [])


@pytest.mark.parametrize(("flags", "is_dark"), [((), False), (("--blink-settings=preferredColorScheme=0",), True)])
def test_every_page_fits_a_phone_and_can_be_read_in_light_and_dark(
    browser: Browser, tmp_path: Path, site: Path, flags: tuple[str, ...], is_dark: bool
) -> None:
    """A verdict in a colour too close to that of the page cannot be seen. WCAG 2.2 requires a contrast of 4.5 (AA)."""
    page = in_frames(tmp_path, [(site / page, 390) for page in PAGES], READABLE)
    told = answer(browser.run(page, "--dump-dom", READS_FRAMES, *flags).stdout)
    good = {"title": True, "width": 390, "dark": is_dark, "unreadable": []}
    assert dict(zip(PAGES, told, strict=True)) == dict.fromkeys(PAGES, good)  # type: ignore[call-overload]


READABLE = """page => {
  const style = one => page.defaultView.getComputedStyle(one), root = page.documentElement;
  const rgb = text => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map(one => one / 255).map(one => one <= 0.04045 ? one / 12.92
    : ((one + 0.055) / 1.055) ** 2.4).reduce((all, one, at) => all + one * [0.2126, 0.7152, 0.0722][at], 0);
  const under = one => { for (; one; one = one.parentElement) {
    const at = rgb(style(one).backgroundColor); if (at.length < 4 || at[3] > 0) return at; }
    return rgb(style(root).backgroundColor); };
  const told = [...page.querySelectorAll("h1,h2,h3,p,a,li,th,td,span,summary")].filter(one =>
    [...one.childNodes].some(node => node.nodeType === 3 && node.data.trim()));
  const contrasts = told.map(one => { const pair = [light(rgb(style(one).color)), light(under(one))];
    return [one.textContent.trim().slice(0, 30), (Math.max(...pair) + 0.05) / (Math.min(...pair) + 0.05)]; });
  return {
    title: page.querySelector("h1") !== null, width: root.scrollWidth,
    unreadable: contrasts.filter(one => one[1] < 4.5),
    dark: rgb(style(page.body).backgroundColor).reduce((all, one) => all + one) < 200,
  };
}"""


def test_its_policy_stops_every_script_and_style_but_its_own(browser: Browser, tmp_path: Path, site: Path) -> None:
    text = (site / "index.html").read_text()
    copy = tmp_path / "index.html"
    copy.write_text(text.replace("</body>", "<script>document.title = 'taken over'</script></body>"))
    ended = browser.run(copy, "--dump-dom")
    assert "<title>taken over" not in ended.stdout
    assert any("Content Security Policy" in line for line in complaints(ended.stderr))
