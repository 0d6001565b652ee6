"""Memory that comes back to a floor, again and again: saw-teeth of a collector, caches that are cleared, waves.

What is not given back shows in the troughs alone. With teeth wider than the blocks of a line, the blocks show the
teeth; the troughs still show the floor.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from harness.judge.trace.growth.trend_fit import BLOCKS, FLOOR, block_levels
from harness.model import Floats

FEWEST = 3
FEWEST_TEETH = 5
"""Troughs that show a leak, and not only how fast one might be."""
DEEP = 0.5
"""Of the deepest fall that another is at least to count: what the young generation gives back is less."""
PIECES = 64
RECENT = 0.75
"""Of the rows after which the last trough must lie: what began after it would not show."""


@dataclass(frozen=True, kw_only=True)
class Floor:
    """The floor at even places, `rows` apart, and how many troughs it is read from."""

    levels: Floats
    rows: float
    troughs: int


def teeth_floor(values: Floats) -> Floor | None:
    """The floor under saw-teeth, which fall at one go and never rise so: what wanders about does. None if there are
    none. The trough of a tooth is its lowest row.
    """
    changes = np.diff(values)
    depth = -float(changes.min(initial=0.0)) * DEEP
    if depth <= 0 or float(changes.max()) >= depth:
        return None
    falls = np.flatnonzero(changes <= -depth) + 1
    # Where memory did not climb as far in between, one fall took several rows: a program that ends is no saw.
    climbs = np.maximum.reduceat(values, falls) - np.minimum.reduceat(values, falls)
    teeth = falls[np.append(climbs[:-1] >= depth, True)]
    return _floor(teeth, np.minimum.reduceat(values, teeth), rows=len(values))


def wave_floor(values: Floats) -> Floor | None:
    """The floor under waves: the lowest block of each stretch below the middle that is reached and left again. None if
    there are too few.
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
    """The line between the troughs, read off at as many even places as there are troughs, BLOCKS at most."""
    if len(places) < FEWEST or places[-1] < RECENT * rows:
        return None
    even = np.linspace(places[0], places[-1], min(len(places), BLOCKS))
    return Floor(levels=np.interp(even, places, troughs), rows=float(even[1] - even[0]), troughs=len(places))
