"""`harness runs` and `harness history` as text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from harness.model.history import HistoryView, IndexedRun, Measurement
from harness.report.text import lives, numbers, signal_words
from harness.report.text.clean import plain, shortened, version
from harness.report.text.words import SYMBOLS

SHOWN = ("memory", "step_time", "peak_memory")
"""The signals whose figures are columns, unless a user asks for others."""
_WIDEST = 40


def runs_lines(runs: Sequence[IndexedRun]) -> Iterator[str]:
    """Yield a table of runs, from old to new, and why some of their directories cannot be read."""
    if not runs:
        yield "no runs"
        return
    header = ("began (UTC)", "run", "verdict", "cells", "bad", "findings", "took")
    yield from _table([header, *map(_run, runs)])
    for run in runs:
        if run.problem:
            yield f"cannot be read: {plain(run.path)}: {plain(run.problem)}"


def _run(run: IndexedRun) -> tuple[str, ...]:
    what = run.verdict or ("cannot be read" if run.problem else run.kind)
    took = numbers.duration(run.duration_s) if run.duration_s else ""
    return (
        lives.minute(run.started), plain(run.path), what, f"{run.cells:,}", f"{run.bad:,}", f"{run.findings:,}", took
    )  # fmt: skip


def history_lines(views: Iterable[HistoryView], *, signals: Sequence[str], days: bool) -> Iterator[str]:
    """Yield each history: its versions with their newest verdict and figures, what other days said, and its findings.
    With `days` every measurement has a line of its own.
    """
    shown = signals or SHOWN
    for view in views:
        yield f"{lives.place(view.history)} ({plain(view.history.matrix)})"
        rows = _by_day(view, shown) if days else _by_version(view, shown)
        titles = [signal_words.signal_of(name).title for name in shown]
        header = ("image", "verdict", *titles, *(("began (UTC)", "run") if days else ("measured",)))
        yield from (f"  {line}" for line in _table([header, *rows]))
        if view.left_out:
            yield f"  {numbers.count(view.left_out, 'older version')} not shown: --all"
        yield from (f"  {lives.life(one)}; {lives.told(one, view.runs)}" for one in view.lives)
        yield from (f"  {lives.drift(one)}" for one in view.drifts)
        yield ""


def _by_version(view: HistoryView, signals: Sequence[str]) -> Iterator[tuple[str, ...]]:
    for name in view.versions:
        own = [one for one in view.measured if one.version == name]
        known = [one for one in own if one.is_known] or own
        yield version(name), _verdict(known[-1]), *(_figure(known, signal) for signal in signals), _measured(known)


def _by_day(view: HistoryView, signals: Sequence[str]) -> Iterator[tuple[str, ...]]:
    for name in view.versions:
        for one in view.measured:
            if one.version == name:
                figures = (_figure([one], signal) for signal in signals)
                yield version(name), _verdict(one), *figures, lives.minute(one.started), plain(one.run)


def _verdict(one: Measurement) -> str:
    return f"{SYMBOLS[one.state]} {one.verdict}{' so far' if one.provisional else ''}"


def _figure(measured: Sequence[Measurement], signal: str) -> str:
    """Return the newest figure; if days differ, with the least and the most of them."""
    values = [one.figures[signal].value for one in measured if signal in one.figures]
    known = [value for value in values if value is not None]
    if not known:
        return ""
    text = signal_words.value_text(signal, known[-1])
    low, high = (signal_words.value_text(signal, bound) for bound in (min(known), max(known)))
    return text if low == high else f"{text} ({low} to {high})"


def _measured(known: Sequence[Measurement]) -> str:
    """Return how often and when it was measured, and the verdicts of other days that differ from the newest."""
    first, last = lives.day(known[0].started), lives.day(known[-1].started)
    when = last if first == last else f"{first} to {last}"
    others = [one.verdict for one in known[:-1] if one.state != known[-1].state]
    also = ", ".join(f"{others.count(name)} {name}" for name in dict.fromkeys(others))
    times = "once" if len(known) == 1 else f"{len(known)} times"
    return f"{times}, {when}{f'; before: {also}' if also else ''}"


def _table(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    """Yield rows with columns of equal width; a column of nothing is left out."""
    every = [[shortened(text, most=_WIDEST) if place < len(row) - 1 else text for place, text in enumerate(row)]
             for row in rows]  # fmt: skip
    kept = [place for place in range(len(every[0])) if len(every) == 1 or any(row[place] for row in every[1:])]
    widths = [max(len(row[place]) for row in every) for place in kept]
    for row in every:
        yield "  ".join(row[place].ljust(width) for place, width in zip(kept, widths, strict=True)).rstrip()
