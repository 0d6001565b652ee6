"""Defines `harness watch`, which sweeps what registries publish."""

from __future__ import annotations

import functools
import json
import os
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from harness.cli.common import FILE, OUT, option, say, stop_on_signals, to_stdout

if TYPE_CHECKING:
    from harness.history.looks import RegistryLook
    from harness.model import Plan, RunResult


@click.command()
@click.argument("matrix", type=FILE)
@click.option("--once", is_flag=True, help="Look once and exit: for cron, timers and CI.")
@click.option("--interval", default="1h", show_default=True, metavar="TIME", help="Time between two looks: 90s, 6h.")
@click.option(
    "--digests",
    type=click.Choice(["some", "all"]),
    default="some",
    show_default=True,
    help="For a repository of more than 100 known tags: check all of them for republished images at each look, or some "
    "in turn, with about 5 requests per repository and look.",
)
@OUT
@click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object per look, and the summary.json of its run."
)
def watch(
    *, matrix: Path, once: bool, interval: str, digests: Literal["some", "all"], out: Path, as_json: bool
) -> None:  # fmt: skip
    """Look for new tags and republished images of MATRIX, and run only those, together with the last good one.

    If nothing is new, it prints one line and exits with 0. At the first look, every image is new; launches of
    earlier sweeps count.

    \b
    For example:
      harness watch matrix.yaml --once
      harness watch matrix.yaml --interval 6h

    Exit status: 0 if nothing is new, else that of the sweep, or 1 if anything drifts over the versions.
    """
    from harness.flows.context import open_registries
    from harness.history.watch import WatchedMatrix
    from harness.model import forms

    interval_s = None if once else option("--interval", forms.seconds, interval)
    with stop_on_signals() as stopped:
        code = WatchedMatrix(
            matrix=matrix,
            out=out,
            interval_s=interval_s,
            digests=digests,
            environ=os.environ,
            images=open_registries(os.environ, stopped),
            run=functools.partial(_sweep, out=out, as_json=as_json, stopped=stopped),
            tell=functools.partial(_tell, as_json=as_json),
            drifts=functools.partial(_drifts, out=out, as_json=as_json),
            stopped=stopped,
        ).watch()
    sys.exit(code)


def _tell(seen: RegistryLook, *, as_json: bool) -> None:
    from harness.history import looks

    with to_stdout():
        click.echo(json.dumps(looks.as_json(seen)) if as_json else looks.line(seen))


def _drifts(matrix: str, *, out: Path, as_json: bool) -> bool:
    from harness.history import words
    from harness.history.exports import drifts_json
    from harness.history.selection import list_drifts

    drifting = list_drifts(out, matrix=matrix, say=say)
    with to_stdout():
        if as_json and drifting:
            click.echo(json.dumps({"drifts": [drift for one in drifting for drift in drifts_json(one)]}))
        elif not as_json:
            for history in drifting:
                for drift in history.drifts:
                    click.echo(f"drift: {words.history_place(history)}: {words.drift_text(drift)}")
    return bool(drifting)


def _sweep(plan: Plan, *, fresh: bool, out: Path, as_json: bool, stopped: threading.Event) -> RunResult:
    # Imported only if something is new: importing everything that a sweep needs takes longer than a look.
    from harness.cli.results import print_result, swept
    from harness.flows.sweep import SweepOptions

    result = swept(plan, SweepOptions(fresh=fresh, out=out), stopped)
    print_result(result, as_json=as_json)
    return result
