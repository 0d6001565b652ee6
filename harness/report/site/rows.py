"""Makes the tables of the site, as texts that templates escape."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from harness.model.history import FindingLife, HistoryView, IndexedHistory, IndexedRun, Measurement
from harness.model.site import SeriesNow, SiteSource
from harness.report.charts import card as card_chart
from harness.report.content.card_figure import Figure, Point
from harness.report.site import names
from harness.report.terminal.history import SHOWN
from harness.report.text import lives, numbers, signal_words
from harness.report.text.clean import plain, shortened, version
from harness.report.text.signal_words import Tone
from harness.report.text.words import SYMBOLS

_WORST: Sequence[Tone] = ("bad", "unsure", "good", "none")
_LONGEST = 60
_NOISY = ("step_time", "peak_memory")
RUN_TONES: Mapping[str, Tone] = {"ok": "good", "regression": "bad"}


@dataclass(frozen=True, kw_only=True)
class Box:
    """A cell of a table. `link` is a page, or ""."""

    text: str
    tone: Tone = "none"
    link: str = ""


def name(text: str) -> str:
    """Return a name from a matrix or an image, at most _LONGEST letters of it."""
    return shortened(version(text), most=_LONGEST)


def run_row(run: IndexedRun) -> tuple[Box, ...]:
    """Return a run with a link to its page."""
    what = "cannot be read" if run.problem else run.verdict or run.kind
    return (
        Box(text=lives.minute(run.started), link=names.run_page(run)),
        Box(text=name(run.matrix), link=names.matrix_page(run.matrix)),
        Box(text=what, tone=RUN_TONES.get(run.verdict or "", "unsure" if run.verdict else "none")),
        Box(text=f"{run.cells:,} cells, {run.bad:,} bad" if run.cells else ""),
        Box(text=shortened(" ".join(run.sentences[:2]), most=240)),
    )


# ---------------------------------------------------------------- the state of a matrix


def state_table(now: Sequence[SeriesNow], source: SiteSource) -> tuple[list[str], list[tuple[str, list[Box | None]]]]:
    """Return the lanes, and for each series its state on each lane: the worst of its variants."""
    lanes = list(dict.fromkeys(one.history.lane for one in now))
    open_in = open_histories(source)
    cells: dict[tuple[str, str], list[SeriesNow]] = {}
    for one in now:
        cells.setdefault((one.history.series, one.history.lane), []).append(one)
    series = list(dict.fromkeys(one.history.series for one in now))
    rows = [(each, [_state(cells.get((each, lane), []), open_in) for lane in lanes]) for each in series]
    return [name(lane) for lane in lanes], [(name(each), boxes) for each, boxes in rows]


def open_findings(source: SiteSource) -> list[FindingLife]:
    """Return the findings that are open, without those that another one explains."""
    return [one for one in source.lives if one.status == "open" and not one.begins.consequence_of]


def open_histories(source: SiteSource) -> set[int]:
    """Return the histories in which something is bad now."""
    return {one.history for one in open_findings(source)} | {one.history for one in source.drifts}


def _state(known: Sequence[SeriesNow], open_in: set[int]) -> Box | None:
    if not known:
        return None
    tones = [state_of(one, open_in) for one in known]
    worst = next(tone for tone in _WORST if tone in tones)
    newest = [one.newest.version for one in known if one.newest is not None]
    count = f"{tones.count(worst)} of {numbers.count(len(tones), 'variant')}" if len(tones) > 1 else ""
    words = " ".join(filter(None, (SYMBOLS[worst], count, signal_words.MEANINGS[worst])))
    history = known[0].history
    return Box(
        text=f"{words} ({name(newest[-1])})" if newest else words,
        tone=worst,
        link=names.series_page(history.matrix, history.series),
    )


def state_of(one: SeriesNow, open_in: set[int]) -> Tone:
    """Return the state of a history: bad while a finding of it is open."""
    if one.history.id in open_in:
        return "bad"
    return "none" if one.newest is None else one.newest.state


# ---------------------------------------------------------------- a history


@dataclass(frozen=True, kw_only=True)
class HistoryRows:
    """A history on its series' page: a line for each of its newest versions. `older` counts those left out."""

    title: str
    anchor: str
    tone: Tone
    titles: tuple[str, ...]
    rows: tuple[tuple[Box, ...], ...]
    older: int
    told: tuple[tuple[str, str], ...]
    drawn: card_chart.Chart | None


def history_rows(view: HistoryView, source: SiteSource, *, most: int, marks: int) -> HistoryRows:
    """Return a history with at most `most` versions in its table, the newest first, and `marks` in its chart."""
    by_version: dict[str, list[Measurement]] = {}
    for one in view.measured:
        by_version.setdefault(one.version, []).append(one)
    there = [each for each in view.versions if each in by_version]
    shown = list(reversed(there[-most:]))
    is_open = view.history.id in open_histories(source)
    return HistoryRows(
        title=f"{plain(view.history.variant)} on {plain(view.history.lane)}"[:200],
        anchor=f"h{view.history.id}",
        tone="bad" if is_open else by_version[there[-1]][-1].state if there else "none",
        titles=tuple(signal_words.signal_of(signal).title for signal in SHOWN),
        rows=tuple(_row(by_version[each], source) for each in shown),
        older=len(there) - len(shown),
        told=(
            *((shortened(lives.life(one), most=300), lives.told(one, view.runs)) for one in view.lives[-20:]),
            *((shortened(lives.drift(one), most=300), "open") for one in view.drifts),
        ),
        drawn=_chart(there[-marks:], by_version) if marks > 1 else None,
    )


def _row(measured: Sequence[Measurement], source: SiteSource) -> tuple[Box, ...]:
    known = [one for one in measured if one.is_known] or list(measured)
    newest = known[-1]
    verdict = f"{SYMBOLS[newest.state]} {newest.verdict}{' so far' if newest.provisional else ''}"
    first, last = lives.day(known[0].started), lives.day(newest.started)
    days = last if first == last else f"{first} to {last}"
    return (
        Box(text=name(newest.version)),
        Box(text=verdict, tone=newest.state),
        *(Box(text=_figure(known, signal)) for signal in SHOWN),
        Box(text=f"{len(known)} ×, {days}", link=names.run_page(source.runs[newest.run_id])),
    )


def _figure(known: Sequence[Measurement], signal: str) -> str:
    figures = [one.figures[signal] for one in known if signal in one.figures]
    return "" if not figures else signal_words.value_text(signal, figures[-1].value)


def _chart(versions: Sequence[str], by_version: Mapping[str, Sequence[Measurement]]) -> card_chart.Chart | None:
    """Draw the step time of the newest run of each version: days differ, so it is a picture and no comparison."""
    points = []
    for each in versions:
        newest = by_version[each][-1]
        figure = newest.figures.get("step_time")
        value, low, high = (None, None, None) if figure is None else (figure.value, figure.low, figure.high)
        points.append(Point(version=each, value=value, low=low, high=high, tone=newest.state, own=True))
    figure_ = Figure(title="step time, as the newest run of each image measured it", unit="s", points=tuple(points))
    return card_chart.chart(figure_)


# ---------------------------------------------------------------- noise


def noise_rows(views: Iterable[HistoryView]) -> list[tuple[str, ...]]:
    """Return for each lane what changes its newest run could have seen, and how much days differ there, by signal."""
    lanes: dict[str, list[HistoryView]] = {}
    for view in views:
        lanes.setdefault(view.history.lane, []).append(view)
    return [
        (name(lane), *(text for signal in _NOISY for text in (_visible(own, signal), _days(own, signal))))
        for lane, own in lanes.items()
    ]


def noise_titles() -> list[str]:
    """Return the titles of the columns of `noise_rows`."""
    parts = ("would have shown", "days differ by")
    return ["lane", *(f"{signal_words.signal_of(signal).title}: {part}" for signal in _NOISY for part in parts)]


def _visible(views: Sequence[HistoryView], signal: str) -> str:
    newest = max((one.started for view in views for one in view.measured), default="")
    known = [
        figure.visible
        for view in views
        for one in view.measured
        if one.started == newest and (figure := one.figures.get(signal)) and figure.visible is not None
    ]
    return signal_words.visible_text(signal, median(known)) if known else "not known"


def _days(views: Sequence[HistoryView], signal: str) -> str:
    """Return the standard deviation of one image's figure between runs, in per cent."""
    squares, freedom = 0.0, 0
    for view in views:
        logs: dict[tuple[str, str | None], list[float]] = {}
        for one in view.measured:
            figure = one.figures.get(signal)
            if figure is not None and figure.value is not None and figure.value > 0 and not one.taken_over:
                logs.setdefault((one.version, one.digest), []).append(math.log(figure.value))
        for values in logs.values():
            mean = sum(values) / len(values)
            squares += sum((value - mean) ** 2 for value in values)
            freedom += len(values) - 1
    return f"{numbers.number(100 * math.sqrt(squares / freedom))} %" if freedom else "not known"


def place(history: IndexedHistory) -> str:
    """Return the place of a history, at most so long that a page stays small."""
    return shortened(lives.place(history), most=200)
