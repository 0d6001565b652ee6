"""Determines the state of each version by one metric (good, bad or unknown), and where states change."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise, takewhile

from harness.judge.history import flaky
from harness.judge.history.flaky import NOTHING, Evidence, Reach
from harness.judge.next.bisect_records import STATE_METRICS, RowVersions, Rules, VersionEvidence
from harness.model.judged import State

PATIENCE = 3
"""Launches without a result after which a version is skipped."""


@dataclass(frozen=True, kw_only=True)
class StateChange:
    """Two neighbours that differ, among the versions whose state is known."""

    before: int
    after: int
    worse: bool

    @property
    def good(self) -> int:
        return self.before if self.worse else self.after

    @property
    def bad(self) -> int:
        return self.after if self.worse else self.before


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


def is_unknown(version: VersionEvidence) -> bool:
    """Return whether the launches of a version gave no state by any metric."""
    return all(version_state(version, metric) is None for metric in version.states)


def agrees(version: VersionEvidence, metric: str, *, bad: bool, rules: Rules) -> bool:
    """Return whether enough launches of a version agree that it is bad, or good."""
    seen = version.states.get(metric, NOTHING)
    return (seen.bad if bad else seen.good) >= rules.agree


@dataclass(frozen=True, kw_only=True)
class StateHistory:
    """The states of the versions of a row by one metric. Each quantity is computed on first use."""

    versions: RowVersions
    metric: str
    rules: Rules

    def evidence(self, place: int) -> Evidence:
        return self.versions[place].states.get(self.metric, NOTHING)

    @cached_property
    def states(self) -> list[State]:
        return [version_state(version, self.metric) for version in self.versions]

    @cached_property
    def seen(self) -> list[Evidence | None]:
        """Return the evidence of each version; None for a version that cannot run and never did."""
        return [
            self.evidence(place) if version.testable or version.launches else None
            for place, version in enumerate(self.versions)
        ]

    @cached_property
    def believed(self) -> list[State]:
        return flaky.believed(self.states, self.seen)

    @cached_property
    def lucky_runs(self) -> list[list[int]]:
        return flaky.lucky_runs(self.states, self.seen)

    @cached_property
    def changes(self) -> list[StateChange]:
        """Return each change of the believed states, oldest first."""
        decided = [(place, bad) for place, bad in enumerate(self.believed) if bad is not None]
        return [
            StateChange(before=before, after=after, worse=now)
            for (before, was), (after, now) in pairwise(decided)
            if was != now
        ]

    @cached_property
    def is_mixed(self) -> bool:
        """Return whether a failure is flaky, or may be: only some of the launches that can show it did."""
        bad = (self.evidence(place) for place, state in enumerate(self.states) if state)
        return any(seen.good for seen in bad) or bool(self.lucky_runs)

    @property
    def bad_from_start(self) -> int | None:
        """Return the oldest version whose state is decided, if it is bad."""
        oldest = next((place for place, state in enumerate(self.states) if state is not None), None)
        return oldest if oldest is not None and self.states[oldest] else None

    def agrees(self, place: int, *, bad: bool) -> bool:
        return agrees(self.versions[place], self.metric, bad=bad, rules=self.rules)

    def may_be_settled(self, place: int) -> bool:
        """Return whether the state is unknown and another launch may settle it."""
        version, most = self.versions[place], self.rules.most
        if not version.testable or self.states[place] is not None:
            return False
        return version.launches < (most if self.evidence(place).bad else min(PATIENCE, most))

    def failures_from(self, change: StateChange) -> int:
        """Count the failed launches of the bad version next to the good ones, and of those beyond it."""
        places = range(change.bad, len(self.versions)) if change.worse else range(change.bad, -1, -1)
        return sum(self.evidence(place).bad for place in takewhile(lambda p: self.states[p] is not False, places))

    def enough_failures(self, change: StateChange) -> bool:
        """Return whether the failures rule out a flaky one, or the launches for a clear outcome are spent."""
        if self.metric != "outcome" or self.failures_from(change) >= self.rules.failures:
            return True
        testable = sum(version.testable for version in self.versions)
        enough = math.ceil(math.log2(max(1, testable))) + 2 * self.rules.agree
        return sum(version.launches for version in self.versions) >= enough

    def reach(self, change: StateChange, *, always: bool = False) -> Reach:
        """Return the posterior of how far the bad side of a change reaches."""
        outwards = -1 if change.worse else 1
        return flaky.reach_of(self.believed, self.seen, change.bad, outwards=outwards, always=always)

    def doubt(self, change: StateChange) -> float:
        """Return the probability that the good version is bad, and ended well only because its failure was not due yet.
        It is 0 if steps are not counted, because there is no evidence then.
        """
        if not self.evidence(change.bad).timed:
            return 0.0
        reach = self.reach(change, always=True)
        return reach.bad(reach.places.index(change.good))


def histories_of(versions: RowVersions, rules: Rules) -> list[StateHistory]:
    """Return the history of each metric by which any version was judged."""
    present = {metric for version in versions for metric in version.states}
    return [
        StateHistory(versions=versions, metric=metric, rules=rules) for metric in STATE_METRICS if metric in present
    ]
