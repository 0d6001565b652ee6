"""Describes one finding of a run: what is wrong, where it begins or ends, its size, and how certain it is."""

from __future__ import annotations

from harness.model import Finding, Metric
from harness.report.text import numbers, words
from harness.report.text.harmless_text import plain, version
from harness.report.text.signal_words import shown_signal

UNCONFIRMED = "one side has fewer than two launches"
_WHAT = {
    "leak": "memory leak",
    "slowdown": "steps that get slower during a launch",
    "oom": "running out of memory",
    "crash": "crash",
    "hang": "hang",
}


def symptom(metric: Metric, verdict: str) -> str:
    """Return what is wrong, as a noun for a metric and the verdict on it: `memory leak`, `slower steps`."""
    if verdict == "nan":
        return f"NaN or infinity in {shown_signal(metric).title}"
    return _WHAT.get(verdict) or shown_signal(metric).noun


def text(finding: Finding) -> str:
    """Return what is wrong, where it begins or ends, its size and how certain it is, on one line without the place."""
    return f"{symptom(finding.metric, finding.verdict)} {_boundary(finding)}{_size(finding)}{_evidence(finding)}"


def line(finding: Finding) -> str:
    """Return `text` with its place: `multidict on local, multidict_pop: memory leak since 6.3.0 (last good 6.2.0)`."""
    return f"{place(finding)}: {text(finding)}"


def place(finding: Finding) -> str:
    """Return a finding's series, lane and variant: `multidict on local, multidict_pop`."""
    return f"{plain(finding.series)} on {words.lane_text(finding.lane)}, {words.variant_text(finding.variant)}"


def _boundary(finding: Finding) -> str:
    after, before = version(finding.after), version(finding.before or "")
    if finding.kind == "bad_from_start":
        if finding.untestable:
            return f"in {after}, the oldest version that can be judged; before it {_gap(finding)}"
        return f"since {after}, the oldest version here, or earlier"
    if finding.kind == "worse":
        return (
            f"even worse {f'between {before} and {after}; {_gap(finding)}' if finding.untestable else f'since {after}'}"
        )
    if finding.kind == "drift":
        return f"gradually, from {before} to {after}"
    old, new = ("good", "bad") if finding.kind == "first_bad" else ("bad", "good")
    if finding.untestable:
        return f"{'begins' if old == 'good' else 'ends'} between {before} ({old}) and {after} ({new}); {_gap(finding)}"
    verb = "since" if finding.kind == "first_bad" else "gone in"
    return f"{verb} {after} (last {old} {before})" if before else f"{verb} {after}"


def _gap(finding: Finding) -> str:
    return f"{words.listing(finding.untestable)} cannot be judged"


def _size(finding: Finding) -> str:
    return "" if finding.effect is None else f": {numbers.effect(finding.effect)}"


def _evidence(finding: Finding) -> str:
    """Return the p-value, if there was a test, and why the finding is not confirmed, if it is not."""
    chance = "" if finding.p is None else f", {numbers.probability(finding.p)}"
    return chance if finding.confirmed else f"{chance}; not confirmed: {UNCONFIRMED}"
