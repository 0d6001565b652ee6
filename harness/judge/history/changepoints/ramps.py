"""Finds ramps: stretches whose level rises or falls from version to version, so that no version is the changepoint.

A ramp is reported only if a straight line through the versions is far likelier than any steps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtr, stdtrit

from harness.judge.comparison.round_effects import NEGLIGIBLE
from harness.judge.history.changepoints.distinct_levels import Laid
from harness.judge.history.changepoints.optimal_partition import FEWEST_ON_A_LINE, Piece, pieces, usual_penalty
from harness.judge.intervals import CONFIDENCE
from harness.model import Interval

MISFIT = 3.0
"""Largest mean square residual of a ramp, in variances of a version's mean: short but clear stairs leave more."""
MARGIN = 6.0
"""Penalty of a line beyond that of two levels, in twice the log likelihood; a smaller one turns steps into ramps."""


@dataclass(frozen=True, kw_only=True)
class Ramp:
    """The versions [begin, end), whose level goes from `first` to `last` (logs); `interval` is for the difference."""

    begin: int
    end: int
    first: float
    last: float
    interval: Interval
    p: float

    @property
    def middle(self) -> int:
        return (self.begin + self.end) // 2


def ramps_of(laid: Laid, *, least: float, alpha: float) -> list[Ramp]:
    """Return the ramps that change by at least `least` (a log), oldest first; `alpha` is the chance of a false one."""
    if laid.versions < FEWEST_ON_A_LINE:
        return []
    penalty = usual_penalty(laid.versions)
    likeliest = pieces(
        laid.values.mean(axis=0), variance=laid.variance(least), penalty=penalty, line_penalty=2 * penalty + MARGIN
    )
    ramps = [_ramp(laid, piece) for piece in likeliest if piece.line and abs(piece.last - piece.first) >= least]
    return [ramp for ramp in ramps if ramp.p < alpha and _fits(laid, ramp, least=least)]


def _fits(laid: Laid, ramp: Ramp, *, least: float) -> bool:
    means = laid.values[:, ramp.begin : ramp.end].mean(axis=0)
    rest = means - np.linspace(ramp.first, ramp.last, len(means))
    return float((rest**2).mean()) <= MISFIT * laid.variance(least)


def _ramp(laid: Laid, piece: Piece) -> Ramp:
    """Return a ramp with the t-test of its slope, corrected for the number of stretches that may be ramps."""
    count = piece.end - piece.begin
    size = piece.last - piece.first
    squares = count * (count**2 - 1) / 12
    error = max(laid.spread.deviation, NEGLIGIBLE) * (count - 1) / math.sqrt(squares * laid.rounds)
    margin = float(stdtrit(laid.spread.freedom, 0.5 + CONFIDENCE / 2)) * error
    tried = laid.versions**2 / 2
    return Ramp(
        begin=piece.begin,
        end=piece.end,
        first=piece.first,
        last=piece.last,
        interval=(size - margin, size + margin),
        p=float(min(1.0, 2 * tried * float(stdtr(laid.spread.freedom, -abs(size) / error)))),
    )
