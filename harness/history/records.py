"""Defines records of what the index holds: runs, histories over days, findings with their lives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from harness.model.from_file import Scalar
from harness.model.judged import CellState, CellVerdict, Change, Drift
from harness.model.signals import Per

RunKind = Literal["sweep", "rehearsal", "probe", "killed"]
Life = Literal["open", "fixed", "not seen again"]
"""`open`: the newest measured versions still have it. `not seen again`: a later run measured both sides of the finding
and did not find it."""


@dataclass(frozen=True, kw_only=True)
class IndexedRun:
    """A run. `path` is its directory below the folder of all runs, `MATRIX/TIME-ID`. `started` is UTC, ISO 8601.

    `verdict` is None for a probe. `bad` is the number of bad cells, `findings` the number of findings that the report
    shows: merged over variants and lanes, without consequences. `sentences` say whose fault its findings are.
    `problem`: why its directory cannot be read, else "". `stamp` changes when its files do.
    """

    path: str
    matrix: str
    kind: RunKind
    started: str
    duration_s: float
    verdict: str | None
    cells: int
    bad: int
    findings: int
    problem: str
    stamp: str
    sentences: tuple[str, ...]
    warnings: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class SeenFinding(Change[str]):
    """A finding of one run; `run` is the run's path, `number` the finding's number in its reports."""

    run: str
    number: int
    consequence_of: str = ""


@dataclass(frozen=True, kw_only=True)
class FindingLife:
    """A finding over all runs. `begins` is the finding with the narrowest boundary of all runs; `ends` is the finding
    that ended it, if any. `found` and `seen` are the paths of the first and the last run that had it; `closed` is that
    of the run that ended it or no longer found it.
    """

    begins: SeenFinding
    status: Life
    found: str
    seen: str
    ends: SeenFinding | None = None
    closed: str | None = None


@dataclass(frozen=True, kw_only=True)
class IndexedHistory:
    """A row over all runs of its matrix: one series, lane and variant, with the lives of its findings and its drifts.
    `number` is its position among the histories of its series, counted from 0; `params` are in the order of the
    matrix. `per`: `request` for a server.
    """

    id: int
    number: int
    matrix: str
    series: str
    host: str
    gpu: str | None
    scenario: str
    params: tuple[tuple[str, Scalar], ...]
    lane: str
    variant: str
    per: Per
    lives: tuple[FindingLife, ...]
    drifts: tuple[Drift, ...]


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """One cell of one run. `history` is the id of its history, `run` the path of its run, `started` when the run began.
    `first_launch` is when the cell's oldest launch began, None if it has none. `taken_over`: the number of its launches
    taken over from an earlier run. `state` is that over all signals; `verdict` has only the signals that were asked
    for, without their reasons.
    """

    history: int
    run: str
    started: str
    version: str
    digest: str | None
    first_launch: str | None
    taken_over: int
    state: CellState
    verdict: CellVerdict

    @property
    def is_known(self) -> bool:
        """Return whether the cell says anything about its image."""
        return self.state != "none"


@dataclass(frozen=True, kw_only=True)
class HistoryView:
    """A history to show. `versions` are the versions shown, oldest first; `left_out` is the number of older ones.
    `measured` are their cells in all runs, oldest first.
    """

    history: IndexedHistory
    versions: tuple[str, ...]
    left_out: int
    measured: tuple[Measurement, ...]
