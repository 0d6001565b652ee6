"""Lists what happened when: findings found, fixed or no longer seen, and drifts. The feed and the timelines show it."""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape, quoteattr

from harness.model.history import Drift, FindingLife, HistoryView, IndexedRun, Measurement
from harness.model.site import SiteSource
from harness.report.site import names
from harness.report.text import lives
from harness.report.text.clean import shortened, version
from harness.report.text.signal_words import Tone

MOST_IN_FEED = 50
_WORDS = {"fixed": "fixed", "not seen again": "measured again and not found"}


@dataclass(frozen=True, kw_only=True)
class Event:
    """`at` is the beginning of the run that showed it; `text` is a sentence; `key` is the same however later runs and
    later words tell it.
    """

    at: str
    text: str
    tone: Tone
    run: IndexedRun
    key: Sequence[str] = ()


def of_lives(found: Iterable[FindingLife], source: SiteSource) -> Iterator[Event]:
    """Yield the beginning of each finding, and its end if it has one. Consequences of others are left out."""
    for one in found:
        if one.begins.consequence_of:
            continue
        history = source.histories[one.history]
        place = lives.place(history)
        first = source.runs[one.found]
        key = (history.matrix, history.series, history.lane, history.variant, one.begins.signal, first.path)
        text = f"found: {place}: {lives.seen(one.begins)}"
        yield Event(at=first.started, text=text, tone="bad", run=first, key=(*key, "found"))
        if one.closed is not None:
            last = source.runs[one.closed]
            text = f"{_WORDS[one.status]}: {place}: {lives.life(one)}"
            yield Event(at=last.started, text=text, tone="good", run=last, key=(*key, one.status, last.path))


def of_images(views: Sequence[HistoryView], source: SiteSource, *, between: Iterable[Event]) -> Iterator[Event]:
    """Yield the images of a series with the first run that measured them; those without an event `between` them that
    tells more are told together.
    """
    first: dict[str, Measurement] = {}
    for one in sorted((one for view in views for one in view.measured), key=lambda one: (one.started, one.run)):
        if one.is_known:
            first.setdefault(one.version, one)
    times = sorted({event.at for event in between})
    groups: dict[int, list[Measurement]] = {}
    for one in first.values():
        groups.setdefault(bisect.bisect_right(times, one.started), []).append(one)
    for group in groups.values():
        names_ = [shortened(version(one.version), most=60) for one in group]
        text = f"{len(group)} new images, {names_[0]} to {names_[-1]}" if len(group) > 1 else f"new image {names_[0]}"
        since = f", since {lives.day(group[0].started)}" if group[0].started[:10] != group[-1].started[:10] else ""
        yield Event(at=group[-1].started, text=text + since, tone="none", run=source.runs[group[-1].run_id])


def newest_first(events: Iterable[Event]) -> list[Event]:
    """Return events by time."""
    return sorted(events, key=lambda one: (one.at, one.text), reverse=True)


def drift_text(one: Drift, source: SiteSource) -> str:
    """Return where a signal drifts, and how much."""
    return f"{lives.place(source.histories[one.history])}: {lives.drift(one)}"


def feed(source: SiteSource, *, url: str) -> str:
    """Return the newest events as an Atom feed (RFC 4287). `url` is that of the site, or ""."""
    events = newest_first(of_lives(source.lives, source))[:MOST_IN_FEED]
    updated = events[0].at if events else "1970-01-01T00:00:00+00:00"
    entries = "".join(_entry(one, url=url) for one in events)
    site = f"{url}feed.xml" if url else "urn:harness:findings"
    return (
        '<?xml version="1.0" encoding="utf-8"?>\n<feed xmlns="http://www.w3.org/2005/Atom">\n'
        f"<title>Findings</title>\n<id>{escape(site)}</id>\n<updated>{escape(updated)}</updated>\n"
        f'<author><name>harness</name></author>\n<link rel="self" href={quoteattr(f"{url}feed.xml")}/>\n'
        f"{entries}</feed>\n"
    )


def _entry(one: Event, *, url: str) -> str:
    link = quoteattr(f"{url}{names.run_page(one.run)}")
    return (
        f"<entry>\n<title>{escape(shortened(one.text, most=300))}</title>\n"
        f"<id>urn:sha256:{names.digest(one.key)}</id>\n<updated>{escape(one.at)}</updated>\n"
        f"<link href={link}/>\n</entry>\n"
    )
