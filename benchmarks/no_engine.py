"""For several benchmarks: an engine that runs nothing, the messages of its agents, and a silent progress listener."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from harness.model import Image, Prepared

DONE = {"type": "done", "message": "", "signal": None, "exit_code": None, "peak_rss_kib": None, "probe_cost": 0.001,
        "output_tail": "", "stacks": ""}  # fmt: skip
"""Last message of an agent, without `end` and `last_step`."""


def framed(marker: str, message: Mapping[str, Any]) -> bytes:
    """Return a message as an agent writes it."""
    return f"\n{marker} {json.dumps(message)}\n".encode()


class Silent:
    """A progress listener that ignores everything."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_, **__: None


class EngineAtHand:
    """An engine whose images all exist; a subclass adds `launch`."""

    def prepare(self, image: Image, say: Callable[[str], None]) -> Prepared:
        return Prepared(image=image, reference=image.version, digest=f"sha256:{image.series} {image.version}")

    def look(self, image: Image, say: Callable[[str], None]) -> Prepared:
        return self.prepare(image, say)

    def holds(self, prepared: Prepared) -> bool:
        return True

    def size_bytes(self, prepared: Prepared) -> int | None:
        return 1 << 20

    @contextlib.contextmanager
    def lease(self, say: Callable[[str], None], stopped: Callable[[], bool]) -> Iterator[EngineAtHand]:
        yield self

    def check(self) -> None:
        """Do nothing: the lease always holds."""

    def remove_leftovers(self) -> int:
        return 0

    def close(self) -> None: ...

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"a sweep of existing images does not ask an engine for {name}")
