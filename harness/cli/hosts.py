"""Defines `harness doctor` and `clean`: the state of hosts, and what killed runs left there."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import click

from harness.cli.common import (
    FILE,
    HOSTS,
    IN,
    JSON,
    OUT,
    heard,
    option,
    print_json,
    say,
    show,
    shown_progress,
    stop_on_signals,
    to_stdout,
)
from harness.errors import EngineUnreachable, UsageError


@click.command()
@click.argument("matrix", type=FILE, required=False)
@HOSTS
@IN
@JSON
def doctor(*, matrix: Path | None, hosts: tuple[str, ...], source: Path, as_json: bool) -> None:
    """Check all hosts of MATRIX in parallel, and which image can run where, before a sweep; without MATRIX, this
    machine.

    Shows for each host: reachability, engine, GPUs, lease, free disk space, noise, leftovers of killed runs, and which
    change in step time a sweep will show; if no earlier run tells, a control runs there for half a minute.

    \b
    For example:
      harness doctor
      harness doctor matrix.yaml
      harness doctor matrix.yaml --host new --json

    Exit status: 0; 3 if a host cannot be used.
    """
    from harness.cli.results import Terminal
    from harness.flows import doctor as flow
    from harness.flows.context import open_registries
    from harness.report.terminal import doctor_output

    if matrix is None:
        if hosts:
            raise UsageError(f"--host {hosts[0]}: is for the hosts of a matrix file; name the file, too")
        say("no matrix file, so this machine is checked: its engines, GPUs, disk space and noise, but no image")
    with stop_on_signals() as stopped, shown_progress(stopped) as context:
        registry = open_registries(os.environ, stopped)
        checkup = flow.check(matrix, hosts=hosts, source=source, context=context, registry=registry)
    with to_stdout():
        if as_json:
            print_json(doctor_output.to_json(checkup))
        else:
            doctor_output.render(checkup, Terminal(highlight=False))
    sys.exit(doctor_output.exit_code(checkup))


@click.command()
@click.argument("matrix", type=FILE, required=False)
@click.option("--images", is_flag=True, help="Also remove images and environments that the harness pulled or made.")
@click.option(
    "--runs",
    metavar="OLDER_THAN",
    help="Also remove directories of runs that began longer ago than this: 12h, 30d, 8w.",
)
@OUT
@click.option("--dry-run", is_flag=True, help="Print what would be removed, and remove nothing.")
def clean(*, matrix: Path | None, images: bool, runs: str | None, out: Path, dry_run: bool) -> None:
    """Remove what killed runs left behind on the hosts of MATRIX (default: this machine).

    It removes nothing that belongs to others or to a live run. Images that were there before the harness asked for them
    stay, and so does the newest run of each matrix.

    \b
    For example:
      harness clean --dry-run
      harness clean matrix.yaml --images --runs 30d

    Exit status: 0; 3 if a host of MATRIX cannot be reached.
    """
    from harness.flows import clean as flow

    older_than = None if runs is None else option("--runs", flow.age, runs)
    if older_than is not None:
        flow.check_folder(out)  # before anything is removed
    for number in heard():
        signal.signal(number, signal.default_int_handler)  # like Ctrl-C: a request to a queue is withdrawn
    name, hosts = flow.hosts_of(matrix, os.environ)
    problems = []
    for host in flow.clean(hosts, images=images, dry_run=dry_run, environ=os.environ, say=say):
        with to_stdout():
            show(f"{host}\n")
        problems += [host.problem] if host.problem else []
    if older_than is not None:
        for line in flow.clean_runs(out, matrix=name, older_than=older_than, dry_run=dry_run):
            with to_stdout():
                show(f"{line}\n")
    if matrix is not None and problems:
        raise EngineUnreachable("\n".join(problems))
