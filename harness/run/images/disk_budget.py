"""Keeps a host's images within their disk space (`disk:` in the matrix file): removes images when the space is used up.

It removes only images that the harness pulled or made, as the engine records it (`ImageStore.kept`), and only while the
lease is held, so that no other run uses them. Images that this run no longer needs are removed first, then those that
it needs latest. Among images that every round needs, the most recently used is removed first, because its next use is
the latest.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from harness import amounts
from harness.model import Build, Image
from harness.model.watching import Say
from harness.run.engine import ImageStore, Kept, Prepared

ImageName = tuple[str, str]
NEVER = 1 << 30
"""Distance in rows that stands for an image that is not needed again."""


def name_of(image: Image) -> ImageName:
    return image.series, image.version


def total_bytes(kept: Iterable[Kept]) -> int:
    """Return the disk space that images take together, in bytes; shared layers count once."""
    return sum({layer: size for image in kept for layer, size in image.layers.items()}.values())


@dataclass(kw_only=True)
class Disk:
    """The images of one host, shared by all its lanes. Without a limit, nothing is removed. Thread-safe.

    `expected_bytes`: the expected sizes of images that are not on the host, where known. `stay`: the names of images
    that others are based on; they are never removed.
    """

    limit_bytes: int | None = None
    expected_bytes: Mapping[ImageName, int] = field(default_factory=dict)
    stay: frozenset[str] = frozenset()
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _images: dict[str, Image] = field(default_factory=dict)
    """Images by the reference that the engine launches."""
    _orders: dict[Hashable, Sequence[Collection[ImageName]]] = field(default_factory=dict)
    _pins: list[ImageName] = field(default_factory=list)
    _coming: list[ImageName] = field(default_factory=list)
    _last_used: dict[ImageName, int] = field(default_factory=dict)
    _measured: dict[ImageName, int] = field(default_factory=dict)

    def expect(self, user: Hashable, order: Sequence[Collection[ImageName]]) -> None:
        """Set the images that one user of this host will need from now on, row by row, soonest first."""
        with self._lock:
            self._orders[user] = order

    def admits(self, engine: ImageStore, image: Image) -> bool:
        """Return whether the image may be pulled ahead of its turn: whether it fits in addition to all images that are
        still needed."""
        if self.limit_bytes is None:
            return True
        name = name_of(image)
        if name not in self.expected_bytes:
            return False
        with self._lock:
            needed = [kept for kept in engine.kept() if self._needed_in(kept) < NEVER]
            return total_bytes(needed) + self._coming_bytes() + self._bytes(name) <= self.limit_bytes

    @contextmanager
    def getting(self, engine: ImageStore, image: Image, say: Say) -> Iterator[None]:
        """Make room for an image that the block pulls or makes, and again after the block, when its size is known."""
        if self.limit_bytes is None:
            yield
            return
        name = name_of(image)
        with self._pinned(name):
            self._make_room(engine, self._bytes(name), say)
            before_bytes = total_bytes(engine.kept())
            self._coming.append(name)
            try:
                yield
            finally:
                self._coming.remove(name)
            self._measured[name] = max(0, total_bytes(engine.kept()) - before_bytes)
            self._make_room(engine, 0, say)

    def got(self, prepared: Prepared) -> None:
        """Record that an image is on the host."""
        with self._lock:
            self._images[prepared.reference] = prepared.image

    @contextmanager
    def in_use(self, image: Image) -> Iterator[None]:
        """Protect the image from removal during the block."""
        with self._lock:
            self._last_used[name_of(image)] = 1 + max(self._last_used.values(), default=0)
        with self._pinned(name_of(image)):
            yield

    @contextmanager
    def _pinned(self, name: ImageName) -> Iterator[None]:
        with self._lock:
            self._pins.append(name)
        try:
            yield
        finally:
            with self._lock:
                self._pins.remove(name)

    # ------------------------------------------------------------ making room

    def _make_room(self, engine: ImageStore, wanted_bytes: int, say: Say) -> None:
        """Remove images until there is room for `wanted_bytes` or no more images may be removed. In the second case the
        limit is exceeded, which the sweep warns about at its start.
        """
        if self.limit_bytes is None:
            return
        with self._lock:
            kept = list(engine.kept())
            for victim in self._victims(kept):
                if total_bytes(kept) + self._coming_bytes() + wanted_bytes <= self.limit_bytes:
                    return
                without = [image for image in kept if image is not victim]
                freed_bytes = total_bytes(kept) - total_bytes(without)
                if freed_bytes:
                    say(f"making room: removing {victim.name}, {amounts.size(freed_bytes)}")
                    kept = without if engine.remove(victim, say) else kept

    def _coming_bytes(self) -> int:
        return sum(map(self._bytes, self._coming))

    def _bytes(self, name: ImageName) -> int:
        """Return the size of an image in bytes: measured in this run, else expected, else 0."""
        return self._measured.get(name, self.expected_bytes.get(name, 0))

    def _victims(self, kept: Sequence[Kept]) -> list[Kept]:
        """Return the images that may be removed, in the order of removal."""
        victims = [
            image for image in kept if image.name not in self.stay and self._may_go(self._images.get(image.reference))
        ]
        return sorted(victims, key=lambda image: (-self._needed_in(image), -self._used_at(image)))

    def _may_go(self, image: Image | None) -> bool:
        """Return whether an image may be removed. An image in use stays, and so does a build that this run still needs,
        because a new build would not be the image that was measured.
        """
        if image is None:
            return True
        is_needed_build = isinstance(image.source, Build) and self._distance(name_of(image)) < NEVER
        return name_of(image) not in self._pins and not is_needed_build

    def _needed_in(self, kept: Kept) -> int:
        """Return the number of rows before the image is needed; NEVER for an image that this run has not prepared."""
        image = self._images.get(kept.reference)
        return NEVER if image is None else self._distance(name_of(image))

    def _used_at(self, kept: Kept) -> int:
        image = self._images.get(kept.reference)
        return 0 if image is None else self._last_used.get(name_of(image), 0)

    def _distance(self, name: ImageName) -> int:
        places = (place for order in self._orders.values() for place, names in enumerate(order) if name in names)
        return min(places, default=NEVER)
