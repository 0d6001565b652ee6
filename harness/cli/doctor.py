"""`harness doctor`."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import click

from harness.cli.common import FILE, to_stdout
from harness.cli.interrupt import stop_on_signals


@click.command()
@click.argument("matrix", type=FILE)
@click.option("--host", "hosts", multiple=True, metavar="NAME", help="Check only this host. Repeatable.")
@click.option("--out", type=FILE, default=Path("reports"), show_default=True, help="Folder of the earlier runs.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of the tables.")
def doctor(*, matrix: Path, hosts: tuple[str, ...], out: Path, as_json: bool) -> None:
    """Check the hosts of MATRIX, all at once, and which image can run where, before a sweep.

    Shows for each host: reachability, engine, GPUs, lease, free disk space, noise, and leftovers of killed runs. No
    trial is run.

    \b
    For example:
      harness doctor matrix.yaml
      harness doctor matrix.yaml --host new --json

    Exit status: 0; 3 if a host cannot be used.
    """
    from harness.cli.terminal import Terminal
    from harness.flows import doctor as doctor_flow
    from harness.flows.parts.context import RunContext
    from harness.flows.parts.registries import open_registries
    from harness.report.terminal import doctor as doctor_report
    from harness.report.terminal import doctor_json
    from harness.report.terminal.progress import open_progress

    with stop_on_signals() as stopped, open_progress(sys.stderr, os.environ) as watching:
        context = RunContext(environ=os.environ, progress=watching, stopped=stopped)
        registry = open_registries(os.environ, stopped)
        found = doctor_flow.check(matrix, hosts=hosts, out=out, context=context, registry=registry)
    with to_stdout():
        if as_json:
            click.echo(json.dumps(doctor_json.to_json(found), indent=1, allow_nan=False))
        else:
            doctor_report.render(found, Terminal(highlight=False))
    sys.exit(doctor_json.exit_code(found))
