"""Writes the index as a static site, for `harness publish`. Only pages whose content changed are written."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Annotated

from pydantic import StringConstraints, TypeAdapter, ValidationError

from harness.atomic_files import write_below
from harness.errors import InfrastructureError, UsageError
from harness.history.database import with_index
from harness.history.index import OpenIndex
from harness.history.pages import SitePage, pages
from harness.history.selection import check_folder
from harness.model.watching import Say
from harness.safe_files import folder_in, read_regular

MANIFEST = "site.json"
MOST_BYTES = 64 << 20
_MANIFEST = TypeAdapter(dict[str, Annotated[str, StringConstraints(pattern="^[0-9a-f]{64}$")]])
"""The key of each page, by the page's name. Keys are hashes, so that a `site.json` of another program is recognised."""


def publish(runs: Path, site: Path, *, url: str, say: Say) -> str:
    """Write the pages of the runs in `runs` into the folder `site`, and return how many were written. Raises UsageError
    if there are no runs or if `site` holds other files, and InfrastructureError if a page cannot be written.
    """

    check_folder(runs)

    def ask(index: OpenIndex) -> str:
        if not index.runs:
            raise UsageError(f"--in: {runs}: no run in this folder has a report yet; sweep first, or name another one")
        before = _prepare(site)
        made: dict[str, str] = {}
        written = 0
        for page in pages(index, url=url):
            made[page.name] = page.key
            if before.get(page.name) != page.key or not (site / page.name).is_file():
                written += _write(site, page)
        gone = before.keys() - made.keys()
        for name in gone:
            _remove(site, name)
        if made != before:
            write_below(site, MANIFEST, _MANIFEST.dump_json(made, indent=0))
        return f"{written} of {len(made)} files written{f', {len(gone)} removed' if gone else ''}"

    return with_index(runs, ask, say=say)


def _prepare(site: Path) -> dict[str, str]:
    """Create the folder, or check that it is a site of the harness. Return the keys of its pages."""
    try:
        site.mkdir(parents=True, exist_ok=True)
        if not any(site.iterdir()):
            write_below(site, MANIFEST, "{}")  # if this call is killed, the next one still recognises the folder
        return _MANIFEST.validate_json(read_regular(site / MANIFEST, most_bytes=MOST_BYTES))
    except FileNotFoundError as error:
        raise UsageError(f"--out: {site}: holds other files; choose a new or an empty folder") from error
    except ValidationError as error:
        text = f"--out: {site / MANIFEST}: was not written by harness; choose a new or empty folder, or empty this one"
        raise UsageError(text) from error
    except OSError as error:
        raise InfrastructureError(f"{error.filename or site}: {error.strerror}; choose another place") from error


def _write(site: Path, page: SitePage) -> bool:
    """Write a page unless the file is the same already. Return whether it was written."""
    content = page.render().encode()
    with suppress(OSError):
        if read_regular(site / page.name, most_bytes=MOST_BYTES) == content:
            return False
    folder = (site / page.name).parent
    with suppress(FileExistsError):
        folder.mkdir()
    write_below(site, page.name, content)
    return True


def _remove(site: Path, name: str) -> None:
    """Remove a page that is no longer part of the site. Ignore a name in the manifest that leads outside the site."""
    *folders, last = PurePosixPath(name).parts or ("",)
    if ".." not in (*folders, last) and not name.startswith("/"):
        with suppress(OSError), folder_in(site, *folders) as folder:
            os.unlink(last, dir_fd=folder)
