"""Merges levels that differ by less than the limit, so that they do not blur larger changes next to them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from harness.judge.history.changepoints.distinct_levels import Laid
from harness.model import Floats

BACK = 0.5
"""Share of the last change that a level must undo to count as its end, even if it undoes less than the limit."""


def counted_levels(laid: Laid, bounds: Sequence[int], *, least: float) -> tuple[Laid, list[int]]:
    """Return the table with all versions between two bounds that count shifted to one level, and these bounds.

    A level counts if it differs by at least `least` (a log) from the last level that counted, or if it undoes most of
    the last change. Any other level is merged into the level before it, which is the median of its versions: a mean
    would follow a short level just below the limit, until no change next to it was large enough.
    """
    means = laid.values.mean(axis=0)
    groups: list[_Group] = []
    for begin, end in itertools.pairwise((0, *bounds, laid.versions)):
        if not groups or _counts(float(means[begin:end].mean()), groups, means=means, least=least):
            groups.append(_Group(begin=begin))
        groups[-1].ends.append(end)
    level = laid.values.copy()
    for group in groups:
        for begin, end in group.pieces():
            level[:, begin:end] += group.level(means) - means[begin:end].mean()
    return Laid(values=level, raw=laid.raw, spread=laid.spread), [group.begin for group in groups[1:]]


@dataclass(frozen=True, kw_only=True)
class _Group:
    """Neighbouring levels that count as one; `ends` are the ends of all of them."""

    begin: int
    ends: list[int] = field(default_factory=list)

    def pieces(self) -> list[tuple[int, int]]:
        return list(itertools.pairwise((self.begin, *self.ends)))

    def level(self, means: Floats) -> float:
        """Return the median over the versions, where each version has the mean of its piece."""
        pieces = self.pieces()
        levels = [float(means[begin:end].mean()) for begin, end in pieces]
        return float(np.median(np.repeat(levels, [end - begin for begin, end in pieces])))


def _counts(level: float, groups: Sequence[_Group], *, means: Floats, least: float) -> bool:
    last = groups[-1].level(means)
    if abs(level - last) >= least:
        return True
    return len(groups) > 1 and (level - last) / (groups[-2].level(means) - last) > BACK
