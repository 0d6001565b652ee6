"""The GPUs of a host, as its driver tells of them."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import Any

VENDOR_WORDS = re.compile(r"\b(?:NVIDIA|GeForce|Tesla|Quadro)\s+", re.IGNORECASE)
PASSING = ("index", "processes")


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """One GPU, or one MIG instance of the card `parent`. What the driver does not tell is None.

    `index` is the host's own count, which may change when it starts anew; `cuda` is the newest CUDA that the driver
    has; `processes`: how many computed on it when it was asked.
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
        """`RTX 4090`"""
        return VENDOR_WORDS.sub("", self.name).strip() or self.name

    @property
    def fingerprint(self) -> dict[str, Any]:
        """What must be the same for two trials to be of the same thing: all but what changes by itself."""
        return {name: value for name, value in asdict(self).items() if name not in PASSING}

    def __str__(self) -> str:
        """As a message names it: `0 NVIDIA GeForce RTX 4090 (GPU-…)`"""
        return f"{self.index} {self.name} ({self.uuid})"
