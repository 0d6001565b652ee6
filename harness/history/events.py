"""Lists what happened to the findings of the site's histories, as a timeline and as a feed, and names its files."""

from __future__ import annotations

import bisect
import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape, quoteattr

from harness.history import words
from harness.history.records import FindingLife, HistoryView, IndexedRun, Measurement, SiteSource
from harness.model import grouped
from harness.report.text.harmless_text import shortened, version
from harness.report.text.signal_words import Tone

MOST_IN_FEED = 50
_WORDS = {"fixed": "fixed", "not seen again": "measured again and not found"}


@dataclass(frozen=True, kw_only=True)
class Event:
    """One event. `at` is the start time of the run that showed it; `text` is a sentence; `key` identifies the event and
    does not change with later runs or with the wording.
    """

    at: str
    text: str
    tone: Tone
    run: IndexedRun
    key: Sequence[str] = ()


def of_lives(found: Iterable[FindingLife], source: SiteSource) -> Iterator[Event]:
    """Yield the beginning of each finding, and its end if it has one. Consequences of other findings are left out."""
    for life in found:
        if life.begins.consequence_of:
            continue
        history = source.histories[life.history]
        place = words.history_place(history)
        first = source.runs[life.found]
        key = (history.matrix, history.series, history.lane, history.variant, life.begins.signal, first.path)
        text = f"found: {place}: {words.finding_text(life.begins)}"
        yield Event(at=first.started, text=text, tone="bad", run=first, key=(*key, "found"))
        if life.closed is not None:
            last = source.runs[life.closed]
            text = f"{_WORDS[life.status]}: {place}: {words.life_text(life)}"
            yield Event(at=last.started, text=text, tone="good", run=last, key=(*key, life.status, last.path))


def of_images(views: Sequence[HistoryView], source: SiteSource, *, between: Iterable[Event]) -> Iterator[Event]:
    """Yield an event for each image of a series, at the first run that measured it. Images without another event
    `between` them share one event.
    """
    first: dict[str, Measurement] = {}
    measured = [measurement for view in views for measurement in view.measured if measurement.is_known]
    for measurement in sorted(measured, key=lambda measurement: (measurement.started, measurement.run)):
        first.setdefault(measurement.version, measurement)
    times = sorted({event.at for event in between})
    groups = grouped((bisect.bisect_right(times, measurement.started), measurement) for measurement in first.values())
    for group in groups.values():
        names_ = [shortened(version(measurement.version), most=60) for measurement in group]
        text = f"{len(group)} new images, {names_[0]} to {names_[-1]}" if len(group) > 1 else f"new image {names_[0]}"
        since = f", since {words.day(group[0].started)}" if group[0].started[:10] != group[-1].started[:10] else ""
        yield Event(at=group[-1].started, text=text + since, tone="none", run=source.runs[group[-1].run_id])


def newest_first(events: Iterable[Event]) -> list[Event]:
    return sorted(events, key=lambda event: (event.at, event.text), reverse=True)


def feed(source: SiteSource, *, url: str) -> str:
    """Return the newest events as an Atom feed (RFC 4287). `url` is the URL of the site, or ""."""
    events = newest_first(of_lives(source.lives, source))[:MOST_IN_FEED]
    updated = events[0].at if events else "1970-01-01T00:00:00+00:00"
    entries = "".join(_entry(event, url=url) for event in events)
    site = f"{url}feed.xml" if url else "urn:harness:findings"
    return (
        '<?xml version="1.0" encoding="utf-8"?>\n<feed xmlns="http://www.w3.org/2005/Atom">\n'
        f"<title>Findings</title>\n<id>{escape(site)}</id>\n<updated>{escape(updated)}</updated>\n"
        f'<author><name>harness</name></author>\n<link rel="self" href={quoteattr(f"{url}feed.xml")}/>\n'
        f"{entries}</feed>\n"
    )


def _entry(event: Event, *, url: str) -> str:
    link = quoteattr(f"{url}{run_page(event.run)}")
    return (
        f"<entry>\n<title>{escape(shortened(event.text, most=300))}</title>\n"
        f"<id>urn:sha256:{digest(event.key)}</id>\n<updated>{escape(event.at)}</updated>\n"
        f"<link href={link}/>\n</entry>\n"
    )


# ---------------------------------------------------------------- file names


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


def month_of(started: str) -> str:
    """Return the month of an ISO 8601 time, `2026-03`; `undated` for any other text."""
    return started[:7] if re.fullmatch(r"[0-9]{4}-[0-9]{2}", started[:7]) else "undated"


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
