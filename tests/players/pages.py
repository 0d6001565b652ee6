"""Reports as their readers see them, and names and logs that try to act on a terminal or a page."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import pytest
from rich.console import Console

from harness.model import RunResult
from harness.report.charts.library import chart_library
from harness.report.terminal import run_report
from tests.players import build

HOSTILE = [
    "<script>alert(1)</script>", "[red]x[/red]", "[/]", "\x1b[31mx", "\x1b]8;;http://x.test\x07x", "a|b", "`x`",
    "@everyone", "]]>", "nul\x00l", "</style><svg onload=x>", "{{ 7*7 }}", "![x](http://x.test/y.png)", "\ud800",
    "a\nb\n# c", "$(touch x)", '" onmouseover="x', "&amp;", ":boom:", "x/y#1", "\u202eabc",
]  # fmt: skip


def poisoned(text: str) -> RunResult:
    """Return a result with `text` as version, param, host, reason, warning and log: wherever an image or a tag can
    supply text.
    """
    series = build.series(f"s{text}", ["1.0", text, "3.0"])
    lane = replace(build.HERE, host=replace(build.HERE.host, name=f"h{text}"), gpu=f"g{text}")
    variant = build.variant(f"v{text}", param=text)
    result = build.run(
        [(series, [lane], [variant])],
        lambda version, _lane, _variant: (
            replace(build.crash(), why=text) if version == text else build.unknown("inconclusive", text)
        ),
        findings=[build.finding(series, lane, variant, before="1.0", after=text, untestable=(text,))],
        warnings=[text],
        problems={f"h{text}": text},
    )
    cells = tuple(
        replace(cell, trials=tuple(replace(trial, output=replace(trial.output, tail=text)) for trial in cell.trials))
        for cell in result.cells
    )
    return replace(result, cells=cells, matrix=text)


class Page(HTMLParser):
    """The tags, attributes and text of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.text: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        self.text.append(data)


class Elements(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, Mapping[str, str]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, {name: value or "" for name, value in attrs}))


def shown(
    result: RunResult, *, width: int = 100, encoding: str = "utf-8", color: bool = False, wide: bool = False
) -> str:
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding=encoding, newline="")
    system = "standard" if color else None
    console = Console(file=file, width=width, force_terminal=color, color_system=system)  # type: ignore[arg-type]
    run_report.render(result, console, wide=wide)
    file.flush()
    return "\n".join(line.rstrip() for line in raw.getvalue().decode(encoding).splitlines())


BROWSERS = ("chromium", "chromium-browser", "google-chrome")


REQUIRED = os.environ.get("HARNESS_REQUIRE_CHROMIUM") == "1"


FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--hide-scrollbars",
    "--window-size=1280,3000", "--run-all-compositor-stages-before-draw",
    "--host-resolver-rules=MAP * ~NOTFOUND", "--enable-logging=stderr", "--virtual-time-budget=30000",
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


@pytest.fixture(scope="module")
def library() -> str:
    return chart_library(os.environ, pytest.fail)


def saved(folder: Path, page: str) -> Path:
    path = folder / "report.html"
    path.write_text(page, encoding="utf-8")
    return path


def complaints(log: str) -> list[str]:
    """Return what the page, not the browser itself, wrote into the browser's log."""
    return re.findall(r".*CONSOLE.*", log)


def asked(page: str, question: str) -> str:
    """Return the page with an additional script, which its policy allows: it puts an answer into the title."""
    script = f"document.title = JSON.stringify(await (async () => {{ {question} }})())"
    known = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    allowed = page.replace("script-src ", f"script-src 'sha256-{known}' ", 1)
    # The library contains an end tag in a string: only the last one is the page's.
    return f"<script type=module>{script}</script></body>".join(allowed.rsplit("</body>", 1))


def answer(dump: str) -> object:
    return json.loads(unescape(re.findall(r"<title>(.*?)</title>", dump)[0]))


def in_frames(folder: Path, pages: Iterable[tuple[Path, int]], question: str = "() => null") -> Path:
    """Return a page that shows these, each in a frame of its width, and puts their answers into its title. No window of
    the browser is as narrow as a phone, but a frame can be. `question`: a function of the document in a frame."""
    frames = "".join(f'<iframe src="{page.as_uri()}" width="{width}" height="900"></iframe>' for page, width in pages)
    answers = f"[...document.querySelectorAll('iframe')].map(frame => ({question})(frame.contentDocument))"
    page = folder / "frames.html"
    page.write_text(f"{frames}<script>onload = () => document.title = JSON.stringify({answers})</script>")
    return page


def complaints_and_urls(browser: Browser, page: Path) -> tuple[list[str], list[str]]:
    """Return what a page, and those in its frames, complained about, and what they asked for besides files."""
    log = browser.folder / "net.json"
    ended = browser.run(page, "--dump-dom", f"--log-net-log={log}")
    urls = re.findall(r'"url":"([a-z]+:[^"]*)"', log.read_text())
    return complaints(ended.stderr), [
        url for url in urls if not url.startswith("file:") and not _is_the_browsers_own(url)
    ]


READS_FRAMES = "--allow-file-access-from-files"


def _is_the_browsers_own(url: str) -> bool:
    return url.startswith(("data:", "chrome", "devtools:")) or "google" in url
