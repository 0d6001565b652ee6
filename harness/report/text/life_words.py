"""Describes findings over many runs, and drifts, in sentences."""

from __future__ import annotations

from collections.abc import Mapping

from harness.model import SignalState
from harness.model.answers.indexed import Drift, FindingLife, IndexedHistory, IndexedRun, Measurement, SeenFinding
from harness.report.text import finding_words, numbers, words
from harness.report.text.harmless_text import plain, version
from harness.report.text.signal_marks import Tone
from harness.report.text.signal_words import shown_signal

Runs = Mapping[int, IndexedRun]
MOST_TITLES = 3
"""Most signals named for one measurement; the rest are counted."""


def day(started: str) -> str:
    """Return the date part of an ISO 8601 time: `2026-03-01`."""
    return plain(started[:10]) or "an unknown day"


def minute(started: str) -> str:
    """Return an ISO 8601 time to the minute: `2026-03-01 04:00`."""
    return plain(started[:16].replace("T", " ")) or "an unknown day"


def run_verdict(run: IndexedRun) -> str:
    """Return the verdict of a run, such as `bad`; for a run without a verdict, its kind, such as `probe`."""
    if run.problem:
        return "cannot be read"
    return words.RUN_VERDICTS.get(run.verdict, run.verdict) if run.verdict else run.kind


def measured_verdict(measurement: Measurement) -> str:
    """Return `✗ leak`, or `✗ step time` if signals other than memory make the cell's state worse than its verdict."""
    word = measurement.verdict
    own = words.tone(word)
    if own in ("good", "unsure") and own != measurement.state and measurement.state in _OTHER_SIGNALS:
        states, otherwise = _OTHER_SIGNALS[measurement.state]
        titles = [shown_signal(name).title for name, figure in measurement.figures.items() if figure.seen in states]
        word = words.some_of(titles, MOST_TITLES) or otherwise
    return f"{words.SYMBOLS[measurement.state]} {word}{' so far' if measurement.provisional else ''}"


_OTHER_SIGNALS: Mapping[Tone, tuple[tuple[SignalState, ...], str]] = {
    "bad": (("bad",), "worse than before"),
    "unsure": (("suspect", "blind"), "good in part"),
}
"""The signal states that make a cell bad or unsure, and the words used if the query left out those signals."""


def place(history: IndexedHistory) -> str:
    """Return a history's series, lane and variant: `framework on old/RTX 3090, train batch=32`."""
    return f"{plain(history.series)} on {plain(history.lane)}, {plain(history.variant)}"


def life_text(life: FindingLife) -> str:
    """Return a finding's life: `memory leak since 1.15 (last good 1.14), fixed in 1.18: 7.84 KiB/step`."""
    begins = life.begins
    size = "" if begins.effect is None else f": {numbers.effect(begins.effect)}"
    end = f", fixed in {_between(life.ends)}" if life.ends is not None else ""
    sure = "" if begins.confirmed else f"; not confirmed: {finding_words.UNCONFIRMED}"
    return f"{finding_words.symptom(begins.signal, begins.verdict)} {_since(begins)}{end}{size}{_cause(begins)}{sure}"


def _since(begins: SeenFinding) -> str:
    after, before = version(begins.after), version(begins.before or "")
    if begins.kind == "bad_from_start" or not before:
        return f"since {after} or earlier"
    if begins.kind == "drift":
        return f"gradually, from {before} to {after}"
    return (
        f"even worse since {after} (last milder {before})"
        if begins.kind == "worse"
        else f"since {after} (last good {before})"
    )


def _between(ends: SeenFinding) -> str:
    return version(ends.after) + (f" (last bad {version(ends.before)})" if ends.before else "")


def standing(life: FindingLife, runs: Runs) -> str:
    """Return when a finding was found and its status: `open: found 2026-03-01, last seen 2026-03-04`."""
    found, seen = day(runs[life.found].started), day(runs[life.seen].started)
    closed = "" if life.closed is None else day(runs[life.closed].started)
    if life.status == "fixed":
        return f"found {found}, fixed {closed}"
    if life.status == "not seen again":
        return f"found {found}, last seen {seen}, measured again {closed} and not found"
    return f"open: found {found}" + (f", last seen {seen}" if seen != found else "")


def drift_text(drift: Drift) -> str:
    """Return a drift: `step time drifts from 1.0 to 1.11: +11.2 % (9.8 to 12.6) over 12 versions in 11 runs, p = …`."""
    size = f"{numbers.effect(drift.effect)} over {drift.versions} versions in {drift.runs} runs"
    title = shown_signal(drift.signal).title
    return (
        f"{title} drifts from {version(drift.first)} to {version(drift.last)}: {size}, {numbers.probability(drift.p)}"
    )


def finding_text(finding: SeenFinding) -> str:
    """Return a finding of one run: `memory leak since 1.15 (last good 1.14): 7.84 KiB/step (7.83 to 7.85)`."""
    size = "" if finding.effect is None else f": {numbers.effect(finding.effect)}"
    what = finding_words.symptom(finding.signal, finding.verdict)
    where = f"fixed in {_between(finding)}" if finding.kind == "first_fixed" else _since(finding)
    return f"{what} {where}{size}{_cause(finding)}"


def _cause(finding: SeenFinding) -> str:
    return f"; a consequence of {shown_signal(finding.consequence_of).title}" if finding.consequence_of else ""
