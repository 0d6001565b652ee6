"""`harness publish`."""

from __future__ import annotations

import functools
from pathlib import Path

import click

from harness.cli.common import FILE, say, to_stdout
from harness.errors import UsageError


@click.command()
@click.option("--out", type=FILE, required=True, help="Folder of the site: new, empty, or one of an earlier call.")
@click.option("--in", "folder", type=FILE, default=Path("reports"), show_default=True, help="Folder of the runs.")
@click.option("--url", default="", metavar="URL", help="Address that the site will have, for links in the feed.")
def publish(*, out: Path, folder: Path, url: str) -> None:
    """Write a static site of all runs: what is open now, each series over time, findings, a feed and badges.

    Any web server, object store or page host can serve it, and a browser opens it from disk. After a new run only its
    own pages are written.

    \b
    For example:
      harness publish --out site

    Exit status: 0; 2 if --out holds other files; 3 if the site cannot be written.
    """
    from harness.flows.publish import publish as write_site
    from harness.report.site.pages import pages

    if url and not url.startswith(("https://", "http://")):
        raise UsageError(f"--url: {url!r} is no address; give https://…/")
    where = f"{url.rstrip('/')}/" if url else ""
    done = write_site(folder, out, functools.partial(pages, url=where), say=say)
    with to_stdout():
        removed = f", {done.removed} removed" if done.removed else ""
        click.echo(f"{out / 'index.html'}: {done.written} of {done.files} files written{removed}")
