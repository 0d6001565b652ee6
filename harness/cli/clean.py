"""`harness clean`."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import click

from harness.cli.common import FILE, OUT, option, say, show, to_stdout
from harness.cli.interrupt import STOPPING
from harness.errors import EngineUnreachable, UsageError
from harness.flows import clean as clean_flow
from harness.flows.parts import old_runs


@click.command()
@click.argument("matrix", type=FILE, required=False)
@click.option("--images", is_flag=True, help="Also remove images and environments that the harness pulled or made.")
@click.option(
    "--runs", metavar="OLDER_THAN", help="Also remove directories of runs that began longer ago: 12h, 30d, 8w."
)
@OUT
@click.option("--dry-run", is_flag=True, help="Print what would be removed, and remove nothing.")
def clean(*, matrix: Path | None, images: bool, runs: str | None, out: Path, dry_run: bool) -> None:
    """Remove what killed runs left behind on the hosts of MATRIX (default: this machine).

    Nothing is removed that belongs to others or to a living run. Images that were there before the harness stay, and so
    does the newest run of each matrix.

    \b
    For example:
      harness clean --dry-run
      harness clean matrix.yaml --images --runs 30d

    Exit status: 0; 3 if a host of MATRIX cannot be reached.
    """
    older_than = None if runs is None else option("--runs", old_runs.age, runs)
    if older_than is not None and not out.is_dir():
        raise UsageError(f"--out: {out}: no such folder; runs are kept there")  # before anything is removed
    for number in STOPPING:
        signal.signal(number, signal.default_int_handler)  # as Ctrl-C: a request to a queue is taken back
    name, hosts = clean_flow.hosts_of(matrix, os.environ)
    problems = []
    for host in clean_flow.clean(hosts, images=images, dry_run=dry_run, environ=os.environ, say=say):
        with to_stdout():
            show(f"{host}\n")
        problems += [host.problem] if host.problem else []
    if older_than is not None:
        for line in old_runs.clean(out, matrix=name, older_than=older_than, dry_run=dry_run):
            with to_stdout():
                show(f"{line}\n")
    if matrix is not None and problems:
        raise EngineUnreachable("\n".join(problems))
