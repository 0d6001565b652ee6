"""States of versions: good, bad or unknown by one metric, and where they change."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise, takewhile

from harness.model.judged import State
from harness.schedule.bisect.records import NOTHING, STATE_METRICS, Evidence, Rules, VersionEvidence
from harness.schedule.bisect.survival import luck

PATIENCE = 3
"""Launches without a result after which a version is skipped."""
BELIEVED = 3e-4
"""Chance of luck below which good launches between two bad versions are believed: two more changes are rare, too."""


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


def evidence(spot: VersionEvidence, metric: str) -> Evidence:
    return spot.states.get(metric, NOTHING)


def metrics_of(spots: Sequence[VersionEvidence]) -> list[str]:
    """Return the metrics with any evidence."""
    present = {metric for spot in spots for metric in spot.states}
    return [metric for metric in STATE_METRICS if metric in present]


def state_of(spot: VersionEvidence, metric: str) -> State:
    """Return the state: one crash is enough for bad; a leak must show in more launches than it is absent from."""
    seen = spot.states.get(metric)
    if seen is None:
        return None
    if metric == "outcome":
        return True if seen.bad else False if seen.good else None
    if seen.bad:
        return True if seen.bad > seen.good else None
    return False if seen.good > seen.unsure else None


def says_nothing(spot: VersionEvidence, metric: str) -> bool:
    return not spot.testable or (spot.launches > 0 and state_of(spot, metric) is None)


def is_open(spot: VersionEvidence, metric: str, rules: Rules) -> bool:
    """Return whether the state is unknown and another launch may settle it."""
    if not spot.testable or state_of(spot, metric) is not None:
        return False
    return spot.launches < (rules.most if evidence(spot, metric).bad else min(PATIENCE, rules.most))


def changes_of(spots: Sequence[VersionEvidence], metric: str) -> list[StateChange]:
    states = believed_states(spots, metric)
    known = [(place, bad) for place, bad in enumerate(states) if bad is not None]
    return [
        StateChange(metric=metric, before=before, after=after, worse=now)
        for (before, was), (after, now) in pairwise(known)
        if was != now
    ]


def believed_states(spots: Sequence[VersionEvidence], metric: str) -> list[State]:
    """Return the states, without good versions between two bad ones that may only have been lucky."""
    states = [state_of(spot, metric) for spot in spots]
    for run in _doubtful(spots, metric, states):
        for place in run:
            states[place] = None
    return states


def doubtful_runs(spots: Sequence[VersionEvidence], metric: str) -> list[list[int]]:
    """Return the runs of good versions between two bad ones that have too few good launches to exclude luck."""
    return _doubtful(spots, metric, [state_of(spot, metric) for spot in spots])


def _doubtful(spots: Sequence[VersionEvidence], metric: str, states: Sequence[State]) -> list[list[int]]:
    known = [(place, bad) for place, bad in enumerate(states) if bad is not None]
    runs = [(bad, [place for place, _ in group]) for bad, group in groupby(known, key=lambda each: each[1])]
    if len(runs) < 3:
        return []
    failing = [evidence(spots[place], metric) for place, bad in known if bad]
    inner = [places for bad, places in runs[1:-1] if not bad]
    return [places for places in inner if luck(failing, [evidence(spots[p], metric) for p in places]) > BELIEVED]


def is_mixed(spots: Sequence[VersionEvidence], metric: str) -> bool:
    """Return whether a failure is flaky, or may be: it was seen to come in only some of the launches."""
    states = [state_of(spot, metric) for spot in spots]
    seen = [evidence(spot, metric) for spot, bad in zip(spots, states, strict=True) if bad]
    return any(each.good for each in seen) or bool(_doubtful(spots, metric, states))


def failures_from(spots: Sequence[VersionEvidence], change: StateChange) -> int:
    """Count the failed launches of the bad version next to the good ones, and of those beyond it."""
    step = 1 if change.worse else -1
    places = range(change.bad, len(spots) if change.worse else -1, step)
    beyond = takewhile(lambda place: state_of(spots[place], change.metric) is not False, places)
    return sum(evidence(spots[place], change.metric).bad for place in beyond)


def enough_failures(spots: Sequence[VersionEvidence], change: StateChange, rules: Rules) -> bool:
    """Return whether failures are enough to rule out a flaky one, or all that the launches for a clear outcome
    allow.
    """
    if change.metric != "outcome" or failures_from(spots, change) >= rules.failures:
        return True
    versions = sum(spot.testable for spot in spots)
    return sum(spot.launches for spot in spots) >= math.ceil(math.log2(max(1, versions))) + 2 * rules.agree


def agreeing(spot: VersionEvidence, metric: str, *, bad: bool, rules: Rules) -> bool:
    seen = evidence(spot, metric)
    return (seen.bad if bad else seen.good) >= rules.agree
