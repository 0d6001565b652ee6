"""Prepares the tables of the site as plain texts, which the templates escape."""

from __future__ import annotations

import bisect
import hashlib
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from xml.sax.saxutils import escape, quoteattr

from harness import amounts
from harness.model.indexed import (
    FindingLife,
    HistoryView,
    IndexedHistory,
    IndexedRun,
    Measurement,
    SeriesNow,
    SiteSource,
)
from harness.report.charts import finding_chart
from harness.report.content.finding_boxes import Figure, Point
from harness.report.terminal.history_output import SHOWN, days_of, known_of
from harness.report.text import finding_words, signal_words
from harness.report.text.harmless_text import plain, shortened, version
from harness.report.text.signal_words import SYMBOLS, Tone

_WORST: Sequence[Tone] = ("bad", "unsure", "good", "none")
_LONGEST = 60
_NOISY = ("step_time", "peak_memory")
RUN_TONES: Mapping[str, Tone] = {"ok": "good", "regression": "bad"}


@dataclass(frozen=True, kw_only=True)
class Box:
    """A cell of a table. `link` is the name of a page, or ""."""

    text: str
    tone: Tone = "none"
    link: str = ""


def short_name(text: str) -> str:
    """Return a name from a matrix or an image, cut to _LONGEST characters."""
    return shortened(version(text), most=_LONGEST)


def run_row(run: IndexedRun) -> tuple[Box, ...]:
    """Return a table row for a run, with links to the pages of the run and its matrix."""
    return (
        Box(text=finding_words.minute(run.started), link=run_page(run)),
        Box(text=short_name(run.matrix), link=matrix_page(run.matrix)),
        Box(
            text=finding_words.run_verdict(run),
            tone=RUN_TONES.get(run.verdict or "", "unsure" if run.verdict else "none"),
        ),
        Box(text=f"{amounts.count(run.cells, 'cell')}, {run.bad:,} bad" if run.cells else ""),
        Box(text=shortened(" ".join(run.sentences[:2]), most=240)),
    )


# ---------------------------------------------------------------- the state of a matrix


def state_table(now: Sequence[SeriesNow], source: SiteSource) -> tuple[list[str], list[tuple[str, list[Box | None]]]]:
    """Return the lanes, and for each series its state on each lane, which is the worst state of its variants."""
    lanes = list(dict.fromkeys(state.history.lane for state in now))
    open_in = open_histories(source)
    cells: dict[tuple[str, str], list[SeriesNow]] = {}
    for state in now:
        cells.setdefault((state.history.series, state.history.lane), []).append(state)
    series = list(dict.fromkeys(state.history.series for state in now))
    rows = [(name, [_state(cells.get((name, lane), []), open_in) for lane in lanes]) for name in series]
    return [short_name(lane) for lane in lanes], [(short_name(row_name), boxes) for row_name, boxes in rows]


def open_findings(source: SiteSource) -> list[FindingLife]:
    """Return the open findings, without consequences of other findings."""
    return [life for life in source.lives if life.status == "open" and not life.begins.consequence_of]


def open_histories(source: SiteSource) -> set[int]:
    """Return the ids of the histories with open findings or drifts."""
    return {life.history for life in open_findings(source)} | {drift.history for drift in source.drifts}


def _state(known: Sequence[SeriesNow], open_in: set[int]) -> Box | None:
    if not known:
        return None
    tones = [state_of(state, open_in) for state in known]
    worst = next(tone for tone in _WORST if tone in tones)
    newest = [state.newest.version for state in known if state.newest is not None]
    count = f"{tones.count(worst)} of {amounts.count(len(tones), 'variant')}" if len(tones) > 1 else ""
    words = " ".join(filter(None, (SYMBOLS[worst], count, signal_words.MEANINGS[worst])))
    history = known[0].history
    return Box(
        text=f"{words} ({short_name(newest[-1])})" if newest else words,
        tone=worst,
        link=series_page(history.matrix, history.series),
    )


def state_of(state: SeriesNow, open_in: set[int]) -> Tone:
    """Return the state of a history: bad if it has an open finding or a drift, else the state of its newest version."""
    if state.history.id in open_in:
        return "bad"
    return "none" if state.newest is None else state.newest.state


# ---------------------------------------------------------------- a history


@dataclass(frozen=True, kw_only=True)
class HistoryRows:
    """A history on the page of its series, with a row for each of its newest versions. `older` counts the rest."""

    title: str
    anchor: str
    tone: Tone
    titles: tuple[str, ...]
    rows: tuple[tuple[Box, ...], ...]
    older: int
    told: tuple[tuple[str, str], ...]
    drawn: finding_chart.Chart | None


def history_rows(view: HistoryView, source: SiteSource, *, most: int, marks: int) -> HistoryRows:
    """Return a history with at most `most` versions in its table, newest first, and at most `marks` in its chart."""
    by_version: dict[str, list[Measurement]] = {}
    for measurement in view.measured:
        by_version.setdefault(measurement.version, []).append(measurement)
    there = [version for version in view.versions if version in by_version]
    shown = list(reversed(there[-most:]))
    is_open = view.history.id in open_histories(source)
    return HistoryRows(
        title=f"{plain(view.history.variant)} on {plain(view.history.lane)}"[:200],
        anchor=f"h{view.history.id}",
        tone="bad" if is_open else by_version[there[-1]][-1].state if there else "none",
        titles=tuple(signal_words.shown_signal(signal).title for signal in SHOWN),
        rows=tuple(_row(by_version[version], source) for version in shown),
        older=len(there) - len(shown),
        told=(
            *(
                (shortened(finding_words.life_text(life), most=300), finding_words.standing(life, view.runs))
                for life in view.lives[-20:]
            ),
            *((shortened(finding_words.drift_text(drift), most=300), "open") for drift in view.drifts),
        ),
        drawn=_chart(there[-marks:], by_version) if marks > 1 else None,
    )


def _row(measured: Sequence[Measurement], source: SiteSource) -> tuple[Box, ...]:
    known = known_of(measured)
    newest = known[-1]
    return (
        Box(text=short_name(newest.version)),
        Box(text=finding_words.measured_verdict(newest), tone=newest.state),
        *(Box(text=_figure(known, signal)) for signal in SHOWN),
        Box(text=f"{len(known)} ×, {days_of(known)}", link=run_page(source.runs[newest.run_id])),
    )


def _figure(known: Sequence[Measurement], signal: str) -> str:
    figures = [measurement.figures[signal] for measurement in known if signal in measurement.figures]
    return "" if not figures else signal_words.value_text(signal, figures[-1].value)


def _chart(versions: Sequence[str], by_version: Mapping[str, Sequence[Measurement]]) -> finding_chart.Chart | None:
    """Draw each version's step time in the newest run that measured it. Because days differ, this is an illustration,
    not a comparison.
    """
    points = []
    for image in versions:
        newest = by_version[image][-1]
        figure = newest.figures.get("step_time")
        value, low, high = (None, None, None) if figure is None else (figure.value, figure.low, figure.high)
        points.append(Point(version=image, value=value, low=low, high=high, tone=newest.state, own=True))
    figure_ = Figure(title="step time in the newest run of each image", unit="s", points=tuple(points))
    return finding_chart.chart(figure_)


# ---------------------------------------------------------------- noise


def noise_rows(views: Iterable[HistoryView]) -> list[tuple[str, ...]]:
    """Return a row for each lane: for each noisy signal, the minimum detectable effect in the newest run and the
    standard deviation between runs.
    """
    lanes: dict[str, list[HistoryView]] = {}
    for view in views:
        lanes.setdefault(view.history.lane, []).append(view)
    return [
        (short_name(lane), *(text for signal in _NOISY for text in (_visible(own, signal), _days(own, signal))))
        for lane, own in lanes.items()
    ]


def noise_titles() -> list[str]:
    """Return the titles of the columns of `noise_rows`."""
    parts = ("would have shown", "runs differ by")
    titles = (signal_words.shown_signal(signal).title for signal in _NOISY)
    return ["host or card", *(f"{title}: {part}" for title in titles for part in parts)]


def _visible(views: Sequence[HistoryView], signal: str) -> str:
    newest = max((measurement.started for view in views for measurement in view.measured), default="")
    known = [
        figure.visible
        for view in views
        for measurement in view.measured
        if measurement.started == newest and (figure := measurement.figures.get(signal)) and figure.visible is not None
    ]
    return signal_words.visible_text(signal, median(known)) if known else "not known"


def _days(views: Sequence[HistoryView], signal: str) -> str:
    """Return the standard deviation between runs of the same image's figure, in per cent, pooled over all images."""
    squares, freedom = 0.0, 0
    for view in views:
        logs: dict[tuple[str, str | None], list[float]] = {}
        for measurement in view.measured:
            figure = measurement.figures.get(signal)
            if figure is not None and figure.value is not None and figure.value > 0 and not measurement.taken_over:
                logs.setdefault((measurement.version, measurement.digest), []).append(math.log(figure.value))
        for values in logs.values():
            mean = sum(values) / len(values)
            squares += sum((value - mean) ** 2 for value in values)
            freedom += len(values) - 1
    return f"{amounts.number(100 * math.sqrt(squares / freedom))} %" if freedom else "not known"


def short_place(history: IndexedHistory) -> str:
    """Return the place of a history, cut so that a page stays small."""
    return shortened(finding_words.history_place(history), most=200)


# ---------------------------------------------------------------- events


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
        place = finding_words.history_place(history)
        first = source.runs[life.found]
        key = (history.matrix, history.series, history.lane, history.variant, life.begins.signal, first.path)
        text = f"found: {place}: {finding_words.finding_text(life.begins)}"
        yield Event(at=first.started, text=text, tone="bad", run=first, key=(*key, "found"))
        if life.closed is not None:
            last = source.runs[life.closed]
            text = f"{_WORDS[life.status]}: {place}: {finding_words.life_text(life)}"
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
    groups: dict[int, list[Measurement]] = {}
    for measurement in first.values():
        groups.setdefault(bisect.bisect_right(times, measurement.started), []).append(measurement)
    for group in groups.values():
        names_ = [shortened(version(measurement.version), most=60) for measurement in group]
        text = f"{len(group)} new images, {names_[0]} to {names_[-1]}" if len(group) > 1 else f"new image {names_[0]}"
        since = (
            f", since {finding_words.day(group[0].started)}" if group[0].started[:10] != group[-1].started[:10] else ""
        )
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
