"""Records what the index knows of all runs together: runs, histories over days, findings with their life, drifts."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

from harness.model.image import Scalar
from harness.model.judged import CellState, Effect, FindingKind, Metric, SignalState

RunKind = Literal["sweep", "probe"]
Life = Literal["open", "fixed", "not seen again"]
"""`open`: the newest versions that were measured still have it. `not seen again`: a later run measured both sides of
it and did not find it."""


@dataclass(frozen=True, kw_only=True)
class IndexedRun:
    """A run. `path` is its folder below that of the runs, `MATRIX/TIME-ID`. `started` is UTC, ISO 8601.

    `verdict` is None for a probe. `bad` counts its cells that are bad, `findings` those that its report shows: merged
    over variants and lanes, without those that another one explains.
    `sentences` say whose fault its findings are. `problem`: why its directory cannot be read, else "". `stamp` changes
    when its files do.
    """

    id: int
    path: str
    matrix: str
    kind: RunKind
    started: str
    duration_s: float
    verdict: str | None
    cells: int
    bad: int
    findings: int
    sentences: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    problem: str = ""
    stamp: str = ""


@dataclass(frozen=True, kw_only=True)
class IndexedHistory:
    """A block over all runs of its matrix: one series, lane and variant. `params` are in the order of the matrix."""

    id: int
    matrix: str
    series: str
    host: str
    gpu: str | None
    scenario: str
    params: tuple[tuple[str, Scalar], ...]
    lane: str
    variant: str


@dataclass(frozen=True, kw_only=True, slots=True)
class IndexedFigure:
    """One signal of one cell of one run, as `SignalVerdict` has it, in the signal's unit."""

    seen: SignalState
    value: float | None = None
    low: float | None = None
    high: float | None = None
    limit: float | None = None
    visible: float | None = None


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """One cell of one run. `run` is the run's path. `first_launch` is when its oldest launch began, None if unknown.

    `taken_over`: the number of its launches that are those of an earlier run; None in runs of older harnesses.
    """

    history: int
    run_id: int
    run: str
    started: str
    first_launch: str | None
    version: str
    digest: str | None
    verdict: str
    state: CellState
    why: str
    trials: int
    failed: int
    taken_over: int | None
    provisional: bool
    figures: Mapping[str, IndexedFigure] = field(default_factory=dict)

    @property
    def is_known(self) -> bool:
        """Return whether it says anything about the image."""
        return self.state != "none"


@dataclass(frozen=True, kw_only=True)
class SeenFinding:
    """A finding of one run; `run` is the run's id, `number` the finding's number in its reports."""

    run: int
    number: int
    signal: Metric
    kind: FindingKind
    before: str | None
    after: str
    verdict: str = ""
    effect: Effect | None = None
    p: float | None = None
    confirmed: bool = False
    consequence_of: str = ""


@dataclass(frozen=True, kw_only=True)
class FindingLife:
    """A finding over all runs. `begins` is the narrowest that any run found; `ends` is the finding that ended it, if
    one did. `found` and `seen` are the ids of the first and the last run in which it was there. `closed` is that of the
    run that ended it, or that no longer found it.
    """

    history: int
    begins: SeenFinding
    status: Life
    found: int
    seen: int
    ends: SeenFinding | None = None
    closed: int | None = None


@dataclass(frozen=True, kw_only=True)
class Drift:
    """A signal that becomes worse from version to version, too little to show in any single one.

    `effect` is the ratio of the last version's level to the first one's. `versions` and `runs` count what it is seen
    in. `p` is corrected for all that was tried, also for every earlier look at this history.
    """

    history: int
    signal: Metric
    first: str
    last: str
    effect: Effect
    p: float
    versions: int
    runs: int


def merged(known: Sequence[str], more: Sequence[str]) -> list[str]:
    """Merge two histories, each oldest first. Where they leave the order open, the numbers in the versions decide."""
    order = list(known)
    index = {version: at for at, version in enumerate(order)}
    for place, version in enumerate(more):
        if version in index:
            continue
        low = max((index[older] + 1 for older in more[:place]), default=0)
        high = min((index[newer] for newer in more[place:] if newer in index), default=len(order))
        order.insert(low + sum(_numbers(between) <= _numbers(version) for between in order[low:high]), version)
        index = {name: at for at, name in enumerate(order)}
    return order


@lru_cache(maxsize=4096)
def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)))


@dataclass(frozen=True, kw_only=True)
class HistoryView:
    """A history to be shown. `versions` are those that are shown, oldest first, and `left_out` counts older ones.
    `measured` are their cells in all runs, from old to new. `runs` are by id.
    """

    history: IndexedHistory
    versions: tuple[str, ...]
    left_out: int
    measured: tuple[Measurement, ...]
    lives: tuple[FindingLife, ...]
    drifts: tuple[Drift, ...]
    runs: Mapping[int, IndexedRun]
