"""Defines `harness sweep`, which runs a matrix."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness.cli.common import (
    FILE,
    FRESH,
    HOSTS,
    OUT,
    QUICK,
    SERIES,
    SUMMARY,
    TIME,
    TRIALS,
    UNTIL,
    WIDE,
    option,
    search_by,
    shown_progress,
    stop_on_signals,
    to_stdout,
)
from harness.errors import UsageError

if TYPE_CHECKING:
    from harness.model import RunResult, SearchMode, Stop, Trials


@click.command()
@click.argument("matrix", type=FILE)
@click.option("--dry-run", is_flag=True, help="Print the plan (launches, images, maximum time) and start nothing.")
@click.option(
    "--only",
    multiple=True,
    metavar="PATTERN",
    help="Only scenarios or variants that match: 'signal', 'signal op=rfft*'.",
)
@HOSTS
@SERIES
@TRIALS
@search_by(default="full")
@click.option(
    "--seed", type=int, help="Random seed for the launch order. Every run prints its seed, so that it can be repeated."
)
@click.option("--decide", is_flag=True, help="Run only the cells that can settle a cause, each for its whole budget.")
@UNTIL
@QUICK
@TIME
@FRESH
@OUT
@WIDE
@SUMMARY
def sweep(
    *, matrix: Path, dry_run: bool, only: tuple[str, ...], hosts: tuple[str, ...], series: tuple[str, ...],
    trials: str | None, search: SearchMode | None, seed: int | None, decide: bool, until: str | None, quick: bool,
    time: str | None, fresh: bool, out: Path, wide: bool, as_json: bool,
) -> None:  # fmt: skip
    """Run every image of MATRIX with every scenario, and find the first bad version.

    Trials of earlier runs are reused. Ctrl-C ends cleanly; the same command resumes.

    \b
    For example:
      harness sweep matrix.yaml --dry-run
      harness sweep matrix.yaml --host new --only 'signal op=rfft'
      harness sweep matrix.yaml --search bisect
      harness sweep matrix.yaml --until first-bad --time 2h

    Exit status: EXIT_CODES.
    """
    from harness.cli.results import print_result, swept
    from harness.flows import deciding
    from harness.flows.sweep import SweepOptions, checked_data, explained, selected
    from harness.report.terminal import plan_output

    options = SweepOptions(
        only=only, hosts=hosts, series=series, trials=trials_of(trials), search=search or "full",
        seed=seed, decide=decide, stop=stop_of(until, quick=quick, time=time), fresh=fresh, out=out,
    )  # fmt: skip
    with stop_on_signals() as stopped:
        planned = selected(matrix, options, os.environ)
        if dry_run:
            with shown_progress(stopped) as context:
                plan = replace(explained(planned, options), data=checked_data(planned, context))
            with to_stdout():
                click.echo(json.dumps(asdict(plan), indent=1, default=str) if as_json else plan_output.dry_run(plan))
            return
        if decide and (known := deciding.settled(planned, out)) is not None:
            _print_settled(known, as_json=as_json)
            sys.exit(known.exit_code)
        result = swept(planned, options, stopped)
    print_result(result, as_json=as_json, wide=wide)
    sys.exit(result.exit_code)


def trials_of(text: str | None) -> Trials | None:
    """Parse launches per cell, such as `3` or `3:8` (least and most). Raises UsageError."""
    from harness.model import MOST_TRIALS, Trials

    if text is None:
        return None
    least, _, most = text.partition(":")
    try:
        trials = Trials(least=int(least), most=int(most or least))
    except ValueError:
        raise UsageError(f"--trials: {text!r} is not LEAST or LEAST:MOST, such as 3 or 3:8") from None
    if not 1 <= trials.least <= trials.most <= MOST_TRIALS:
        raise UsageError(f"--trials: {text!r}: both must be from 1 to {MOST_TRIALS}, and MOST at least LEAST")
    return trials


def stop_of(until: str | None, *, quick: bool, time: str | None) -> Stop | None:
    """Return when to end early; None: as the matrix says. Raises UsageError."""
    from harness.model import Stop
    from harness.model.forms import seconds

    if until is None and not quick and time is None:
        return None
    if until == "end" and (quick or time is not None):
        raise UsageError("--until end goes on to the end; leave out --quick and --time, or --until")
    time_s = None if time is None else option("--time", seconds, time)
    return Stop(first_bad=until == "first-bad", quick=quick, time_s=time_s)


def _print_settled(result: RunResult, *, as_json: bool) -> None:
    """Print that nothing is left to decide; with `as_json` to stderr, because stdout is for the JSON."""
    from harness.cli.results import print_result

    is_open = any(one.cause == "undecided" for one in result.attribution)
    state = "has a cause that no cell of this matrix can decide" if is_open else "leaves no cause undecided"
    with to_stdout():
        told = f"nothing to decide: {result.directory} {state} (verdict: {result.verdict})"
        click.echo(f"{told}; without --decide, hosts with a new driver are measured again", err=as_json)
    if as_json:
        print_result(result, as_json=True)
