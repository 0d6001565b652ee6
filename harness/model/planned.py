"""What will be run: cells, and the blocks that make a history."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass

from harness.model.asked import Excluded, Image, Lane, Matrix, Series, Trials, Variant


@dataclass(frozen=True, kw_only=True)
class Cell:
    """image × lane × variant."""

    image: Image
    lane: Lane
    variant: Variant
    excluded: Excluded | None = None

    @property
    def id(self) -> str:
        """A name for files and labels: readable, unique, the same in every run. `[A-Za-z0-9._-]`, at most 100."""
        identity = json.dumps(
            [self.image.series, self.image.version, str(self.lane), self.variant.scenario.name, self.variant.params]
        )
        words = (self.image.series, self.image.version, str(self.lane), str(self.variant))
        readable = re.sub(r"[^A-Za-z0-9._]+", "-", "-".join(words)).strip("-.")[:90]
        return f"{readable}-{hashlib.sha256(identity.encode()).hexdigest()[:8]}"

    def __str__(self) -> str:
        return f"{self.image.series} {self.image.version} on {self.lane}: {self.variant}"


@dataclass(frozen=True, kw_only=True)
class Block:
    """All cells of one series, lane and variant, oldest image first: what one row of a table and one history is."""

    series: Series
    lane: Lane
    variant: Variant
    cells: tuple[Cell, ...]


@dataclass(frozen=True, kw_only=True)
class Plan:
    matrix: Matrix
    blocks: tuple[Block, ...]
    trials: Trials
    seed: int

    @property
    def cells(self) -> tuple[Cell, ...]:
        return tuple(cell for block in self.blocks for cell in block.cells)
