"""Computes the memory limit of a trial for which the matrix file gives none."""

from __future__ import annotations

SHARE = 0.9
"""Share of the memory of a host, or of a node's allocation, that such a trial may use."""


def default_bytes(total_bytes: object) -> int | None:
    """Return the limit in bytes on a machine that reports `total_bytes`; None if that is not a positive whole number.

    Without a limit, a trial that keeps growing would make the kernel kill other processes of the host, even the engine.
    """
    return int(total_bytes * SHARE) if isinstance(total_bytes, int) and total_bytes > 0 else None
