"""Finds launches in two modes: some launches of a program are slower than others from the first step to the last.

A mean hides them, and they look like noise. What distinguishes them is the gap between the modes: nearly all launches
of all versions lie near one of the two, and the gap is much larger than their distances from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from harness.judge.comparison.noise import Spread
from harness.judge.comparison.round_tables import Round, RoundTable
from harness.model import Floats

FEWEST = 2
"""Fewest launches in each mode of a version that has two."""
TIGHT = 8.0
"""Least ratio of the gap to the usual distance of a launch from its mode."""
BETWEEN = 0.05
"""Largest share of launches in the middle of the gap: something disturbed them."""
MIDDLE = 0.4
"""The middle of the gap, as a share of it."""
FAR = 4.0
"""Least ratio of the gap to the A/A noise of a launch."""
FEW_VERSIONS = 4
"""With fewer versions, a slow launch of one is not distinguished from a fast round of the others unless rounds differ
by less than a quarter of the gap."""


@dataclass(frozen=True, kw_only=True)
class Modes:
    """The launches in the slow mode, by position of their version: their rounds, and how many launches it has in all.
    `gap`: by how much they are slower, a log.
    """

    gap: float
    slow: Mapping[int, frozenset[Round]]
    launches: int

    def counts(self, versions: int) -> list[tuple[int, int] | None]:
        """Return how many launches of each version are in the slow mode, and of how many; None: it was not compared."""
        return [(len(self.slow[place]), self.launches) if place in self.slow else None for place in range(versions)]


def modes_of(table: RoundTable, *, least: float, noise: Spread | None) -> Modes | None:
    """Return the two modes of the launches of a table; None if no version has two that differ by `least`, a log."""
    if len(table.values) < 2 * FEWEST or (fit := _fit(table.values)) is None:
        return None
    gap, slow, usual = fit
    both = (slow.sum(axis=0) >= FEWEST) & ((~slow).sum(axis=0) >= FEWEST)
    if not both.any() or gap < max(least, FAR * (noise.deviation if noise is not None else 0.0)):
        return None
    # A version all of whose launches seem to be in the slow mode has another level, or no usual launch by chance.
    is_known = np.abs(usual - usual.min() - gap) > gap / TIGHT
    return Modes(
        gap=gap,
        slow={
            place: frozenset(number for number, is_slow in zip(table.rounds, own, strict=True) if is_slow)
            for place, own, known in zip(table.positions, slow.T, is_known, strict=True)
            if known
        },
        launches=len(table.values),
    )


def _fit(values: Floats) -> tuple[float, np.ndarray[tuple[int, ...], np.dtype[np.bool_]], Floats] | None:
    """Return the gap, which launches are slow, and the usual level of each version; None if launches lie between the
    modes. What all launches of a round share is subtracted."""
    rest = values - np.sort(values, axis=0)[FEWEST - 1]
    many = values.shape[1] >= FEW_VERSIONS
    of_round = np.quantile(rest, 0.25, axis=1, method="lower") if many else np.zeros(len(values))
    rest = rest - of_round[:, None]
    ordered = np.sort(rest, axis=None)
    sums, counts = np.cumsum(ordered)[:-1], np.arange(1, ordered.size)
    variances = (sums - counts * ordered.mean()) ** 2 / (counts * (ordered.size - counts))  # Otsu's threshold (1979)
    half = ordered.size // 2
    cut = half - 1 + int(np.argmax(variances[half - 1 : 1 - FEWEST]))
    slow = rest > (ordered[cut] + ordered[cut + 1]) / 2
    for _ in range(4):
        if not slow.any() or slow.all():
            return None
        gap = float(np.median(rest[slow]) - np.median(rest[~slow]))
        usual = np.median(values - of_round[:, None] - gap * slow, axis=0)
        of_round = np.median(values - usual - gap * slow, axis=1)
        rest = values - usual - of_round[:, None]
        slow = rest > gap / 2
    distance = 1.4826 * float(np.median(np.abs(rest - gap * slow)))
    between = np.abs(rest - gap / 2) < MIDDLE / 2 * gap
    is_apart = gap > TIGHT * distance and int(between.sum()) <= BETWEEN * between.size
    is_sure = many or float(np.std(of_round)) < gap / 4
    return (gap, slow & ~between, usual) if is_apart and is_sure else None
