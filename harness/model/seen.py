"""What a look at the registries of a matrix showed: what `harness watch` says in one line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class ImageRef(NamedTuple):
    """One image of a matrix, by the names that the matrix gives it."""

    series: str
    version: str


@dataclass(frozen=True, kw_only=True)
class RegistryLook:
    """`digests`: of how many known tags it was asked what they point to now, of the `tags` that could be asked.

    `problem`: why nothing can be said; nothing else of it counts then. `notes`: what else should be known.
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
