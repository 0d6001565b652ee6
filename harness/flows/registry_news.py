"""Compares the current tags of registries with those that a watch remembers."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from harness.model import Image, Matrix, Pull
from harness.model.answers.seen import ImageRef
from harness.plan.cells import select
from harness.registry.bounded_http import RegistryDenied
from harness.registry.image_references import split_tag
from harness.registry.registry_client import TagSource
from harness.store.watch_state import Memory

Digests = Literal["some", "all"]
SMALL_REPOSITORY = 100
"""Largest number of tags in a repository for which a look asks for every digest."""
MOST_REQUESTS = 5
"""Most requests that a look sends for a larger repository, because public registries limit their number. Digests that
were asked for longest ago come first."""


class ImageRegistry(TagSource, Protocol):
    """The requests to registries that a watch makes; implemented by `harness.registry.registry_client.Registry`."""

    @property
    def requests(self) -> int: ...

    def digest(self, reference: str) -> str | None: ...


@dataclass(kw_only=True)
class Listing:
    """The tags of each repository, requested once per look."""

    images: ImageRegistry
    found: dict[str, tuple[str, ...]] = field(default_factory=dict)
    cost: dict[str, int] = field(default_factory=dict)

    def tags(self, repository: str) -> tuple[str, ...]:
        if repository not in self.found:
            before = self.images.requests
            self.found[repository] = self.images.tags(repository)
            self.cost[repository] = self.images.requests - before
        return self.found[repository]

    def lacks(self, reference: str) -> bool:
        """Return whether the reference's repository was listed without its tag. False for a reference by digest."""
        repository, tag = split_tag(reference)
        return bool(tag) and repository in self.found and tag not in self.found[repository]


@dataclass(frozen=True, kw_only=True)
class View:
    """The state of the registries. `digests`: those of the requested images; None if the tag does not exist."""

    new: tuple[ImageRef, ...]
    republished: tuple[ImageRef, ...]
    gone: tuple[ImageRef, ...]
    digests: Mapping[ImageRef, str | None]
    notes: tuple[str, ...]


def watched(matrix: Matrix) -> dict[ImageRef, Image]:
    """Return the images that a sweep of the matrix would run."""
    images = itertools.chain.from_iterable(select(matrix, seed=0).images.values())
    return {ImageRef(image.series, image.version): image for image in images}


def look(images: Mapping[ImageRef, Image], memory: Memory, listing: Listing, *, digests: Digests) -> View:
    """Ask for the digests that are due, and compare them with the memory. Raises RegistryTrouble if a registry does not
    answer.
    """
    asked: dict[ImageRef, str | None] = {}
    notes = []
    for spot, reference in _due(images, memory, listing, digests=digests):
        try:
            asked[spot] = listing.images.digest(reference)
        except RegistryDenied as error:  # the engines may have the image nevertheless
            notes.append(f"{spot.series} {spot.version}: {error}")
    unknown = [spot for spot in images if memory.of(spot) is None]
    absent = [spot for spot in unknown if spot in asked and asked[spot] is None]
    notes += [f"{spot.series} {spot.version}: the registry has no such tag" for spot in absent]
    return View(
        new=tuple(spot for spot in unknown if spot not in absent),
        republished=tuple(spot for spot, digest in asked.items() if _differs(memory, spot, digest)),
        gone=tuple(_gone(asked, memory, listing)),
        digests=asked,
        notes=tuple(notes),
    )


def tagged(images: Mapping[ImageRef, Image]) -> dict[ImageRef, str]:
    """Return the references by tag: a tag may point to another image later."""
    pulled = {spot: image.source.reference for spot, image in images.items() if isinstance(image.source, Pull)}
    return {spot: reference for spot, reference in pulled.items() if "@" not in reference}


def _due(
    images: Mapping[ImageRef, Image], memory: Memory, listing: Listing, *, digests: Digests
) -> Iterator[tuple[ImageRef, str]]:
    by_repository: dict[str, list[tuple[ImageRef, str]]] = {}
    for spot, reference in tagged(images).items():
        if memory.of(spot) is None:
            yield spot, reference
        else:
            by_repository.setdefault(split_tag(reference)[0], []).append((spot, reference))
    for repository, known in by_repository.items():
        size = len(listing.found.get(repository, known))
        if digests == "all" or size <= SMALL_REPOSITORY:
            yield from known
        else:
            allowed = max(1, MOST_REQUESTS - listing.cost.get(repository, 0))
            yield from _longest_ago(known, memory)[:allowed]


def _longest_ago(known: Sequence[tuple[ImageRef, str]], memory: Memory) -> list[tuple[ImageRef, str]]:
    """Return the images in the order of their last request, the oldest request first. Among images requested at the
    same time, the newest versions come first, because they change most often.
    """
    newest_first = list(reversed(known))
    return sorted(newest_first, key=lambda each: found.asked if (found := memory.of(each[0])) else "")


def _differs(memory: Memory, spot: ImageRef, digest: str | None) -> bool:
    before = memory.of(spot)
    return before is not None and None not in (before.digest, digest) and before.digest != digest


def _gone(asked: Mapping[ImageRef, str | None], memory: Memory, listing: Listing) -> Iterator[ImageRef]:
    """Yield the known images whose tag is gone. For an image that the matrix no longer names, only the list of tags
    shows this.
    """
    for spot, known in memory.images():
        missing = spot in asked and asked[spot] is None
        if not known.gone and (missing or (known.reference and listing.lacks(known.reference))):
            yield spot
