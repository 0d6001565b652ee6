"""Rare, large losses: memory that goes up by jumps, again and again, at no fixed distance.

A line through a dozen jumps is too rough to tell from a walk. Their times are not: a process that loses memory at a
constant pace jumps evenly over the whole trace, a warm-up or a record (a table that grows when it is fuller than ever)
mostly at its start, and what wanders about goes down as often as up. Three classical tests, each exact or nearly so
given the number of jumps:

- the sign test: of n jumps of a walk, half go down;
- Kolmogorov and Smirnov: the times of a steady process are those of n uniform draws (Cox and Lewis, 1966);
- Lewis and Robinson (1974): Laplace's test for a trend in the times, divided by the coefficient of variation of the
  distances, so that regular jumps, too, show when they come more and more rarely.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from scipy.special import bdtr, chdtri, kolmogorov, ndtri

from harness.judge.trace.growth.trend_fit import FLOOR, block_levels
from harness.model import Floats

START = 0.02
"""Of the rows that are left out: what a program takes when it starts."""
PIECES = (512, 128, 64)
"""Blocks whose floors are compared: jumps closer together than one block count as one; small jumps take wide blocks."""
FEWEST_ROWS = 4
"""Of a block."""
CLEAR = 5.0
"""Times the median difference of neighbouring floors that a jump is at least."""
FEWEST = 9
"""Jumps. With fewer, all of them up, the sign test could not tell them from a walk."""
FEW = 3
"""Jumps whose distances do not tell how regular they are."""
ALPHA_WALK = 0.0025
ALPHA_UNEVEN = 0.005
"""Of the steady processes that each test of their times and sizes gives up: there are five."""
NORMAL_ALPHA_UNEVEN = -2.58
LONGEST_REST = 5.3
"""Mean distances without a jump at the end; one of 200 rests of a memoryless process is longer."""
LEAST_SPREAD = 0.1
"""Coefficient of variation that is not believed to be less, as times are known only to a block."""
DECAY = 0.3
"""Of the rows: the time constant of a warm-up by jumps that is a rival of a steady pace."""
MOST_BACK = 0.1
"""Of what jumped up that may jump down."""
LARGEST_SHARE = 0.34
FEWEST_ALIKE = 6
"""As many jumps of one size must vary as little in sum as these do: four large ones among small ones tell nothing."""
LARGE = 0.9
"""Of all that jumped up, by the largest jumps alone: they must be steady, too. Small ones beside them may be noise of
which the highest stays, and hide that the large ones come more and more rarely.
"""
EXPLAINED = 0.8
"""Of the rise that jumps make at least: the rest would be growth of another kind."""


@dataclass(frozen=True, kw_only=True)
class Losses:
    """Jumps of a series after its start: their `times` (fractions of it, sorted), their `sizes`, what fell, and all
    that the series rose. `rows` is how many rows they were seen in.
    """

    times: Floats
    sizes: Floats
    falls: Floats
    rise: float
    rows: int

    @property
    def rate(self) -> float:
        """A row, over all the rows; of a compound Poisson process the estimate of least variance."""
        return float(self.sizes.sum()) / self.rows

    def margin(self, alpha: float) -> float:
        """Half the width of the interval about it that holds the truth but for `alpha` on each side, if jumps come at
        random.
        """
        return -float(ndtri(alpha)) * float(np.sqrt(self.sizes @ self.sizes)) / self.rows

    def highest(self, *, alpha: float) -> float:
        """The pace a row that so few jumps do not rule out: the upper limit of their number (Garwood, 1936), each of
        mean size.
        """
        count = len(self.sizes)
        return float(self.sizes.mean()) * float(chdtri(2 * count + 2, alpha)) / 2 / self.rows if count else 0.0

    @property
    def detectable(self) -> float:
        """The pace a row of which every second trace shows enough jumps of these sizes; infinite if the series does not
        rise by jumps, up and hardly ever down.
        """
        if not (self.most_of_rise and self._rarely_down):
            return math.inf
        return max(FEWEST, FEWEST_ALIKE * len(self.sizes) / self._alike) * float(self.sizes.mean()) / self.rows

    @property
    def steady(self) -> bool:
        """Whether they are those of a leak: up, many, and evenly spread in time and size from the start to the end."""
        many = len(self.times) >= FEWEST and self._alike >= FEWEST_ALIKE
        return many and self._no_walk and self.most_of_rise and self._even and self._large._even

    @property
    def _even(self) -> bool:
        """Whether their times and sizes are those of one pace."""
        return self._even_in_time and self._even_in_size and self._likelier_than_decay

    @property
    def _alike(self) -> float:
        """How many jumps of one size have a sum that varies as much (Kish's effective size, 1965)."""
        return float(self.sizes.sum()) ** 2 / float(self.sizes @ self.sizes)

    @property
    def _large(self) -> Losses:
        """The largest, which make LARGE of all that jumped up."""
        falling = np.argsort(self.sizes)[::-1]
        reached = np.cumsum(self.sizes[falling])
        kept = np.sort(falling[: int(np.searchsorted(reached, LARGE * reached[-1])) + 1])
        return replace(self, times=self.times[kept], sizes=self.sizes[kept])

    @property
    def possible(self) -> bool:
        """Whether they may be those of a leak, as far as so many can tell."""
        return len(self.times) > 1 and self.most_of_rise and self._even_in_time and self._even_in_size

    @property
    def _no_walk(self) -> bool:
        share = float(self.sizes.max(initial=0.0) / self.sizes.sum())
        return self._rarely_down and share <= LARGEST_SHARE

    @property
    def _rarely_down(self) -> bool:
        ups, downs = len(self.sizes), len(self.falls)
        return float(bdtr(downs, ups + downs, 0.5)) <= ALPHA_WALK

    @property
    def most_of_rise(self) -> bool:
        """Whether hardly anything goes down, and what goes up stays and is nearly all that the series rises."""
        gained, fallen = float(self.sizes.sum()), float(self.falls.sum())
        kept = gained - fallen
        return gained > 0 and fallen <= MOST_BACK * gained and kept >= EXPLAINED * self.rise >= EXPLAINED**2 * kept

    @property
    def _even_in_time(self) -> bool:
        count = len(self.times)
        ranks = np.arange(count + 1) / count
        distance = max(float((ranks[1:] - self.times).max()), float((self.times - ranks[:-1]).max()))
        root = count**0.5
        if float(kolmogorov(distance * (root + 0.12 + 0.11 / root))) < ALPHA_UNEVEN:
            return False
        gaps = np.diff(self.times)
        spread = _spread(gaps) if count > FEW else 1.0
        if 1 - float(self.times[-1]) > (1 + (LONGEST_REST - 1) * spread) * float(gaps.mean()):
            return False
        return count <= FEW or _laplace(self.times) >= NORMAL_ALPHA_UNEVEN

    def become_rarer(self, *, since: float) -> bool:
        """Whether, after a fraction of the rows, jumps that make the rise come more and more rarely."""
        later = self.times[self.times > since]
        return self.most_of_rise and len(later) > FEW and _laplace(later) < NORMAL_ALPHA_UNEVEN

    @property
    def _likelier_than_decay(self) -> bool:
        """Whether the times are likelier at one pace than at one that falls as 1/t, or as exp(-t/DECAY)."""
        since_start = START + (1 - START) * self.times
        by_logarithm = np.log(-np.log(START) / (1 - START)) + float(np.log(since_start).mean())
        by_decay = np.log(DECAY * -np.expm1(-1 / DECAY)) + float(self.times.mean()) / DECAY
        return bool(min(by_logarithm, by_decay) >= 0)

    @property
    def _even_in_size(self) -> bool:
        """Laplace's test with each time weighted by its jump: sizes that shrink are a warm-up, too."""
        weight = float(np.sqrt(self.sizes @ self.sizes / 12))
        return bool(self.sizes @ (self.times - 0.5) >= NORMAL_ALPHA_UNEVEN * weight)


def _is_second(places: npt.NDArray[np.intp]) -> npt.NDArray[np.bool_]:
    """Which of the sorted places is the second of a lone pair of neighbours: one jump may show in two floors. What
    shows in more is a ramp.
    """
    follows = np.diff(places, prepend=-9, append=1 << 60) == 1
    before = np.concatenate(([False], follows[:-2]))
    return np.asarray(follows[:-1] & ~follows[1:] & ~before, dtype=np.bool_)


def _laplace(times: Floats) -> float:
    """Lewis and Robinson's statistic, nearly normal if the distances between `times` are of one kind: the mean of those
    between the first and the last, against the middle. Negative where they become longer.
    """
    inner = (times[1:-1] - times[0]) / (times[-1] - times[0])
    return (float(inner.mean()) - 0.5) * math.sqrt(12 * len(inner)) / _spread(np.diff(times))


def _spread(gaps: Floats) -> float:
    """Their coefficient of variation: 1 for a memoryless process, 0 for a regular one."""
    return max(float(gaps.std() / gaps.mean()), LEAST_SPREAD)


def find_losses(values: Floats, *, grain: float) -> Losses:
    """The jumps of `values`, shape (n,), n >= 1, between the narrowest blocks with which they make most of the rise."""
    settled = values[int(START * len(values)) :]
    found = Losses(times=np.empty(0), sizes=np.empty(0), falls=np.empty(0), rise=0.0, rows=max(1, len(settled)))
    for pieces in PIECES:
        if len(settled) >= FEWEST_ROWS * pieces:
            found = _between_floors(settled, pieces=pieces, grain=grain)
            if found.most_of_rise:
                break
    return found


def _between_floors(values: Floats, *, pieces: int, grain: float) -> Losses:
    """A jump is CLEAR times what neighbouring floors differ by, with an allowance for `grain`, to which they are
    rounded.
    """
    pieces = len(values) // (len(values) // pieces)  # as many as leave hardly a row out
    floors = block_levels(values, share=FLOOR, blocks=pieces)
    changes = np.diff(floors)
    least = max(CLEAR * (float(np.median(np.abs(changes))) + grain), float(np.nextafter(0, 1)))
    ups = np.flatnonzero(changes >= least)
    firsts = np.flatnonzero(~_is_second(ups))
    return Losses(
        times=(ups[firsts] + 1.0) / pieces,
        sizes=np.add.reduceat(changes[ups], firsts) if len(ups) else np.empty(0),
        falls=-changes[changes <= -least],
        rise=float(floors[-1] - floors[0]),
        rows=len(values),
    )
