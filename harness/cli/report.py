"""`harness report`."""

from __future__ import annotations

from pathlib import Path

import click

from harness.cli.common import FILE, WIDE, to_stdout, write_file
from harness.errors import UsageError

FORMATS = ("html", "md", "json", "junit", "csv", "terminal")


@click.command()
@click.argument("run")
@click.option(
    "--format",
    "wanted",
    type=click.Choice(FORMATS),
    default="terminal",
    show_default=True,
    help="Format of the report.",
)
@WIDE
@click.option("--out", type=FILE, help="Write the report to this file instead of stdout.")
@click.option("--in", "folder", type=FILE, default=Path("reports"), show_default=True, help="Folder of the runs.")
def report(*, run: str, wanted: str, wide: bool, out: Path | None, folder: Path) -> None:
    """Print or write a report of RUN: a directory, an id, a matrix's name, or `latest`.

    Nothing is measured or judged again, and the run is not changed.

    \b
    For example:
      harness report latest
      harness report latest --format md --out report.md

    Exit status: 0, whatever the run found; 2 if there is no such run.
    """
    from harness.cli import results
    from harness.flows.parts import lookup, reread
    from harness.report.terminal import run_report

    if wide and wanted != "terminal":
        raise UsageError("--wide: applies only to --format terminal; html, json and csv contain every signal anyway")
    result = reread.read_result(lookup.find_run(run, out=folder))
    if out is not None:
        write_file(out, run_report.text(result, wide=True) if wide else results.FORMATS[wanted](result))
    elif wanted == "terminal":
        results.print_result(result, as_json=False, wide=wide)
    else:
        content = results.FORMATS[wanted](result)
        with to_stdout():
            click.echo(content, nl=False)
