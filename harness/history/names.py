"""Names the files of the site."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable

from harness.history.records import IndexedRun

_SIMPLE = re.compile(r"[a-z0-9][a-z0-9_.-]{0,59}")


def slug(name: str) -> str:
    """Return a unique file or folder name for `name`: unchanged if `name` is simple, otherwise with a hash."""
    if _SIMPLE.fullmatch(name) and not name.endswith("."):
        return name
    readable = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40] or "x"
    return f"{readable}-{digest([name])[:10]}"


def digest(texts: Iterable[str]) -> str:
    found = hashlib.sha256()
    for text in texts:
        found.update(f"{len(text)}:{text}".encode(errors="replace"))
    return found.hexdigest()


def matrix_page(matrix: str) -> str:
    """Return the path of a matrix's page: `m-nightly/index.html`."""
    return f"m-{slug(matrix)}/index.html"


def series_page(matrix: str, series: str, part: int = 1) -> str:
    """Return the path of a part of a series' page: `m-nightly/series-app.html`."""
    return f"m-{slug(matrix)}/series-{slug(series)}{f'~{part}' if part > 1 else ''}.html"


def run_page(run: IndexedRun) -> str:
    """Return the path of a run's page: `m-nightly/run-20260301t040000z-0001.html`."""
    return f"m-{slug(run.matrix)}/run-{slug(run.path.partition('/')[2].lower())}.html"


def year_page(year: str, part: int) -> str:
    """Return `findings-2026.html`, or `findings-undated.html` if `year` is not a year."""
    return f"findings-{_year(year)}{f'~{part}' if part > 1 else ''}.html"


def year_title(year: str, part: int) -> str:
    """Return the words of the link to such a page: `found in 2026` or `found in 2026, part 2`."""
    return f"found in {_year(year)}{f', part {part}' if part > 1 else ''}"


def _year(text: str) -> str:
    return text if re.fullmatch(r"[0-9]{4}", text) else "undated"


def badge(matrix: str, series: str | None = None) -> str:
    """Return the path of a badge: `m-nightly/badge.svg`, or `m-nightly/badge-of-app.svg` for a series."""
    return f"m-{slug(matrix)}/badge{'' if series is None else f'-of-{slug(series)}'}.svg"
