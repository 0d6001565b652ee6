"""Records of a bisection: the evidence for each version, and the answers. Positions are places in the series."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from harness.judge.history.flaky import Evidence
from harness.model import Interval

STATE_METRICS = ("outcome", "memory", "slowdown")
LEVEL = "step_time"
"""The metric whose level changes are searched for; levels of other figures are only compared."""
MOST_LOGGED = 20
"""Most entries of a posterior that are logged."""


@dataclass(frozen=True, kw_only=True)
class VersionEvidence:
    """One version as the bisection sees it.

    The caller must ensure that each requested launch changes its version's evidence: `launches` grows, or `testable`
    becomes False for good. `launches` counts those that gave any result, `states` holds the result by metric
    ("outcome", "memory", "slowdown"). `step_times` are logs of its step times by round; only step times of one round
    are compared, so rounds of different days need different numbers. `at_hand`: no pull or build is needed.
    """

    name: str = ""
    testable: bool = True
    at_hand: bool = False
    launches: int = 0
    states: Mapping[str, Evidence] = field(default_factory=dict)
    step_times: Mapping[int, float] = field(default_factory=dict)

    def launchable(self, rules: Rules) -> bool:
        """Return whether the version may be launched again."""
        return self.testable and self.launches < rules.most


RowVersions = Sequence[VersionEvidence]
"""The versions of a row, oldest first."""


@dataclass(frozen=True, kw_only=True)
class Rules:
    """Rules of a bisection.

    `agree`: launches on each side of a change that must agree before a version is named. `failures`: launches that
    should have failed, in all versions from the named one on, if the search can still afford it. `least`: launches of
    each end before two equal ends are believed. `most`: launches of any version. `alpha`: the probability of leaving
    the right version out of an answer. `step_limit`: the log of the ratio of step times that counts (log1p of the
    matrix's limit); None if step times are not compared. `baseline`: the position of the version that is launched with
    the ends. `whole`: the next launches make as many steps as possible; otherwise a version's next launch may stop
    where its last one did.
    """

    agree: int = 2
    failures: int = 4
    least: int = 3
    most: int = 8
    alpha: float = 0.004
    step_limit: float | None = None
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


@dataclass(frozen=True, kw_only=True)
class Boundary:
    """A change that was found: `before` is on the old side, `after` on the new one; the versions `between` are unclear.

    `before` is None if the change may be older than the series. `worse`: from good to bad (levels: to more).
    `confirmed`: each side has `rules.agree` launches that agree. `size`: the log of the ratio between two levels, with
    its 95 % confidence interval; `p`: the p-value of the step.
    """

    metric: str
    before: int | None
    after: int
    worse: bool
    between: tuple[int, ...] = ()
    confirmed: bool = False
    size: float | None = None
    interval: Interval | None = None
    p: float | None = None


@dataclass(frozen=True, kw_only=True)
class Expected:
    """Number of launches of a bisection: with nothing to find, with one clear change, and at most."""

    least: int
    typical: int
    most: int


def version_name(versions: RowVersions, place: int) -> str:
    return versions[place].name or f"version {place}"


def version_names(versions: RowVersions, places: Iterable[int]) -> str:
    """Return the names of several versions, joined by "and"."""
    return " and ".join(version_name(versions, place) for place in places)


def likeliest(chances: Iterable[tuple[int, float]]) -> tuple[tuple[int, float], ...]:
    """Return the places with their probabilities as they are logged: likeliest first, rounded to 4 digits."""
    order = sorted(chances, key=lambda each: -each[1])
    return tuple((place, round(chance, 4)) for place, chance in order[:MOST_LOGGED])


def expected_launches(versions: int, *, rules: Rules) -> Expected:
    """Return the expected launches of a row with this number of testable `versions`, before any result.

    `typical` is for outcomes; a step of a level takes more launches than a clear outcome.
    """
    once = min(rules.least, rules.most)
    if versions < 2:
        return Expected(least=versions * once, typical=versions * once, most=versions * rules.most)
    return Expected(
        least=2 * once,
        typical=min(versions * rules.most, max(2 * once, math.ceil(math.log2(versions)) + 2 * rules.agree)),
        most=versions * rules.most,
    )
