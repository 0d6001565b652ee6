"""Defines `harness report`, `compare` and `frontier`, which show what runs found."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from harness.cli.common import FILE, IN, JSON, WIDE, print_json, to_stdout, write_file
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
@IN
def report(*, run: str, wanted: str, wide: bool, out: Path | None, source: Path) -> None:
    """Print or write a report of RUN: a directory, an id, a matrix's name, or `latest`.

    Nothing is measured or judged again, and the run is not changed.

    \b
    For example:
      harness report latest
      harness report latest --format md --out report.md

    Exit status: 0, whatever the run found; 2 if there is no such run.
    """
    from harness.store import lookup

    if wide and wanted != "terminal":
        raise UsageError("--wide: applies only to --format terminal; html, json and csv contain every signal anyway")
    path = lookup.find_run(run, out=source)
    from harness.cli import results
    from harness.report.terminal import run_report
    from harness.store.saved_run import read_result

    result = read_result(path)
    if out is not None:
        write_file(out, run_report.text(result, wide=True) if wide else results.FORMATS[wanted](result))
    elif wanted == "terminal":
        results.print_result(result, wide=wide)
    else:
        content = results.FORMATS[wanted](result)
        with to_stdout():
            click.echo(content, nl=False)


@click.command()
@click.argument("runs", nargs=-1, required=True, metavar="RUN [RUN]...")
@JSON
@IN
def compare(*, runs: tuple[str, ...], as_json: bool, source: Path) -> None:
    """Compare separate runs, from several hosts or days. For one RUN, compare its hosts.

    A RUN is the directory of a run (which may be a copy from another machine), an id, a matrix's name or `latest`.
    Cells are compared only if nothing but host, GPU and day differs.

    \b
    For example:
      harness compare reports/m/latest old/reports/m/latest
      harness compare reports/m/latest

    Exit status: EXIT_CODES.
    """
    from harness.cli.results import Terminal
    from harness.flows.compare import compare_runs
    from harness.report.terminal import compare_output
    from harness.store.lookup import find_run

    comparison = compare_runs([find_run(run, out=source) for run in runs])
    with to_stdout():
        if as_json:
            print_json(compare_output.to_json(comparison))
        else:
            compare_output.render(comparison, Terminal(highlight=False))
    sys.exit(comparison.exit_code)


@click.command()
@click.argument("run")
@IN
def frontier(*, run: str, source: Path) -> None:
    """Print and plot peak memory against throughput for the variants of RUN; mark those that no other beats in both.

    Throughput is the param `batch`, or 1 without it, divided by the median step time. Writes the plot frontier.svg into
    RUN: a directory, an id, a matrix's name or `latest`.

    \b
    For example:
      harness frontier pressure

    Exit status: 0; 2 if there is no such run.
    """
    from harness.flows.compare import settings_of
    from harness.report.terminal import compare_output
    from harness.store import RunDirectory, lookup

    path = lookup.find_run(run, out=source)
    settings = settings_of(path)
    RunDirectory(path).write("frontier.svg", compare_output.frontier_svg(settings))
    with to_stdout():
        click.echo(compare_output.frontier_table(settings))


# ---------------------------------------------------------------- authoring


@click.command()
@click.argument("of", type=click.Choice(["matrix", "summary"]), default="matrix")
def schema(*, of: str) -> None:
    """Print the JSON Schema of matrix.yaml, for editors; or of summary.json, for programs that read it.

    \b
    For example:
      harness schema > matrix.schema.json
      harness schema summary

    Exit status: 0.
    """
    from harness.matrix.shape import schema as matrix_schema
    from harness.report.exports.summary_json import schema as summary_schema

    with to_stdout():
        print_json(matrix_schema() if of == "matrix" else summary_schema())
