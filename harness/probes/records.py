"""Defines records of the results of probes. No verdict uses the trials of probes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from harness.model import Cell, Probe


@dataclass(frozen=True, kw_only=True)
class OpDrift:
    """One operation at the traced steps: its median milliseconds at each of them (None if it did not run there).

    `ratio` is the last over the first. `bytes` is the largest output seen, `expected_bytes` the size that the scenario
    computes for it.
    """

    op: str
    kind: str
    ms: tuple[float | None, ...]
    ratio: float | None
    bytes: int
    expected_bytes: int | None


@dataclass(frozen=True, kw_only=True)
class LineRow:
    """A line of a function, with the figures of memory_profiler and line_profiler. Memory in KiB."""

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
    """Blocks that valgrind reports as lost, by kind and by the native part of the stack.

    `bytes` and `blocks` are valgrind's own sums; `*_a_step` is the growth with each further step.
    """

    kind: str
    stack: tuple[str, ...]
    bytes: int
    blocks: int
    bytes_a_step: float
    blocks_a_step: float


@dataclass(frozen=True, kw_only=True)
class MemoryHolder:
    """An operation and the memory that it held when memory ran out."""

    op: str
    bytes: int


@dataclass(frozen=True, kw_only=True)
class OomReport:
    """The report of a framework or the kernel when memory ran out; None and () for anything not reported.

    `holders` are in descending order of size; further `remaining_nodes` held `remaining_bytes` together.
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
class SizeTry:
    """One launch of the search for the largest size; `end` as in Trial, `message` the last line of the trial's."""

    size: int
    fits: bool
    end: str
    peak_rss_kib: float | None = None
    message: str = ""
    oom: OomReport | None = None


@dataclass(frozen=True, kw_only=True)
class Probed:
    """The results of one probe in one cell; which fields are filled depends on the probe.

    `problem`: why a result is missing, "" if it is complete. `files` are the files that the probe wrote, by name.
    """

    probe: Probe
    cell: Cell
    problem: str = ""
    ops: tuple[OpDrift, ...] = ()
    functions: tuple[LineTable, ...] = ()
    leaks: tuple[Leak, ...] = ()
    errors: Mapping[str, int] = field(default_factory=dict)
    tries: tuple[SizeTry, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)

    @property
    def largest(self) -> int | None:
        """Return the largest size that fitted."""
        return max((tried.size for tried in self.tries if tried.fits), default=None)

    def lost(self, kind: str) -> tuple[int, int, float]:
        """Return (bytes, blocks, blocks per step) over all records of a kind, the first two as valgrind sums them."""
        leaks = [leak for leak in self.leaks if leak.kind == kind]
        steps = sum(leak.blocks_a_step for leak in leaks)
        return sum(leak.bytes for leak in leaks), sum(leak.blocks for leak in leaks), steps
