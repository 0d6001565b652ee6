"""Describes one finding: what is wrong, where it begins or ends, its size, how certain it is, its life over runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from harness import amounts
from harness.model import Finding, FindingKind, Metric, SignalState
from harness.model.indexed import Drift, FindingLife, IndexedHistory, IndexedRun, Measurement, SeenFinding
from harness.report.text.harmless_text import plain, version
from harness.report.text.names import lane_text, some_of, variant_text, version_range
from harness.report.text.signal_words import SYMBOLS, Tone, shown_signal, tone

Runs = Mapping[int, IndexedRun]
UNCONFIRMED = "one side has fewer than two launches"


class Symptom(NamedTuple):
    """What a verdict of a finding is, as a noun; what the scenario does; and what follows the figure's title."""

    noun: str
    does: str = ""
    shows: str = ""


SYMPTOMS: Mapping[str, Symptom] = {
    "leak": Symptom("memory leak"),
    "slowdown": Symptom("steps that get slower during a launch", "gets slower step by step"),
    "oom": Symptom("running out of memory", "runs out of memory"),
    "crash": Symptom("crash", "crashes"),
    "hang": Symptom("hang", "hangs"),
    "two modes": Symptom("launches in a slow mode"),
    "nan": Symptom("NaN or infinity in {name}", "{gives} NaN or infinity as `{name}`", " is NaN or infinity"),
    "vanished": Symptom("{name} that is gone", "no longer {gives} `{name}`", " in no launch"),
    "varies": Symptom(
        "{name} that differs in each launch", "{gives} another `{name}` in each launch", " differs in each launch"
    ),
    "late": Symptom("another {name} at the end", shows=" at the end of a launch"),
}
"""The verdicts whose words are not those of their signal; `gives` is what the scenario does with its numbers."""


def symptom(metric: Metric, verdict: str) -> str:
    """Return what is wrong, as a noun for a metric and the verdict on it: `memory leak`, `slower steps`."""
    signal = shown_signal(metric)
    return SYMPTOMS[verdict].noun.format(name=signal.title) if verdict in SYMPTOMS else signal.noun


def text(finding: Finding) -> str:
    """Return what is wrong, where it begins or ends, its size and how certain it is, on one line without the place."""
    size = "" if finding.effect is None else f": {amounts.effect(finding.effect)}"
    chance = "" if finding.p is None else f", {amounts.probability(finding.p)}"
    sure = "" if finding.confirmed else f"; not confirmed: {UNCONFIRMED}"
    where = _boundary(finding.kind, finding.before, finding.after, finding.untestable)
    return f"{symptom(finding.metric, finding.verdict)} {where}{size}{chance}{sure}"


def place(finding: Finding) -> str:
    """Return a finding's series, lane and variant: `multidict on local, multidict_pop`."""
    return f"{plain(finding.series)} on {lane_text(finding.lane)}, {variant_text(finding.variant)}"


def line(finding: Finding) -> str:
    """Return `text` with its place: `multidict on local, multidict_pop: memory leak since 6.3.0 (last good 6.2.0)`."""
    return f"{place(finding)}: {text(finding)}"


def _boundary(kind: FindingKind, older: str | None, newer: str, untestable: Sequence[str] = ()) -> str:
    after, before = version(newer), version(older or "")
    gap = f"{version_range(untestable)} cannot be judged" if untestable else ""
    if kind == "bad_from_start":
        return (
            f"in {after}, the oldest version that can be judged; before it {gap}"
            if gap
            else f"since {after} or earlier"
        )
    if kind == "drift":
        return f"gradually, from {before} to {after}"
    if kind == "worse":
        return (
            f"even worse {f'between {before} and {after}; {gap}' if gap else f'since {after} (last milder {before})'}"
        )
    verb, last = ("since", "good") if kind == "first_bad" else ("gone in", "bad")
    known = f" (last {last} {before})" if before else ""
    return f"{verb} {after}{f' or earlier{known}; {gap}' if gap else known}"


# ---------------------------------------------------------------- over many runs


def day(started: str) -> str:
    """Return the date part of an ISO 8601 time: `2026-03-01`."""
    return plain(started[:10]) or "an unknown day"


def minute(started: str) -> str:
    """Return an ISO 8601 time to the minute: `2026-03-01 04:00`."""
    return plain(started[:16].replace("T", " ")) or "an unknown day"


def run_verdict(run: IndexedRun) -> str:
    """Return the verdict of a run, such as `regression`; for a run without a verdict, its kind, such as `probe`."""
    return "cannot be read" if run.problem else run.verdict or run.kind


def measured_verdict(measurement: Measurement) -> str:
    """Return `✗ leak`, or `✗ step time` if signals other than memory make the cell's state worse than its verdict."""
    word = measurement.verdict
    own = tone(word)
    if own in ("good", "unsure") and own != measurement.state and measurement.state in _OTHER_SIGNALS:
        states, otherwise = _OTHER_SIGNALS[measurement.state]
        titles = [shown_signal(name).title for name, figure in measurement.figures.items() if figure.seen in states]
        word = some_of(titles, 3) or otherwise
    return f"{SYMBOLS[measurement.state]} {word}{' so far' if measurement.provisional else ''}"


_OTHER_SIGNALS: Mapping[Tone, tuple[tuple[SignalState, ...], str]] = {
    "bad": (("bad",), "worse than before"),
    "unsure": (("suspect", "blind"), "partly undecided"),
}
"""The signal states that make a cell bad or unsure, and the words used if the query left out those signals."""


def history_place(history: IndexedHistory) -> str:
    """Return a history's series, lane and variant: `framework on old/RTX 3090, train batch=32`."""
    return f"{plain(history.series)} on {plain(history.lane)}, {plain(history.variant)}"


def life_text(life: FindingLife) -> str:
    """Return a finding's life: `memory leak since 1.15 (last good 1.14), fixed in 1.18: 7.84 KiB/step`."""
    end = ""
    if life.ends is not None:
        end = f", fixed in {version(life.ends.after)}"
        end += f" (last bad {version(life.ends.before)})" if life.ends.before else ""
    sure = "" if life.begins.confirmed else f"; not confirmed: {UNCONFIRMED}"
    return f"{finding_text(life.begins, end)}{sure}"


def finding_text(finding: SeenFinding, end: str = "") -> str:
    """Return a finding of one run: `memory leak since 1.15 (last good 1.14): 7.84 KiB/step (7.83 to 7.85)`. `end`: how
    it ended in a later run.
    """
    size = "" if finding.effect is None else f": {amounts.effect(finding.effect)}"
    cause = f"; a consequence of {shown_signal(finding.consequence_of).title}" if finding.consequence_of else ""
    where = _boundary(finding.kind, finding.before, finding.after)
    return f"{symptom(finding.signal, finding.verdict)} {where}{end}{size}{cause}"


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
