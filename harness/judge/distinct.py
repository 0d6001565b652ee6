"""Levels that differ from both of their neighbours by more than chance, whatever the rest of the series does.

The likeliest pieces of the series are found at once, and those that a test cannot tell from their neighbour are joined
with it, the least distinct first. A level that comes and goes is found so, whose stretches hardly differ from the rest.
"""

from __future__ import annotations

from dataclasses import dataclass

from harness.judge.boundary import Test, places_tried
from harness.judge.layout import Spread
from harness.judge.partition import pieces, usual_penalty
from harness.model import Floats

WOBBLE = 0.1
"""Of the least change that counts: versions that differ by less are alike for the search, however quiet the host."""


@dataclass(frozen=True, kw_only=True)
class Laid:
    """A table without its rounds' levels, shape (rounds, versions): `values` drawn in, `raw` as they are."""

    values: Floats
    raw: Floats
    spread: Spread

    @property
    def rounds(self) -> int:
        return len(self.values)

    @property
    def versions(self) -> int:
        return int(self.values.shape[1])

    def variance(self, least: float) -> float:
        """Of the mean of a version, where what is far below `least` is no matter."""
        return float(max(self.spread.deviation**2 / self.rounds, (WOBBLE * least) ** 2))


def distinct_levels(laid: Laid, *, least: float, alpha: float) -> dict[int, float]:
    """The first version of each new level, with its p-value; `alpha` is the chance of one where there is none."""
    penalty = usual_penalty(laid.versions)
    likeliest = pieces(laid.values.mean(axis=0), variance=laid.variance(least), penalty=penalty)
    bounds = [piece.begin for piece in likeliest[1:]]
    tests = _Tests(laid=laid, alpha=alpha)
    found = {
        bound: tests.at(bounds, number, least=least) for number, bound in enumerate(bounds)
    }  # by bound: (too small to count, p, minus the size)
    while found:
        worst = max(found, key=found.__getitem__)
        if not found[worst][0] and found[worst][1] < alpha:
            break
        number = bounds.index(worst)
        del bounds[number], found[worst]
        for near in {max(0, number - 1), number} & set(range(len(bounds))):
            found[bounds[near]] = tests.at(bounds, near, least=least)
    return {bound: p for bound, (_, p, _) in found.items()}


@dataclass(frozen=True, kw_only=True)
class _Tests:
    laid: Laid
    alpha: float

    def at(self, bounds: list[int], number: int, *, least: float) -> tuple[bool, float, float]:
        """Of the levels on both sides of a bound: whether they differ too little to count, p, minus the difference."""
        laid = self.laid
        edges = (0, *bounds, laid.versions)
        begin, first, end = edges[number : number + 3]
        old, new = laid.values[:, begin:first], laid.values[:, first:end]
        size = abs(float(new.mean() - old.mean()))
        counts = first - begin, end - first
        smaller = min(counts)
        spread = laid.spread
        test = Test(
            spread=spread, rounds=laid.rounds, smaller=smaller, tried=places_tried(laid.versions, smaller),
            alpha=self.alpha,
        )  # fmt: skip
        if test.by_worst:  # what is far out was drawn in to the other launches of its version: to be seen as it was
            new = laid.raw[:, first:end] if counts[1] == smaller else new
            old = laid.raw[:, begin:first] if counts[0] == smaller else old
        differences = new.mean(axis=1) - old.mean(axis=1)
        error = spread.deviation * (1 / counts[0] + 1 / counts[1]) ** 0.5
        return size < least, test.p_value(differences / error), -size
