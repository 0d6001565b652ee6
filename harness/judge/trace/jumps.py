"""Detects leaks by rare, large losses: memory that rises by jumps at irregular times, modelled as a point process.

A line through a dozen jumps cannot be distinguished from a random walk, but the times of the jumps can. A leak at a
constant rate jumps evenly over the whole trace; a warm-up or a record (a table that grows when it is fuller than ever)
jumps mostly at the start; a random walk falls as often as it rises. Three classical tests are used, exact or nearly so
given the number of jumps:

- the sign test: half of the jumps of a random walk are falls;
- the Kolmogorov-Smirnov test: the times of a steady process are uniform draws (Cox and Lewis, 1966);
- the Lewis-Robinson test (1974): Laplace's trend test of the times, divided by the coefficient of variation of the
  intervals between jumps, so that it also detects regular jumps that become rarer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import bdtr, chdtri, kolmogorov, ndtri

from harness.judge.trace.trends import ALPHA_WALK, FLOOR, LARGEST_SHARE, STANDS_OUT, START, block_levels
from harness.model import Floats

PIECES = (512, 128, 64)
"""Numbers of blocks to try, whose floors are compared. Jumps within a block count as one; small jumps need wide blocks.
"""
FEWEST_ROWS = 4
"""Minimum number of rows in a block."""
FEWEST = 9
"""Minimum number of jumps of a leak: the sign test cannot distinguish fewer from a random walk."""
FEWEST_ALIKE = 6
"""Minimum effective number of jumps (Kish). Four large jumps among many small ones are not enough."""
FEW = 3
"""Largest number of jumps that is too small for a coefficient of variation of the intervals between them."""
ALPHA_UNEVEN = 0.005
"""Share of steady leaks that each of the five tests of times and sizes rejects."""
LEAST_SPREAD = 0.1
"""Lower bound of the coefficient of variation of intervals, because times are known only to within a block."""
DECAY = 0.3
"""Time constant of the rival model, a warm-up by jumps that decays exponentially, as a share of the rows."""
MOST_BACK = 0.1
"""Maximum sum of falls, as a share of the sum of jumps."""
LARGE = 0.9
"""Share of the sum of jumps that is made by the largest ones, which must also be steady by themselves: small jumps may
be noise whose maximum persists, and may hide that the large ones become rarer.
"""
EXPLAINED = 0.8
"""Minimum share of the rise that jumps must explain: the rest is growth of another kind."""


@dataclass(frozen=True, kw_only=True)
class Losses:
    """Jumps of a series after its start: `times` (sorted, as fractions of the series), `sizes` and `falls` (in the unit
    of the series), and the whole `rise`. `rows` is the number of rows that were searched.
    """

    times: Floats
    sizes: Floats
    falls: Floats
    rise: float
    rows: int

    @property
    def rate(self) -> float:
        """Return the growth per row: the minimum-variance estimate for a compound Poisson process."""
        return float(self.sizes.sum()) / self.rows

    def margin(self, alpha: float) -> float:
        """Return the half-width of the confidence interval of `rate`, with `alpha` in each tail, for a compound Poisson
        process.
        """
        return -float(ndtri(alpha)) * float(np.sqrt(self.sizes @ self.sizes)) / self.rows

    @property
    def highest(self) -> float:
        """Return the upper confidence bound of the rate per row: Garwood's Poisson limit (1936) times the mean size."""
        count = len(self.sizes)
        return float(self.sizes.mean()) * float(chdtri(2 * count + 2, ALPHA_UNEVEN)) / 2 / self.rows if count else 0.0

    @property
    def detectable(self) -> float:
        """Return the minimum detectable rate per row, at a power of 50 %: at this rate, every second trace has enough
        jumps of these sizes. Infinite if the series does not rise by jumps.
        """
        if not (self.most_of_rise and self._rarely_down):
            return math.inf
        return max(FEWEST, FEWEST_ALIKE * len(self.sizes) / self._alike) * float(self.sizes.mean()) / self.rows

    @property
    def steady(self) -> bool:
        """Return whether the jumps are those of a leak: many, upwards, and even in time and in size."""
        if len(self.times) < FEWEST or self._alike < FEWEST_ALIKE:
            return False
        upwards = self._rarely_down and self.sizes.max() <= LARGEST_SHARE * self.sizes.sum() and self.most_of_rise
        falling = np.argsort(self.sizes)[::-1]
        reached = np.cumsum(self.sizes[falling])
        kept = np.sort(falling[: int(np.searchsorted(reached, LARGE * reached[-1])) + 1])
        large = replace(self, times=self.times[kept], sizes=self.sizes[kept])
        return upwards and all(one._even and one._likelier_than_decay for one in (self, large))

    @property
    def possible(self) -> bool:
        """Return whether the jumps, even if they are few, may be those of a leak."""
        return len(self.times) > 1 and self.most_of_rise and self._even

    @property
    def most_of_rise(self) -> bool:
        """Return whether falls are small, and the jumps without them explain nearly all of the rise."""
        gained, fallen = float(self.sizes.sum()), float(self.falls.sum())
        kept = gained - fallen
        return gained > 0 and fallen <= MOST_BACK * gained and kept >= EXPLAINED * self.rise >= EXPLAINED**2 * kept

    def become_rarer(self, *, since: float) -> bool:
        """Return whether jumps make up the rise, and become rarer after the fraction `since` of the rows."""
        later = self.times[self.times > since]
        return self.most_of_rise and len(later) > FEW and _become_rarer(later)

    @property
    def _alike(self) -> float:
        """Return the effective number of jumps (Kish, 1965): as many equal jumps have an equally variable sum."""
        return float(self.sizes.sum()) ** 2 / float(self.sizes @ self.sizes)

    @property
    def _rarely_down(self) -> bool:
        ups, downs = len(self.sizes), len(self.falls)
        return float(bdtr(downs, ups + downs, 0.5)) <= ALPHA_WALK

    @property
    def _even(self) -> bool:
        """Return whether times are even, and sizes do not shrink as in a warm-up, by Laplace's test with times weighted
        by jump sizes.
        """
        count = len(self.times)
        ranks = np.arange(count + 1) / count
        distance = max(float((ranks[1:] - self.times).max()), float((self.times - ranks[:-1]).max()))
        root = count**0.5
        if float(kolmogorov(distance * (root + 0.12 + 0.11 / root))) < ALPHA_UNEVEN:
            return False
        gaps = np.diff(self.times)
        spread = _spread(gaps) if count > FEW else 1.0
        # The share ALPHA_UNEVEN of the intervals of a Poisson process is longer than this many mean intervals.
        longest_rest = 1 + (-math.log(ALPHA_UNEVEN) - 1) * spread
        if 1 - float(self.times[-1]) > longest_rest * float(gaps.mean()):
            return False
        if count > FEW and _become_rarer(self.times):
            return False
        weight = float(np.sqrt(self.sizes @ self.sizes / 12))
        return bool(self.sizes @ (self.times - 0.5) >= float(ndtri(ALPHA_UNEVEN)) * weight)

    @property
    def _likelier_than_decay(self) -> bool:
        """Return whether the times are likelier at a constant rate than at one that falls as 1/t or exp(-t/DECAY)."""
        since_start = START + (1 - START) * self.times
        by_logarithm = np.log(-np.log(START) / (1 - START)) + float(np.log(since_start).mean())
        by_decay = np.log(DECAY * -np.expm1(-1 / DECAY)) + float(self.times.mean()) / DECAY
        return bool(min(by_logarithm, by_decay) >= 0)


def _become_rarer(times: Floats) -> bool:
    """Return whether jumps become rarer, by the Lewis-Robinson test: how far the mean of the times between the first
    and the last is from their middle. The statistic is nearly standard normal for a renewal process.
    """
    inner = (times[1:-1] - times[0]) / (times[-1] - times[0])
    statistic = (float(inner.mean()) - 0.5) * math.sqrt(12 * len(inner)) / _spread(np.diff(times))
    return statistic < float(ndtri(ALPHA_UNEVEN))


def _spread(gaps: Floats) -> float:
    """Return the coefficient of variation of the intervals: 1 for a Poisson process, 0 for a regular one."""
    return max(float(gaps.std() / gaps.mean()), LEAST_SPREAD)


def find_losses(values: Floats, *, grain: float) -> Losses:
    """Return the jumps of `values`, shape (n,), n >= 1, found with the narrowest blocks in which they make most of the
    rise. `grain` is the amount to which values are rounded.
    """
    settled = values[int(START * len(values)) :]
    losses = Losses(times=np.empty(0), sizes=np.empty(0), falls=np.empty(0), rise=0.0, rows=max(1, len(settled)))
    for pieces in PIECES:
        if len(settled) >= FEWEST_ROWS * pieces:
            losses = _between_floors(settled, pieces=pieces, grain=grain)
            if losses.most_of_rise:
                break
    return losses


def _between_floors(values: Floats, *, pieces: int, grain: float) -> Losses:
    """Return the jumps between block floors: differences of at least STANDS_OUT times the sum of the median difference
    and `grain`.
    """
    pieces = len(values) // (len(values) // pieces)  # the number of blocks that leaves the fewest rows out
    floors = block_levels(values, share=FLOOR, blocks=pieces)
    changes = np.diff(floors)
    least = max(STANDS_OUT * (float(np.median(np.abs(changes))) + grain), float(np.nextafter(0, 1)))
    ups = np.flatnonzero(changes >= least)
    # An isolated pair of neighbours is one jump that shows in two floors; more neighbours in a row are a ramp.
    follows = np.diff(ups, prepend=-9, append=1 << 60) == 1
    firsts = np.flatnonzero(~(follows[:-1] & ~follows[1:] & ~np.concatenate(([False], follows[:-2]))))
    return Losses(
        times=(ups[firsts] + 1.0) / pieces,
        sizes=np.add.reduceat(changes[ups], firsts) if len(ups) else np.empty(0),
        falls=-changes[changes <= -least],
        rise=float(floors[-1] - floors[0]),
        rows=len(values),
    )
