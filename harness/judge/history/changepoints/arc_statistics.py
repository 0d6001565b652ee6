"""Compares stretches (arcs) of a series with the rest of it, and computes the p-value of the most different stretch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import stdtr

from harness.judge.comparison.round_effects import NEGLIGIBLE
from harness.model import Floats

RESAMPLES = 4999
"""Most permutations of a test: no p-value is below 1 / (RESAMPLES + 1)."""
BATCH_CELLS = 1_000_000
"""Most elements of an array of scores: this bounds the memory that a test takes."""
EXCEEDED = 100
"""Number of permutations at least as extreme at which a test stops, as p is not small (Besag and Clifford, 1991)."""
ALL_ARCS = 64
"""Most versions for which stretches of all lengths are tried; in longer series lengths grow by a factor of 1.5."""


@dataclass(frozen=True, kw_only=True)
class Arcs:
    """Stretches [first, end) of a series that are compared with the rest of it, as arrays.

    Stretches that begin at 0 are left out, because each is the rest of another stretch. Stretches that reach the end
    split the series into before and after. All others are far more numerous, so chance gives them higher scores;
    `penalty` is subtracted from their scores, so that as a group they weigh no more than the splits. `rivals` is the
    number of candidates for which the p-value of each stretch must be corrected.
    """

    versions: int
    first: npt.NDArray[np.intp]
    end: npt.NDArray[np.intp]
    weight: Floats
    penalty: Floats
    rivals: npt.NDArray[np.intp]

    @classmethod
    def of(cls, versions: int, *, unit: float) -> Arcs:
        """Return the arcs of a series of `versions`; `unit` is the variance of a version's mean."""
        pairs = {(first, first + length) for length in _lengths(versions) for first in range(1, versions - length + 1)}
        first, end = np.array(sorted(pairs | {(first, versions) for first in range(1, versions)}), dtype=np.intp).T
        splits = end == versions
        others = len(first) - (versions - 1)
        inside = end - first
        return cls(
            versions=versions,
            first=first,
            end=end,
            weight=np.sqrt(inside * (versions - inside) / versions),
            penalty=np.where(splits, 0.0, 2 * unit * math.log(max(1.0, others / (versions - 1)))),
            rivals=np.where(splits, versions - 1, others) * (2 if others else 1),
        )

    def compare(self, means: Floats) -> tuple[Floats, Floats]:
        """Return the score of each stretch, and its mean inside minus outside. `means` has shape (versions, batch)."""
        sums = np.concatenate([np.zeros((1, means.shape[1])), np.cumsum(means, axis=0)])
        inside, count = sums[self.end] - sums[self.first], (self.end - self.first)[:, None]
        size = inside / count - (sums[-1] - inside) / (self.versions - count)
        return (size * self.weight[:, None]) ** 2 - self.penalty[:, None], size


def _lengths(versions: int) -> Sequence[int]:
    if versions <= ALL_ARCS:
        return range(1, versions)
    return sorted({math.floor(1.5**power) for power in range(math.ceil(math.log(versions, 1.5)))})


def welch_p(values: Floats, *, first: int, end: int) -> float:
    """Return the two-sided p-value of Welch's t-test between the trials of a stretch and all others, ignoring rounds.

    With few rounds of few versions, the paired test has hardly any degrees of freedom.
    """
    sides = values[:, first:end].ravel(), np.delete(values, np.s_[first:end], axis=1).ravel()
    errors2 = [float(side.var(ddof=1)) / side.size + NEGLIGIBLE**2 for side in sides]
    error2 = sum(errors2)
    freedom = error2**2 / sum(side2**2 / (side.size - 1) for side2, side in zip(errors2, sides, strict=True))
    return 2 * float(stdtr(freedom, -abs(float(sides[0].mean() - sides[1].mean())) / math.sqrt(error2)))


def permutation_p(piece: Floats, arcs: Arcs, *, best: int, rng: np.random.Generator) -> float:
    """Return the p-value of stretch `best` by a permutation test that exchanges versions within their rounds."""
    score = float(arcs.compare(piece.mean(axis=0)[:, None])[0][best, 0])
    tried = exceeded = 0
    while tried < RESAMPLES and exceeded < EXCEEDED:
        batch = min(max(1, BATCH_CELLS // len(arcs.first)), EXCEEDED * 2, RESAMPLES - tried)
        shuffled = rng.permuted(np.broadcast_to(piece, (batch, *piece.shape)), axis=2)
        scores, _ = arcs.compare(shuffled.mean(axis=1).T)
        exceeded += int(np.count_nonzero(scores.max(axis=0) >= score - NEGLIGIBLE * abs(score)))
        tried += batch
    return (exceeded + 1) / (tried + 1)
