"""Holds what a bisection knows: the evidence for each version, its state by a metric (good, bad or unknown), and the
answers. Positions are places in the series.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import takewhile
from typing import Literal

from harness.judge.history import flaky
from harness.judge.history.flaky import NOTHING, Evidence, Reach
from harness.judge.history.transitions import state_changes
from harness.judge.launches import ENOUGH_FAILED
from harness.model import Change, Metric
from harness.model.judged import State

STATE_METRICS = ("outcome", "memory", "slowdown")
MOST_LOGGED = 20
"""Most entries of a posterior that are logged."""
PATIENCE = 3
"""Launches without a result after which a version is skipped."""


@dataclass(frozen=True, kw_only=True)
class VersionEvidence:
    """One version as the bisection sees it.

    The caller must ensure that each requested launch changes its version's evidence: `launches` grows, or `testable`
    becomes False for good. `launches` counts those that gave any result, `states` holds the result by metric
    ("outcome", "memory", "slowdown"). `figures` are logs of its figures of `Rules.level` by round; only figures of one
    round are compared, so rounds of different days need different numbers. `at_hand`: no pull or build is needed.
    """

    name: str = ""
    testable: bool = True
    at_hand: bool = False
    launches: int = 0
    states: Mapping[str, Evidence] = field(default_factory=dict)
    figures: Mapping[int, float] = field(default_factory=dict)

    def left(self, rules: Rules) -> int:
        """Return how often the version may be launched again."""
        return max(0, rules.most - self.launches) if self.testable else 0

    def state(self, metric: str) -> State:
        """Return the state. One crash is enough for bad; a leak must show in more launches than it is absent from."""
        seen = self.states.get(metric)
        if seen is None:
            return None
        if metric == "outcome":
            return True if seen.bad else False if seen.good else None
        if seen.bad:
            return True if seen.bad > seen.good else None
        return False if seen.good > seen.unsure else None

    @property
    def is_unknown(self) -> bool:
        """Return whether its launches gave no state by any metric."""
        return all(self.state(metric) is None for metric in self.states)


RowVersions = Sequence[VersionEvidence]
"""The versions of a row, oldest first."""


@dataclass(frozen=True, kw_only=True)
class Rules:
    """Rules of a bisection.

    `agree`: launches on each side of a change that must agree before a version is named. `least`: launches of each end
    before two equal ends are believed. `most`: launches of any version. `alpha`: the probability of leaving the right
    version out of an answer. `level`: the level signal whose changes are searched for; `level_limit`: the log of the
    ratio that counts, None if levels are not compared. `baseline`: the position of the version that is launched with
    the ends. `whole`: the next launches make as many steps as possible; otherwise a version's next launch may stop
    where its last one did.
    """

    agree: int = 2
    least: int = 3
    most: int = 8
    alpha: float = 0.004
    level: Metric = "step_time"
    level_limit: float | None = None
    baseline: int | None = None
    whole: bool = False


DecisionKind = Literal["end", "halve", "repeat", "confirm", "compare", "done"]


@dataclass(frozen=True, kw_only=True)
class Decision:
    """The launches to make next, side by side, with the reason. `launch` is empty once the search is over.

    `posterior`: (version, probability that it is the outermost one of the changed side), likeliest first. `whole`:
    these launches run their whole budget even if they are quiet.
    """

    launch: tuple[int, ...]
    kind: DecisionKind
    reason: str
    metric: str | None = None
    bracket: tuple[int, int] | None = None
    posterior: tuple[tuple[int, float], ...] = ()
    whole: bool = False


def version_name(versions: RowVersions, place: int) -> str:
    return versions[place].name or f"version {place}"


def version_names(versions: RowVersions, places: Iterable[int]) -> str:
    """Return the names of several versions, joined by "and"."""
    return " and ".join(version_name(versions, place) for place in places)


def likeliest(chances: Iterable[tuple[int, float]]) -> tuple[tuple[int, float], ...]:
    """Return the places with their probabilities as they are logged: likeliest first, rounded to 4 digits."""
    order = sorted(chances, key=lambda each: -each[1])
    return tuple((place, round(chance, 4)) for place, chance in order[:MOST_LOGGED])


@dataclass(frozen=True, kw_only=True)
class Expected:
    """Number of launches of a bisection: with nothing to find, with one clear change, and at most."""

    least: int
    typical: int
    most: int


def expected_launches(versions: int, *, rules: Rules) -> Expected:
    """Return the expected launches of a row with this number of testable `versions`, before any result.

    `typical` is for outcomes; a step of a level takes more launches than a clear outcome.
    """
    once, most = min(rules.least, rules.most), versions * rules.most
    if versions < 2:
        return Expected(least=versions * once, typical=versions * once, most=most)
    clear = max(2 * once, math.ceil(math.log2(versions)) + 2 * rules.agree)
    return Expected(least=2 * once, typical=min(most, clear), most=most)


# ---------------------------------------------------------------- states


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
        return [version.state(self.metric) for version in self.versions]

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
    def changes(self) -> list[Change[int]]:
        """Return each change of the believed states, oldest first."""
        return [change for change in state_changes(self.metric, self.believed) if change.before is not None]

    @cached_property
    def is_mixed(self) -> bool:
        """Return whether a failure is flaky, or may be: only some of the launches that can show it did."""
        bad = (self.evidence(place) for place, state in enumerate(self.states) if state)
        return any(seen.good for seen in bad) or bool(self.lucky_runs)

    @property
    def bad_from_start(self) -> int | None:
        """Return the oldest version whose state is decided, if it is bad."""
        changes = state_changes(self.metric, self.states)
        return changes[0].after if changes and changes[0].before is None else None

    def agrees(self, place: int, *, bad: bool) -> bool:
        """Return whether enough launches agree that a version is bad, or good."""
        seen = self.evidence(place)
        return (seen.bad if bad else seen.good) >= self.rules.agree

    def may_be_settled(self, place: int) -> bool:
        """Return whether the state is unknown and another launch may settle it."""
        version, most = self.versions[place], self.rules.most
        if not version.testable or self.states[place] is not None:
            return False
        return version.launches < (most if self.evidence(place).bad else min(PATIENCE, most))

    def failures_from(self, change: Change[int]) -> int:
        """Count the failed launches of the bad version next to the good ones, and of those beyond it."""
        end, outwards = (-1, -1) if change.kind == "first_fixed" else (len(self.versions), 1)
        places = range(change.bad_side, end, outwards)
        return sum(self.evidence(place).bad for place in takewhile(lambda p: self.states[p] is not False, places))

    def enough_failures(self, change: Change[int]) -> bool:
        """Return whether the failures rule out a flaky one, or the launches for a clear outcome are spent."""
        if self.metric != "outcome" or self.failures_from(change) >= ENOUGH_FAILED:
            return True
        testable = sum(version.testable for version in self.versions)
        enough = math.ceil(math.log2(max(1, testable))) + 2 * self.rules.agree
        return sum(version.launches for version in self.versions) >= enough

    def reach(self, change: Change[int], *, always: bool = False) -> Reach:
        """Return the posterior of how far the bad side of a change reaches."""
        outwards = 1 if change.kind == "first_fixed" else -1
        return flaky.reach_of(self.believed, self.seen, change.bad_side, outwards=outwards, always=always)

    def doubt(self, change: Change[int]) -> float:
        """Return the probability that the good version is bad, and ended well only because its failure was not due yet.
        It is 0 if steps are not counted, because there is no evidence then.
        """
        if not self.evidence(change.bad_side).timed:
            return 0.0
        reach = self.reach(change, always=True)
        return reach.bad(reach.places.index(change.good_side))


def histories_of(versions: RowVersions, rules: Rules) -> list[StateHistory]:
    return [StateHistory(versions=versions, metric=metric, rules=rules) for metric in STATE_METRICS]
