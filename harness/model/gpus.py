"""Defines the record of a GPU of a host, as its driver reports it."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import Any

VENDOR_WORDS = re.compile(r"\b(?:NVIDIA|GeForce|Tesla|Quadro)\s+", re.IGNORECASE)
PASSING = ("index", "processes")
"""Fields that change by themselves and are left out of the fingerprint."""


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """One GPU, or one MIG instance of the card `parent`. Anything that the driver does not report is None.

    `index` is the host's own numbering, which may change at a restart; `cuda` is the newest CUDA version that the
    driver supports; `processes` is the number of processes that used it when it was probed.
    """

    uuid: str
    name: str
    index: int
    compute_capability: str | None = None
    driver: str | None = None
    cuda: str | None = None
    memory_mib: int | None = None
    power_limit_w: float | None = None
    ecc: bool | None = None
    mig: bool | None = None
    parent: str | None = None
    processes: int | None = None

    @property
    def short_name(self) -> str:
        """Return the name without the vendor's words: `RTX 4090`."""
        return VENDOR_WORDS.sub("", self.name).strip() or self.name

    @property
    def fingerprint(self) -> dict[str, Any]:
        """Return what must be equal for two trials to measure the same thing: all fields except PASSING."""
        return {name: value for name, value in asdict(self).items() if name not in PASSING}

    def __str__(self) -> str:
        """Return the GPU as messages name it: `0 NVIDIA GeForce RTX 4090 (GPU-…)`."""
        return f"{self.index} {self.name} ({self.uuid})"
