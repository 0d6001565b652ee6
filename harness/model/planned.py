"""What will be run: cells, and the blocks that make a history."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from typing import Literal

from harness.model.asked import Excluded, Image, Lane, Matrix, Series, Trials, Variant


@dataclass(frozen=True, kw_only=True)
class Cell:
    """image × lane × variant.

    `twin`: the same image again under another name, to measure how much two equal images seem to differ.
    """

    image: Image
    lane: Lane
    variant: Variant
    excluded: Excluded | None = None
    twin: bool = False

    @property
    def id(self) -> str:
        """A name for files and labels: readable, unique, the same in every run. `[A-Za-z0-9._-]`, at most 105."""
        identity = json.dumps(
            [self.image.series, self.image.version, str(self.lane), self.variant.scenario.name, self.variant.params]
        )
        words = (self.image.series, self.image.version, str(self.lane), str(self.variant))
        readable = re.sub(r"[^A-Za-z0-9._]+", "-", "-".join(words)).strip("-.")[:90]
        return f"{readable}-{hashlib.sha256(identity.encode()).hexdigest()[:8]}{'-twin' if self.twin else ''}"

    def __str__(self) -> str:
        version = f"{self.image.version}{' (twin)' if self.twin else ''}"
        return f"{self.image.series} {version} on {self.lane}: {self.variant}"


@dataclass(frozen=True, kw_only=True)
class Block:
    """All cells of one series, lane and variant, oldest image first: what one row of a table and one history is."""

    series: Series
    lane: Lane
    variant: Variant
    cells: tuple[Cell, ...]


@dataclass(frozen=True, kw_only=True)
class Skip:
    """Why a cell that could be launched was not: the search did not need it, or `--decide` did not ask for it."""

    by: Literal["search", "decide"]
    why: str


SearchMode = Literal["full", "bisect", "auto"]
FEWEST_SEARCHED = 3
"""A block of fewer images is no shorter to search than to run."""
AUTO_SEARCHED = 9
"""`auto` searches blocks of as many images, and runs all of smaller ones."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    matrix: Matrix
    blocks: tuple[Block, ...]
    trials: Trials
    seed: int
    search: SearchMode = "full"

    def searched(self, block: Block) -> bool:
        """Whether the first bad image of a block is searched for, instead of running all of them."""
        asked = sum(cell.excluded is None for cell in block.cells)
        return self.search != "full" and asked >= (AUTO_SEARCHED if self.search == "auto" else FEWEST_SEARCHED)

    @property
    def cells(self) -> tuple[Cell, ...]:
        return tuple(cell for block in self.blocks for cell in block.cells)


@dataclass(frozen=True, kw_only=True)
class HostCost:
    """What a host has to do. `launches_expected`: with one clear change in each block that is searched, and where
    nothing is unclear in the others. `worst_s`: each of these launches uses its whole timeout; no pulls, no builds.
    `images` are got in any case, `images_if_asked` only where a search asks for them.
    """

    name: str
    engine: str
    lanes: tuple[str, ...]
    cells: int
    launches_least: int
    launches_expected: int
    launches_most: int
    images: tuple[str, ...]
    images_if_asked: tuple[str, ...]
    worst_s: float


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """A plan's summary. `worst_s` is that of the slowest host, since hosts run side by side."""

    matrix: str
    seed: int
    cells: int
    searched: int
    """Of the cells, those of blocks in which a search chooses what is launched."""
    excluded: int
    search: str
    launches_least: int
    launches_expected: int
    launches_most: int
    worst_s: float
    hosts: tuple[HostCost, ...]
    left_out: tuple[str, ...] = ()
