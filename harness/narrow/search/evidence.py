"""Judges the launches of a hybrid: bad, good, unresolved, or not settled yet.

A failure that comes in a part of the launches: one failure is bad, and launches that end well are good once they would
be luck rarely enough, given how often bad hybrids fail (`harness.failure_rate`). A level: how much of the effect from A
to B a hybrid has, compared in rounds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import cached_property

from harness import failure_rate
from harness.model.narrowed import Hybrid, HybridOutcome, HybridResult
from harness.narrow.search.levels import LevelRounds
from harness.narrow.search.records import NarrowRules

SHAM_ODDS = 99.0
"""Prior odds that B is as bad as before when groups of its own are put in again; of other hybrids they are even."""
PATIENCE = 3
"""Launches that tell nothing after which a hybrid is unresolved."""


class HybridEvidence:
    """All outcomes so far, by hybrid. `a` and `b` are the two versions themselves."""

    def __init__(self, outcomes: Iterable[HybridOutcome], *, a: Hybrid, b: Hybrid, rules: NarrowRules) -> None:
        self.a, self.b, self._rules = a, b, rules
        self._by_hybrid: dict[Hybrid, list[HybridOutcome]] = defaultdict(list)
        for one in outcomes:
            self._by_hybrid[one.hybrid].append(one)
        self._settled: dict[tuple[Hybrid, bool], HybridResult | None] = {}

    def __contains__(self, hybrid: Hybrid) -> bool:
        return hybrid in self._by_hybrid

    @property
    def hybrids(self) -> Sequence[Hybrid]:
        """Return what was tried, in the order in which it was first."""
        return tuple(self._by_hybrid)

    @cached_property
    def launches(self) -> int:
        """Return the number of launches and attempts to make a hybrid, those of A and B among them, and one look into
        each: at least as many as were made.
        """
        return sum(1 + len(each) for each in self._by_hybrid.values())

    @cached_property
    def is_level(self) -> bool:
        return any(one.state is None for each in self._by_hybrid.values() for one in each)

    @cached_property
    def levels(self) -> LevelRounds:
        figures = [(one.round, one.hybrid, one.figure) for each in self._by_hybrid.values() for one in each
                   if one.state is None and one.figure is not None]  # fmt: skip
        return LevelRounds(figures, a=self.a, b=self.b, rules=self._rules)

    def settled(self, hybrid: Hybrid, *, sure: bool) -> HybridResult | None:
        """Return what a hybrid is; None if another launch is needed. `sure`: as a proof needs it."""
        key = hybrid, sure
        if key not in self._settled:
            self._settled[key] = self._settle(hybrid, sure=sure)
        return self._settled[key]

    def so_far(self, hybrid: Hybrid) -> HybridResult:
        """Return what a hybrid is, as far as it is known."""
        found = self.settled(hybrid, sure=True) or self.settled(hybrid, sure=False)
        return found or self._result(hybrid, state="unresolved", reason="too few launches to tell")

    def _settle(self, hybrid: Hybrid, *, sure: bool) -> HybridResult | None:
        told = self._by_hybrid.get(hybrid, [])
        if lasting := [one for one in told if one.state == "unresolved" and one.lasting]:
            return self._result(hybrid, state="unresolved", reason=lasting[-1].reason)
        if told and all(one.state == "unresolved" for one in told):
            return self._result(hybrid, state="unresolved", reason=told[-1].reason) if len(told) >= PATIENCE else None
        found = self._level(hybrid, sure=sure) if self.is_level else self._failure(hybrid, sure=sure)
        if found is None and len(told) >= self._rules.most:
            reason = f"{len(told)} launches do not tell whether it is bad"
            return self._result(hybrid, state="unresolved", reason=reason)
        return found

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
        """Return whether A or B is good, while nothing failed: B by how often it failed in the finding's run."""
        if hybrid not in (self.a, self.b) or fine < self._rules.least:
            return False
        odds = failure_rate.luck(*self._rules.seen, more=fine) if self._rules.seen[0] else 1.0
        return hybrid == self.a or odds <= self._rules.alpha

    @cached_property
    def _rate(self) -> tuple[int, int]:
        """Return how many launches of bad hybrids, B among them, failed, and how many ended well. A hybrid is only
        known to be bad because it failed: its first failure says nothing of the rate. B was known to be bad before.
        """
        failing = [each for each in self._by_hybrid if each != self.a and self._count(each, "bad")]
        failed = sum(self._count(each, "bad") - (each != self.b) for each in failing)
        return failed, sum(self._count(each, "good") for each in failing)

    def _count(self, hybrid: Hybrid, state: str | None) -> int:
        return sum(one.state == state for one in self._by_hybrid.get(hybrid, ()))

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

    def _result(self, hybrid: Hybrid, *, state: str, reason: str = "") -> HybridResult:
        told = self._by_hybrid.get(hybrid, [])
        alike = [one.reason for one in told if one.reason and one.state in (state, None)]
        share = self.levels.share(hybrid) if self.is_level else None
        return HybridResult(
            hybrid=hybrid,
            state=state,  # type: ignore[arg-type]
            reason=reason or (alike[-1] if alike else ""),
            bad=self._count(hybrid, "bad"),
            good=self._count(hybrid, "good"),
            unsure=self._count(hybrid, "unresolved"),
            measured=self._count(hybrid, None),
            share=None if share is None else share[0],
            share_ci=None if share is None else share[1],
            short=share is not None and self.levels.falls_short(hybrid),
        )
