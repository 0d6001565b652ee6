"""What the benchmarks' engines share, on which nothing runs: every image is there, and nothing is left behind."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from harness.model import Image
from harness.run.engine import Prepared


class EngineAtHand:
    """An engine without `launch`, which a subclass adds."""

    def prepare(self, image: Image, say: Callable[[str], None]) -> Prepared:
        return Prepared(image=image, reference=image.version, digest=f"sha256:{image.series} {image.version}")

    def look(self, image: Image, say: Callable[[str], None]) -> Prepared:
        return self.prepare(image, say)

    def at_hand(self, image: Image) -> bool:
        return True

    def holds(self, prepared: Prepared) -> bool:
        return True

    def size_bytes(self, prepared: Prepared) -> int | None:
        return 1 << 20

    @contextlib.contextmanager
    def lease(self, say: Callable[[str], None], stopped: Callable[[], bool]) -> Iterator[EngineAtHand]:
        yield self

    def check(self) -> None:
        """The lease holds."""

    def remove_leftovers(self) -> int:
        return 0

    def close(self) -> None: ...

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"a sweep of images that are there does not ask an engine for {name}")
