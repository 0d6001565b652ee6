"""A table of rounds and versions: what is its rounds', what is its versions', and what is noise.

Values are logs, shape (rounds, versions). What all launches of a round share (heat, a slow hour) says nothing about
versions and is taken off. A launch far away from both its round and its version is a neighbour's doing: it is drawn in.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

from harness.judge.intervals import SEPARATED
from harness.model import Floats

TAIL = 4.0
"""Degrees of freedom of the errors that the robust fit expects: few are far out, but some are."""
FAR = 2.5
"""In standard deviations: what lies further out is drawn in to there."""
FAR_BY_ROUND = 4.0
"""The same where it is not known what belongs to a version's own level."""
ROUNDS_TO_CLEAN = 3
"""With two launches of a version nobody can say which of them is wrong."""
FREEDOM_TO_CLEAN = 9
"""With fewer degrees of freedom a launch seems far out too easily."""
ITERATIONS = 60
NEGLIGIBLE = 1e-9
"""A difference of logs that is rounding; figures that repeat exactly are known this well."""


@dataclass(frozen=True, kw_only=True)
class Spread:
    """The standard deviation of one launch, of the log, with its degrees of freedom."""

    deviation: float
    freedom: int

    def half_width(self, rounds: int, *, share: float = SEPARATED) -> float:
        """By how much the means of two versions over `rounds` differ by chance: a log, exceeded with 1 - `share`."""
        return float(stdtrit(self.freedom, share)) * self.deviation * math.sqrt(2 / rounds)

    def cautious(self, rounds: int) -> Spread:
        """With no more degrees of freedom than so few rounds can vouch for: a launch is far out now and then.

        How few that should be was found by simulation, with Student errors of three degrees.
        """
        return Spread(deviation=self.deviation, freedom=min(self.freedom, 2 * (rounds - 1) ** 2))


def together(*spreads: Spread | None) -> Spread | None:
    """The pooled spread of those that are known."""
    known = [spread for spread in spreads if spread is not None and spread.freedom > 0]
    if not known:
        return None
    freedom = sum(spread.freedom for spread in known)
    squares = sum(spread.freedom * spread.deviation**2 for spread in known)
    return Spread(deviation=math.sqrt(squares / freedom), freedom=freedom)


def without_rounds(values: Floats) -> Floats:
    """The table without its rounds' levels, and with launches that are far out drawn in."""
    return laid_out(values)[0]


def laid_out(values: Floats) -> tuple[Floats, Floats]:
    """The table without its rounds' levels: with launches that are far out drawn in, and as they are."""
    rounds, versions = values.shape
    drawn = values
    if rounds >= ROUNDS_TO_CLEAN and (rounds - 1) * (versions - 1) >= FREEDOM_TO_CLEAN:
        drawn = _drawn_in(values)
    of_round = drawn.mean(axis=1, keepdims=True)
    return np.asarray(drawn - of_round), np.asarray(values - of_round)


def by_round_alone(values: Floats) -> Floats:
    """The same, drawn in without a look at which version is which: what may be permuted within its round."""
    centred = values - np.median(values, axis=1, keepdims=True)
    far = FAR_BY_ROUND * 1.4826 * float(np.median(np.abs(centred)))
    return np.asarray(np.clip(centred, -far, far) if far > NEGLIGIBLE else centred)


def spread_within(values: Floats) -> Spread | None:
    """The noise of one launch: what neither its round nor its version explains. None if nothing is left to tell it."""
    rounds, versions = values.shape
    freedom = (rounds - 1) * (versions - 1)
    if freedom < 1:
        return None
    rest = values - values.mean(axis=0) - values.mean(axis=1, keepdims=True) + values.mean()
    return Spread(deviation=max(math.sqrt(float((rest**2).sum()) / freedom), NEGLIGIBLE), freedom=freedom)


def _drawn_in(values: Floats) -> Floats:
    """Fitted by least squares with weights for Student errors (EM; Lange and others, 1989), from medians on."""
    rounds, versions = values.shape
    share = (rounds - 1) * (versions - 1) / values.size
    of_round = np.median(values, axis=1, keepdims=True)
    of_version = np.median(values - of_round, axis=0, keepdims=True)
    rest = values - of_round - of_version
    scale2 = float((np.median(np.abs(rest)) * 1.4826) ** 2 / share) + NEGLIGIBLE**2
    for _ in range(ITERATIONS):
        weights = (TAIL + 1) / (TAIL + rest**2 / scale2)
        of_round = _weighted(values - of_version, weights, axis=1)
        of_version = _weighted(values - of_round, weights, axis=0)
        rest = values - of_round - of_version
        scale2 = float((weights * rest**2).mean() / share) + NEGLIGIBLE**2
    # The scale of a Student variable with TAIL degrees of freedom, fitted to normal errors, is smaller than theirs.
    far = FAR * math.sqrt(scale2) * NORMAL_TO_STUDENT
    return np.asarray(of_round + of_version + np.clip(rest, -far, far))


NORMAL_TO_STUDENT = 1.21


def _weighted(values: Floats, weights: Floats, *, axis: int) -> Floats:
    return np.asarray((values * weights).sum(axis=axis, keepdims=True) / weights.sum(axis=axis, keepdims=True))
