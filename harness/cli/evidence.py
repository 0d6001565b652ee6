"""Defines `harness repro`, `issue` and `diff`: the evidence behind one finding or cell of a run."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness import __version__
from harness.cli.common import FILE, IN, JSON, print_json, say, show, to_stdout, write_file
from harness.errors import InfrastructureError, UsageError

if TYPE_CHECKING:
    from harness.flows.evidence import Inspect
    from harness.model import Finding
    from harness.store.saved_run import StoredRun

ASK_ENGINE = click.option(
    "--ask-engine", is_flag=True, help="Ask the engine that RUN names for the images' settings and layers."
)


@click.command()
@click.argument("run")
@click.argument("cell", nargs=-1, required=True)
@click.option(
    "--script", type=FILE, metavar="FILE", help="Write the script to FILE; for FILE.py, only its Python part."
)
@IN
def repro(*, run: str, cell: tuple[str, ...], script: Path | None, source: Path) -> None:
    """Print a shell script that runs a CELL of RUN again, without the harness.

    RUN is a run's directory, its id, or `latest`. CELL is the cell's id, or words that match only this cell: series,
    version, host, scenario, params as name=value. The number of a finding means the finding's bad version.

    \b
    For example:
      harness repro latest 1
      harness repro latest multidict 6.3.0
      harness repro latest multidict 6.3.0 --script again.sh

    Exit status: 0; 2 if there is no such cell.
    """
    from harness.flows.evidence import recipe
    from harness.report.issue import reproduction
    from harness.store import lookup

    stored = lookup.open_run(run, out=source)
    chosen = lookup.find_cell(stored, cell)
    made = recipe(stored, chosen)
    say(f"cell {chosen.id}: {chosen}")
    is_python = script is not None and script.suffix == ".py"
    text = (reproduction.python_file if is_python else reproduction.shell)(made)
    for line in () if is_python else reproduction.asked_for(made):
        say(line)
    if script is not None:
        write_file(script, text)
        if script.is_file():
            with suppress(OSError):  # some file systems know no permissions
                script.chmod(0o755)
        text = f"{shlex.join(['python3' if is_python else 'sh', str(script)])}\n"
    with to_stdout():
        show(text)


@click.command()
@click.argument("run")
@click.argument("finding", nargs=-1, required=True)
@click.option(
    "--folder", type=FILE, metavar="FOLDER", help="Folder for the report's files.  [default: RUN/issue-NUMBER]"
)
@ASK_ENGINE
@IN
def issue(*, run: str, finding: tuple[str, ...], folder: Path | None, ask_engine: bool, source: Path) -> None:
    """Write a bug report on a FINDING of RUN, ready to paste, with its plots and script, to a folder.

    A terminal gets the name of the report's file; a pipe or a file gets its whole text.

    RUN is a run's directory, its id, or `latest`. FINDING is its number, or words that match no other: series, version,
    metric, scenario, host. The report contains no credentials, home folders or names of machines, but the text of
    the scenario is in it unchanged: read it before you paste it.

    \b
    For example:
      harness issue latest 1
      harness issue latest 1 > report.md
      harness issue latest multidict memory --folder bug

    Exit status: 0; 2 if there is no such finding.
    """
    from harness.flows import evidence
    from harness.report.issue import bug_report

    stored, number, chosen, inspect = _chosen(run, finding, source=source, ask_engine=ask_engine)
    report = bug_report.render(evidence.issue(stored, chosen, inspect=inspect), harness_version=__version__)
    if folder is None:
        _write_into_run(stored.path, f"issue-{number}", report.files)
    else:
        for name, content in report.files.items():
            write_file(folder / name, content, in_new_folder=True)
    if not sys.stdout.isatty():
        with to_stdout():
            show(report.markdown)
    text = (folder or stored.path / f"issue-{number}") / bug_report.TEXT
    beside = ", ".join(name for name in report.files if name != bug_report.TEXT)
    for line in (*stored.lacking, *report.warnings, f"wrote {text}, ready to paste; next to it: {beside}"):
        say(line)


def _chosen(
    run: str, words: tuple[str, ...], *, source: Path, ask_engine: bool
) -> tuple[StoredRun, int, Finding, Inspect | None]:
    """Return the run, the number of the finding and the finding, and how to ask the engine about its images."""
    from harness.flows.evidence import of_engine
    from harness.report.text import finding_words
    from harness.store import lookup

    stored = lookup.open_run(run, out=source)
    number, finding = lookup.find_finding(stored, words, tell=finding_words.line)
    return stored, number, finding, of_engine(finding.lane.host, environ=os.environ) if ask_engine else None


def _write_into_run(run: Path, folder: str, files: Mapping[str, str | bytes]) -> None:
    """Write files into a folder of a run. No link is followed, because the run's directory may come from elsewhere.

    Raises UsageError.
    """
    from harness.store import RunDirectory

    directory = RunDirectory(run)
    try:
        directory.folder(folder)
        for name, content in files.items():
            directory.write(f"{folder}/{name}", content)
    except InfrastructureError as error:
        reason = getattr(error.__cause__, "strerror", None)
        raise UsageError(f"{run / folder}: cannot be written: {reason}; choose another place with --folder") from error


@click.command()
@click.argument("run")
@click.argument("finding", nargs=-1, required=True)
@JSON
@ASK_ENGINE
@IN
def diff(*, run: str, finding: tuple[str, ...], as_json: bool, ask_engine: bool, source: Path) -> None:
    """Show what changed across a FINDING of RUN: packages, libraries, environment, limits, layers.

    RUN is a run's directory, its id, or `latest`. FINDING is its number, or words that match no other: series, version,
    metric, scenario, host. Unknown facts are listed as unknown.

    \b
    For example:
      harness diff latest 1
      harness diff latest multidict 6.3.0 --json

    Exit status: 0; 2 if there is no such finding.
    """
    from harness.flows import evidence
    from harness.report import environment_diff

    stored, _, chosen, inspect = _chosen(run, finding, source=source, ask_engine=ask_engine)
    difference = evidence.difference(stored, chosen, inspect=inspect)
    with to_stdout():
        if as_json:
            print_json(environment_diff.to_json(difference))
        else:
            show(f"{environment_diff.render(difference)}\n")
