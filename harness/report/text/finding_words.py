"""Describes one finding: what is wrong, where it begins or ends, its size, how certain it is."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from harness import amounts
from harness.model import LEVELS, ChangeKind, Finding, Metric, signal_of
from harness.model.measured import NOT_FINITE
from harness.report.text.harmless_text import plain, version
from harness.report.text.names import lane_text, variant_text, version_range
from harness.report.text.signal_words import shown_signal

UNCONFIRMED = "one side has fewer than two launches"


class Symptom(NamedTuple):
    """The words for a verdict of a finding: its noun, the verb of the scenario, and the end of the figure's title."""

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
    "nan": Symptom(f"{NOT_FINITE} in {{name}}", f"{{gives}} {NOT_FINITE} as `{{name}}`", f" is {NOT_FINITE}"),
    "vanished": Symptom("{name} that is gone", "no longer {gives} a number as `{name}`", " in no launch"),
    "varies": Symptom(
        "{name} that differs in each launch",
        "{gives} another `{name}` in each launch",
        " differs in each launch, and in none before",
    ),
    "late": Symptom("another {name} at the end", shows=" at the end of a launch"),
}
"""The verdicts whose words are not those of their signal; `gives` is what the scenario does with its numbers."""


def magnitude(finding: Finding) -> float:
    """Return how large a change is: a ratio as a log, and that of a level in terms of its limit."""
    effect, name, limits = finding.effect, finding.metric, finding.variant.scenario.limits
    if effect is None:
        return 0.0
    if effect.unit != "ratio" or effect.value <= 0:
        return effect.value / ((signal_of(name).least if name in LEVELS else 0.0) or 1.0)
    return abs(math.log(effect.value)) / ((limits.log_of(name) if name in LEVELS else None) or 1.0)


def symptom(metric: Metric, verdict: str) -> str:
    """Return what is wrong, as a noun for a metric and the verdict on it: `memory leak`, `slower steps`."""
    signal = shown_signal(metric)
    return SYMPTOMS[verdict].noun.format(name=signal.title) if verdict in SYMPTOMS else signal.noun


def text(finding: Finding) -> str:
    """Return what is wrong, where it begins or ends, its size and how certain it is, on one line without the place."""
    size = "" if finding.effect is None else f": {amounts.effect(finding.effect)}"
    chance = "" if finding.p is None else f", {amounts.probability(finding.p)}"
    sure = "" if finding.confirmed else f"; not confirmed: {UNCONFIRMED}"
    where = boundary(finding.kind, finding.before, finding.after, finding.untestable)
    what = finding.variant.scenario.in_words(symptom(finding.metric, finding.verdict), finding.metric)
    return f"{what} {where}{size}{chance}{sure}"


def place(finding: Finding) -> str:
    """Return a finding's series, lane and variant: `multidict on local, multidict_pop`."""
    return f"{plain(finding.series)} on {lane_text(finding.lane)}, {variant_text(finding.variant)}"


def line(finding: Finding) -> str:
    """Return `text` with its place: `multidict on local, multidict_pop: memory leak since 6.3.0 (last good 6.2.0)`."""
    return f"{place(finding)}: {text(finding)}"


def boundary(kind: ChangeKind, older: str | None, newer: str, untestable: Sequence[str] = ()) -> str:
    """Return where a finding begins or ends: `since 6.3.0 (last good 6.2.0)`."""
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
