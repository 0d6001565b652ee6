"""Judges the launches of a hybrid: bad, good, unresolved, or not settled yet.

Where failures decide, one failure makes a hybrid bad, and launches that end well make it good once they are unlikely
to be luck, given how often bad hybrids fail (`judge.history.flaky`). Where a level decides, a hybrid is judged by its
share of the effect from A to B, compared in rounds.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import stdtr, stdtrit

from harness.judge.history.flaky import Evidence, chance_of_luck
from harness.model import Effect, Floats, Interval
from harness.narrow.records import Hybrid, HybridOutcome, HybridResult, HybridState

SHAM_ODDS = 99.0
"""Prior odds that B stays bad when its own groups are put in again; for other hybrids the odds of bad are even."""
PATIENCE = 3
"""Number of launches, all without a result, after which a hybrid is unresolved."""


class HybridEvidence:
    """All outcomes so far, by hybrid. `a` and `b` are the two versions themselves."""

    def __init__(self, outcomes: Iterable[HybridOutcome], *, a: Hybrid, b: Hybrid, rules: NarrowRules) -> None:
        self.a, self.b, self._rules = a, b, rules
        self._by_hybrid: dict[Hybrid, list[HybridOutcome]] = defaultdict(list)
        for outcome in outcomes:
            self._by_hybrid[outcome.hybrid].append(outcome)
        self._settled: dict[tuple[Hybrid, bool], HybridResult | None] = {}

    def __contains__(self, hybrid: Hybrid) -> bool:
        return hybrid in self._by_hybrid

    @property
    def hybrids(self) -> Sequence[Hybrid]:
        """Return the hybrids that were tried, in the order of their first launches."""
        return tuple(self._by_hybrid)

    @cached_property
    def launches(self) -> int:
        """Return an upper bound of the launches: all launches and attempts to make a hybrid, and one probe of each."""
        return sum(1 + len(outcomes) for outcomes in self._by_hybrid.values())

    @cached_property
    def is_level(self) -> bool:
        return any(outcome.state is None for outcomes in self._by_hybrid.values() for outcome in outcomes)

    @cached_property
    def levels(self) -> LevelRounds:
        figures = (
            (outcome.round, hybrid, outcome.figure)
            for hybrid, outcomes in self._by_hybrid.items()
            for outcome in outcomes
            if outcome.state is None and outcome.figure is not None
        )
        return LevelRounds(figures, a=self.a, b=self.b, rules=self._rules)

    def settled(self, hybrid: Hybrid, *, sure: bool) -> HybridResult | None:
        """Return the result of a hybrid; None if it needs another launch. `sure`: with the certainty of a proof."""
        key = hybrid, sure
        if key not in self._settled:
            self._settled[key] = self._settle(hybrid, sure=sure)
        return self._settled[key]

    def so_far(self, hybrid: Hybrid) -> HybridResult:
        """Return the result of a hybrid, as far as it is known."""
        result = self.settled(hybrid, sure=True) or self.settled(hybrid, sure=False)
        return result or self._result(hybrid, state="unresolved", reason="too few launches to tell")

    def _settle(self, hybrid: Hybrid, *, sure: bool) -> HybridResult | None:
        outcomes = self._by_hybrid.get(hybrid, [])
        unresolved = [outcome for outcome in outcomes if outcome.state == "unresolved"]
        if lasting := [outcome for outcome in unresolved if outcome.lasting]:
            return self._result(hybrid, state="unresolved", reason=lasting[-1].reason)
        if outcomes and len(unresolved) == len(outcomes):
            is_over = len(outcomes) >= PATIENCE
            return self._result(hybrid, state="unresolved", reason=outcomes[-1].reason) if is_over else None
        result = self._level(hybrid, sure=sure) if self.is_level else self._failure(hybrid, sure=sure)
        if result is None and len(outcomes) >= self._rules.most:
            reason = f"{len(outcomes)} launches do not show whether it is bad"
            return self._result(hybrid, state="unresolved", reason=reason)
        return result

    # ---------------------------------------------------------------- failures

    def _failure(self, hybrid: Hybrid, *, sure: bool) -> HybridResult | None:
        rules, is_end = self._rules, hybrid in (self.a, self.b)
        failed, fine = self._count(hybrid, "bad"), self._count(hybrid, "good")
        least = self._least(hybrid, sure=sure)
        if failed and hybrid == self.b:
            state: HybridState = "bad"
            enough = failed >= rules.agree and failed + fine >= rules.failures
        elif failed:
            state, enough = "bad", failed >= least
        elif self._rate[0]:
            odds = _luck(self._rate, fine) * (SHAM_ODDS if hybrid.sham and hybrid.base == "B" else 1)
            state = "good"
            enough = fine >= least and odds / (1 + odds) <= (rules.alpha if sure else rules.doubt)
        else:  # nothing has failed yet: only A and B are judged, and B by its failures in the finding's run
            state = "good"
            gone = hybrid == self.a or (rules.seen[0] > 0 and _luck(rules.seen, fine) <= rules.alpha)
            enough = is_end and fine >= rules.least and gone
        return self._result(hybrid, state=state) if enough else None

    @cached_property
    def _rate(self) -> tuple[int, int]:
        """Return how many launches of bad hybrids, B included, failed, and how many ended well. The first failure of a
        hybrid does not count, because it is what showed that the hybrid is bad; B was known to be bad before.
        """
        failing = [hybrid for hybrid in self._by_hybrid if hybrid != self.a and self._count(hybrid, "bad")]
        failed = sum(self._count(hybrid, "bad") - (hybrid != self.b) for hybrid in failing)
        return failed, sum(self._count(hybrid, "good") for hybrid in failing)

    def _count(self, hybrid: Hybrid, state: HybridState | None) -> int:
        return sum(outcome.state == state for outcome in self._by_hybrid.get(hybrid, ()))

    def _least(self, hybrid: Hybrid, *, sure: bool) -> int:
        if hybrid in (self.a, self.b):
            return self._rules.least
        return self._rules.agree if sure else 1

    # ---------------------------------------------------------------- levels

    def _level(self, hybrid: Hybrid, *, sure: bool) -> HybridResult | None:
        if hybrid in (self.a, self.b):
            if self.levels.apart:
                return self._result(hybrid, state="good" if hybrid == self.a else "bad")
            less = f"less than half of the effect is left, if any, in {self._count(hybrid, None)} launches"
            return self._result(hybrid, state="good", reason=less) if self.levels.together else None
        state = self.levels.state(hybrid, least=self._least(hybrid, sure=sure), sure=sure)
        return None if state is None else self._result(hybrid, state=state)

    def _result(self, hybrid: Hybrid, *, state: HybridState, reason: str = "") -> HybridResult:
        outcomes = self._by_hybrid.get(hybrid, [])
        reasons = [outcome.reason for outcome in outcomes if outcome.reason and outcome.state in (state, None)]
        share, ci, is_short = (self.levels.share(hybrid) if self.is_level else None) or (None, None, False)
        return HybridResult(
            hybrid=hybrid,
            state=state,
            reason=reason or (reasons[-1] if reasons else ""),
            bad=self._count(hybrid, "bad"),
            good=self._count(hybrid, "good"),
            launches=len(outcomes),
            share=share,
            share_ci=ci,
            short=is_short,
        )


# ---------------------------------------------------------------- levels: the share of the effect
#
# Figures are compared only within a round, because rounds differ in temperature and clock. For the logs of the figures,
# let y be the difference of a hybrid from the midpoint of A and B, and d the difference of B from A. The share is then
# 1/2 + mean(y) / mean(d). The variance of y is 3/2 of one launch's.


PART = 0.25
"""Smallest share of the effect that makes a hybrid bad; with less, it contains no cause worth naming."""
NONE_OR_ALL = 0.45
"""Prior probability of a share of 0, and of a share of 1; the rest is spread evenly over GRID."""
GRID: Floats = np.linspace(-0.5, 1.5, 81)
LEVEL = 0.95
LEAST_VARIANCE = 1e-12
"""Smallest variance of one launch's log, so that figures that do not vary at all are not infinite evidence."""


@dataclass(frozen=True, kw_only=True)
class NarrowRules:
    """Rules of a search for a component.

    `agree`: fewest launches of each hybrid of a proof. `least`: fewest launches of A and of B. `failures`: fewest
    launches of B before a failure is taken for one that occurs in every launch. `most`: most launches of one hybrid.
    `most_hybrids`: most hybrids in addition to A and B. `most_launches`: most launches in all, including those of A and
    B. `alpha`: the error probability with which a hybrid of a proof is called bad or good; `doubt`: the same during the
    search.

    `seen` and `effect` are what the finding's run measured: the numbers of launches of B with and without the fault,
    and the difference of the figure's log from A to B. They show whether the fault is no longer reproduced.
    """

    agree: int = 2
    least: int = 3
    failures: int = 5
    most: int = 40
    most_hybrids: int = 64
    most_launches: int = 400
    alpha: float = 0.002
    doubt: float = 0.02
    seen: tuple[int, int] = (0, 0)
    effect: float | None = None


class LevelRounds:
    """The figures of a level by round and hybrid. `figures`: (round, hybrid, positive figure of one launch)."""

    def __init__(
        self, figures: Iterable[tuple[int, Hybrid, float]], *, a: Hybrid, b: Hybrid, rules: NarrowRules
    ) -> None:
        rounds: dict[int, dict[Hybrid, list[float]]] = defaultdict(lambda: defaultdict(list))
        for number, hybrid, figure in figures:
            if math.isfinite(figure):
                rounds[number][hybrid].append(math.log(figure))
        means = ({hybrid: float(np.mean(logs)) for hybrid, logs in each.items()} for each in rounds.values())
        self._rounds: Sequence[Mapping[Hybrid, float]] = [each for each in means if a in each and b in each]
        self._a, self._b, self._rules = a, b, rules

    @cached_property
    def _steps(self) -> Floats:
        return np.array([each[self._b] - each[self._a] for each in self._rounds])

    def _from_middle(self, hybrid: Hybrid) -> Floats:
        rounds = (each for each in self._rounds if hybrid in each)
        return np.array([each[hybrid] - (each[self._a] + each[self._b]) / 2 for each in rounds])

    @cached_property
    def effect(self) -> tuple[float, float]:
        """Return the mean difference of logs from A to B and its standard error, which is infinite without rounds."""
        size = float(self._steps.mean()) if len(self._steps) else 0.0
        return size, self.spread[0] * math.sqrt(2 / len(self._steps)) if len(self._steps) else math.inf

    def ratio(self) -> Effect:
        """Return the effect from A to B as a ratio, with its 95 % confidence interval."""
        size, error = self.effect
        reach = self._quantile * error
        return Effect(value=math.exp(size), unit="ratio", ci=(math.exp(size - reach), math.exp(size + reach)))

    @cached_property
    def spread(self) -> tuple[float, float]:
        """Return the standard deviation of one launch's log, pooled over hybrids, and its degrees of freedom."""
        squares, freedom = 0.0, 0.0
        hybrids = {hybrid for each in self._rounds for hybrid in each} - {self._a, self._b}
        for values, share in ((self._steps, 2.0), *((self._from_middle(each), 1.5) for each in hybrids)):
            if len(values) > 1:
                squares += float(((values - values.mean()) ** 2).sum()) / share
                freedom += len(values) - 1
        return (math.sqrt(max(squares / freedom, LEAST_VARIANCE)), freedom) if freedom else (math.inf, 1.0)

    @property
    def _quantile(self) -> float:
        """Return the half-width of a confidence interval, in standard errors."""
        return float(stdtrit(self.spread[1], (1 + LEVEL) / 2))

    @property
    def apart(self) -> bool:
        """Return whether B is significantly higher than A, in enough rounds."""
        size, error = self.effect
        if len(self._steps) < max(2, self._rules.least) or not math.isfinite(error):
            return False
        return bool(2 * stdtr(self.spread[1], -size / error) <= self._rules.alpha)

    @property
    def together(self) -> bool:
        """Return whether B has significantly less than half of the effect that the finding's run measured."""
        size, error = self.effect
        if self._rules.effect is None or len(self._steps) < self._rules.least or not math.isfinite(error):
            return False
        return bool(stdtr(self.spread[1], (size - self._rules.effect / 2) / error) <= self._rules.alpha)

    def state(self, hybrid: Hybrid, *, least: int, sure: bool) -> HybridState | None:
        """Return `bad` if a hybrid has at least PART of the effect, else `good`; None if that is not settled."""
        values = self._from_middle(hybrid)
        if len(values) < least or not self.apart:
            return None
        size, error = self.effect
        spread, freedom = self.spread
        own = 1.5 * spread**2 / len(values)

        def fits(shares: Floats) -> Floats:
            """Return the density of Student's t, up to a factor that all shares have in common."""
            scale = np.sqrt(own + ((shares - 0.5) * error) ** 2)
            distances = (values.mean() - (shares - 0.5) * size) / scale
            return np.asarray((1 + distances**2 / freedom) ** (-(freedom + 1) / 2) / scale)

        none, everything = NONE_OR_ALL * fits(np.array([0.0, 1.0]))
        between = (1 - 2 * NONE_OR_ALL) * fits(GRID) / len(GRID)
        whole = none + everything + between.sum()
        chance_of_part = (everything + between[GRID >= PART].sum()) / whole if whole > 0 else 0.5
        doubt = self._rules.alpha if sure else self._rules.doubt
        return "bad" if chance_of_part >= 1 - doubt else "good" if chance_of_part <= doubt else None

    def share(self, hybrid: Hybrid) -> tuple[float, Interval, bool] | None:
        """Return the share of the effect, its 95 % confidence interval (the standard error is by the delta method), and
        whether it is significantly less than the whole effect; None before the share is known.
        """
        values = self._from_middle(hybrid)
        if hybrid in (self._a, self._b) or not len(values) or not self.apart:
            return None
        size, error = self.effect
        share = 0.5 + float(values.mean()) / size
        own = 1.5 * self.spread[0] ** 2 / len(values)
        deviation = math.sqrt(own + ((share - 0.5) * error) ** 2) / abs(size)
        reach = self._quantile * deviation
        is_short = bool(stdtr(self.spread[1], (share - 1) / deviation) <= self._rules.alpha)
        return share, (share - reach, share + reach), is_short


def _luck(seen: tuple[int, int], more: int) -> float:
    """Return the probability that `more` launches of a bad hybrid all end well, by the (failed, good) launches seen."""
    return chance_of_luck([Evidence(bad=seen[0], good=seen[1])], [Evidence(good=more)])
