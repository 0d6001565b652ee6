"""Findings over many runs, and drifts, in sentences."""

from __future__ import annotations

from collections.abc import Mapping

from harness.model import signal_of
from harness.model.history import Drift, FindingLife, IndexedHistory, IndexedRun, SeenFinding
from harness.report.text import numbers, words
from harness.report.text.clean import plain, version

Runs = Mapping[int, IndexedRun]


def day(started: str) -> str:
    """Return the day of a time: `2026-03-01`."""
    return plain(started[:10]) or "an unknown day"


def minute(started: str) -> str:
    """Return a time to the minute: `2026-03-01 04:00`."""
    return plain(started[:16].replace("T", " ")) or "an unknown day"


def place(history: IndexedHistory) -> str:
    """Return `framework on old/RTX 3090, train batch=32`."""
    return f"{plain(history.series)} on {plain(history.lane)}, {plain(history.variant)}"


def life(one: FindingLife) -> str:
    """Return `memory leak since 1.15 (last good 1.14), fixed in 1.18: 7.84 KiB/step (7.83 to 7.85)`."""
    begins = one.begins
    size = "" if begins.effect is None else f": {numbers.effect(begins.effect)}"
    end = f", fixed in {_between(one.ends)}" if one.ends is not None else ""
    sure = "" if begins.confirmed else f"; not confirmed: {words.UNCONFIRMED}"
    return f"{words.symptom_of(begins.signal, begins.verdict)} {_since(begins)}{end}{size}{sure}"


def _since(begins: SeenFinding) -> str:
    after, before = version(begins.after), version(begins.before or "")
    if begins.kind == "bad_from_start" or not before:
        return f"since {after} or earlier"
    if begins.kind == "drift":
        return f"gradually, from {before} to {after}"
    return f"{'much worse ' if begins.kind == 'worse' else ''}since {after} (last {_old(begins)} {before})"


def _old(begins: SeenFinding) -> str:
    return "milder" if begins.kind == "worse" else "good"


def _between(ends: SeenFinding) -> str:
    return version(ends.after) + (f" (last bad {version(ends.before)})" if ends.before else "")


def told(one: FindingLife, runs: Runs) -> str:
    """Return when that was found, and how it stands: `found 2026-03-01, last seen 2026-03-04`."""
    found, seen = day(runs[one.found].started), day(runs[one.seen].started)
    closed = "" if one.closed is None else day(runs[one.closed].started)
    if one.status == "fixed":
        return f"found {found}, fixed {closed}"
    if one.status == "not seen again":
        return f"found {found}, last seen {seen}, measured again {closed} and not found"
    return f"open: found {found}" + (f", last seen {seen}" if seen != found else "")


def drift(one: Drift) -> str:
    """Return `step time drifts from 1.0 to 1.11: +11.2 % (9.8 to 12.6) over 12 versions in 11 runs, p = 0.0001`."""
    size = f"{numbers.effect(one.effect)} over {one.versions} versions in {one.runs} runs"
    title = plain(signal_of(one.signal).title)
    return f"{title} drifts from {version(one.first)} to {version(one.last)}: {size}, {numbers.probability(one.p)}"


def seen(one: SeenFinding) -> str:
    """Return a finding of one run: `memory leak since 1.15 (last good 1.14): 7.84 KiB/step (7.83 to 7.85)`."""
    size = "" if one.effect is None else f": {numbers.effect(one.effect)}"
    what = words.symptom_of(one.signal, one.verdict)
    where = f"fixed in {_between(one)}" if one.kind == "first_fixed" else _since(one)
    cause = f"; a consequence of {plain(signal_of(one.consequence_of).title)}" if one.consequence_of else ""
    return f"{what} {where}{size}{cause}"
