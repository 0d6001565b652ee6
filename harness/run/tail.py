"""Keeps the last bytes of a stream of any length."""

from __future__ import annotations


class BoundedTail:
    """Keeps the last `limit_bytes` bytes of the data that is added."""

    def __init__(self, limit_bytes: int = 64 << 10) -> None:
        self._limit_bytes = limit_bytes
        self._kept = bytearray()

    def add(self, data: bytes) -> None:
        self._kept += data
        # Cut only at twice the limit, so that many small additions cause no copying.
        if len(self._kept) > 2 * self._limit_bytes:
            del self._kept[: -self._limit_bytes]

    def text(self) -> str:
        """Return the kept bytes as text; control characters stay, invalid UTF-8 is replaced."""
        return bytes(self._kept[-self._limit_bytes :]).decode(errors="replace")
