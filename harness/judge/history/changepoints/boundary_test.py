"""Whether two neighbouring levels differ by more than chance, and how large a difference must be to be found."""

from __future__ import annotations

import math
from dataclasses import dataclass

from scipy.special import ndtri, stdtr, stdtrit

from harness.judge.comparison.round_effects import Spread
from harness.model import Floats

TAIL = 3.0
"""Degrees of freedom of the errors that a test of every round's difference reckons with."""
TAIL_SCALE = 1.3
"""The standard deviation that is left of such errors, in their scale, when what is far out is drawn in: 1.37 (by
simulation), less a margin."""
FREEDOM_FOR_SCALE = 12
"""With few degrees of freedom the scale is not known so well: it is taken to be so many times larger than they are
fewer than this (found by simulation, as far down as FEWEST_FREEDOM)."""
FEWEST_FREEDOM = 4


@dataclass(frozen=True, kw_only=True)
class Test:
    """How two levels are compared, the smaller of which has so many versions, `tried` such pairs having been looked at.

    There are two ways. Where launches are many, a t-test of the mean difference. Where they are few, it must reckon
    with some of them being far out, all on one side, and sees hardly anything; then the round that shows the least
    decides: all of them must show more than errors with heavy tails would. Of a single round each version counts as
    one. `alpha`: the chance of a false alarm.
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
        """As few as so few launches vouch for (by simulation, with errors of three degrees)."""
        return min(self.spread.freedom, (self.rounds * self.smaller - 1) ** 2)

    @property
    def seen(self) -> int:
        """How often the difference was seen."""
        return self.rounds if self.rounds > 1 else self.smaller

    @property
    def least(self) -> float:
        """The difference found in half of all cases, in standard deviations of the difference seen once."""
        return min(self._least_by_mean, self._least_by_worst)

    @property
    def by_worst(self) -> bool:
        """Whether the round that shows the least decides."""
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
        """Of the differences, shape (seen,), in standard deviations of one of them."""
        if self.by_worst:
            sign = 1 if differences.mean() > 0 else -1
            p = float(stdtr(TAIL, -self._scale * float((sign * differences).min()))) ** self.seen
        elif self._freedom < 1:
            return 1.0
        else:
            p = float(stdtr(self._freedom, -abs(float(differences.mean())) * math.sqrt(self.seen)))
        return min(1.0, 2 * self.tried * p)


def places_tried(versions: int, smaller: int) -> float:
    """Of how many such pairs one is the best: more of the longer ones, so that the sum over all lengths is finite."""
    return float(max(1, (versions - 1) * smaller**3))
