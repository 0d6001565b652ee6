"""Defines what a look at the registries showed, and what `harness watch` prints of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from harness import amounts
from harness.report.text.harmless_text import plain
from harness.report.text.names import at_most

MOST_NAMES = 6


class ImageRef(NamedTuple):
    """One image of a matrix, by the names that the matrix gives it."""

    series: str
    version: str


@dataclass(frozen=True, kw_only=True)
class RegistryLook:
    """The result of a look. `digests` is the number of known tags whose digest was queried, out of the
    `tags` that could be queried.

    `problem`: why the look failed; all other fields are then meaningless. `notes`: further notes for the user.
    """

    matrix: str
    at: str
    images: int = 0
    new: tuple[ImageRef, ...] = ()
    republished: tuple[ImageRef, ...] = ()
    gone: tuple[ImageRef, ...] = ()
    digests: int = 0
    tags: int = 0
    requests: int = 0
    duration_s: float = 0.0
    notes: tuple[str, ...] = ()
    problem: str = ""

    @property
    def to_run(self) -> tuple[ImageRef, ...]:
        return (*self.new, *self.republished)


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
