"""Writes the reports of a run into its directory, and prints one of them on stdout."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import click
from rich.console import Console

from harness import doors
from harness.cli.common import say, to_stdout
from harness.errors import UNSTARTED, Interrupted, UsageError
from harness.flows.context import RunContext
from harness.flows.sweep import SweepOptions, sweep
from harness.model import Plan, ProgressListener, RunResult
from harness.report import html_page
from harness.report.charts.library import chart_library
from harness.report.exports import cell_table, junit, markdown, summary_json
from harness.report.terminal import run_report
from harness.report.terminal.progress import open_progress
from harness.report.text import fault_sentences, headline
from harness.store import RunDirectory, result_file

WIDE = 120
"""Width of a report with all signals that goes to a file or a pipe, as in `harness report --out FILE`."""


class Terminal(Console):
    """A console that leaves a broken pipe to `to_stdout`, so that the pipe does not change the exit code of a run."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def write_exports(result: RunResult, directory: RunDirectory) -> None:
    """Write the exports of a result, but not the result itself."""
    directory.write("summary.json", FORMATS["json"](result))
    directory.write("junit.xml", FORMATS["junit"](result))
    directory.write("cells.csv", FORMATS["csv"](result))
    write_readable(result, directory)


def write_result(result: RunResult, directory: RunDirectory) -> None:
    """Write the result, from which all reports can be made again. Its findings are in the order of the reports."""
    causes = [(one["findings"], one["sentence"]) for one in summary_json.attributions_json(result)]
    directory.write(result_file.FILE, result_file.encoded_result(numbered(result), causes=causes))


def numbered(result: RunResult) -> RunResult:
    return replace(result, findings=tuple(fault_sentences.numbered(result)))


def write_readable(result: RunResult, directory: RunDirectory) -> None:
    """Write the reports for people, which also contain the results of later probes."""
    directory.write("report.md", FORMATS["md"](result))
    write_page(result, directory)


def write_page(result: RunResult, directory: RunDirectory) -> None:
    directory.write("report.html", FORMATS["html"](result))


FORMATS: Mapping[str, Callable[[RunResult], str | bytes]] = {
    "html": lambda result: html_page.encoded(result, library=chart_library(os.environ, say)),
    "md": markdown.render,
    "json": summary_json.encoded,
    "junit": junit.render,
    "csv": cell_table.cells_csv,
    "terminal": run_report.text,
}


def print_result(result: RunResult, *, as_json: bool = False, wide: bool = False) -> None:
    with to_stdout():
        if as_json:
            click.echo(summary_json.encoded(result), nl=False)
        else:
            console = Terminal(highlight=False)
            if wide and not console.is_terminal and "COLUMNS" not in os.environ:
                console.width = WIDE  # rather than 80, in which the figures of all signals break within words
            run_report.render(result, console, wide=wide)


def swept(plan: Plan, options: SweepOptions, stopped: threading.Event, *, told: set[str] | None = None) -> RunResult:
    """Sweep with progress on stderr, and write all its reports. `told`: the notes of earlier sweeps of this command.
    Raises Interrupted if the sweep is stopped before."""
    if stopped.is_set():
        raise Interrupted(UNSTARTED)
    notes = set() if told is None else told

    def say_once(text: str) -> None:
        if text not in notes:
            notes.add(text)
            say(text)

    with open_progress(sys.stderr, os.environ, told=notes) as watching:
        so_far = SoFar(progress=watching, write_page=write_page)
        context = RunContext(environ=os.environ, progress=watching, stopped=stopped, so_far=so_far)
        result, directory = sweep(plan, options, context)
        result = numbered(result)
        write_result(result, directory)
        write_exports(result, directory)
        if since := tuple(since_changes(result, say_once)):
            result = replace(result, since=since)
            write_result(result, directory)
            write_exports(result, directory)
        doors.after_runs(options.out, say=say_once)
    return result


def since_changes(result: RunResult, say: Callable[[str], None]) -> Iterator[str]:
    """Yield what became worse on each host whose software has changed since an earlier run; `say` why two runs
    cannot be compared. Only the traces of what was launched in this run are read."""
    from harness.flows.compare import compare_runs
    from harness.report.terminal.compare_output import since_text

    own = [each.cell for each in result.cells if any(trial.started >= result.started for trial in each.trials)]
    ids = {cell.id for each in own for cell in (each, replace(each, replicate=True))}
    for earlier in result.before:
        try:
            comparison = compare_runs(
                [earlier, result.directory],
                keep=lambda trial: trial if trial.cell_id in ids else replace(trial, trace=None),
            )
        except UsageError as error:
            say(f"not compared with the run {earlier}: {error}")
        else:
            yield from (since_text(change, comparison.pairs) for change in comparison.since)


# ---------------------------------------------------------------- so far


COST = 50.0
"""A report is made again after this many times its own duration, so that reports take at most 2 % of the time."""
SENTENCE_S, PAGE_S = 2.0, 30.0


@dataclass(kw_only=True)
class SoFar:
    """Reports what is known after each turn of a row, limited so that it costs next to nothing. Not thread-safe."""

    progress: ProgressListener
    write_page: Callable[[RunResult, RunDirectory], None]
    clock: Callable[[], float] = time.monotonic
    sentence_s: float = 0.0
    page_s: float | None = None
    """The times at which the next sentence and the next page are due, in seconds of `clock`."""

    def __call__(self, made: Callable[[], RunResult], directory: RunDirectory) -> None:
        began_s = self.clock()
        if self.page_s is None:
            self.page_s = began_s + PAGE_S
        if began_s < self.sentence_s:
            return
        result = made()
        if not result.plan.rehearsal:
            self.progress.so_far(headline.sentence(result))
        told_s = self.clock()
        self.sentence_s = told_s + max(SENTENCE_S, COST * (told_s - began_s))
        if began_s >= self.page_s:
            self.write_page(result, directory)
            written_s = self.clock()
            self.page_s = written_s + max(PAGE_S, COST * (written_s - told_s))
