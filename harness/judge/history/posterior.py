"""Computes which versions may be the first of a new level, with their posterior probabilities.

The posterior covers every place of the change between the neighbouring changes, and every pair of places of two
changes, because a small one may have been overlooked. The levels and the noise are integrated out: places have a
uniform prior, levels a flat prior over the observed range, and the noise is that of launches within their round and
version (scaled inverse chi-squared).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import chdtri

from harness.judge.comparison.noise import Spread
from harness.model import Floats

NAMED = 0.97
"""Posterior probability from which a single version is named."""
HOLDS = 0.998
"""Posterior probability of the range of versions that is reported if no single version can be named."""
OVERLOOKED = 0.2
"""Prior odds that there is one more change than was found."""
NOISES = 9
"""Number of quantiles that represent the distribution of the noise."""


@dataclass(frozen=True, kw_only=True)
class ChangepointPlace:
    """Position of a changepoint: `first` is the likeliest first version of the new level.

    The changepoint is one of `low` to `high` with probability HOLDS; both are `first` if the version can be named.
    """

    first: int
    low: int
    high: int


def place_change(means: Floats, candidates: range, *, rounds: int, spread: Spread) -> ChangepointPlace:
    """Return the place of the only change in `means` (the versions' means over `rounds`, logs), which is one of
    `candidates`. `spread` is the noise of one launch.
    """
    places = np.array(candidates)
    held = probability_within(means, places, rounds=rounds, spread=spread)
    single = np.diagonal(held)
    likeliest = int(single.argmax())
    first = int(places[likeliest])
    if single[likeliest] >= NAMED:
        return ChangepointPlace(first=first, low=first, high=first)
    low, high = np.nonzero(np.triu(held >= min(HOLDS, held[0, -1])))
    best = int(np.lexsort((-held[low, high], high - low))[0])  # the shortest, and of these the most probable
    low_place, high_place = int(places[low[best]]), int(places[high[best]])
    return ChangepointPlace(first=first, low=min(low_place, first), high=max(high_place, first))


def probability_within(means: Floats, places: npt.NDArray[np.intp], *, rounds: int, spread: Spread) -> Floats:
    """Return, at [i, j], the probability that the change is at one of the places i to j, or, if there are two changes,
    that one of them is.
    """
    quantiles = chdtri(spread.freedom, (np.arange(NOISES) + 0.5) / NOISES)
    held, weights = [], []
    for variance in map(float, spread.deviation**2 * spread.freedom / quantiles / rounds):
        logs = level_evidence(means, np.array([0, *places, len(means)]), variance=variance)
        one = logs[0, 1:-1] + logs[1:-1, -1]
        two = logs[0, 1:-1, None] + logs[1:-1, 1:-1] + logs[None, 1:-1, -1]
        width = max(float(np.ptp(means)), math.sqrt(variance))
        if len(places) > 1:
            two = two + math.log(OVERLOOKED / width * 2 / (len(means) - 2))
        total = np.logaddexp(np.logaddexp.reduce(one), np.logaddexp.reduce(two, axis=None))
        weights.append(total)
        pairs = np.exp(two - total)
        held.append(_between(np.exp(one - total) + pairs.sum(axis=0) + pairs.sum(axis=1)) - _both_between(pairs))
    shares = np.exp(np.array(weights) - np.logaddexp.reduce(weights))
    return np.asarray(np.tensordot(shares, held, axes=1))


def level_evidence(means: Floats, edges: npt.NDArray[np.intp], *, variance: float) -> Floats:
    """Return the log evidence for one level from edge i up to edge j; minus infinity where j <= i."""
    sums = np.concatenate([[0.0], np.cumsum(means)])[edges]
    squares = np.concatenate([[0.0], np.cumsum(means**2)])[edges]
    count = edges[None, :] - edges[:, None]
    versions = np.maximum(count, 1)
    scatter = squares[None, :] - squares[:, None] - (sums[None, :] - sums[:, None]) ** 2 / versions
    evidence = -np.maximum(scatter, 0) / (2 * variance) - 0.5 * np.log(versions)
    evidence -= 0.5 * (versions - 1) * math.log(2 * math.pi * variance)
    return np.where(count > 0, evidence, -np.inf)


def _between(chances: Floats) -> Floats:
    """Return, at [i, j], the sum of `chances` from i to j."""
    sums = np.concatenate([[0.0], np.cumsum(chances)])
    return np.asarray(sums[None, 1:] - sums[:-1, None])


def _both_between(pairs: Floats) -> Floats:
    """Return, at [i, j], the sum of `pairs` whose changes both lie from i to j."""
    sums = np.zeros((len(pairs) + 1, len(pairs) + 1))
    sums[1:, 1:] = pairs.cumsum(axis=0).cumsum(axis=1)
    ends, diagonal = sums[1:, 1:].diagonal(), sums.diagonal()[:-1]
    return np.asarray(ends[None, :] - sums[:-1, 1:] - sums[1:, :-1].T + diagonal[:, None])
