"""Where the level of a figure changes along a series: blocked permutation test over rounds, then segments.

The figure is a table of logs, shape (rounds, versions): a round holds one trial of every version, run close together,
so that what drifts with time is the same for all of a round and goes away with the round's mean. The search is circular
binary segmentation (Olshen and others, 2004): the stretch of versions that differs most from the rest, then the same
within the pieces. One split into "before" and "after" would miss a single bad version in the middle.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit
from scipy.stats import permutation_test, ttest_ind

from harness.judge.numbers import SEPARATED
from harness.model import Floats, Interval

RESAMPLES = 9999
FEWEST_VERSIONS = 4
"""Below this there are too few permutations."""


@dataclass(frozen=True, kw_only=True)
class Shift:
    """A change of level: `first` is the first version of the new level by the fit.

    `before` and `after` enclose it: neighbours if both are told apart from the other side at SEPARATED, else further
    apart. `size` and `interval` are logs of the ratio between the two levels.
    """

    first: int
    stretch: tuple[int, int]
    before: int
    after: int
    size: float
    interval: Interval | None
    p: float


@dataclass(frozen=True, kw_only=True)
class Levels:
    """The pieces of a series: `bounds` are their first versions and the end, `means` their levels, in logs."""

    bounds: tuple[int, ...]
    means: tuple[float, ...]
    shifts: tuple[Shift, ...]


def find_levels(table: Floats, *, least: float, alpha: float, seed: int) -> Levels:
    """The levels of `table`, shape (rounds >= 2, versions), whose neighbours differ by at least `least` (a log)."""
    found = _segment(table, offset=0, least=least, alpha=alpha, seed=seed)
    kept = _prune(table, sorted(found), least=least)
    bounds = (0, *kept, table.shape[1])
    means = _means(table, bounds)
    shifts = tuple(_shift(table, bounds, number, p=found[bound]) for number, bound in enumerate(kept, start=1))
    return Levels(bounds=bounds, means=means, shifts=shifts)


def _segment(table: Floats, *, offset: int, least: float, alpha: float, seed: int) -> dict[int, float]:
    """The first version of each new level, with the p-value of the stretch that it bounds."""
    versions = table.shape[1]
    if versions < 2:
        return {}
    means = table.mean(axis=0)
    arcs = _arcs(versions)
    score, size = _contrast(means[:, None], arcs)
    best = int(score[:, 0].argmax())
    first, end = int(arcs[best, 0]), int(arcs[best, 1])
    # Most series are quiet: no test is needed where no stretch differs by enough to count.
    if abs(size[best, 0]) < least:
        return {}
    p = _p_value(table, first=first, end=end, seed=seed)
    if p >= alpha:
        return {}
    found = {offset + bound: p for bound in (first, end) if 0 < bound < versions}
    for begin, stop in ((0, first), (first, end), (end, versions)):
        piece = table[:, begin:stop]
        found |= _segment(piece, offset=offset + begin, least=least, alpha=alpha, seed=seed)
    return found


def _arcs(versions: int) -> np.ndarray:
    """All stretches [first, end), shape (n, 2). Not those that begin at 0: each is the rest of another."""
    pairs = [(i, j) for i in range(1, versions) for j in range(i + 1, versions + 1)]
    return np.array(pairs, dtype=np.intp)


def _contrast(means: Floats, arcs: np.ndarray) -> tuple[Floats, Floats]:
    """For each stretch: the score that is compared, and inside minus outside. `means` has shape (versions, batch)."""
    versions = means.shape[0]
    sums = np.concatenate([np.zeros((1, means.shape[1])), np.cumsum(means, axis=0)])
    count = (arcs[:, 1] - arcs[:, 0])[:, None]
    inside = sums[arcs[:, 1]] - sums[arcs[:, 0]]
    size = inside / count - (sums[-1] - inside) / (versions - count)
    return np.abs(size) * np.sqrt(count * (versions - count) / versions), size


def _p_value(table: Floats, *, first: int, end: int, seed: int) -> float:
    rounds, versions = table.shape
    arcs = _arcs(versions)
    inside = end - first
    smallest = len(arcs) / math.comb(versions, inside) ** rounds
    if versions >= FEWEST_VERSIONS and smallest < _SMALLEST:
        return _permutation_p(table, arcs, seed=seed)
    return min(1.0, _welch_p(table, first=first, end=end) * len(arcs))


_SMALLEST = 0.005
"""A permutation test that cannot go below this cannot decide."""


def _permutation_p(table: Floats, arcs: np.ndarray, *, seed: int) -> float:
    centred = table - table.mean(axis=1, keepdims=True)

    def statistic(*versions: Floats, axis: int) -> Floats:
        means = np.stack([version.mean(axis=axis) for version in versions])
        score, _ = _contrast(means.reshape(len(versions), -1), arcs)
        return np.asarray(score.max(axis=0).reshape(means.shape[1:]))

    result = permutation_test(
        tuple(centred.T),
        statistic,
        permutation_type="samples",
        vectorized=True,
        n_resamples=RESAMPLES,
        batch=500,
        alternative="greater",
        rng=np.random.default_rng(seed),
    )
    return float(result.pvalue)


def _welch_p(table: Floats, *, first: int, end: int) -> float:
    """Between the trials of the stretch and the others; with enough versions, without their round's mean."""
    values = table if table.shape[1] < FEWEST_VERSIONS else table - table.mean(axis=1, keepdims=True)
    inside = values[:, first:end].ravel()
    outside = np.concatenate([values[:, :first].ravel(), values[:, end:].ravel()])
    if inside.std() == 0 and outside.std() == 0:
        return 0.0 if inside[0] != outside[0] else 1.0
    return float(ttest_ind(inside, outside, equal_var=False).pvalue)


def _means(table: Floats, bounds: Sequence[int]) -> tuple[float, ...]:
    return tuple(float(table[:, begin:end].mean()) for begin, end in itertools.pairwise(bounds))


def _prune(table: Floats, found: list[int], *, least: float) -> list[int]:
    """Without the bounds between levels that differ by less than `least`, smallest first."""
    kept = list(found)
    while kept:
        sizes = np.abs(np.diff(_means(table, (0, *kept, table.shape[1]))))
        smallest = int(sizes.argmin())
        if sizes[smallest] >= least:
            break
        del kept[smallest]
    return kept


def _shift(table: Floats, bounds: Sequence[int], number: int, *, p: float) -> Shift:
    """The change at bounds[number]."""
    begin, first, end = bounds[number - 1 : number + 2]
    means = table.mean(axis=0)
    left, right = means[begin:first].mean(), means[first:end].mean()
    per_round = table[:, first:end].mean(axis=1) - table[:, begin:first].mean(axis=1)
    before, after = first - 1, first
    if table.shape[1] >= FEWEST_VERSIONS:
        margin = _margin(table, bounds)
        sign, middle = math.copysign(1.0, right - left), (left + right) / 2
        while before > begin and sign * (middle - means[before]) < margin:
            before -= 1
        while after < end - 1 and sign * (means[after] - middle) < margin:
            after += 1
    size = float(right - left)
    stretch = (begin, end)
    return Shift(
        first=first, stretch=stretch, before=before, after=after, size=size, interval=_interval(per_round), p=p
    )


def _margin(table: Floats, bounds: Sequence[int]) -> float:
    """How far a version's mean may lie from its level by noise, at SEPARATED."""
    rounds, versions = table.shape
    centred = table - table.mean(axis=1, keepdims=True)
    residuals = np.concatenate(
        [(piece - piece.mean()).ravel() for piece in np.split(centred, list(bounds[1:-1]), axis=1)]
    )
    freedom = max(1, rounds * versions - rounds - len(bounds) + 2)
    deviation = math.sqrt(float(residuals @ residuals) / freedom)
    return float(stdtrit(freedom, SEPARATED)) * deviation / math.sqrt(rounds)


def _interval(differences: Floats) -> Interval:
    """95 %, of the mean difference over rounds."""
    rounds = len(differences)
    margin = float(stdtrit(rounds - 1, 0.975)) * float(differences.std(ddof=1)) / math.sqrt(rounds)
    middle = float(differences.mean())
    return middle - margin, middle + margin
