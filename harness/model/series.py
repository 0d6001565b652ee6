"""What `harness judge --history` finds in a history of figures from anywhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from harness.model.judged import Effect, Kind

SeriesKind = Kind | Literal["better"]
"""`better`: an improvement that ends nothing bad."""


@dataclass(frozen=True, kw_only=True)
class SeriesChange:
    """`before` is the last version of the old side, `after` the first of the new one; of a drift, its ends.

    `between` are the versions that may be of either side. `effect` is the ratio of the new level to the old one.
    """

    kind: SeriesKind
    before: str | None
    after: str
    between: tuple[str, ...]
    effect: Effect
    p: float | None


@dataclass(frozen=True, kw_only=True)
class SeriesVerdict:
    """`limit` is the least change that counts, `visible` the smallest that noise would have let show, of a level that
    `lasting` versions have, `noise` by how much values of one version differ (standard deviation): all as shares, or
    None if unknown.

    `alone`: one value of each version, and the noise is that of neighbours. `odd` are then versions far from both of
    their neighbours. `left_out` says in words what was not used.
    """

    history: str
    versions: tuple[str, ...]
    rounds: int
    falls: bool
    limit: float
    changes: tuple[SeriesChange, ...]
    noise: float | None
    visible: float | None
    lasting: int
    alone: bool
    odd: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()

    @property
    def verdict(self) -> Literal["worse", "good", "inconclusive"]:
        """`inconclusive`: nothing became worse, and a change of the limit need not have shown."""
        if any(change.kind not in ("first_fixed", "better") for change in self.changes):
            return "worse"
        return "good" if self.visible is not None and self.visible <= self.limit else "inconclusive"
