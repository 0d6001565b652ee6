"""The bounded end of an unbounded stream."""

from __future__ import annotations


class BoundedTail:
    """Keeps the last `limit_bytes` of what is added."""

    def __init__(self, limit_bytes: int = 64 << 10) -> None:
        self._limit_bytes = limit_bytes
        self._kept = bytearray()

    def add(self, data: bytes) -> None:
        self._kept += data
        # Cut at twice the limit, not at each addition: many small additions then cost no copying.
        if len(self._kept) > 2 * self._limit_bytes:
            del self._kept[: -self._limit_bytes]

    def text(self) -> str:
        """What is kept, as text; control characters stay, bytes that are no UTF-8 are replaced."""
        return bytes(self._kept[-self._limit_bytes :]).decode(errors="replace")
