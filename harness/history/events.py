"""Lists what happened to the findings of the site's histories, as a timeline and as a feed, and draws badges."""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape, quoteattr

from harness.history import words
from harness.history.names import digest, run_page
from harness.history.records import FindingLife, HistoryView, IndexedHistory, IndexedRun, Measurement
from harness.history.words import Runs
from harness.model import grouped
from harness.report.text.harmless_text import shortened, version
from harness.report.text.signal_words import Tone

MOST_IN_FEED = 50
Found = tuple[IndexedHistory, FindingLife]
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


def told_lives(histories: Iterable[IndexedHistory]) -> list[Found]:
    """Return the lives of all findings, without consequences of other findings."""
    return [(history, life) for history in histories for life in history.lives if not life.begins.consequence_of]


def of_lives(histories: Iterable[IndexedHistory], runs: Runs) -> Iterator[Event]:
    """Yield the beginning of each finding, and its end if it has one. Consequences of other findings are left out."""
    for at, life in told_lives(histories):
        place, first = words.history_place(at), runs[life.found]
        key = (at.matrix, at.series, at.lane, at.variant, life.begins.metric, first.path)
        text = f"found: {place}: {words.finding_text(at, life.begins)}"
        yield Event(at=first.started, text=text, tone="bad", run=first, key=(*key, "found"))
        if life.closed is not None:
            last = runs[life.closed]
            text = f"{_WORDS[life.status]}: {place}: {words.life_text(at, life)}"
            yield Event(at=last.started, text=text, tone="good", run=last, key=(*key, life.status, last.path))


def of_images(views: Sequence[HistoryView], runs: Runs, *, between: Iterable[Event]) -> Iterator[Event]:
    """Yield an event for each image of a series, at the first run that measured it. Images without another event
    `between` them share one event.
    """
    first: dict[str, Measurement] = {}
    measured = [one for view in views for one in view.measured if one.is_known]
    for one in sorted(measured, key=lambda one: (one.started, one.run)):
        first.setdefault(one.version, one)
    times = sorted({event.at for event in between})
    for group in grouped((bisect.bisect_right(times, one.started), one) for one in first.values()).values():
        names = [shortened(version(one.version), most=60) for one in group]
        text = f"{len(group)} new images, {names[0]} to {names[-1]}" if len(group) > 1 else f"new image {names[0]}"
        oldest, newest = words.day(group[0].started), group[-1]
        since = f", since {oldest}" if oldest != words.day(newest.started) else ""
        yield Event(at=newest.started, text=text + since, tone="none", run=runs[newest.run])


def newest_first(events: Iterable[Event]) -> list[Event]:
    return sorted(events, key=lambda event: (event.at, event.text), reverse=True)


def feed(histories: Iterable[IndexedHistory], runs: Runs, *, url: str) -> str:
    """Return the newest events as an Atom feed (RFC 4287). `url` is the URL of the site, or ""."""
    events = newest_first(of_lives(histories, runs))[:MOST_IN_FEED]
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


# ---------------------------------------------------------------- badges


_COLOURS: dict[Tone, str] = {"bad": "#b42318", "good": "#1a6b3c", "unsure": "#8a5a00", "none": "#5c6570"}
_LETTER, _ROOM = 6.6, 12
_LONGEST_LABEL = 40


def badge_svg(name: str, text: str, *, tone: Tone) -> str:
    """Return the badge as SVG, without scripts, style sheets or embedded fonts."""
    name, text = shortened(name, most=_LONGEST_LABEL), shortened(text, most=_LONGEST_LABEL)
    left, right = (round(len(part) * _LETTER) + _ROOM for part in (name, text))
    told = f"{name}: {text}"
    labels = "".join(
        f'<text x="{x:.1f}" y="14" text-anchor="middle" textLength="{width - _ROOM}">{escape(part)}</text>'
        for part, x, width in ((name, left / 2, left), (text, left + right / 2, right))
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + right}" height="20" role="img" '
        f"aria-label={quoteattr(told)}><title>{escape(told)}</title>"
        f'<rect width="{left}" height="20" fill="#40464d"/>'
        f'<rect x="{left}" width="{right}" height="20" fill="{_COLOURS[tone]}"/>'
        f'<g fill="#fff" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11">{labels}</g></svg>\n'
    )
