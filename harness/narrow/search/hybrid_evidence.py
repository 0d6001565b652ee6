"""Judges the launches of a hybrid: bad, good, unresolved, or not settled yet.

Where failures decide, one failure makes a hybrid bad, and launches that end well make it good once they are unlikely
to be luck, given how often bad hybrids fail (`harness.failure_rate`). Where a level decides, a hybrid is judged by its
share of the effect from A to B, compared in rounds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import chain

from harness import failure_rate
from harness.model.answers.narrowed import Hybrid, HybridOutcome, HybridResult, HybridState
from harness.narrow.search.effect_shares import LevelRounds
from harness.narrow.search.search_records import NarrowRules
from harness.reasons import NarrowReason

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
        return any(outcome.state is None for outcome in self._outcomes())

    @cached_property
    def levels(self) -> LevelRounds:
        figures = (
            (outcome.round, outcome.hybrid, outcome.figure)
            for outcome in self._outcomes()
            if outcome.state is None and outcome.figure is not None
        )
        return LevelRounds(figures, a=self.a, b=self.b, rules=self._rules)

    def _outcomes(self) -> Iterator[HybridOutcome]:
        return chain.from_iterable(self._by_hybrid.values())

    def settled(self, hybrid: Hybrid, *, sure: bool) -> HybridResult | None:
        """Return the result of a hybrid; None if it needs another launch. `sure`: with the certainty of a proof."""
        key = hybrid, sure
        if key not in self._settled:
            self._settled[key] = self._settle(hybrid, sure=sure)
        return self._settled[key]

    def so_far(self, hybrid: Hybrid) -> HybridResult:
        """Return the result of a hybrid, as far as it is known."""
        result = self.settled(hybrid, sure=True) or self.settled(hybrid, sure=False)
        return result or self._result(hybrid, state="unresolved", reason=NarrowReason.TOO_FEW_LAUNCHES())

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
            reason = NarrowReason.UNSETTLED(count=len(outcomes))
            return self._result(hybrid, state="unresolved", reason=reason)
        return result

    # ---------------------------------------------------------------- failures

    def _failure(self, hybrid: Hybrid, *, sure: bool) -> HybridResult | None:
        failed, fine = self._count(hybrid, "bad"), self._count(hybrid, "good")
        least = self._least(hybrid, sure=sure)
        if hybrid == self.b:
            enough = failed >= self._rules.agree and failed + fine >= self._rules.failures
        else:
            enough = failed >= least
        if failed:
            return self._result(hybrid, state="bad") if enough else None
        if not self._rate[0]:
            return self._result(hybrid, state="good") if self._is_fine(hybrid, fine) else None
        odds = failure_rate.luck(*self._rate, more=fine) * (SHAM_ODDS if hybrid.sham and hybrid.base == "B" else 1)
        doubt = self._rules.alpha if sure else self._rules.doubt
        return self._result(hybrid, state="good") if fine >= least and odds / (1 + odds) <= doubt else None

    def _is_fine(self, hybrid: Hybrid, fine: int) -> bool:
        """Return whether A or B is good, if nothing has failed; B is judged by its failures in the finding's run."""
        if hybrid not in (self.a, self.b) or fine < self._rules.least:
            return False
        odds = failure_rate.luck(*self._rules.seen, more=fine) if self._rules.seen[0] else 1.0
        return hybrid == self.a or odds <= self._rules.alpha

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
            less = NarrowReason.EFFECT_GONE(count=self._count(hybrid, None))
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
            unsure=self._count(hybrid, "unresolved"),
            measured=self._count(hybrid, None),
            share=share,
            share_ci=ci,
            short=is_short,
        )
