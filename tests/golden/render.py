"""Renders a run as every report shows it, in one text that a person can read as a diff.

The reports are made from the run's directory, as `harness report` makes them. The page is its visible text. What a
machine writes for machines is laid out in lines, and its figures are rounded.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from unittest import mock

import vl_convert

from harness.cli.results import numbered, write_result
from harness.errors import UsageError
from harness.flows import evidence
from harness.model import RunResult
from harness.report import html_page
from harness.report.exports import cell_table, junit, markdown, summary_json
from harness.report.issue import bug_report, reproduction
from harness.report.terminal import run_report
from harness.report.text import headline
from harness.run.trial.payload import keep_inputs
from harness.store import RunDirectory
from harness.store.plan_file import plan_to_json
from harness.store.saved_run import StoredRun, read_result, read_run
from tests.golden.load import answers, judged, read

DIRECTORY = Path("reports/golden/20250301T120000Z-1a2b")
STARTED, DURATION_S = "2025-03-01T12:00:00Z", 200.0
WIDTH = 150


@contextlib.contextmanager
def inside(folder: Path) -> Iterator[None]:
    """Make `folder` the current one, so that reports name no path of this machine."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def written(result: RunResult, directory: Path = DIRECTORY) -> Path:
    """Write a run as a sweep leaves it, and return its directory."""
    (directory / "trials").mkdir(parents=True)
    kept = partial(keep_inputs, directory=directory)
    (directory / "plan.json").write_text(json.dumps(plan_to_json(result.plan, inputs=kept)))
    for entry in result.cells:
        for trial in entry.trials:
            RunDirectory(directory).write_trial(trial, entry.cell)
    write_result(result, RunDirectory(directory))
    return directory


def rendered(result: RunResult) -> str:
    """Return all reports of a run, written below the current folder, one after another."""
    directory = written(replace(result, started=STARTED, duration_s=DURATION_S))
    told: dict[str, str] = {}
    with mock.patch.multiple(vl_convert, vegalite_to_svg=lambda *_, **__: "", vegalite_to_png=lambda *_, **__: b""):
        for name, text in _reports(read_result(directory), read_run(directory)):
            told[name] = re.sub(r"[ \t]+\n", "\n", _once(f"{text}\n", told)).rstrip()
    return "\n".join(f"{'=' * 20} {name}\n\n{text}\n" for name, text in told.items())


def _once(text: str, told: Mapping[str, str]) -> str:
    """Return the text without the code of which an earlier report is full."""

    def again(code: re.Match[str]) -> str:
        earlier = (name for name, report in told.items() if code[2] in report)
        return next((f"{code[1]}(as in the {name}){code[3]}" for name in earlier), code[0])

    return re.sub(r"(?s)(```\w+\n)(.{200,}?\n)(```\n)", again, text)


def _reports(result: RunResult, stored: StoredRun) -> Iterator[tuple[str, str]]:
    result = numbered(result)
    yield "headline", headline.sentence(result)
    yield "terminal", run_report.text(result)
    yield "terminal, wide", run_report.text(result, wide=True)
    yield "page", page_text(html_page.render(result, library="library"))
    yield "Markdown", markdown.render(result)
    yield "summary.json", "\n".join(laid_out(_decided(json.loads(summary_json.encoded(result)))))
    yield "JUnit", _rounded(junit.render(result))
    yield "cells.csv", _rounded(cell_table.cells_csv(result))
    for number, finding in enumerate(stored.findings, start=1):
        report = bug_report.render(evidence.issue(stored, finding, inspect=None), harness_version="VERSION")
        yield f"bug report of finding {number}", report.markdown
        yield f"beside bug report {number}", "\n".join([*report.files, *(f"warning: {one}" for one in report.warnings)])
    for cell in list(stored.plan.cells)[-1:]:
        try:
            yield f"repro of {cell}", reproduction.shell(evidence.recipe(stored, cell))
        except UsageError as error:
            yield f"repro of {cell}", str(error)


# ---------------------------------------------------------------- figures


def _rounded(text: str) -> str:
    """Return the text with six digits of each long figure; the last ones may differ on another processor."""
    return re.sub(r"\d+\.\d{6,}(?:e[-+]?\d+)?", lambda found: f"{float(found[0]):.6g}", text)


def _decided(value: Any) -> Any:
    """Return what was decoded from JSON with rounded figures, and of signals that are `none` only their names."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, list):
        return [_decided(each) for each in value]
    if not isinstance(value, dict):
        return value
    told = {name: _decided(each) for name, each in value.items()}
    if isinstance(value.get("signals"), dict):
        none: dict[str, str] = {}
        for name, signal in value["signals"].items():
            if signal["seen"] == "none":
                none[signal["why"]] = f"{none.get(signal['why'], '')} {name}".strip()
                del told["signals"][name]
        told["signals that are none"] = none
    return told


def laid_out(value: Any, indent: str = "") -> Iterator[str]:
    """Yield the lines of a value that was decoded from JSON: what fits on a line stands on one."""
    text = json.dumps(value, ensure_ascii=False)
    if len(indent) + len(text) <= WIDTH or not isinstance(value, dict | list) or not value:
        yield f"{indent}{text}"
        return
    entries = value.items() if isinstance(value, dict) else ((None, each) for each in value)
    for name, each in entries:
        label = "" if name is None else f"{name}: "
        first, *rest = laid_out(each, indent + " ")
        if rest:
            yield from [f"{indent}{label.strip() or '-'}", first, *rest]
        else:
            yield f"{indent}{label}{first.strip()}"


# ---------------------------------------------------------------- page


class _Visible(HTMLParser):
    """Collects what a reader of a page sees or hears: a line for each block, and a row of a table on one line."""

    BLOCKS = (
        "p",
        "h1",
        "h2",
        "h3",
        "li",
        "dt",
        "dd",
        "tr",
        "caption",
        "summary",
        "pre",
        "title",
        "div",
        "br",
        "figure",
    )
    HIDDEN = ("style", "script")

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.line = ""
        self.hidden = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag in self.HIDDEN:
            self.hidden = tag
        if tag in self.BLOCKS:
            self.end_line()
        if tag in ("h1", "h2", "h3", "summary", "caption"):
            self.line += "# "
        if tag in ("td", "th") and self.line:
            self.line += " | "
        if tag == "details":
            self.end_line()
            self.line += "(open) " if "open" in given else "(shut) "
        if tag == "svg" or "data-chart" in given:
            self.line += f"[{given.get('aria-label') or 'chart'}]"
        if given.get("data-tip"):
            self.line += f"{{{given['data-tip']}}} "

    def handle_endtag(self, tag: str) -> None:
        if tag == self.hidden:
            self.hidden = ""
        if tag in self.BLOCKS:
            self.end_line()

    def handle_data(self, data: str) -> None:
        if not self.hidden:
            self.line += data

    def end_line(self) -> None:
        if text := " ".join(self.line.split()):
            self.lines.append(text)
        self.line = ""


def page_text(page: str) -> str:
    """Return a page's visible text."""
    visible = _Visible()
    visible.feed(page)
    visible.end_line()
    return "\n".join(visible.lines)


@dataclass(frozen=True, kw_only=True)
class Replayed:
    """A golden run as the harness judges and reports it now."""

    name: str
    answers: dict[str, Any]
    reports: str


def replayed(name: str) -> Replayed:
    """Judge and report a golden run, in a folder of its own."""
    with tempfile.TemporaryDirectory() as folder, inside(Path(folder)):
        result, launched = judged(read(name), Path())
        found = json.loads(json.dumps(answers(result, launched)))
        return Replayed(name=name, answers=found, reports=rendered(result))
