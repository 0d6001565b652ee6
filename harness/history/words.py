"""Describes what the index holds: a history, a finding's life over runs, a drift, a verdict of some day."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from harness import amounts
from harness.history.records import FindingLife, IndexedHistory, IndexedRun, Measurement, SeenFinding
from harness.model import Drift, SignalState
from harness.model.signals import in_words
from harness.report.text.finding_words import UNCONFIRMED, boundary, symptom
from harness.report.text.harmless_text import plain, version
from harness.report.text.names import some_of
from harness.report.text.signal_words import SYMBOLS, Tone, in_order, shown_signal, tone, verdict_word

Runs = Mapping[str, IndexedRun]
SHOWN = ("memory", "step_time", "run_time", "peak_memory")
"""Signals that have a column by default."""


def day(started: str) -> str:
    """Return the date part of an ISO 8601 time: `2026-03-01`."""
    return plain(started[:10]) or "an unknown day"


def minute(started: str) -> str:
    """Return an ISO 8601 time to the minute: `2026-03-01 04:00`."""
    return plain(started[:16].replace("T", " ")) or "an unknown day"


def days_of(measured: Sequence[Measurement]) -> str:
    """Return `2026-03-01 to 2026-03-04`, or the day if both are the same."""
    first, last = day(measured[0].started), day(measured[-1].started)
    return last if first == last else f"{first} to {last}"


def known_of(measured: Sequence[Measurement]) -> Sequence[Measurement]:
    """Return the measurements that say something about the image; if there are none, all of them."""
    return [measurement for measurement in measured if measurement.is_known] or measured


def run_verdict(run: IndexedRun) -> str:
    """Return the verdict of a run, such as `regression`; for a run without a verdict, its kind, such as `probe`."""
    return "cannot be read" if run.problem else run.verdict or run.kind


def measured_verdict(measurement: Measurement) -> str:
    """Return `✗ leak`, or `✗ step time` if signals other than memory make the cell's state worse than its verdict."""
    verdict, state = measurement.verdict, measurement.state
    word, own = verdict_word(verdict), tone(verdict.verdict)
    if own in ("good", "unsure") and own != state and state in _OTHER_SIGNALS:
        names = in_order(name for name, signal in verdict.signals.items() if signal.seen in _OTHER_SIGNALS[state])
        word = some_of([shown_signal(name).title for name in names], 3) or word
    return f"{SYMBOLS[state]} {word}{' so far' if verdict.provisional else ''}"


_OTHER_SIGNALS: Mapping[Tone, tuple[SignalState, ...]] = {"bad": ("bad",), "unsure": ("suspect", "blind")}
"""The signal states that make a cell bad or unsure."""


def history_place(history: IndexedHistory) -> str:
    """Return a history's series, lane and variant: `framework on old/RTX 3090, train batch=32`."""
    return f"{plain(history.series)} on {plain(history.lane)}, {plain(history.variant)}"


def life_text(history: IndexedHistory, life: FindingLife) -> str:
    """Return a finding's life: `memory leak since 1.15 (last good 1.14), fixed in 1.18: 7.84 KiB/step`."""
    end = ""
    if life.ends is not None:
        end = f", fixed in {version(life.ends.after)}"
        end += f" (last bad {version(life.ends.before)})" if life.ends.before else ""
    sure = "" if life.begins.confirmed else f"; not confirmed: {UNCONFIRMED}"
    return f"{finding_text(history, life.begins, end)}{sure}"


def finding_text(history: IndexedHistory, finding: SeenFinding, end: str = "") -> str:
    """Return a finding of one run: `memory leak since 1.15 (last good 1.14): 7.84 KiB/step (7.83 to 7.85)`. `end`: how
    it ended in a later run.
    """
    size = "" if finding.effect is None else f": {amounts.effect(finding.effect)}"
    cause = f"; a consequence of {shown_signal(finding.consequence_of).title}" if finding.consequence_of else ""
    where = boundary(finding.kind, finding.before, finding.after)
    what = in_words(symptom(finding.metric, finding.verdict), finding.metric, history.per)
    return f"{what} {where}{end}{size}{cause}"


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
    size = f"{amounts.effect(drift.effect)} over {drift.versions} versions in {drift.runs} runs"
    ends = f"from {version(drift.first)} to {version(drift.last)}"
    return f"{shown_signal(drift.signal).title} drifts {ends}: {size}, {amounts.probability(drift.p)}"
