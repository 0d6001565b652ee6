"""`harness compare`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from harness.cli.common import OUT, to_stdout


@click.command()
@click.argument("runs", nargs=-1, required=True, metavar="RUN [RUN]...")
@click.option("--json", "as_json", is_flag=True, help="Print the comparison as JSON instead of the table.")
@OUT
def compare(*, runs: tuple[str, ...], as_json: bool, out: Path) -> None:
    """Compare separate runs, from several hosts or days; of one RUN, compare its hosts.

    A RUN is the directory of a run (which may be a copy from another machine), an id, a matrix's name or `latest`.
    Cells are compared only if nothing but host, GPU and day differs.

    \b
    For example:
      harness compare reports/m/latest old/reports/m/latest
      harness compare reports/m/latest

    Exit status: 0 nothing bad, 1 something bad, 2 wrong usage, 4 undecided.
    """
    from harness.cli.terminal import Terminal
    from harness.flows.compare import compare_runs
    from harness.flows.parts.lookup import find_run
    from harness.report.terminal import compare as compare_report

    found = compare_runs([find_run(run, out=out) for run in runs])
    with to_stdout():
        if as_json:
            click.echo(json.dumps(compare_report.to_json(found), indent=1, allow_nan=False))
        else:
            compare_report.render(found, Terminal(highlight=False))
    sys.exit(found.exit_code)
