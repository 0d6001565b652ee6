"""Wrapping probes: what they found. Their trials reach no verdict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from harness.model.asked import Image, Lane, Probe, Variant


@dataclass(frozen=True, kw_only=True)
class OpDrift:
    """One operation at the traced steps: its median milliseconds from each on (None where it did not run at all).

    `ratio` is the last over the first. `bytes` is the largest output seen, `expected_bytes` what the scenario's
    arithmetic says of it.
    """

    op: str
    kind: str
    ms: tuple[float | None, ...]
    ratio: float | None
    bytes: int
    expected_bytes: int | None


@dataclass(frozen=True, kw_only=True)
class LineRow:
    """A line of a function: what memory_profiler and line_profiler print of it. Memory in KiB."""

    line: int
    text: str
    mem_kib: float | None
    increment_kib: float
    occurrences: int
    hits: int
    time_s: float


@dataclass(frozen=True, kw_only=True)
class LineTable:
    name: str
    file: str
    rows: tuple[LineRow, ...]


@dataclass(frozen=True, kw_only=True)
class Leak:
    """Blocks that valgrind found no way to free, by kind and by the native part of the stack.

    `bytes` and `blocks` are valgrind's own sums; `*_a_step` what each further step added.
    """

    kind: str
    stack: tuple[str, ...]
    bytes: int
    blocks: int
    bytes_a_step: float
    blocks_a_step: float


@dataclass(frozen=True, kw_only=True)
class MemoryHolder:
    """An operation and what it held when memory ran out."""

    op: str
    bytes: int


@dataclass(frozen=True, kw_only=True)
class OomReport:
    """What a framework or the kernel said when memory ran out; None and () is what it did not say.

    `holders` are the largest first; further `remaining_nodes` held `remaining_bytes` together.
    """

    source: Literal["tensorflow", "cuda", "kernel"]
    wanted_bytes: int | None = None
    shape: tuple[int, ...] = ()
    device: str = ""
    holders: tuple[MemoryHolder, ...] = ()
    remaining_nodes: int | None = None
    remaining_bytes: int | None = None
    total_bytes: int | None = None
    free_bytes: int | None = None
    process: str = ""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A variant of a scenario by what it costs and what it gives; on the frontier if no other is better in both."""

    name: str
    peak_mib: float
    items_a_s: float
    on_frontier: bool


@dataclass(frozen=True, kw_only=True)
class SizeTry:
    """One launch of the search for the largest size; `end` as a Trial's, `message` its last line."""

    size: int
    fits: bool
    end: str
    peak_rss_kib: float | None = None
    message: str = ""
    oom: OomReport | None = None


@dataclass(frozen=True, kw_only=True)
class Probed:
    """What one probe found in one cell; which of the fields are filled depends on the probe.

    `problem` says why there is less than was asked for, "" if there is all. `files` are by name what it left.
    """

    probe: Probe
    image: Image
    lane: Lane
    variant: Variant
    problem: str = ""
    ops: tuple[OpDrift, ...] = ()
    functions: tuple[LineTable, ...] = ()
    leaks: tuple[Leak, ...] = ()
    errors: Mapping[str, int] = field(default_factory=dict)
    tries: tuple[SizeTry, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)

    @property
    def place(self) -> str:
        return f"{self.image.series} {self.image.version} on {self.lane}: {self.variant}"

    @property
    def largest(self) -> int | None:
        """The largest size that was seen to fit."""
        return max((each.size for each in self.tries if each.fits), default=None)

    def lost(self, kind: str) -> tuple[int, int, float]:
        """(bytes, blocks, blocks a step) over all records of a kind; the first two are valgrind's own summary."""
        those = [leak for leak in self.leaks if leak.kind == kind]
        return sum(x.bytes for x in those), sum(x.blocks for x in those), sum(x.blocks_a_step for x in those)
