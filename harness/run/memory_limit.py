"""Computes the memory limit of a trial for which the matrix file gives none."""

from __future__ import annotations

SHARE = 0.9
"""Largest share of the memory of a host, or of a node's allocation, that such a trial gets."""


def default_bytes(total_bytes: object) -> int | None:
    """Return the limit in bytes for a machine that says that it has `total_bytes`; None if it reports no usable number.

    Without a limit, an image that grows without end would make the kernel end other processes of the host, among them
    the engine.
    """
    return int(total_bytes * SHARE) if isinstance(total_bytes, int) and total_bytes > 0 else None
