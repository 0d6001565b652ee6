"""Makes what `harness runs` and `harness history` print."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from harness import amounts
from harness.history import words
from harness.history.records import HistoryView, IndexedRun, Measurement
from harness.history.words import SHOWN, Runs, days_of, known_of
from harness.model import grouped
from harness.report.blocks import Items, ReportSection, TextTable
from harness.report.text import signal_words
from harness.report.text.harmless_text import plain, version


def runs_section(runs: Sequence[IndexedRun]) -> ReportSection:
    """Return a table of runs in the given order, what is known of those that were killed, and why others cannot be
    read.
    """
    rows = tuple(
        (words.minute(run.started), plain(run.path), words.run_verdict(run), f"{run.cells:,}", f"{run.bad:,}",
         f"{run.findings:,}", amounts.duration(run.duration_s) if run.duration_s else "")
        for run in runs
    )  # fmt: skip
    columns = ("started (UTC)", "run", "verdict", "cells", "bad", "findings", "duration")
    return ReportSection(title="", blocks=(TextTable(columns=columns, rows=rows), Items(lines=tuple(_notes(runs)))))


def _notes(runs: Sequence[IndexedRun]) -> Iterator[str]:
    for run in runs:
        if run.kind == "killed":
            yield f"{plain(run.path)}: {'; '.join(map(plain, run.warnings))}"
        if run.problem:
            yield f"cannot be read: {plain(run.path)}: {plain(run.problem)}"


def history_section(view: HistoryView, runs: Runs, *, signals: Sequence[str], days: bool) -> ReportSection:
    """Return a history: its versions with their newest verdict and figures and earlier, different verdicts, then its
    findings and drifts. With `days`, every measurement has its own row.
    """
    shown = signals or SHOWN
    titles = [signal_words.shown_signal(name).title for name in shown]
    columns = ("image", "verdict", *titles, *(("started (UTC)", "run") if days else ("measured",)))
    lines = [f"{amounts.count(view.left_out, 'older version')} not shown: --all"] if view.left_out else []
    lines += [f"{words.life_text(view.history, life)}; {words.standing(life, runs)}" for life in view.history.lives]
    lines += [words.drift_text(drift) for drift in view.history.drifts]
    table = TextTable(columns=columns, rows=tuple(_rows(view, shown, days=days)))
    title = f"{words.history_place(view.history)} ({plain(view.history.matrix)})"
    return ReportSection(title=title, blocks=(table, Items(lines=tuple(lines))))


def _rows(view: HistoryView, signals: Sequence[str], *, days: bool) -> Iterator[tuple[str, ...]]:
    by_version = grouped((one.version, one) for one in view.measured)
    for name in view.versions:
        for some in [[one] for one in by_version[name]] if days else [known_of(by_version[name])]:
            newest = some[-1]
            figures = (_figure(some, signal) for signal in signals)
            when = (words.minute(newest.started), plain(newest.run)) if days else (_measured(some),)
            yield version(name), words.measured_verdict(newest), *figures, *when


def _figure(measured: Sequence[Measurement], signal: str) -> str:
    """Return the newest figure; if the figures differ between runs, add their minimum and maximum."""
    known = [value for one in measured if (value := one.verdict.of(signal).value) is not None]
    if not known:
        return ""
    shown = (known[-1], min(known), max(known))
    like, per = amounts.middle(shown), measured[-1].verdict.per
    least = 0.0 if signal_words.shown_signal(signal).kind == "growth" else -math.inf  # an end that shrank is no growth
    ends = (shown[0], *(max(value, least) for value in shown[1:]))
    text, low, high = (signal_words.value_text(signal, value, like=like, per=per) for value in ends)
    return text if low == high else f"{text} ({low} to {high})"


def _measured(known: Sequence[Measurement]) -> str:
    """Return how often and when a version was measured, and the earlier verdicts that differ from the newest; `never`
    if no measurement reached a verdict on the image.
    """
    if not known[-1].is_known:
        return "never"
    others = [signal_words.verdict_word(one.verdict) for one in known[:-1] if one.state != known[-1].state]
    also = ", ".join(f"{others.count(name)} {name}" for name in dict.fromkeys(others))
    times = "once" if len(known) == 1 else f"{len(known)} times"
    return f"{times}, {days_of(known)}{f'; before: {also}' if also else ''}"
