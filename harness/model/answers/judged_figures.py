"""Defines the results of `harness judge --history` for a history of figures from any source."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from harness.model.judged import Effect, FindingKind

SeriesKind = FindingKind | Literal["better"]
"""`better`: an improvement that does not end a regression."""


@dataclass(frozen=True, kw_only=True)
class SeriesChange:
    """A change along a history. `before` is the last version of the old side, `after` the first of the new one; for a
    drift, its first and last version.

    `between` are the versions that may belong to either side. `effect` is the ratio of the new level to the old one.
    """

    kind: SeriesKind
    before: str | None
    after: str
    between: tuple[str, ...]
    effect: Effect
    p: float | None


@dataclass(frozen=True, kw_only=True)
class SeriesVerdict:
    """The verdict on one history. `limit` is the smallest change that counts; `visible` is the minimum detectable
    effect of a level that `lasting` versions have; `noise` is the standard deviation between values of one version. All
    three are shares, or None if unknown.

    `alone`: there is one value per version, and the noise is estimated from neighbouring versions; `odd` are then the
    outliers, versions far from both neighbours. `left_out` describes what was not used.
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
        """Return the verdict; `inconclusive`: nothing became worse, but a change of the limit might not have shown."""
        if any(change.kind not in ("first_fixed", "better") for change in self.changes):
            return "worse"
        return "good" if self.visible is not None and self.visible <= self.limit else "inconclusive"
