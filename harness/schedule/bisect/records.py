"""What a search sees of a history and what it answers. Positions are places in the series, oldest first."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from harness.model import Interval

STATE_METRICS = ("outcome", "memory", "slowdown")
LEVEL_METRICS = ("step_time", "peak_memory")


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """How many launches of one version were good, bad, or could not be told, by one metric.

    `failed_at`: the steps in which the bad ones failed; `survived`: how many steps each of the good ones did. Both are
    empty where steps are not counted, or say nothing.
    """

    good: int = 0
    bad: int = 0
    unsure: int = 0
    failed_at: tuple[int, ...] = ()
    survived: tuple[int, ...] = ()

    @property
    def timed(self) -> bool:
        """Whether the steps of all its launches are known."""
        return len(self.failed_at) == self.bad and len(self.survived) == self.good

    def failed(self, step: int) -> Evidence:
        """With one launch more that failed in this step (from 1)."""
        return replace(self, bad=self.bad + 1, failed_at=(*self.failed_at, step))

    def fine(self, steps: int) -> Evidence:
        """With one launch more that did so many steps and ended well."""
        return replace(self, good=self.good + 1, survived=(*self.survived, steps))


NOTHING = Evidence()


@dataclass(frozen=True, kw_only=True)
class VersionEvidence:
    """One version as the search sees it.

    Whoever launches must see to it that each launch that was asked for changes its spot: `launches` grows, or
    `testable` becomes False for good. `launches` are those that said anything, `states` tells by metric ("outcome",
    "memory", "slowdown") what. `levels` are logs of a figure ("step_time", "peak_memory") by round; only figures of one
    round are ever compared, so rounds of different days need different numbers. `at_hand`: no pull, no build.
    """

    name: str = ""
    testable: bool = True
    at_hand: bool = False
    launches: int = 0
    states: Mapping[str, Evidence] = field(default_factory=dict)
    levels: Mapping[str, Mapping[int, float]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Rules:
    """How a search is run.

    `agree`: launches on each side of a change that must agree before a version is named. `failures`: so many launches
    should have failed, of all versions from an accused one on, if the search can still afford it. `least`: launches of
    each end before two alike ends are believed. `most`: launches of any version. `alpha`: the chance of leaving the
    right version out of an answer. `limits`: by level metric, the log of the ratio that counts (log1p of the matrix's
    limit); a metric without a limit is not compared. `baseline` is launched with the ends. `whole`: the next launches
    do as many steps as any can; else a version's next one may stop where its last one did.
    """

    agree: int = 2
    failures: int = 4
    least: int = 3
    most: int = 8
    alpha: float = 0.004
    limits: Mapping[str, float] = field(default_factory=dict)
    baseline: int | None = None
    whole: bool = False


Kind = Literal["end", "halve", "repeat", "confirm", "compare", "done"]


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What is launched next, side by side, and why. `launch` is empty once the search is over.

    `posterior`: (version, chance that it is the outermost one of the changed side), likeliest first. `whole`: these
    launches run their whole budget even if they are quiet.
    """

    launch: tuple[int, ...]
    kind: Kind
    reason: str
    metric: str | None = None
    bracket: tuple[int, int] | None = None
    posterior: tuple[tuple[int, float], ...] = ()
    whole: bool = False


@dataclass(frozen=True, kw_only=True)
class Boundary:
    """A change that was found: `before` is on the old side, `after` on the new one, nobody knows about `between`.

    `before` is None if the change may be older than the series. `worse`: from good to bad (levels: to more).
    `confirmed`: each side has `rules.agree` launches that agree. `size`: the log of the ratio between two levels, with
    its 95 % interval; `p`: the chance of a step as clear as this if there were none.
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
    """Launches of a search: with nothing to find, with one clear change, and never more than."""

    least: int
    typical: int
    most: int


def name_of(spots: Sequence[VersionEvidence], place: int) -> str:
    return spots[place].name or f"version {place}"


def expected_launches(versions: int, *, rules: Rules) -> Expected:
    """Of a block of `versions` that can be launched, of which nothing is known yet.

    A step of a level takes more launches than a clear outcome: `typical` is of outcomes.
    """
    once = min(rules.least, rules.most)
    if versions < 2:
        return Expected(least=versions * once, typical=versions * once, most=versions * rules.most)
    return Expected(
        least=2 * once,
        typical=min(versions * rules.most, max(2 * once, math.ceil(math.log2(versions)) + 2 * rules.agree)),
        most=versions * rules.most,
    )
