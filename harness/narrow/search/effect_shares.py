"""Estimates a hybrid's share of the effect from A (0) to B (1), from rounds in which it ran alongside both.

Figures are compared only within a round, because rounds differ in temperature and clock. For the logs of the figures,
let y be the difference of a hybrid from the midpoint of A and B, and d the difference of B from A. The share is then
1/2 + mean(y) / mean(d). The variance of y is 3/2 of one launch's.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

import numpy as np
from scipy.special import gammaln, stdtr, stdtrit  # scipy.stats takes longer to import than all the rest

from harness.model import Effect, Floats, Interval
from harness.model.answers.narrowed import Hybrid, HybridState
from harness.narrow.search.search_records import NarrowRules

PART = 0.25
"""Smallest share of the effect that makes a hybrid bad; with less, it contains no cause worth naming."""
NONE_OR_ALL = 0.45
"""Prior probability of a share of 0, and of a share of 1; the rest is spread evenly over GRID."""
GRID: Floats = np.linspace(-0.5, 1.5, 81)
LEVEL = 0.95
LEAST_VARIANCE = 1e-12
"""Smallest variance of one launch's log, so that figures that do not vary at all are not infinite evidence."""


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
        bad = self._chance_of_part(values)
        doubt = self._rules.alpha if sure else self._rules.doubt
        return "bad" if bad >= 1 - doubt else "good" if bad <= doubt else None

    def _chance_of_part(self, values: Floats) -> float:
        size, error = self.effect
        spread, freedom = self.spread
        own = 1.5 * spread**2 / len(values)

        def fits(shares: Floats) -> Floats:
            scale = np.sqrt(own + ((shares - 0.5) * error) ** 2)
            return _student((values.mean() - (shares - 0.5) * size) / scale, freedom) / scale

        none, everything = NONE_OR_ALL * fits(np.array([0.0, 1.0]))
        between = (1 - 2 * NONE_OR_ALL) * fits(GRID) / len(GRID)
        part = everything + between[GRID >= PART].sum()
        whole = none + everything + between.sum()
        return float(part / whole) if whole > 0 else 0.5

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


def _student(values: Floats, freedom: float) -> Floats:
    """Return the density of Student's t with `freedom` degrees of freedom."""
    log_most = gammaln((freedom + 1) / 2) - gammaln(freedom / 2) - math.log(math.pi * freedom) / 2
    return np.asarray(np.exp(log_most - (freedom + 1) / 2 * np.log1p(values**2 / freedom)))
