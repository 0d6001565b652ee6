"""Determines the state of each version by one metric (good, bad or unknown), and where states change."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise, takewhile

from harness.judge.history.flaky import NOTHING, Evidence, believed, lucky_runs
from harness.model.judged import State
from harness.schedule.bisect.bisect_records import STATE_METRICS, RowVersions, Rules, VersionEvidence

PATIENCE = 3
"""Launches without a result after which a version is skipped."""


@dataclass(frozen=True, kw_only=True)
class StateChange:
    """Two neighbours that differ, among the versions whose state is known."""

    metric: str
    before: int
    after: int
    worse: bool

    @property
    def good(self) -> int:
        return self.before if self.worse else self.after

    @property
    def bad(self) -> int:
        return self.after if self.worse else self.before


def evidence_of(version: VersionEvidence, metric: str) -> Evidence:
    """Return the evidence of a version by one metric; NOTHING if there is none."""
    return version.states.get(metric, NOTHING)


def metrics_of(versions: RowVersions) -> list[str]:
    present = {metric for version in versions for metric in version.states}
    return [metric for metric in STATE_METRICS if metric in present]


def version_state(version: VersionEvidence, metric: str) -> State:
    """Return the state. One crash is enough for bad; a leak must show in more launches than it is absent from."""
    seen = version.states.get(metric)
    if seen is None:
        return None
    if metric == "outcome":
        return True if seen.bad else False if seen.good else None
    if seen.bad:
        return True if seen.bad > seen.good else None
    return False if seen.good > seen.unsure else None


def says_nothing(version: VersionEvidence, metric: str) -> bool:
    """Return whether a version cannot be launched, or its launches gave no state."""
    return not version.testable or (version.launches > 0 and version_state(version, metric) is None)


def may_be_settled(version: VersionEvidence, metric: str, rules: Rules) -> bool:
    """Return whether the state is unknown and another launch may settle it."""
    if not version.testable or version_state(version, metric) is not None:
        return False
    return version.launches < (rules.most if evidence_of(version, metric).bad else min(PATIENCE, rules.most))


def changes_of(versions: RowVersions, metric: str) -> list[StateChange]:
    """Return each change of the believed states, oldest first."""
    states = believed(states_of(versions, metric), evidences(versions, metric))
    decided = [(place, bad) for place, bad in enumerate(states) if bad is not None]
    return [
        StateChange(metric=metric, before=before, after=after, worse=now)
        for (before, was), (after, now) in pairwise(decided)
        if was != now
    ]


def evidences(versions: RowVersions, metric: str) -> list[Evidence | None]:
    """Return the evidence of each version by one metric; None for a version that cannot run and never did."""
    return [evidence_of(each, metric) if each.testable or each.launches else None for each in versions]


def states_of(versions: RowVersions, metric: str) -> list[State]:
    return [version_state(version, metric) for version in versions]


def is_mixed(versions: RowVersions, metric: str) -> bool:
    """Return whether a failure is flaky, or may be: it was seen in only some of the launches that can show it."""
    bad = [evidence_of(version, metric) for version in versions if version_state(version, metric)]
    return any(seen.good for seen in bad) or bool(lucky_runs(states_of(versions, metric), evidences(versions, metric)))


def failures_from(versions: RowVersions, change: StateChange) -> int:
    """Count the failed launches of the bad version next to the good ones, and of those beyond it."""
    step = 1 if change.worse else -1
    places = range(change.bad, len(versions) if change.worse else -1, step)
    beyond = takewhile(lambda place: version_state(versions[place], change.metric) is not False, places)
    return sum(evidence_of(versions[place], change.metric).bad for place in beyond)


def enough_failures(versions: RowVersions, change: StateChange, rules: Rules) -> bool:
    """Return whether the failures suffice to rule out a flaky one, or the launches for a clear outcome are spent."""
    if change.metric != "outcome" or failures_from(versions, change) >= rules.failures:
        return True
    testable = sum(version.testable for version in versions)
    return sum(version.launches for version in versions) >= math.ceil(math.log2(max(1, testable))) + 2 * rules.agree


def has_agreeing(version: VersionEvidence, metric: str, *, bad: bool, rules: Rules) -> bool:
    """Return whether enough launches of a version agree that it is bad, or good."""
    seen = evidence_of(version, metric)
    return (seen.bad if bad else seen.good) >= rules.agree
