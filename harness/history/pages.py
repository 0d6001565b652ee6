"""Makes the pages of the site, each with a key that hashes its sources, so that a new run rewrites few of them.

A page is a title and the sections of a document; one template writes them all.
"""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from importlib.resources import files
from statistics import median
from xml.sax.saxutils import escape, quoteattr

from markupsafe import Markup

from harness import amounts
from harness.history import words
from harness.history.events import (
    badge,
    digest,
    feed,
    matrix_page,
    month_of,
    newest_first,
    of_images,
    of_lives,
    run_page,
    series_page,
    year_page,
    year_title,
)
from harness.history.records import (
    FindingLife,
    HistoryView,
    IndexedHistory,
    IndexedRun,
    SeriesNow,
    SitePage,
    SiteSource,
)
from harness.history.words import SHOWN, days_of, known_of
from harness.model import grouped
from harness.report.blocks import Block, Box, Items, ReportSection, Row, TextTable
from harness.report.html_page import environment
from harness.report.text import signal_words
from harness.report.text.harmless_text import plain, shortened, version
from harness.report.text.signal_words import SYMBOLS, Tone

MOST_ROWS = 600
"""Most lines of histories on a page; even with long names, they take less than 300 kB."""
MOST_HISTORIES = 40
MOST_EVENTS = 120
MOST_FINDINGS = 250
MOST_RUNS = 40
MOST_MONTHS = 120
MOST_SENTENCES, MOST_WARNINGS = 60, 40
FIXED_SINCE = "bad, fixed in a newer version"
"""The verdict shown for a bad newest run of a matrix without open findings: its bad versions are not the newest."""
_LONGEST = 60
_NOISY = ("step_time", "peak_memory")
_RUN_TONES: Mapping[str | None, Tone] = {"ok": "good", "regression": "bad", None: "none"}
_RUN_COLUMNS = ("started (UTC)", "matrix", "verdict", "cells", "findings")


@dataclass(frozen=True, kw_only=True)
class _Content:
    """The content of a page. `above` is a line above the title; `up` links to the page of the matrix."""

    title: str
    sections: Sequence[ReportSection]
    above: Box | None = None
    up: Box | None = None


def pages(source: SiteSource, *, url: str = "") -> Iterator[SitePage]:
    """Yield every file of the site. `url` is the URL of the site, for the links in the feed; "" keeps them relative."""
    runs = list(source.runs.values())
    by_matrix: dict[str, list[IndexedRun]] = {}
    by_month: dict[str, list[IndexedRun]] = {}
    for run in runs:
        by_matrix.setdefault(run.matrix, []).append(run)
        by_month.setdefault(month_of(run.started), []).append(run)
    everything = _key(runs)
    yield _page("index.html", everything, partial(_front, source, by_matrix, by_month))
    yield from _findings(source, everything)
    yield SitePage(name="feed.xml", key=digest([everything, url]), render=lambda: feed(source, url=url))
    for month, own in by_month.items():
        yield _page(f"runs-{month}.html", _key(own), partial(_month, month, own))
    for matrix, own in by_matrix.items():
        yield _page(matrix_page(matrix), _key(own), partial(_matrix, source, matrix, own))
        yield _badge(badge(matrix), source, matrix)
        for series in sorted({each.series for each in source.histories.values() if each.matrix == matrix}):
            yield _badge(badge(matrix, series), source, matrix, series)
            key = _key(run for run in own if series in source.series_of.get(run.id, frozenset()))
            count = sum((each.matrix, each.series) == (matrix, series) for each in source.histories.values())
            parts = [series_page(matrix, series, part) for part in range(1, 2 + (count - 1) // MOST_HISTORIES)]
            for number, name in enumerate(parts):
                content = partial(_series, source, matrix, series, parts, number)
                yield _page(name, digest([key, str(number)]), content)
    for run in runs:
        yield _page(run_page(run), _key([run]), partial(_run, source, run))


def _page(name: str, key: str, content: Callable[[], _Content]) -> SitePage:
    """Return a page; `content` is called when the page is rendered."""

    def render() -> str:
        style, policy = _style()
        template = environment().get_template("site.html.j2")
        return template.render(style=style, policy=policy, root="../" * name.count("/"), page=content())

    return SitePage(name=name, key=key, render=render)


def _key(runs: Iterable[IndexedRun]) -> str:
    return digest([_generator(), *(f"{run.path} {run.stamp}" for run in runs)])


@lru_cache(maxsize=1)
def _generator() -> str:
    """Return a hash of the templates and the code, so that a newer harness rewrites all pages."""
    folders = [files("harness.history"), *(files("harness.report") / name for name in ("templates", "text", "charts"))]
    sources = [file for folder in folders for file in folder.iterdir()]
    named = sorted((file.name, file) for file in sources if file.is_file())
    return digest(file.read_text(encoding="utf-8") for _, file in named)


@lru_cache(maxsize=1)
def _style() -> tuple[Markup, Markup]:
    """Return the style sheet of all pages, and a content security policy that allows only it and data images."""
    folder = files("harness.report") / "templates"
    style = "".join((folder / name).read_text(encoding="utf-8") for name in ("report.css", "site.css"))
    known = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{known}'; img-src data:; base-uri 'none'; form-action 'none'"
    return Markup(style), Markup(policy)


def _short(text: str) -> str:
    return shortened(version(text), most=_LONGEST)


def _place(history: IndexedHistory) -> str:
    return shortened(words.history_place(history), most=200)


def _only(title: str, *blocks: Block) -> ReportSection:
    return ReportSection(title=title, name=title.lower(), blocks=blocks)


def _rest(shown: int, every: int, noun: str, where: str) -> tuple[str, ...]:
    return (f"Showing {shown} of {every} {noun}; see {where} for all.",) if every > shown else ()


# ---------------------------------------------------------------- all matrices


def _front(source: SiteSource, by_matrix: Mapping[str, Sequence[IndexedRun]], months: Iterable[str]) -> _Content:
    columns = ("matrix", "state", "runs", "newest run (UTC)", "verdict of newest run")
    rows = tuple(_summary(source, matrix, own) for matrix, own in by_matrix.items())
    newest = sorted(months, key=lambda month: month.replace("undated", ""), reverse=True)[:MOST_MONTHS]
    links = tuple(Box(text=month, link=f"runs-{month}.html") for month in newest)
    runs = _runs_table(list(source.runs.values())[-MOST_RUNS:])
    return _Content(
        title="Findings of all matrices",
        sections=[
            ReportSection(title="Matrices", name="matrices", blocks=(TextTable(columns=columns, rows=rows),)),
            _open(source, None),
            ReportSection(title="Newest runs", name="runs", blocks=(runs, "All runs by month:", Items(lines=(links,)))),
        ],
    )


def _summary(source: SiteSource, matrix: str, runs: Sequence[IndexedRun]) -> tuple[Box, ...]:
    text, tone = _state_of(source, matrix)
    newest, _, verdict, *_ = _run_row(runs[-1])
    if tone != "bad" and runs[-1].verdict == "regression":
        if any(life.status == "fixed" and life.seen == runs[-1].id for life in source.lives):
            verdict = Box(text=FIXED_SINCE)
        else:
            text, tone = amounts.count(runs[-1].bad, "bad cell"), "bad"
    return (
        Box(text=_short(matrix), link=matrix_page(matrix)),
        Box(text=f"{SYMBOLS[tone]} {text}", tone=tone),
        Box(text=amounts.count(len(runs), "run")),
        newest,
        verdict,
    )


def _state_of(source: SiteSource, matrix: str, series: str | None = None) -> tuple[str, Tone]:
    """Return the state of a matrix or a series, such as `2 open, 1 drift`, and its tone."""
    histories = source.histories.values()
    own = {each.id for each in histories if each.matrix == matrix and series in (None, each.series)}
    lives = len(_faults((life for life in _open_lives(source) if life.history in own), source))
    drifts = sum(drift.history in own for drift in source.drifts)
    told = [f"{lives} open"] * bool(lives) + [amounts.count(drifts, "drift")] * bool(drifts)
    if told:
        return ", ".join(told), "bad"
    return ("nothing open", "good") if own else ("nothing measured", "none")


def _open_lives(source: SiteSource) -> list[FindingLife]:
    """Return the open findings, without consequences of other findings."""
    return [life for life in source.lives if life.status == "open" and not life.begins.consequence_of]


def _faults(lives: Iterable[FindingLife], source: SiteSource) -> list[list[FindingLife]]:
    """Group the findings that several rows of a scenario share: the same signal between the same versions."""
    groups: dict[tuple[str | None, ...], list[FindingLife]] = {}
    for life in lives:
        at, begins = source.histories[life.history], life.begins
        sign = (
            begins.signal,
            begins.verdict,
            begins.kind,
            begins.before,
            begins.after,
            life.ends.after if life.ends else None,
        )
        groups.setdefault((at.matrix, at.series, at.scenario, *sign), []).append(life)
    return list(groups.values())


def _open(source: SiteSource, matrix: str | None) -> ReportSection:
    """Return the drifts and the open findings, newest first, of one matrix or of all."""
    drifts: list[tuple[Box, ...]] = []
    for drift in source.drifts:
        at = source.histories[drift.history]
        if matrix in (None, at.matrix):
            text = shortened(f"{words.history_place(at)}: {words.drift_text(drift)}", most=500)
            drifts.append((Box(text="drift", tone="bad"), Box(text=text, link=series_page(at.matrix, at.series))))
    lives = [life for life in _open_lives(source) if matrix in (None, source.histories[life.history].matrix)]
    lives.sort(key=lambda life: source.runs[life.found].started, reverse=True)
    faults = _faults(lives, source)
    told = [*drifts[:MOST_FINDINGS], *(_told(some, source) for some in faults[:MOST_FINDINGS])]
    rest = _rest(len(told), len(faults) + len(drifts), "findings and drifts", "harness history")
    blocks: tuple[Block, ...] = (Items(lines=tuple(told)), *rest) if told else ("Nothing is open.",)
    return ReportSection(title="Open findings", name="open", blocks=blocks)


def _told(some: Sequence[FindingLife], source: SiteSource) -> tuple[Box, ...]:
    life, history = some[0], source.histories[some[0].history]
    also = f" (and in {amounts.count(len(some) - 1, 'more row')})" if len(some) > 1 else ""
    text = shortened(f"{_place(history)}{also}: {words.life_text(life)}", most=500)
    link = series_page(history.matrix, history.series)
    return Box(text=text, link=link), Box(text=words.standing(life, source.runs), tone="dim")


def _findings(source: SiteSource, key: str) -> Iterator[SitePage]:
    """Yield the page of open findings, and pages of closed findings by the year in which they were found."""
    years: dict[str, list[list[FindingLife]]] = {}
    closed_lives = (life for life in source.lives if life.status != "open" and not life.begins.consequence_of)
    for some in _faults(closed_lives, source):
        years.setdefault(source.runs[some[0].found].started[:4], []).append(some)
    links: list[tuple[Box, ...]] = []
    for year, found in sorted(years.items()):
        for part, start in enumerate(range(0, len(found), MOST_FINDINGS), start=1):
            told = tuple(_told(some, source) for some in found[start : start + MOST_FINDINGS])
            links.append((Box(text=year_title(year, part), link=year_page(year, part)),))
            content = _Content(
                title="Closed findings",
                sections=[_only("Closed", Items(lines=told))],
            )
            own = digest([_generator(), *map(str, told)])
            yield _page(year_page(year, part), own, partial(replace, content))
    closed = ReportSection(title="Closed", name="closed", blocks=(Items(lines=tuple(links)) if links else "none",))
    yield _page("findings.html", key, lambda: _Content(title="Findings", sections=[_open(source, None), closed]))


# ---------------------------------------------------------------- runs


def _run_row(run: IndexedRun) -> tuple[Box, ...]:
    return (
        Box(text=words.minute(run.started), link=run_page(run)),
        Box(text=_short(run.matrix), link=matrix_page(run.matrix)),
        Box(text=words.run_verdict(run), tone=_RUN_TONES.get(run.verdict, "unsure")),
        Box(text=f"{amounts.count(run.cells, 'cell')}, {run.bad:,} bad" if run.cells else ""),
        Box(text=shortened(" ".join(run.sentences[:2]), most=240)),
    )


def _runs_table(runs: Sequence[IndexedRun]) -> TextTable:
    return TextTable(columns=_RUN_COLUMNS, rows=tuple(_run_row(run) for run in reversed(runs)), ends_in_text=True)


def _month(month: str, runs: Sequence[IndexedRun]) -> _Content:
    rest = _rest(min(len(runs), MOST_ROWS), len(runs), "runs of this month", "harness runs")
    table = _runs_table(runs[-MOST_ROWS:])
    return _Content(title=f"Runs of {month}", sections=[_only("Runs", table, *rest)])


def _run(source: SiteSource, run: IndexedRun) -> _Content:
    cells = source.cells(run.id)
    cells.sort(key=lambda cell: ("bad", "unsure", "none", "good").index(cell.state))
    # A damaged run may have findings in a history without cells.
    found = [one for one in source.findings(run.id) if one[0] in source.histories]
    findings = [
        f"{finding.number}. {_place(source.histories[place])}: " + shortened(words.finding_text(finding), most=300)
        for place, finding in found
    ]
    warnings = [text for text in (*run.warnings, run.problem) if text]
    rows: list[Row] = []
    for cell in cells[: MOST_ROWS // 2]:
        history = source.histories[cell.history]
        rows.append(
            (
                Box(text=_place(history), link=series_page(history.matrix, history.series)), _short(cell.version),
                Box(text=words.measured_verdict(cell), tone=cell.state), f"{cell.trials}",
                shortened(cell.why, most=160),
            )
        )  # fmt: skip
    lists = (("What it found", run.sentences, MOST_SENTENCES), ("Warnings", warnings, MOST_WARNINGS),
             ("Findings of each row", findings, MOST_FINDINGS))  # fmt: skip
    sections = [
        ReportSection(
            title=title, name=title.lower().replace(" ", "-"), doubt=title == "Warnings",
            blocks=(
                Items(lines=tuple(shortened(text, most=400) for text in texts[:most])),
                *_rest(min(most, len(texts)), len(texts), noun, "the run's own report"),
            ),
        )
        for (title, texts, most), noun in zip(lists, ("sentences", "warnings", "findings"), strict=True)
        if texts
    ]  # fmt: skip
    if cells:
        table = TextTable(
            columns=("history", "image", "verdict", "launches", "why"), rows=tuple(rows), ends_in_text=True
        )
        rest = _rest(len(rows), len(cells), "cells", "the run's own report")
        sections.append(ReportSection(title="Cells", name="cells", blocks=(table, *rest)))
    took = f"; {amounts.duration(run.duration_s)}" if run.duration_s else ""
    about = f"{run.path}: {words.run_verdict(run)}; {amounts.count(run.cells, 'cell')}, {run.bad} bad{took}"
    return _Content(
        title=f"{_short(run.matrix)}, {words.minute(run.started)}",
        above=Box(text=about, tone=_RUN_TONES.get(run.verdict, "unsure")),
        up=Box(text=_short(run.matrix), link=matrix_page(run.matrix)),
        sections=sections,
    )


# ---------------------------------------------------------------- one matrix


def _matrix(source: SiteSource, matrix: str, runs: Sequence[IndexedRun]) -> _Content:
    """Return the page of a matrix: the worst state of the variants of each series on each lane, then what is open."""
    now = source.now(matrix)
    lanes = list(dict.fromkeys(state.history.lane for state in now))
    open_in = _open_histories(source)
    cells: dict[str, dict[str, list[SeriesNow]]] = {}
    for state in now:
        cells.setdefault(state.history.series, {}).setdefault(state.history.lane, []).append(state)
    rows = tuple(
        (_short(series), *(_state(by_lane[lane], open_in) if lane in by_lane else "" for lane in lanes))
        for series, by_lane in cells.items()
    )
    table = TextTable(columns=("series", *map(_short, lanes)), rows=rows)
    told = "Each cell shows the worst state of its variants at the newest measured image, which is in parentheses."
    shown = runs[-MOST_RUNS:]
    rest = _rest(len(shown), len(runs), "runs", "harness runs")
    return _Content(
        title=_short(matrix),
        sections=[
            ReportSection(title="Current state", name="now", blocks=(table, told)),
            _open(source, matrix),
            ReportSection(title="Newest runs", name="runs", blocks=(_runs_table(shown), *rest)),
        ],
    )


def _open_histories(source: SiteSource) -> set[int]:
    """Return the ids of the histories with open findings or drifts."""
    return {life.history for life in _open_lives(source)} | {drift.history for drift in source.drifts}


def _state(known: Sequence[SeriesNow], open_in: set[int]) -> Box:
    tones: list[Tone] = [
        "bad" if state.history.id in open_in else "none" if state.newest is None else state.newest.state
        for state in known
    ]
    worst = next(tone for tone in ("bad", "unsure", "good", "none") if tone in tones)
    newest = [f"({_short(state.newest.version)})" for state in known if state.newest is not None]
    count = [f"{tones.count(worst)} of {amounts.count(len(tones), 'variant')}"] if len(tones) > 1 else []
    told = [SYMBOLS[worst], *count, signal_words.MEANINGS[worst], *newest[-1:]]
    history = known[0].history
    return Box(text=" ".join(told), tone=worst, link=series_page(history.matrix, history.series))


# ---------------------------------------------------------------- one series


def _series(source: SiteSource, matrix: str, series: str, parts: Sequence[str], number: int) -> _Content:
    """Return one page of a series, which has several if it has many histories."""
    views = source.views(matrix, series)
    some = views[number * MOST_HISTORIES : (number + 1) * MOST_HISTORIES]
    found = list(of_lives((life for view in views for life in view.lives), source))
    happened = newest_first([*found, *of_images(views, source, between=found)])
    events = tuple(
        (Box(text=words.day(event.at), link=run_page(event.run)),
         Box(text=shortened(event.text, most=400), tone=event.tone))
        for event in happened[:MOST_EVENTS]
    )  # fmt: skip
    links = tuple(Box(text=f"part {place}", link=name) for place, name in enumerate(parts, start=1))
    most = MOST_ROWS // len(some)
    return _Content(
        title=_short(series),
        up=Box(text=_short(matrix), link=matrix_page(matrix)),
        sections=[
            *([ReportSection(title="Parts", name="parts", blocks=(Items(lines=(links,)),))] if len(parts) > 1 else []),
            ReportSection(
                title="Timeline", name="timeline",
                blocks=(Items(lines=events), *_rest(len(events), len(happened), "events", "harness history")),
            ),
            ReportSection(title="Noise of each host and card", name="noise", blocks=_noise(views)),
            *(_history(view, source, most=most) for view in some),
        ],
    )  # fmt: skip


def _history(view: HistoryView, source: SiteSource, *, most: int) -> ReportSection:
    """Return a history with at most `most` versions in its table, newest first."""
    by_version = grouped((measurement.version, measurement) for measurement in view.measured)
    there = [name for name in view.versions if name in by_version]
    is_open = view.history.id in _open_histories(source)
    tone: Tone = "bad" if is_open else by_version[there[-1]][-1].state if there else "none"
    told = [(words.life_text(life), words.standing(life, view.runs)) for life in view.lives[-20:]]
    told += [(words.drift_text(drift), "open") for drift in view.drifts]
    lines = tuple((Box(text=shortened(text, most=300)), Box(text=when, tone="dim")) for text, when in told)
    rows: list[Row] = []
    for measured in (by_version[name] for name in reversed(there[-most:])):
        known = known_of(measured)
        newest = known[-1]
        figures = (next((one.figures[signal] for one in reversed(known) if signal in one.figures), None)
                   for signal in SHOWN)  # fmt: skip
        rows.append(
            (
                _short(newest.version),
                Box(text=words.measured_verdict(newest), tone=newest.state),
                *(signal_words.value_text(signal, figure.value, per=newest.per) if figure else ""
                  for signal, figure in zip(SHOWN, figures, strict=True)),
                Box(text=f"{len(known)} ×, {days_of(known)}", link=run_page(source.runs[newest.run_id])),
            )
        )  # fmt: skip
    titles = (signal_words.shown_signal(signal).title for signal in SHOWN)
    blocks: list[Block] = [Items(lines=lines)] if lines else []
    blocks.append(TextTable(columns=("image", "verdict", *titles, "measured"), rows=tuple(rows)))
    if older := len(there) - len(rows):
        blocks.append(f"{older} older images are not shown; `harness history --all` shows them.")
    title = f"{plain(view.history.variant)} on {plain(view.history.lane)}"[:200]
    marked = (Box(text=f"{SYMBOLS[tone]} {title}", tone=tone),)
    return ReportSection(title=marked, name="history", anchor=f"h{view.history.id}", blocks=tuple(blocks))


def _noise(views: Iterable[HistoryView]) -> tuple[Block, ...]:
    """Return a row for each lane: for each noisy signal, the minimum detectable effect in the newest run and the
    standard deviation between runs.
    """
    lanes = grouped((view.history.lane, view) for view in views)
    titles = [signal_words.shown_signal(signal).title for signal in _NOISY]
    columns = [f"{title}: {part}" for title in titles for part in ("would have shown", "runs differ by")]
    rows = tuple(
        (_short(lane), *(text for signal in _NOISY for text in (_visible(own, signal), _days(own, signal))))
        for lane, own in lanes.items()
    )
    return (
        TextTable(columns=("host or card", *columns), rows=rows[:MOST_HISTORIES]),
        *_rest(min(len(rows), MOST_HISTORIES), len(rows), "rows", "harness history --csv"),
        "“Would have shown” is the smallest difference between images that the newest run could have detected; “runs "
        "differ by” is the standard deviation between runs of the same image. Figures of different days are not "
        "compared.",
    )


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


# ---------------------------------------------------------------- badges


_COLOURS: dict[Tone, str] = {"bad": "#b42318", "good": "#1a6b3c", "unsure": "#8a5a00", "none": "#5c6570"}
_LETTER, _ROOM = 6.6, 12
_LONGEST_LABEL = 40


def _badge(name: str, source: SiteSource, matrix: str, series: str | None = None) -> SitePage:
    text, tone = _state_of(source, matrix, series)
    label = _short(series or matrix)
    key = digest([_generator(), label, text, tone])
    return SitePage(name=name, key=key, render=lambda: badge_svg(label, text, tone=tone))


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
