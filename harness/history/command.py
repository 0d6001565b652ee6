"""Defines `harness runs`, `history` and `publish`, what was measured so far, and `harness watch`, which sweeps what
registries publish.
"""

from __future__ import annotations

import functools
import json
import os
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from harness.cli.common import FILE, IN, JSON, OUT, option, print_json, say, stop_on_signals, to_stdout
from harness.errors import UsageError
from harness.exit_codes import OF_VERDICTS
from harness.report.blocks import ReportSection

if TYPE_CHECKING:
    from harness.history.looks import RegistryLook
    from harness.model import Plan, RunResult

SINCE = click.option("--since", metavar="AGE", help="Only runs that began within this time: 12h, 30d, 8w.")
CSV = click.option("--csv", "as_csv", is_flag=True, help="Print CSV, one line per measurement.")
REBUILD = click.option("--rebuild", is_flag=True, help="Rebuild the index from the runs.")
VERDICTS = [each for each in OF_VERDICTS if each != "running"]
NEWEST = 12
"""Versions of each history that are shown without --all or --last."""


@click.command()
@click.option("--matrix", metavar="NAME", help="Only runs of this matrix.")
@click.option("--verdict", type=click.Choice(VERDICTS), help="Only runs with this verdict.")
@SINCE
@click.option("--last", type=click.IntRange(min=1), metavar="N", help="Only the newest N.")
@IN
@REBUILD
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV.")
@JSON
def runs(
    *, matrix: str | None, verdict: str | None, since: str | None, last: int | None, source: Path, rebuild: bool,
    as_csv: bool, as_json: bool,
) -> None:  # fmt: skip
    """List all runs, oldest first.

    \b
    For example:
      harness runs
      harness runs --matrix nightly --verdict regression --since 30d

    Exit status: 0; 2 if there is no such matrix; 3 if the index cannot be used.
    """
    from harness.history import exports
    from harness.history.printing import runs_section
    from harness.history.selection import list_runs

    with _one_format(as_csv=as_csv, as_json=as_json):
        rows = list_runs(
            source, matrix=matrix, verdict=verdict, begins=_begins(since), last=last, rebuild=rebuild, say=say
        )
        if as_json:
            print_json(exports.runs_json(rows))
        elif as_csv:
            click.echo(exports.runs_csv(rows), nl=False)
        else:
            _print([runs_section(rows)] if rows else [ReportSection(title="no runs", blocks=())])


@click.command()
@click.argument("series", required=False)
@click.option("--matrix", metavar="NAME", help="Only runs of this matrix.")
@click.option("--host", metavar="NAME", help="Only this host.")
@click.option("--only", multiple=True, metavar="PATTERN", help="Only variants that match: 'signal op=rfft*'.")
@click.option("--signal", "signals", multiple=True, metavar="NAME", help="Figures of this signal. Repeatable.")
@SINCE
@click.option("--last", type=click.IntRange(min=1), metavar="N", help=f"The newest N images (default: {NEWEST}).")
@click.option("--all", "every", is_flag=True, help="All images.")
@click.option("--days", is_flag=True, help="One line per measurement: what each run found about an image.")
@IN
@REBUILD
@CSV
@JSON
def history(
    *, series: str | None, matrix: str | None, host: str | None, only: tuple[str, ...], signals: tuple[str, ...],
    since: str | None, last: int | None, every: bool, days: bool, source: Path, rebuild: bool, as_csv: bool,
    as_json: bool,
) -> None:  # fmt: skip
    """Show verdicts and figures of SERIES over images and over days (default: all series).

    Each variant of a series has one table for each host and card, with the images from oldest to newest. Below it are
    the findings, with the dates when they were found and fixed, and the drifts.

    \b
    For example:
      harness history
      harness history tensorflow --only 'signal op=rfft*' --days
      harness history tensorflow --signal step_time --csv

    Exit status: 0; 2 if there is no such series; 3 if the index cannot be used.
    """
    from harness.history import exports
    from harness.history.printing import history_section
    from harness.history.selection import check_signals, list_histories

    if every and last is not None:
        raise UsageError("--all and --last: give only one")
    check_signals(signals)
    is_data = as_csv or as_json
    with _one_format(as_csv=as_csv, as_json=as_json):
        views, runs = list_histories(
            source, matrix=matrix, series=series, host=host, only=only, begins=_begins(since), rebuild=rebuild, say=say,
            last=None if every or (is_data and last is None) else last or NEWEST,
            signals=signals if is_data else (),  # verdicts are shown with the figures of others, too
        )  # fmt: skip
        if as_json:
            print_json(exports.histories_json(views, runs))
        elif as_csv:
            click.echo(exports.histories_csv(views, signals=signals), nl=False)
        else:
            _print(history_section(view, runs, signals=signals, days=days) for view in views)


@click.command()
@click.option("--out", type=FILE, required=True, help="Folder of the site: new, empty, or written by an earlier call.")
@IN
@click.option("--url", default="", metavar="URL", help="Address that the site will have, for links in the feed.")
def publish(*, out: Path, source: Path, url: str) -> None:
    """Write a static site of all runs: what is open now, each series over time, findings, a feed and badges.

    Any web server, object store or page host can serve it, and a browser can open it from disk. After a new run, only
    the pages that it changes are written.

    \b
    For example:
      harness publish --out site

    Exit status: 0; 2 if --out holds other files; 3 if the site cannot be written.
    """
    from harness.history.publish import publish as write_site

    if url and not url.startswith(("https://", "http://")):
        raise UsageError(f"--url: {url!r} is not an address; give https://…/")
    told = write_site(source, out, url=f"{url.rstrip('/')}/" if url else "", say=say)
    with to_stdout():
        click.echo(f"{out / 'index.html'}: {told}")


@contextmanager
def _one_format(*, as_csv: bool, as_json: bool) -> Iterator[None]:
    if as_csv and as_json:
        raise UsageError("--csv and --json: give only one")
    with to_stdout():
        yield


def _begins(since: str | None) -> str:
    """Return the earliest start of the runs to show, in ISO 8601; "" to show all."""
    if since is None:
        return ""
    from harness.flows.clean import age

    return (datetime.now(timezone.utc) - option("--since", age, since)).isoformat(timespec="seconds")


def _print(sections: Iterable[ReportSection]) -> None:
    """Print sections, with an empty line after each that has a title and blocks."""
    from harness.report.terminal.plain_printer import indented
    from harness.report.text.harmless_text import spelled

    encoding = sys.stdout.encoding or "utf-8"
    for section in sections:
        click.echo(spelled("\n".join(indented(section)), encoding=encoding))
        if section.title and section.blocks:
            click.echo()


# ---------------------------------------------------------------- watch


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
    """Look for new tags and republished images of MATRIX, and run only those, beside known ones.

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

    interval_s = option("--interval", forms.seconds, interval)
    with stop_on_signals() as stopped:
        code = WatchedMatrix(
            matrix=matrix,
            out=out,
            interval_s=None if once else interval_s,
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
