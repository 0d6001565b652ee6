"""Writes the result of one registry poll of `harness watch`, as one line or as JSON-ready data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from harness import amounts
from harness.model.indexed import ImageRef, RegistryLook
from harness.report.text.harmless_text import plain
from harness.report.text.names import at_most

MOST_NAMES = 6


def line(seen: RegistryLook) -> str:
    """Return a poll's line: `2026-11-21T05:10:36+00:00 ngc: 33 images, 1 new (ngc 23.04); 5 requests, 0.8 s`."""
    begin = f"{seen.at} {seen.matrix}: "
    if seen.problem:
        return plain(f"{begin}{seen.problem}")
    changes = [
        f"{len(spots)} {what} ({_names(spots)})"
        for what, spots in (("new", seen.new), ("republished", seen.republished), ("gone", seen.gone))
        if spots
    ]
    found = ", ".join([amounts.count(seen.images, "image"), *(changes or ["nothing new"])])
    asked = [f"digests of {seen.digests} of {seen.tags} tags checked again"] if seen.tags else []
    cost = f"{amounts.count(seen.requests, 'request')}, {seen.duration_s:.1f} s"
    return plain("; ".join([f"{begin}{found}", *asked, cost, *seen.notes]))


def as_json(seen: RegistryLook) -> dict[str, Any]:
    """Return one JSON-ready object for a poll. Every field is always present."""
    spots = {
        name: [{"series": spot.series, "image": spot.version} for spot in getattr(seen, name)]
        for name in ("new", "republished", "gone")
    }
    return {**asdict(seen), **spots, "problem": seen.problem or None}


def _names(spots: Sequence[ImageRef]) -> str:
    return ", ".join(at_most([f"{spot.series} {spot.version}" for spot in spots], MOST_NAMES, rest="{} more"))
