"""Splits a series into its likeliest pieces by an exact search; each piece is a level or, on request, a line.

The search minimises the sum of squares plus a penalty for each piece (Jackson and others, 2005). Unlike successive
splits, it does not miss levels that come and go, which hide each other from any single split.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from harness.model import Floats

FEWEST_ON_A_LINE = 8
"""Fewest versions of a line; fewer versions that rise one after the other are reported as steps."""


@dataclass(frozen=True, kw_only=True)
class Piece:
    """The versions [begin, end), with the levels of the first and the last version, which differ only on a line."""

    begin: int
    end: int
    first: float
    last: float
    line: bool


def pieces(means: Floats, *, variance: float, penalty: float, line_penalty: float | None = None) -> list[Piece]:
    """Return the likeliest pieces of `means`, oldest first, each mean with `variance`.

    Each piece costs `penalty`, in units of twice the log likelihood, and a line costs `line_penalty`; without one, all
    pieces are levels.
    """
    sums = _Sums.of(means)
    costs, starts, lines = np.zeros(len(means) + 1), [0], [False]
    for end in range(1, len(means) + 1):
        before = costs[:end]
        levels = before + sums.around_level(end) / variance + penalty
        best, line = int(levels.argmin()), False
        costs[end] = levels[best]
        if line_penalty is not None and end >= FEWEST_ON_A_LINE:
            sloped = before + sums.around_line(end) / variance + line_penalty
            sloped[end - FEWEST_ON_A_LINE + 1 :] = np.inf
            if sloped.min() < costs[end]:
                best, line = int(sloped.argmin()), True
                costs[end] = sloped[best]
        starts.append(best)
        lines.append(line)
    return _traced(means, starts, lines)


def usual_penalty(versions: int) -> float:
    """Return the penalty of one more level, which seldom gains as much by chance. Later tests are stricter."""
    return 4 + 2 * math.log(versions)


@dataclass(frozen=True, kw_only=True)
class _Sums:
    """Cumulative sums, which give the residual sum of squares of any piece in constant time."""

    values: Floats
    squares: Floats
    places: Floats

    @classmethod
    def of(cls, means: Floats) -> _Sums:
        centred = means - means.mean()
        columns = [centred, centred**2, centred * np.arange(len(means))]
        values, squares, places = (np.concatenate([[0.0], np.cumsum(column)]) for column in columns)
        return cls(values=values, squares=squares, places=places)

    def around_level(self, end: int) -> Floats:
        """Return the residual sum of squares around a level, for each begin before `end`."""
        count = end - np.arange(end)
        total = self.values[end] - self.values[:end]
        return np.asarray(np.maximum(self.squares[end] - self.squares[:end] - total**2 / count, 0))

    def around_line(self, end: int) -> Floats:
        """Return the residual sum of squares around a least-squares line, for each begin before `end`."""
        begin = np.arange(end)
        count = end - begin
        middle = begin + (count - 1) / 2
        total = self.values[end] - self.values[:end]
        product = self.places[end] - self.places[:end] - middle * total
        spread = np.maximum(count * (count**2 - 1.0) / 12, 0.5)
        return np.asarray(np.maximum(self.around_level(end) - product**2 / spread, 0))


def _traced(means: Floats, starts: list[int], lines: list[bool]) -> list[Piece]:
    traced: list[Piece] = []
    end = len(means)
    while end > 0:
        begin = starts[end]
        traced.append(_fitted(means, begin, end, line=lines[end]))
        end = begin
    return traced[::-1]


def _fitted(means: Floats, begin: int, end: int, *, line: bool) -> Piece:
    inside = means[begin:end]
    level, slope = float(inside.mean()), 0.0
    if line:
        places = np.arange(len(inside)) - (len(inside) - 1) / 2
        slope = float(places @ inside / (places @ places))
    reach = slope * (end - begin - 1) / 2
    return Piece(begin=begin, end=end, first=level - reach, last=level + reach, line=line)
