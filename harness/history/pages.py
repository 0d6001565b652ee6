"""Makes the pages of the site, each with a key that hashes its sources, so that a new run rewrites few of them.

A page is a title and the sections of a document; one template writes them all.
"""

from __future__ import annotations

import base64
import hashlib
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from importlib.resources import files
from pathlib import Path
from statistics import median

from markupsafe import Markup

import harness
from harness import amounts
from harness.history import words
from harness.history.events import Found, badge_svg, feed, newest_first, of_images, of_lives, told_lives
from harness.history.index import OpenIndex
from harness.history.names import badge, digest, matrix_page, run_page, series_page, year_page, year_title
from harness.history.records import FindingLife, HistoryView, IndexedHistory, IndexedRun, Measurement
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
LOOKED_BACK = 20
"""Number of newest versions among which the newest measured one is searched for."""
FIXED_SINCE = "bad, fixed in a newer version"
"""The verdict shown for a bad newest run of a matrix without open findings: its bad versions are not the newest."""
_NOISY = ("step_time", "peak_memory")
_RUN_TONES: Mapping[str | None, Tone] = {"ok": "good", "regression": "bad", None: "none"}


@dataclass(frozen=True, kw_only=True)
class SitePage:
    """A file of the site: `name` is its path, and `key` is a hash of everything that it is made from."""

    name: str
    key: str
    render: Callable[[], str]


@dataclass(frozen=True, kw_only=True)
class _Content:
    """The content of a page. `above` is a line above the title; `up` links to the page of the matrix."""

    title: str
    sections: Sequence[ReportSection]
    above: Box | None = None
    up: Box | None = None


def pages(index: OpenIndex, *, url: str = "") -> Iterator[SitePage]:
    """Yield every file of the site. `url` is the URL of the site, for the links in the feed; "" keeps them relative."""
    runs, histories, series_of = list(index.runs.values()), index.histories(), index.series_of()
    by_matrix, by_month = (grouped((of(run), run) for run in runs) for of in (lambda run: run.matrix, _month_of))
    measured = grouped((one.matrix, one) for one in histories)
    everything = _key(runs)
    yield _page("index.html", everything, partial(_front, index, histories, by_matrix, list(by_month)))
    yield from _findings(index, histories, everything)
    yield SitePage(name="feed.xml", key=digest([everything, url]), render=lambda: feed(histories, index.runs, url=url))
    for month, some in by_month.items():
        yield _page(f"runs-{month}.html", _key(some), partial(_month, month, some))
    for matrix, some in by_matrix.items():
        own = measured.get(matrix, [])
        yield _page(matrix_page(matrix), _key(some), partial(_matrix, index, matrix, own, some))
        yield _badge(badge(matrix), matrix, own)
        for series, each in grouped((one.series, one) for one in own).items():
            yield _badge(badge(matrix, series), series, each)
            key = _key(run for run in some if series in series_of.get(run.path, ()))
            names = [series_page(matrix, series, part) for part in range(1, 2 + (len(each) - 1) // MOST_HISTORIES)]
            for number, name in enumerate(names):
                yield _page(name, digest([key, str(number)]), partial(_series, index, each, names, number))
    for run in runs:
        yield _page(run_page(run), _key([run]), partial(_run, index, run, measured.get(run.matrix, ())))


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
    """Return a hash of the harness's code and templates, so that another harness rewrites all pages."""
    folder = Path(harness.__file__).parent
    sources = sorted(path for end in ("py", "j2", "css") for path in folder.rglob(f"*.{end}"))
    return digest(path.read_text(encoding="utf-8") for path in sources)


@lru_cache(maxsize=1)
def _style() -> tuple[Markup, Markup]:
    """Return the style sheet of all pages, and a content security policy that allows only it and data images."""
    folder = files("harness.report") / "templates"
    style = "".join((folder / name).read_text(encoding="utf-8") for name in ("report.css", "site.css"))
    known = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{known}'; img-src data:; base-uri 'none'; form-action 'none'"
    return Markup(style), Markup(policy)


def _short(text: str) -> str:
    return shortened(version(text), most=60)


def _place(history: IndexedHistory) -> str:
    return shortened(words.history_place(history), most=200)


def _matrix_link(matrix: str) -> Box:
    return Box(text=_short(matrix), link=matrix_page(matrix))


def _series_link(text: str, history: IndexedHistory, *, tone: str = "") -> Box:
    page = series_page(history.matrix, history.series, 1 + history.number // MOST_HISTORIES)
    return Box(text=text, tone=tone, link=f"{page}#{_anchor(history)}")


def _anchor(history: IndexedHistory) -> str:
    return f"h{history.id}"


def _section(title: str, *blocks: Block, name: str = "", doubt: bool = False) -> ReportSection:
    return ReportSection(title=title, name=name or title.lower().replace(" ", "-"), blocks=blocks, doubt=doubt)


def _list(lines: Sequence[str | tuple[Box, ...]], most: int, noun: str, where: str) -> tuple[Block, ...]:
    """Return the first `most` lines as a list, and how many there are."""
    return Items(lines=tuple(lines[:most])), *_rest(most, len(lines), noun, where)


def _rest(most: int, every: int, noun: str, where: str) -> tuple[str, ...]:
    return (f"Showing {most} of {every} {noun}; see {where} for all.",) if every > most else ()


def _month_of(run: IndexedRun) -> str:
    """Return the month in which a run began, `2026-03`; `undated` if that is unknown."""
    return run.started[:7] if re.fullmatch(r"[0-9]{4}-[0-9]{2}", run.started[:7]) else "undated"


# ---------------------------------------------------------------- all matrices


def _front(
    index: OpenIndex,
    histories: Sequence[IndexedHistory],
    by_matrix: Mapping[str, Sequence[IndexedRun]],
    months: Sequence[str],
) -> _Content:
    columns = ("matrix", "state", "runs", "newest run (UTC)", "verdict of newest run")
    measured = grouped((one.matrix, one) for one in histories)
    rows = tuple(_summary(matrix, measured.get(matrix, ()), runs) for matrix, runs in by_matrix.items())
    newest = sorted(months, key=lambda month: month.replace("undated", ""), reverse=True)[:MOST_MONTHS]
    links = tuple(Box(text=month, link=f"runs-{month}.html") for month in newest)
    runs = _runs_table(list(index.runs.values())[-MOST_RUNS:])
    return _Content(
        title="Findings of all matrices",
        sections=[
            _section("Matrices", TextTable(columns=columns, rows=rows)),
            _open(index, histories),
            _section("Newest runs", runs, "All runs by month:", Items(lines=(links,)), name="runs"),
        ],
    )


def _summary(matrix: str, histories: Sequence[IndexedHistory], runs: Sequence[IndexedRun]) -> Row:
    text, tone = _state_of(histories)
    newest, _, verdict, *_ = _run_row(runs[-1])
    if tone != "bad" and runs[-1].verdict == "regression":
        if any(life.status == "fixed" and life.seen == runs[-1].path for one in histories for life in one.lives):
            verdict = Box(text=FIXED_SINCE)
        else:
            text, tone = amounts.count(runs[-1].bad, "bad cell"), "bad"
    state = Box(text=f"{SYMBOLS[tone]} {text}", tone=tone)
    return _matrix_link(matrix), state, Box(text=amounts.count(len(runs), "run")), newest, verdict


def _state_of(histories: Sequence[IndexedHistory]) -> tuple[str, Tone]:
    """Return the state of some histories, such as `2 open, 1 drift`, and its tone."""
    faults, drifts = len(_faults(_lives(histories, is_open=True))), sum(len(one.drifts) for one in histories)
    told = [f"{faults} open"] * bool(faults) + [amounts.count(drifts, "drift")] * bool(drifts)
    if told:
        return ", ".join(told), "bad"
    return ("nothing open", "good") if histories else ("nothing measured", "none")


def _lives(histories: Iterable[IndexedHistory], *, is_open: bool) -> list[Found]:
    """Return the open or the closed findings, without consequences of other findings."""
    return [(history, life) for history, life in told_lives(histories) if (life.status == "open") == is_open]


def _faults(lives: Iterable[Found]) -> list[list[Found]]:
    """Group the findings that several rows of a scenario share: the same signal between the same versions."""

    def sign(at: IndexedHistory, life: FindingLife) -> tuple[str | None, ...]:
        begins, ends = life.begins, life.ends.after if life.ends else None
        found = (begins.metric, begins.verdict, begins.kind, begins.before, begins.after, ends)
        return at.matrix, at.series, at.scenario, *found

    return list(grouped((sign(*each), each) for each in lives).values())


def _open(index: OpenIndex, histories: Sequence[IndexedHistory]) -> ReportSection:
    """Return the drifts and the open findings of some histories, newest first."""
    drifts: list[tuple[Box, ...]] = [
        (Box(text="drift", tone="bad"),
         _series_link(shortened(f"{words.history_place(one)}: {words.drift_text(drift)}", most=500), one))
        for one in histories for drift in one.drifts
    ]  # fmt: skip
    lives = _lives(histories, is_open=True)
    lives.sort(key=lambda found: index.runs[found[1].found].started, reverse=True)
    faults = _faults(lives)
    told = [*drifts[:MOST_FINDINGS], *(_told(some, index) for some in faults[:MOST_FINDINGS])]
    rest = _rest(len(told), len(faults) + len(drifts), "findings and drifts", "harness history")
    blocks: tuple[Block, ...] = (Items(lines=tuple(told)), *rest) if told else ("Nothing is open.",)
    return _section("Open findings", *blocks, name="open")


def _told(some: Sequence[Found], index: OpenIndex) -> tuple[Box, ...]:
    history, life = some[0]
    also = f" (and in {amounts.count(len(some) - 1, 'more row')})" if len(some) > 1 else ""
    text = shortened(f"{_place(history)}{also}: {words.life_text(history, life)}", most=500)
    return _series_link(text, history), Box(text=words.standing(life, index.runs), tone="dim")


def _findings(index: OpenIndex, histories: Sequence[IndexedHistory], key: str) -> Iterator[SitePage]:
    """Yield the page of open findings, and pages of closed findings by the year in which they were found."""
    closed = _faults(_lives(histories, is_open=False))
    links: list[tuple[Box, ...]] = []
    for year, found in sorted(grouped((index.runs[some[0][1].found].started[:4], some) for some in closed).items()):
        for part, start in enumerate(range(0, len(found), MOST_FINDINGS), start=1):
            told = tuple(_told(some, index) for some in found[start : start + MOST_FINDINGS])
            links.append((Box(text=year_title(year, part), link=year_page(year, part)),))
            content = _Content(title="Closed findings", sections=[_section("Closed", Items(lines=told))])
            own = digest([_generator(), *map(str, told)])
            yield _page(year_page(year, part), own, partial(lambda shown: shown, content))
    known = _section("Closed", Items(lines=tuple(links)) if links else "none")
    yield _page("findings.html", key, lambda: _Content(title="Findings", sections=[_open(index, histories), known]))


# ---------------------------------------------------------------- runs


def _run_tone(run: IndexedRun) -> Tone:
    return _RUN_TONES.get(run.verdict, "unsure")


def _run_row(run: IndexedRun) -> tuple[Box, ...]:
    return (
        Box(text=words.minute(run.started), link=run_page(run)),
        _matrix_link(run.matrix),
        Box(text=words.run_verdict(run), tone=_run_tone(run)),
        Box(text=f"{amounts.count(run.cells, 'cell')}, {run.bad:,} bad" if run.cells else ""),
        Box(text=shortened(" ".join(run.sentences[:2]), most=240)),
    )


def _runs_table(runs: Sequence[IndexedRun]) -> TextTable:
    columns = ("started (UTC)", "matrix", "verdict", "cells", "findings")
    return TextTable(columns=columns, rows=tuple(map(_run_row, reversed(runs))), ends_in_text=True)


def _month(month: str, runs: Sequence[IndexedRun]) -> _Content:
    rest = _rest(MOST_ROWS, len(runs), "runs of this month", "harness runs")
    return _Content(title=f"Runs of {month}", sections=[_section("Runs", _runs_table(runs[-MOST_ROWS:]), *rest)])


def _run(index: OpenIndex, run: IndexedRun, histories: Sequence[IndexedHistory]) -> _Content:
    by_id = {one.id: one for one in histories}
    # A damaged run may have findings in a history without cells.
    findings = [
        f"{finding.number}. {_place(at)}: {shortened(words.finding_text(at, finding), most=300)}"
        for history, finding in index.findings(runs=[run.path]) if (at := by_id.get(history)) is not None
    ]  # fmt: skip
    cells = index.measurements(runs=[run.path])
    cells.sort(key=lambda cell: ("bad", "unsure", "none", "good").index(cell.state))
    table: list[Row] = [
        (_series_link(_place(by_id[cell.history]), by_id[cell.history]), _short(cell.version),
         Box(text=words.measured_verdict(cell), tone=cell.state), f"{cell.verdict.trials}",
         shortened(cell.verdict.why, most=160))
        for cell in cells[: MOST_ROWS // 2]
    ]  # fmt: skip
    where, warnings = "the run's own report", [text for text in (*run.warnings, run.problem) if text]
    sections = [
        _section(title, *_list([shortened(text, most=400) for text in texts], most, noun, where), doubt=doubt)
        for title, texts, most, noun, doubt in (
            ("What it found", run.sentences, MOST_SENTENCES, "sentences", False),
            ("Warnings", warnings, MOST_WARNINGS, "warnings", True),
            ("Findings of each row", findings, MOST_FINDINGS, "findings", False),
        )
        if texts
    ]
    if cells:
        columns = ("history", "image", "verdict", "launches", "why")
        shown = TextTable(columns=columns, rows=tuple(table), ends_in_text=True)
        sections.append(_section("Cells", shown, *_rest(len(table), len(cells), "cells", where)))
    took = f"; {amounts.duration(run.duration_s)}" if run.duration_s else ""
    about = f"{run.path}: {words.run_verdict(run)}; {amounts.count(run.cells, 'cell')}, {run.bad} bad{took}"
    return _Content(
        title=f"{_short(run.matrix)}, {words.minute(run.started)}",
        above=Box(text=about, tone=_run_tone(run)),
        up=_matrix_link(run.matrix),
        sections=sections,
    )


# ---------------------------------------------------------------- one matrix


def _matrix(index: OpenIndex, matrix: str, histories: Sequence[IndexedHistory], runs: Sequence[IndexedRun]) -> _Content:
    """Return the page of a matrix: the worst state of the variants of each series on each lane, then what is open."""
    views = index.views(histories, last=LOOKED_BACK, signals=())
    lanes = list(dict.fromkeys(one.lane for one in histories))
    rows: list[Row] = []
    for series, own in grouped((view.history.series, view) for view in views).items():
        by_lane = grouped((view.history.lane, view) for view in own)
        rows.append((_short(series), *(_state(by_lane[lane]) if lane in by_lane else "" for lane in lanes)))
    table = TextTable(columns=("series", *map(_short, lanes)), rows=tuple(rows))
    told = "Each cell shows the worst state of its variants at the newest measured image, which is in parentheses."
    rest = _rest(MOST_RUNS, len(runs), "runs", "harness runs")
    return _Content(
        title=_short(matrix),
        sections=[
            _section("Current state", table, told, name="now"),
            _open(index, histories),
            _section("Newest runs", _runs_table(runs[-MOST_RUNS:]), *rest, name="runs"),
        ],
    )


def _is_open(history: IndexedHistory) -> bool:
    return bool(history.drifts or _lives([history], is_open=True))


def _newest(view: HistoryView) -> Measurement | None:
    """Return the newest measurement of the newest version that is known."""
    places = {name: place for place, name in enumerate(view.versions)}
    return max(known_of(view.measured), key=lambda one: (places[one.version], one.started), default=None)


def _state(views: Sequence[HistoryView]) -> Box:
    newest = list(map(_newest, views))
    tones: list[Tone] = [
        "bad" if _is_open(view.history) else "none" if one is None else one.state
        for view, one in zip(views, newest, strict=True)
    ]
    worst = next(tone for tone in ("bad", "unsure", "good", "none") if tone in tones)
    image = [f"({_short(one.version)})" for one in newest if one is not None][-1:]
    count = [f"{tones.count(worst)} of {amounts.count(len(tones), 'variant')}"] if len(tones) > 1 else []
    told = [SYMBOLS[worst], *count, signal_words.MEANINGS[worst], *image]
    return _series_link(" ".join(told), views[tones.index(worst)].history, tone=worst)


# ---------------------------------------------------------------- one series


def _series(index: OpenIndex, histories: Sequence[IndexedHistory], parts: Sequence[str], number: int) -> _Content:
    """Return one page of a series, which has several if it has many histories."""
    views = index.views(histories)
    some = views[number * MOST_HISTORIES : (number + 1) * MOST_HISTORIES]
    found = list(of_lives(histories, index.runs))
    events: list[tuple[Box, ...]] = [
        (Box(text=words.day(event.at), link=run_page(event.run)),
         Box(text=shortened(event.text, most=400), tone=event.tone))
        for event in newest_first([*found, *of_images(views, index.runs, between=found)])
    ]  # fmt: skip
    links = tuple(Box(text=f"part {place}", link=name) for place, name in enumerate(parts, start=1))
    most = MOST_ROWS // len(some)
    return _Content(
        title=_short(histories[0].series),
        up=_matrix_link(histories[0].matrix),
        sections=[
            *([_section("Parts", Items(lines=(links,)))] if len(parts) > 1 else []),
            _section("Timeline", *_list(events, MOST_EVENTS, "events", "harness history")),
            _section("Noise of each host and card", *_noise(views), name="noise"),
            *(_history(view, index, most=most) for view in some),
        ],
    )


def _history(view: HistoryView, index: OpenIndex, *, most: int) -> ReportSection:
    """Return a history with at most `most` versions in its table, newest first."""
    history = view.history
    by_version = grouped((one.version, one) for one in view.measured)
    told = [(words.life_text(history, life), words.standing(life, index.runs)) for life in history.lives[-20:]]
    told += [(words.drift_text(drift), "open") for drift in history.drifts]
    lines = tuple((Box(text=shortened(text, most=300)), Box(text=when, tone="dim")) for text, when in told)
    rows: list[Row] = []
    for name in reversed(view.versions[-most:]):
        known = known_of(by_version[name])
        newest = known[-1]
        figures = [next((one.verdict.signals[signal].value for one in reversed(known) if signal in one.verdict.signals),
                        None) for signal in SHOWN]  # fmt: skip
        rows.append(
            (
                _short(newest.version),
                Box(text=words.measured_verdict(newest), tone=newest.state),
                *(signal_words.value_text(signal, figure, per=newest.verdict.per)
                  for signal, figure in zip(SHOWN, figures, strict=True)),
                Box(text=f"{len(known)} ×, {days_of(known)}", link=run_page(index.runs[newest.run])),
            )
        )  # fmt: skip
    titles = (signal_words.shown_signal(signal).title for signal in SHOWN)
    blocks: list[Block] = [Items(lines=lines)] if lines else []
    blocks.append(TextTable(columns=("image", "verdict", *titles, "measured"), rows=tuple(rows)))
    if older := len(view.versions) - len(rows):
        blocks.append(f"{older} older images are not shown; `harness history --all` shows them.")
    newest_state = by_version[view.versions[-1]][-1].state if view.versions else "none"
    tone: Tone = "bad" if _is_open(history) else newest_state
    title = f"{SYMBOLS[tone]} {f'{plain(history.variant)} on {plain(history.lane)}'[:200]}"
    marked = (Box(text=title, tone=tone),)
    return ReportSection(title=marked, name="history", anchor=_anchor(history), blocks=tuple(blocks))


def _noise(views: Iterable[HistoryView]) -> tuple[Block, ...]:
    """Return a row for each lane: for each noisy signal, the rise that is ruled out in the newest run and the
    standard deviation between runs.
    """
    lanes = grouped((view.history.lane, view) for view in views)
    titles = [signal_words.shown_signal(signal).title for signal in _NOISY]
    columns = [f"{title}: {part}" for title in titles for part in ("ruled out above", "runs differ by")]
    rows = tuple(
        (_short(lane), *(text for signal in _NOISY for text in (_visible(own, signal), _days(own, signal))))
        for lane, own in lanes.items()
    )
    return (
        TextTable(columns=("host or card", *columns), rows=rows[:MOST_HISTORIES]),
        *_rest(MOST_HISTORIES, len(rows), "rows", "harness history --csv"),
        "“Ruled out above” is how much higher an image may be in the newest run than the one that it is compared with; "
        "“runs differ by” is the standard deviation between runs of the same image. Figures of different days are not "
        "compared.",
    )


def _visible(views: Sequence[HistoryView], signal: str) -> str:
    measured = [one for view in views for one in view.measured]
    newest = max((one.started for one in measured), default="")
    known = [one.verdict.of(signal).visible for one in measured if one.started == newest]
    sizes = [size for size in known if size is not None]
    return signal_words.visible_text(signal, median(sizes)) if sizes else "not known"


def _days(views: Sequence[HistoryView], signal: str) -> str:
    """Return the standard deviation between runs of the same image's figure, in per cent, pooled over all images."""
    logs = grouped(
        ((place, one.version, one.digest), math.log(value))
        for place, view in enumerate(views)
        for one in view.measured
        if (value := one.verdict.of(signal).value) is not None and value > 0 and not one.taken_over
    ).values()
    squares, freedom = 0.0, 0
    for values in logs:
        mean = sum(values) / len(values)
        squares += sum((value - mean) ** 2 for value in values)
        freedom += len(values) - 1
    return f"{amounts.number(100 * math.sqrt(squares / freedom))} %" if freedom else "not known"


def _badge(name: str, title: str, histories: Sequence[IndexedHistory]) -> SitePage:
    text, tone = _state_of(histories)
    key = digest([_generator(), _short(title), text, tone])
    return SitePage(name=name, key=key, render=lambda: badge_svg(_short(title), text, tone=tone))
