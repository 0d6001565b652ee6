"""Defines the records of a plan: its cells and rows, and its cost."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Literal

from harness.model.from_file import ById
from harness.model.matrix import Host, Image, Lane, Matrix, Series, Stop, Trials, Varied
from harness.model.measured import REPLICATE
from harness.model.scenario import Variant


@dataclass(frozen=True, kw_only=True)
class Cell(ById):
    """image × lane × variant.

    `excluded`: why the matrix leaves it out; None if it does not. `replicate`: the A/A replicate, the same image again
    under another name, which measures the noise between equal images.
    """

    image: Image
    lane: Lane
    variant: Variant
    excluded: str | None = None
    replicate: bool = False

    @cached_property
    def id(self) -> str:
        """Return a name for files and labels: readable, unique, stable. `[A-Za-z0-9._-]`, at most 105 characters."""
        identity = json.dumps(
            [self.image.series, self.image.version, str(self.lane), self.variant.scenario.name, self.variant.params]
        )
        words = (self.image.series, self.image.version, str(self.lane), str(self.variant))
        readable = re.sub(r"[^A-Za-z0-9._]+", "-", "-".join(words)).strip("-.")[:86]
        return f"{readable}-{hashlib.sha256(identity.encode()).hexdigest()[:8]}{REPLICATE if self.replicate else ''}"

    @property
    def in_place(self) -> bool:
        """Return whether it runs a command on the machine as it is, in the user's own folder and environment."""
        return isinstance(self.image.source, Varied)

    @property
    def folder(self) -> str:
        """Return the user's own folder, in which a command in place runs."""
        scenario = self.variant.scenario
        return str((scenario.folder or Path(scenario.where.file).parent).absolute())

    @property
    def environment(self) -> Mapping[str, str]:
        """Return the variables that the matrix file sets for a launch: those of the series, then the scenario's."""
        return {**dict(self.image.environment), **dict(self.launched.scenario.environment)}

    @cached_property
    def launched(self) -> Variant:
        """Return the variant as launched: with params in the environment, and the version in a varied command."""
        variant, scenario = self.variant, self.variant.scenario
        environment = tuple((name, variant.filled((text,))[0]) for name, text in scenario.environment)
        command, stop = scenario.command, scenario.stop
        if self.in_place:
            command, stop = map(self._versioned, (command, stop))
        return replace(variant, scenario=replace(scenario, environment=environment, command=command, stop=stop))

    def _versioned(self, words: Sequence[str]) -> tuple[str, ...]:
        return tuple(word.replace("{version}", self.image.version) for word in self.variant.filled(words))

    def __str__(self) -> str:
        version = f"{self.image.version}{' (A/A replicate)' if self.replicate else ''}"
        return f"{self.image.series} {version} on {self.lane}: {self.variant}"


@dataclass(frozen=True, kw_only=True)
class VersionRow:
    """All cells of one series, lane and variant, oldest image first: one row of a table, one history."""

    series: Series
    lane: Lane
    variant: Variant
    cells: tuple[Cell, ...]

    def __str__(self) -> str:
        return f"{self.series.name} on {self.lane}, {self.variant}"

    @property
    def baseline(self) -> int | None:
        """Return the position of the baseline image; None if the matrix names none."""
        versions = [image.version for image in self.series.images]
        return versions.index(self.series.baseline) if self.series.baseline in versions else None


@dataclass(frozen=True, kw_only=True)
class Skip:
    """The reason why a cell that could be launched was not, or not often enough: the search did not need it, `--decide`
    did not ask for it, or a `stop` condition ended the sweep first (`Stop`)."""

    by: Literal["search", "decide", "stop"]
    why: str


SearchMode = Literal["full", "bisect", "auto"]
FEWEST_SEARCHED = 3
"""Smallest number of images for which a row is searched; with fewer, a search saves nothing."""
AUTO_SEARCHED = 9
"""Smallest number of images for which `auto` searches a row; it runs every image of smaller rows."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """All cells of a run. `rehearsal`: it makes the first launches of `harness try`, which the sweep takes over, and
    `later` are the images of that sweep."""

    matrix: Matrix
    rows: tuple[VersionRow, ...]
    trials: Trials
    seed: int
    search: SearchMode = "full"
    stop: Stop = field(default_factory=Stop)
    rehearsal: bool = False
    later: tuple[Image, ...] = ()

    def searched(self, row: VersionRow) -> bool:
        """Return whether the first bad image of a row is searched for, instead of running all images."""
        asked = sum(cell.excluded is None for cell in row.cells)
        return self.search != "full" and asked >= (AUTO_SEARCHED if self.search == "auto" else FEWEST_SEARCHED)

    def least(self, row: VersionRow) -> int:
        """Return how many trials a good cell of a row needs."""
        return 1 if self.searched(row) else self.trials.least

    @property
    def cells(self) -> tuple[Cell, ...]:
        """Return all cells, row by row."""
        return tuple(cell for row in self.rows for cell in row.cells)

    @property
    def images(self) -> dict[Host, list[Image]]:
        """Return the images that will run on each host, each image once."""
        found: dict[Host, dict[Image, None]] = {}
        for row in self.rows:
            found.setdefault(row.lane.host, {}).update((cell.image, None) for cell in row.cells if not cell.excluded)
        return {host: list(images) for host, images in found.items()}


@dataclass(frozen=True, kw_only=True)
class HostCost:
    """The workload of a host. `launches_expected` assumes one clear change in each row that is searched, and clear
    results in all others. `worst_s` assumes that each of these launches uses its whole timeout; it excludes pulls
    and builds. `images` are prepared in any case, `images_if_asked` only if a search chooses them. `commands` are those
    that run on the host as it is, as a shell takes them. `fills`: the further launches that fill warm
    caches, under the same assumption."""

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
    commands: tuple[str, ...] = ()
    fills: int = 0


@dataclass(frozen=True, kw_only=True)
class PredictedEffect:
    """The minimum detectable effects of the step time, as shares, by the number of rounds that a sweep on a host will
    have: in slices, and if every launch ran alone; {} if unknown. They follow from `pairs` A/A pairs of `what`: a
    scenario in earlier runs, or the control."""

    what: str
    pairs: int
    in_slices: Mapping[int, float]
    alone: Mapping[int, float]


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """The probable cost of a sweep, estimated from earlier runs of its matrix: `launches` by lane (`str(lane)`), of
    which `reused` are not made again if nothing has changed, and the time of the slowest host in `seconds`, without
    pulls and builds. `beside` names, for each row with new versions, these and what is launched again beside them.
    `predicted` is by host."""

    launches: Mapping[str, int]
    seconds: float
    reused: int = 0
    beside: tuple[str, ...] = ()
    predicted: Mapping[str, tuple[PredictedEffect, ...]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """The summary of a plan. `worst_s` is for the slowest host, since hosts run in parallel."""

    matrix: str
    seed: int
    cells: int
    searched: int
    """Number of cells in rows where a search chooses the launches."""
    excluded: int
    search: str
    launches_least: int
    launches_expected: int
    launches_most: int
    worst_s: float
    hosts: tuple[HostCost, ...]
    left_out: tuple[str, ...] = ()
    data: tuple[str, ...] = ()
    """The answers of hosts about the data that scenarios mount: a line for each host, or for each missing path."""
    estimate: Estimate | None = None
