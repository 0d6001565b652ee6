"""What is measured at looks alone: each is at twice the step of the one before, so that few of them tell a pace."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from harness.model import Look


def paces_at(looks: Sequence[Look], name: str, *, fewest: int, most: int) -> list[float]:
    """By how much a figure of looks, in KiB, grew a step between the last `most` that have it, oldest first; none if
    there are fewer than `fewest`.
    """
    told = {look.step: value for look in looks if (value := getattr(look, name)) is not None}
    last = sorted(told.items())[-most:]
    return [(b - a) / (after - before) for (before, a), (after, b) in pairwise(last)] if len(last) >= fewest else []


def keep_on(paces: Sequence[float], *, limit: float, keeps: float) -> bool:
    """Whether all are `limit` or more, and each is `keeps` of the one before or more: what warms up slows down."""
    return bool(paces) and min(paces) >= limit and all(b >= keeps * a for a, b in pairwise(paces))
