"""Growth rates of figures that are measured at looks alone. Each look is at twice the step of the one before."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from harness.model import Look


def paces_at(looks: Sequence[Look], name: str, *, fewest: int, most: int) -> list[float]:
    """Return the growth rates (KiB per step) of a figure between the last `most` looks that have it, oldest first; none
    if there are fewer than `fewest`.
    """
    by_step = {look.step: value for look in looks if (value := getattr(look, name)) is not None}
    last = sorted(by_step.items())[-most:]
    return [(b - a) / (after - before) for (before, a), (after, b) in pairwise(last)] if len(last) >= fewest else []


def keep_on(paces: Sequence[float], *, limit: float, keeps: float) -> bool:
    """Return whether all rates reach `limit`, and each is at least `keeps` times the one before: a warm-up
    slows down.
    """
    return bool(paces) and min(paces) >= limit and all(b >= keeps * a for a, b in pairwise(paces))
