"""Defines `harness runs`, `history` and `publish`: what was measured so far, over images and over days."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path

import click

from harness.cli.common import FILE, IN, JSON, option, print_json, say, to_stdout
from harness.errors import UsageError
from harness.report.blocks import ReportSection

SINCE = click.option("--since", metavar="AGE", help="Only runs that began within this time: 12h, 30d, 8w.")
CSV = click.option("--csv", "as_csv", is_flag=True, help="Print CSV, one line per measurement.")
REBUILD = click.option("--rebuild", is_flag=True, help="Rebuild the index from the runs.")
VERDICTS = ("ok", "regression", "inconclusive", "infrastructure", "interrupted")
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
