"""Computes how far the level of each version may have risen, within the precision of the comparison."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import numpy.typing as npt
from scipy.special import stdtrit

from harness.judge.comparison.noise import cautious
from harness.judge.history.changepoints import Laid, own_noise
from harness.model import Floats, Spread

SURE = 0.95
"""Probability that a version's rise is below its upper bound."""


@dataclass(frozen=True, kw_only=True)
class Rise:
    """The rise of a version's level over the level that it is compared with, a log, and the margin of its bound."""

    size: float
    margin: float

    @property
    def high(self) -> float:
        """Return the rise that is ruled out. A version that improved may still differ by the margin."""
        return max(self.size, 0.0) + self.margin


def rises_over(
    laid: Laid, pieces: Sequence[range], over: Sequence[Sequence[int]], *, base: int, least: float
) -> list[Rise]:
    """Return the rise of each version. `over`: for each piece, the numbers of the pieces that its versions are compared
    with; the highest rise counts. Versions of the piece with `base` are compared with each other instead, and only
    `base` itself has not risen. Margins are at least `least`."""
    means, width = laid.values.mean(axis=0), partial(margins, laid.spread, rounds=laid.rounds, least=least)
    found: dict[int, Rise] = {}
    for piece, sides in zip(pieces, over, strict=True):
        if base in piece:
            within = _rises_within(means[piece], laid.shares[piece], base - piece.start, width)
            found.update(zip(piece, within, strict=True))
            continue
        for column in piece:
            each = (
                Rise(
                    size=float(means[column] - means[side].mean()),
                    margin=float(width(laid.shares[column], laid.shares[side].mean() / len(side))),
                )
                for side in (pieces[at] for at in sides)
            )
            found[column] = max(each, key=lambda one: one.high)
    for column in found.keys() - {base}:  # a noisier version is ruled out only within its own noise
        if (noises := own_noise(laid, np.array([column]))) is not None:
            own = float(stdtrit(noises[0].freedom, SURE)) * noises[0].deviation * math.sqrt(laid.shares[column])
            found[column] = replace(found[column], margin=max(found[column].margin, own))
    return [found[column] for column in sorted(found)]


def _rises_within(means: Floats, shares: Floats, base: int, margins: Callable[..., Floats]) -> Iterator[Rise]:
    """Yield the rise of each version of the reference level, in which no change was found: the highest of all stretches
    of neighbours with which it may have risen, over the rest of the level. A comparison of a version with all others
    would hide a rise that they share. Only the base itself has not risen."""
    if len(means) == 1:
        yield Rise(size=0.0, margin=float(margins(shares[0], shares[0])))
        return
    first, stop = np.triu_indices(len(means) + 1, 1)
    holds_base = (first <= base) & (base < stop)
    first, stop = (each[~holds_base | (stop - first == 1)] for each in (first, stop))
    sums, count = np.concatenate([[[0.0], [0.0]], np.cumsum([means, shares], axis=1)], axis=1), stop - first
    (inside, own), others = sums[:, stop] - sums[:, first], len(means) - count
    sizes = inside / count - (sums[0, -1] - inside) / others
    of_sizes = margins(own / count**2, (sums[1, -1] - own) / others**2)
    highs = np.maximum(sizes, 0.0) + of_sizes
    for column in range(len(means)):
        best = int(np.argmax(np.where((first <= column) & (column < stop), highs, -np.inf)))
        yield Rise(size=float(sizes[best]), margin=float(of_sizes[best]))


def margins(spread: Spread, share: npt.ArrayLike, others: npt.ArrayLike, *, rounds: int, least: float) -> Floats:
    """Return the margins of the rises of levels over others, of which noise makes such a share of the variance of a
    launch: at least `least`, by which equal images differ."""
    if not spread.deviation:
        return np.zeros(np.shape(share))
    quantile = float(stdtrit(cautious(spread, rounds).freedom, SURE))
    errors = spread.deviation * np.sqrt(np.asarray(share) + np.asarray(others))
    return np.asarray(np.maximum(quantile * errors, least))
