"""Defines the result of a look at the registries of a matrix, which `harness watch` prints as one line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


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
