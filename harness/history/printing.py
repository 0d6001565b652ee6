"""Writes what `harness runs` and `harness history` print."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from harness import amounts
from harness.history import words
from harness.history.records import HistoryView, IndexedRun, Measurement
from harness.history.words import SHOWN, days_of, known_of
from harness.report.text import signal_words
from harness.report.text.harmless_text import plain, shortened, version

_WIDEST = 40


def runs_lines(runs: Sequence[IndexedRun]) -> Iterator[str]:
    """Yield a table of runs in the given order, then what is known of those that were killed, and why others cannot be
    read.
    """
    if not runs:
        yield "no runs"
        return
    header = ("started (UTC)", "run", "verdict", "cells", "bad", "findings", "duration")
    rows = [
        (words.minute(run.started), plain(run.path), words.run_verdict(run), f"{run.cells:,}",
         f"{run.bad:,}", f"{run.findings:,}", amounts.duration(run.duration_s) if run.duration_s else "")
        for run in runs
    ]  # fmt: skip
    yield from _table([header, *rows])
    for run in runs:
        if run.kind == "killed":
            yield f"{plain(run.path)}: {'; '.join(map(plain, run.warnings))}"
        if run.problem:
            yield f"cannot be read: {plain(run.path)}: {plain(run.problem)}"


def history_lines(views: Iterable[HistoryView], *, signals: Sequence[str], days: bool) -> Iterator[str]:
    """Yield each history: its versions with their newest verdict and figures and earlier, different verdicts, then its
    findings and drifts. With `days`, every measurement has its own line.
    """
    shown = signals or SHOWN
    for view in views:
        yield f"{words.history_place(view.history)} ({plain(view.history.matrix)})"
        titles = [signal_words.shown_signal(name).title for name in shown]
        header = ("image", "verdict", *titles, *(("started (UTC)", "run") if days else ("measured",)))
        yield from (f"  {line}" for line in _table([header, *_rows(view, shown, days=days)]))
        if view.left_out:
            yield f"  {amounts.count(view.left_out, 'older version')} not shown: --all"
        yield from (f"  {words.life_text(life)}; {words.standing(life, view.runs)}" for life in view.lives)
        yield from (f"  {words.drift_text(drift)}" for drift in view.drifts)
        yield ""


def _rows(view: HistoryView, signals: Sequence[str], *, days: bool) -> Iterator[tuple[str, ...]]:
    for name in view.versions:
        own = [measurement for measurement in view.measured if measurement.version == name]
        for some in [[each] for each in own] if days else [known_of(own)]:
            newest = some[-1]
            figures = (_figure(some, signal) for signal in signals)
            when = (words.minute(newest.started), plain(newest.run)) if days else (_measured(some),)
            yield version(name), words.measured_verdict(newest), *figures, *when


def _figure(measured: Sequence[Measurement], signal: str) -> str:
    """Return the newest figure; if the figures differ between runs, add their minimum and maximum."""
    values = [measurement.figures[signal].value for measurement in measured if signal in measurement.figures]
    known = [value for value in values if value is not None]
    if not known:
        return ""
    shown = (known[-1], min(known), max(known))
    like = amounts.middle(shown)
    text, low, high = (signal_words.value_text(signal, value, like=like, per=measured[-1].per) for value in shown)
    return text if low == high else f"{text} ({low} to {high})"


def _measured(known: Sequence[Measurement]) -> str:
    """Return how often and when a version was measured, and the earlier verdicts that differ from the newest; `never`
    if no measurement reached a verdict on the image.
    """
    if not known[-1].is_known:
        return "never"
    others = [measurement.verdict for measurement in known[:-1] if measurement.state != known[-1].state]
    also = ", ".join(f"{others.count(name)} {name}" for name in dict.fromkeys(others))
    times = "once" if len(known) == 1 else f"{len(known)} times"
    return f"{times}, {days_of(known)}{f'; before: {also}' if also else ''}"


def _table(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    """Yield the rows with aligned columns; empty columns are left out."""
    every = [[shortened(text, most=_WIDEST) if place < len(row) - 1 else text for place, text in enumerate(row)]
             for row in rows]  # fmt: skip
    kept = [place for place in range(len(every[0])) if len(every) == 1 or any(row[place] for row in every[1:])]
    widths = [max(len(row[place]) for row in every) for place in kept]
    for row in every:
        yield "  ".join(row[place].ljust(width) for place, width in zip(kept, widths, strict=True)).rstrip()


# ---------------------------------------------------------------- figure history output


_KINDS = {
    "first_bad": "first bad",
    "first_fixed": "good again",
    "bad_from_start": "bad from the start",
    "worse": "even worse in",
    "drift": "drift",
    "better": "better",
}
_NO_NOISE = 1e-6
"""A minimum detectable effect (relative) below this means that all values are equal, so there is no noise."""
