"""Computes the posterior probability of each changepoint's position, given the number of changes.

The posterior covers every split of the versions with that number of changes, and with one more, because a small change
may have been overlooked. The levels and the noise are integrated out: positions have a uniform prior, levels a flat
prior over the observed range, and the noise is that of launches within their round and version (scaled inverse
chi-squared). The forward-backward recursion sums over all splits.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import chdtri

from harness.judge.comparison.round_effects import Spread
from harness.model import Floats

NAMED = 0.97
"""Posterior probability from which a single version is named."""
HOLDS = 0.998
"""Posterior probability of the range of versions that is reported if no single version can be named."""
OVERLOOKED = 0.2
"""Prior odds that there is one more change than was found."""
NOISES = 9
"""Number of quantiles that represent the distribution of the noise."""
NEAR = 100
"""Maximum distance, in versions, of candidates from an estimated change in long series; less for several changes."""
TOGETHER = 5
"""Most changes that are located together; if there are more, each is located with its neighbours."""


@dataclass(frozen=True, kw_only=True)
class ChangepointPlace:
    """Position of a changepoint: `first` is the likeliest first version of the new level.

    The changepoint is one of `low` to `high` with probability HOLDS; both are `first` if the version can be named.
    """

    first: int
    low: int
    high: int


def place_changes(means: Floats, *, rounds: int, spread: Spread, near: Sequence[int]) -> tuple[ChangepointPlace, ...]:
    """Return the place of each change near `near` (increasing, each in 1 … versions - 1), in order, without overlaps.

    `means` are the versions' means over `rounds`, logs; `spread` is the noise of one launch.
    """
    places: list[ChangepointPlace] = []
    for number in range(len(near)):
        if number == 0 or len(near) > TOGETHER:
            begin, end, chosen = _section(near, number, len(means))
            inside = [change - begin for change in near[chosen]]
            candidates = _candidates(end - begin, inside)
            splits = _splits(means[begin:end], candidates, rounds=rounds, spread=spread, changes=len(inside))
        place = _place(candidates[1:-1], splits, number - chosen.start)
        places.append(ChangepointPlace(first=begin + place.first, low=begin + place.low, high=begin + place.high))
    return _in_order(places, near)


def _section(near: Sequence[int], number: int, versions: int) -> tuple[int, int, slice]:
    """Return the versions [begin, end) in which a change is located, and the slice of the changes among them.

    These are all versions if there are few changes; otherwise, a section that ends halfway between two changes.
    """
    if len(near) <= TOGETHER:
        return 0, versions, slice(0, len(near))
    reach = TOGETHER // 2
    first, last = max(0, number - reach), min(len(near), number + reach + 1)
    begin = (near[first - 1] + near[first]) // 2 if first else 0
    end = (near[last - 1] + near[last] + 1) // 2 if last < len(near) else versions
    return begin, end, slice(first, last)


def _in_order(places: Sequence[ChangepointPlace], near: Sequence[int]) -> tuple[ChangepointPlace, ...]:
    """Return places in increasing order: at the likeliest versions, or at `near` if those are out of order."""
    likeliest = [place.first for place in places]
    ordered = all(before < after for before, after in itertools.pairwise(likeliest))
    firsts = likeliest if ordered else near
    lows = [min(place.low, first) for place, first in zip(places, firsts, strict=True)]
    highs = [max(place.high, first) for place, first in zip(places, firsts, strict=True)]
    for number in range(1, len(lows)):
        lows[number] = max(lows[number], lows[number - 1] + 1)
        highs[-1 - number] = min(highs[-1 - number], highs[-number] - 1)
    return tuple(
        ChangepointPlace(first=first, low=low, high=high) for first, low, high in zip(firsts, lows, highs, strict=True)
    )


@dataclass(frozen=True, kw_only=True)
class Splits:
    """Posterior of the splits for one value of the noise and one number of changes; `weight` is the probability of
    both.

    `chances[i, j]` is the probability that change i is at the inner candidate j. `pairs[i, j, k]`, for one more change
    than was found, is the probability that change i is at j and the next one at k.
    """

    weight: float
    chances: Floats
    pairs: Floats | None = None


def _splits(means: Floats, candidates: Sequence[int], *, rounds: int, spread: Spread, changes: int) -> list[Splits]:
    quantiles = chdtri(spread.freedom, (np.arange(NOISES) + 0.5) / NOISES)
    variances = spread.deviation**2 * spread.freedom / quantiles / rounds
    extra = len(candidates) - 2 > changes
    splits = []
    for variance in map(float, variances):
        segments = _segments(means, candidates, variance=variance)
        splits.append(_splits_at(segments, changes, pairs=False))
        if extra:
            width = max(float(np.ptp(means)), math.sqrt(variance))
            odds = math.log(OVERLOOKED / width * (changes + 1) / (len(means) - 1 - changes))
            one_more = _splits_at(segments, changes + 1, pairs=True)
            splits.append(replace(one_more, weight=one_more.weight + odds))
    total = float(np.logaddexp.reduce([split.weight for split in splits]))
    return [replace(split, weight=math.exp(split.weight - total)) for split in splits]


def _candidates(versions: int, near: Sequence[int]) -> list[int]:
    far = NEAR if versions <= 2 * NEAR else NEAR // len(near)
    inside = [place for place in range(1, versions) if any(abs(place - change) <= far for change in near)]
    return [0, *inside, versions]


def _segments(means: Floats, candidates: Sequence[int], *, variance: float) -> Floats:
    """Return the log evidence for one level from candidate i up to candidate j; minus infinity where j <= i."""
    edges = np.asarray(candidates)
    sums = np.concatenate([[0.0], np.cumsum(means)])[edges]
    squares = np.concatenate([[0.0], np.cumsum(means**2)])[edges]
    count = edges[None, :] - edges[:, None]
    versions = np.maximum(count, 1)
    scatter = squares[None, :] - squares[:, None] - (sums[None, :] - sums[:, None]) ** 2 / versions
    evidence = -np.maximum(scatter, 0) / (2 * variance) - 0.5 * np.log(versions)
    evidence -= 0.5 * (versions - 1) * math.log(2 * math.pi * variance)
    return np.where(count > 0, evidence, -np.inf)


def _splits_at(segments: Floats, changes: int, *, pairs: bool) -> Splits:
    """Return the splits with `changes` changes; their `weight` is the log evidence for that number."""
    forward, backward = [segments[0]], [segments[:, -1]]
    for _ in range(changes):
        forward.append(np.logaddexp.reduce(forward[-1][:, None] + segments, axis=0))
        backward.append(np.logaddexp.reduce(segments + backward[-1][None, :], axis=1))
    total = float(forward[changes][-1])
    rows = [forward[number] + backward[changes - 1 - number] for number in range(changes)]
    joint = [
        forward[number][:, None] + segments + backward[changes - 2 - number][None, :] for number in range(changes - 1)
    ]
    return Splits(
        weight=total,
        chances=np.exp(np.array(rows)[:, 1:-1] - total),
        pairs=np.exp(np.array(joint)[:, 1:-1, 1:-1] - total) if pairs else None,
    )


def _place(places: Sequence[int], splits: Sequence[Splits], number: int) -> ChangepointPlace:
    held = _held(splits, number, count=len(places))
    single = np.diagonal(held)
    likeliest = int(single.argmax())
    if single[likeliest] >= NAMED:
        return ChangepointPlace(first=places[likeliest], low=places[likeliest], high=places[likeliest])
    low, high = np.nonzero(np.triu(held >= min(HOLDS, held[0, -1])))
    best = int(np.lexsort((-held[low, high], high - low))[0])  # the shortest, and of these the most probable
    return ChangepointPlace(first=places[likeliest], low=places[int(low[best])], high=places[int(high[best])])


def _held(splits: Sequence[Splits], number: int, *, count: int) -> Floats:
    """Return, at [i, j], the probability that change `number` is at one of the candidates i to j; in splits with one
    more change, that this change or the next one is.
    """
    total = np.zeros((count, count))
    for split in splits:
        held = _between(split.chances[number])
        if split.pairs is not None:
            held = held + _between(split.chances[number + 1]) - _both_between(split.pairs[number])
        total += split.weight * held
    return total


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
