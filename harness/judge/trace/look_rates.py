"""Computes the growth rates of figures that are measured at looks only. Each look has twice the step of the last."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from harness.model import Look


def look_values(looks: Sequence[Look], name: str) -> dict[int, float]:
    """Return a figure by the step of the look, for the looks that have it."""
    return {look.step: value for look in looks if (value := getattr(look, name)) is not None}


def paces_at(looks: Sequence[Look], name: str, *, fewest: int, most: int) -> list[float]:
    """Return the growth rates (KiB per step) of a figure between the last `most` looks that have it, oldest first; none
    if there are fewer than `fewest`.
    """
    last = sorted(look_values(looks, name).items())[-most:]
    return [(b - a) / (after - before) for (before, a), (after, b) in pairwise(last)] if len(last) >= fewest else []


def last_pace(looks: Sequence[Look], name: str) -> float | None:
    """Return the growth rate of a figure between the last two looks that have it; None if there are fewer."""
    paces = paces_at(looks, name, fewest=2, most=2)
    return paces[0] if paces else None


def keep_on(paces: Sequence[float], *, limit: float, keeps: float) -> bool:
    """Return whether all rates reach `limit`, and none is below `keeps` times the one before, as in a warm-up."""
    return bool(paces) and min(paces) >= limit and all(b >= keeps * a for a, b in pairwise(paces))
