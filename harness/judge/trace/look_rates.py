"""Computes the growth rates of figures that are measured only at looks. Each look is at twice the step of the one
before.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from harness.model import Look


def look_values(looks: Sequence[Look], name: str) -> dict[int, float]:
    """Return the figure `name` by step, for the looks that have it."""
    return {look.step: value for look in looks if (value := getattr(look, name)) is not None}


def paces_at(looks: Sequence[Look], name: str, *, fewest: int, most: int) -> list[float]:
    """Return the growth rates of a figure (per step) between the last `most` looks that have it, oldest first; an empty
    list if fewer than `fewest` looks have it.
    """
    last = sorted(look_values(looks, name).items())[-most:]
    return [(b - a) / (after - before) for (before, a), (after, b) in pairwise(last)] if len(last) >= fewest else []


def last_pace(looks: Sequence[Look], name: str) -> float | None:
    """Return the growth rate of a figure (per step) between the last two looks that have it; None if fewer do."""
    paces = paces_at(looks, name, fewest=2, most=2)
    return paces[0] if paces else None


def keep_on(paces: Sequence[float], *, limit: float, keeps: float) -> bool:
    """Return whether all rates reach `limit`, and none falls below `keeps` times the one before, as in a warm-up."""
    return bool(paces) and min(paces) >= limit and all(b >= keeps * a for a, b in pairwise(paces))
