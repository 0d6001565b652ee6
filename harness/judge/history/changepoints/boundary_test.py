"""Tests the difference of two neighbouring levels, and computes the smallest difference that the test detects."""

from __future__ import annotations

import math
from dataclasses import dataclass

from scipy.special import ndtri, stdtr, stdtrit

from harness.judge.comparison.round_effects import Spread
from harness.model import Floats

TAIL = 3.0
"""Degrees of freedom of the Student errors that are assumed where every round's difference is tested."""
TAIL_SCALE = 1.3
"""Ratio of the standard deviation of such errors, winsorized, to their scale: 1.37 by simulation, less a margin."""
FREEDOM_FOR_SCALE = 12
"""The scale factor is at most the degrees of freedom divided by this: few degrees of freedom estimate the scale poorly
(found by simulation, down to FEWEST_FREEDOM)."""
FEWEST_FREEDOM = 4


@dataclass(frozen=True, kw_only=True)
class Test:
    """A test of two neighbouring levels, the shorter of which has `smaller` versions, corrected for `tried` such pairs.

    With many launches, it is a t-test of the mean difference. With few launches, outliers may all be on one side, and a
    t-test that allows for that detects hardly anything. The round with the smallest difference then decides: all rounds
    must show more than heavy-tailed errors would. With a single round, each version counts as a round. `alpha` is the
    probability of a false alarm.
    """

    spread: Spread
    rounds: int
    smaller: int
    tried: float
    alpha: float

    @property
    def _share(self) -> float:
        return min(0.5, self.alpha / (2 * self.tried))

    @property
    def _freedom(self) -> int:
        """Return the degrees of freedom, limited by the number of launches (found by simulation with Student errors of
        three degrees of freedom).
        """
        return min(self.spread.freedom, (self.rounds * self.smaller - 1) ** 2)

    @property
    def seen(self) -> int:
        """Return the number of times that the difference was measured."""
        return self.rounds if self.rounds > 1 else self.smaller

    @property
    def least(self) -> float:
        """Return the difference detected with a power of 50 %, in standard deviations of one measured difference."""
        return min(self._least_by_mean, self._least_by_worst)

    @property
    def by_worst(self) -> bool:
        """Return whether the round with the smallest difference decides."""
        return self._least_by_worst < self._least_by_mean

    @property
    def _scale(self) -> float:
        return min(TAIL_SCALE, self.spread.freedom / FREEDOM_FOR_SCALE)

    @property
    def _least_by_mean(self) -> float:
        if self._freedom < 1:
            return math.inf
        return -float(stdtrit(self._freedom, self._share)) / math.sqrt(self.seen)

    @property
    def _least_by_worst(self) -> float:
        if self.seen < 2 or self.spread.freedom < FEWEST_FREEDOM:
            return math.inf
        every = self._share ** (1 / self.seen)
        return -float(stdtrit(TAIL, every)) / self._scale + float(ndtri(0.5 ** (1 / self.seen)))

    def p_value(self, differences: Floats) -> float:
        """Return the p-value of the differences, shape (seen,), in standard deviations of one of them."""
        if self.by_worst:
            sign = 1 if differences.mean() > 0 else -1
            p = float(stdtr(TAIL, -self._scale * float((sign * differences).min()))) ** self.seen
        elif self._freedom < 1:
            return 1.0
        else:
            p = float(stdtr(self._freedom, -abs(float(differences.mean())) * math.sqrt(self.seen)))
        return min(1.0, 2 * self.tried * p)


def places_tried(versions: int, smaller: int) -> float:
    """Return the number of pairs to correct for. It grows with their length, which keeps the sum over all
    lengths finite.
    """
    return float(max(1, (versions - 1) * smaller**3))
