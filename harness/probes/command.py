"""Defines `harness probe`, whose measurements inside scenarios do not affect any verdict."""

from __future__ import annotations

import os
from pathlib import Path

import click

from harness import doors
from harness.cli.common import FILE, HOSTS, SERIES, say, shown_progress, stop_on_signals, to_stdout
from harness.errors import InfrastructureError

PROBES = ("artifacts", "largest", "lines", "optrace", "valgrind")


@click.command()
@click.argument("matrix", type=FILE)
@click.option("--with", "names", multiple=True, type=click.Choice(PROBES), help="Run only this probe. Repeatable.")
@click.option("--only", multiple=True, metavar="PATTERN", help="Only scenarios or variants that match.")
@HOSTS
@SERIES
@click.option("--out", type=FILE, default=Path("reports"), show_default=True, help="Folder for the results.")
def probe(
    *, matrix: Path, names: tuple[str, ...], only: tuple[str, ...], hosts: tuple[str, ...], series: tuple[str, ...],
    out: Path,
) -> None:  # fmt: skip
    """Examine the scenarios of MATRIX from inside, with the probes that they request.

    Probes: op traces, tables by line, leaks by valgrind, the largest size that fits. Each probe has separate launches,
    which no verdict uses.

    \b
    For example:
      harness probe matrix.yaml
      harness probe matrix.yaml --with optrace --only signal

    Exit status: 0; 3 if a probe failed.
    """
    from harness.cli.results import write_readable
    from harness.flows.sweep import SweepOptions, selected
    from harness.probes import flow as probing
    from harness.probes import printed as probe_report
    from harness.probes.results import added_to_newest_run
    from harness.store import RunDirectory
    from harness.store.saved_run import read_result

    options = SweepOptions(only=only, hosts=hosts, series=series, out=out)
    with stop_on_signals() as stopped, shown_progress(stopped) as context:
        plan = selected(matrix, options, os.environ)
        found, directory = probing.probe(plan, options, context, names=names)
    with added_to_newest_run(directory, out=out, matrix=plan.matrix.name) as run:
        if run is not None:
            write_readable(read_result(run), RunDirectory(run))
    doors.after_runs(out, say=say)
    with to_stdout():
        click.echo(probe_report.render(found, directory))
        if run is not None:
            click.echo(f"Report: {run / 'report.html'}")
    if problems := [f"{each.cell}: {each.problem}" for each in found if each.problem]:
        raise InfrastructureError("\n".join(problems))
