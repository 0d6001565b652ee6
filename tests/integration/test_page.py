"""The page in a real browser: it renders from disk, offline, and the browser has nothing to complain of."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from harness.report import html
from tests.unit.report import build

pytestmark = pytest.mark.chromium

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
REQUIRED = os.environ.get("HARNESS_REQUIRE_CHROMIUM") == "1"
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--hide-scrollbars",
    "--host-resolver-rules=MAP * ~NOTFOUND", "--enable-logging=stderr", "--virtual-time-budget=2000",
)  # fmt: skip


@dataclass(frozen=True)
class Browser:
    path: str
    folder: Path

    def run(self, page: Path, *flags: str) -> subprocess.CompletedProcess[str]:
        profile = f"--user-data-dir={self.folder / 'profile'}"
        return subprocess.run(
            [self.path, *FLAGS, profile, *flags, page.as_uri()], capture_output=True, text=True, timeout=90, check=True
        )


@pytest.fixture
def browser(tmp_path: Path) -> Browser:
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        assert not REQUIRED, "HARNESS_REQUIRE_CHROMIUM=1, but there is no Chromium on PATH"
        pytest.skip("no Chromium on PATH")
    return Browser(path=path, folder=tmp_path)


def saved(folder: Path, page: str) -> Path:
    path = folder / "report.html"
    path.write_text(page, encoding="utf-8")
    return path


def complaints(log: str) -> list[str]:
    """What the page, not the browser itself, put into the browser's log."""
    return re.findall(r".*CONSOLE.*", log)


def test_the_page_renders_from_disk_without_a_complaint(browser: Browser, tmp_path: Path) -> None:
    ended = browser.run(saved(tmp_path, html.render(build.varied())), "--dump-dom")
    assert complaints(ended.stderr) == []
    assert "onnxruntime has slower steps (5.62×) since 1.21.0" in ended.stdout
    assert ended.stdout.count("<polyline") == 29  # of 49 cells, those that were measured


def test_a_page_that_does_complain_is_noticed(browser: Browser, tmp_path: Path) -> None:
    """The test above would otherwise pass on a browser that keeps its console to itself."""
    page = html.render(build.quiet()).replace("</body>", "<script>console.log(1)</script></body>")
    assert complaints(browser.run(saved(tmp_path, page), "--dump-dom").stderr)


@pytest.mark.parametrize("width", [500, 1280])
def test_no_page_is_wider_than_its_window(browser: Browser, tmp_path: Path, width: int) -> None:
    """Wide tables scroll within the page; a measuring script is let in past the page's own policy."""
    page = re.sub(r"<meta http-equiv=.*?>", "", html.render(build.large(versions=20, variants=3)))
    script = "<script>document.title = document.documentElement.scrollWidth + '/' + innerWidth</script></body>"
    ended = browser.run(saved(tmp_path, page.replace("</body>", script)), "--dump-dom", f"--window-size={width},900")
    needed, there = re.findall(r"<title>(\d+)/(\d+)</title>", ended.stdout)[0]
    assert int(needed) <= int(there)
