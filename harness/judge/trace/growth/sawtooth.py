"""Finds the floor to which memory returns again and again: under saw-teeth of a garbage collector, cleared caches, or
waves.

Memory that is never freed shows only in the troughs. If teeth are wider than the blocks of a trend, the block levels
follow the teeth, but the troughs still follow the floor.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from harness.judge.trace.growth.trend_fit import BLOCKS, FLOOR, block_levels
from harness.model import Floats

FEWEST = 3
"""Minimum number of troughs for an upper bound of a leak's rate."""
FEWEST_TEETH = 5
"""Minimum number of troughs that prove a leak."""
DEEP = 0.5
"""Minimum depth of a fall, as a share of the deepest fall: collections of the young generation are shallower."""
PIECES = 64
"""Number of blocks in which waves are searched for."""
RECENT = 0.75
"""Share of the rows after which the last trough must lie, because it cannot show a leak that began later."""


@dataclass(frozen=True, kw_only=True)
class Floor:
    """`levels` of the floor, shape (n,), at positions `rows` apart, computed from a number of `troughs`."""

    levels: Floats
    rows: float
    troughs: int


def teeth_floor(values: Floats) -> Floor | None:
    """Return the floor under saw-teeth; None if there are none. Unlike a random walk, saw-teeth fall within one row and
    never rise as fast. The trough of a tooth is its lowest row.
    """
    changes = np.diff(values)
    depth = -float(changes.min(initial=0.0)) * DEEP
    if depth <= 0 or float(changes.max()) >= depth:
        return None
    falls = np.flatnonzero(changes <= -depth) + 1
    # Falls without a climb as high between them are one fall over several rows: the end of a program is no saw-tooth.
    climbs = np.maximum.reduceat(values, falls) - np.minimum.reduceat(values, falls)
    teeth = falls[np.append(climbs[:-1] >= depth, True)]
    return _floor(teeth, np.minimum.reduceat(values, teeth), rows=len(values))


def wave_floor(values: Floats) -> Floor | None:
    """Return the floor under waves; None if there are fewer than FEWEST. The trough of a wave is the lowest block of a
    stretch below mid-height that the series both enters and leaves.
    """
    if len(values) < PIECES:
        return None
    floors = block_levels(values, share=FLOOR, blocks=PIECES)
    below = floors < (float(floors.min()) + float(floors.max())) / 2
    edges = np.flatnonzero(np.diff(below)) + 1
    begins = edges[below[edges]]
    ends = edges[~below[edges]]
    pairs = [(begin, int(ends[ends > begin][0])) for begin in begins if (ends > begin).any()]
    places = np.array([begin + int(floors[begin:end].argmin()) for begin, end in pairs], dtype=np.intp)
    return _floor(places * (len(values) // PIECES), floors[places], rows=len(values))


def _floor(places: npt.NDArray[np.intp], troughs: Floats, *, rows: int) -> Floor | None:
    """Interpolate the floor between the troughs, at as many evenly spaced positions as troughs, but at most BLOCKS.
    Return None if the troughs are too few or none is recent.
    """
    if len(places) < FEWEST or places[-1] < RECENT * rows:
        return None
    even = np.linspace(places[0], places[-1], min(len(places), BLOCKS))
    return Floor(levels=np.interp(even, places, troughs), rows=float(even[1] - even[0]), troughs=len(places))
