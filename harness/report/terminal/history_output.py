"""Writes what `harness runs` and `harness history` print."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from harness import amounts
from harness.model import SeriesChange, SeriesVerdict
from harness.model.indexed import HistoryView, IndexedRun, Measurement
from harness.report.text import finding_words, signal_words
from harness.report.text.harmless_text import plain, shortened, version
from harness.report.text.names import version_range

SHOWN = ("memory", "step_time", "peak_memory")
"""Signals that have a column by default."""
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
        (finding_words.minute(run.started), plain(run.path), finding_words.run_verdict(run), f"{run.cells:,}",
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
        yield f"{finding_words.history_place(view.history)} ({plain(view.history.matrix)})"
        titles = [signal_words.shown_signal(name).title for name in shown]
        header = ("image", "verdict", *titles, *(("started (UTC)", "run") if days else ("measured",)))
        yield from (f"  {line}" for line in _table([header, *_rows(view, shown, days=days)]))
        if view.left_out:
            yield f"  {amounts.count(view.left_out, 'older version')} not shown: --all"
        yield from (
            f"  {finding_words.life_text(life)}; {finding_words.standing(life, view.runs)}" for life in view.lives
        )
        yield from (f"  {finding_words.drift_text(drift)}" for drift in view.drifts)
        yield ""


def _rows(view: HistoryView, signals: Sequence[str], *, days: bool) -> Iterator[tuple[str, ...]]:
    for name in view.versions:
        own = [measurement for measurement in view.measured if measurement.version == name]
        for some in [[each] for each in own] if days else [known_of(own)]:
            newest = some[-1]
            figures = (_figure(some, signal) for signal in signals)
            when = (finding_words.minute(newest.started), plain(newest.run)) if days else (_measured(some),)
            yield version(name), finding_words.measured_verdict(newest), *figures, *when


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


def known_of(measured: Sequence[Measurement]) -> Sequence[Measurement]:
    """Return the measurements that say something about the image; if there are none, all of them."""
    return [measurement for measurement in measured if measurement.is_known] or measured


def days_of(measured: Sequence[Measurement]) -> str:
    """Return `2026-03-01 to 2026-03-04`, or the day if both are the same."""
    first, last = finding_words.day(measured[0].started), finding_words.day(measured[-1].started)
    return last if first == last else f"{first} to {last}"


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


def series_lines(found: SeriesVerdict, *, why: str) -> Iterator[str]:
    """Yield the changes, the minimum detectable effect, and what could not be judged.

    `why` is the reason to print if nothing could be judged.
    """
    count, rounds = amounts.count(len(found.versions), "version"), amounts.count(found.rounds, "round")
    side = "lower" if found.falls else "higher"
    yield f"{plain(found.history)}: {count}, {rounds}; {side} is worse; the limit is a change of {_share(found.limit)}"
    for change in found.changes:
        chance = "" if change.p is None else f", {amounts.probability(change.p)}"
        yield f"  {_place(change)}: {amounts.effect(change.effect)}{chance}"
    if found.noise is None:
        yield f"  nothing could be judged: {why}"
    else:
        if found.verdict != "worse":
            yield "  nothing was shown to be worse"
        yield f"  {_visible(found)}"
        source = "from values of one version in different rounds"
        if found.alone:
            source = (
                "from neighbouring versions, because each has only one value: drift of the machine looks like a change "
                "between versions, and a single worse version cannot be judged"
            )
        yield f"  noise: {_share(found.noise)}, {source}"
    for name in found.odd:
        yield f"  not judged: {version(name)} has one value, far from its neighbours; measure all of these again"
    for text in found.left_out:
        yield f"  left out: {plain(text)}"


def _place(change: SeriesChange) -> str:
    before, after = version(change.before or ""), version(change.after)
    word = _KINDS[change.kind]
    if change.kind == "drift":
        return f"gradual {word} from {before} to {after}"
    if change.before is None:
        return f"{word} {after}"
    if change.between:
        return f"{word} after {before}, {after} at the latest ({version_range(change.between)} cannot be judged)"
    return f"{word} {after} (after {before})"


def _visible(found: SeriesVerdict) -> str:
    assert found.visible is not None, "the caller checked that the noise is known"
    what = "a single version" if found.lasting == 1 else f"the newest {found.lasting} versions"
    limit = _share(found.limit)
    if found.visible < _NO_NOISE:
        return f"any change above {limit} (the limit) in {what} would have shown"
    if found.visible <= found.limit:
        sign = -1 if found.falls else 1
        beyond = found.limit if found.alone else found.visible  # noise from neighbours is less certain
        sure = abs((1 + sign * found.limit) * (1 + sign * beyond) - 1)  # logs of relative changes add up
        shown = f"a change of {signal_words.share_text(sure)} in {what} would have shown"
        at_limit = f"one of {limit} (the limit)"
        return f"{shown}; {at_limit} may exist" if found.alone else f"{shown}, and {at_limit} in half of the cases"
    more = "; several values of each version, in rounds, would show smaller changes" if found.alone else ""
    shown = f"only a change of {signal_words.share_text(found.visible)} in {what} would have shown"
    return f"{shown}; one of {limit} (the limit) may exist{more}"


def _share(share: float) -> str:
    return f"{amounts.number(100 * share)} %"
