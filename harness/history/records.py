"""Defines records of what the index holds (runs, histories over days, findings with their lives, drifts), and the pages
of the site.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

from harness.model.judged import CellState, Effect, FindingKind, Metric, SignalVerdict
from harness.model.scenario import Scalar
from harness.model.signals import Per

RunKind = Literal["sweep", "probe", "killed"]
Life = Literal["open", "fixed", "not seen again"]
"""`open`: the newest measured versions still have it. `not seen again`: a later run measured both sides of the finding
and did not find it."""


@dataclass(frozen=True, kw_only=True)
class IndexedRun:
    """A run. `path` is its directory below the folder of all runs, `MATRIX/TIME-ID`. `started` is UTC, ISO 8601.

    `verdict` is None for a probe. `bad` is the number of bad cells, `findings` the number of findings that the report
    shows: merged over variants and lanes, without consequences.
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
    """A row over all runs of its matrix: one series, lane and variant. `params` are in the order of the matrix."""

    id: int
    matrix: str
    series: str
    host: str
    gpu: str | None
    scenario: str
    params: tuple[tuple[str, Scalar], ...]
    lane: str
    variant: str


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """One cell of one run. `run` is the run's path. `first_launch` is when its oldest launch began, None if it
    has none. `taken_over`: the number of its launches taken over from an earlier run. `per`: what
    rates are counted by. `figures`: the verdict on each signal, without its reason.
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
    taken_over: int
    provisional: bool
    per: Per = "step"
    figures: Mapping[str, SignalVerdict] = field(default_factory=dict)

    @property
    def is_known(self) -> bool:
        """Return whether the cell says anything about its image."""
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
    """A finding over all runs. `begins` is the finding with the narrowest boundary of all runs; `ends` is the finding
    that ended it, if any. `found` and `seen` are the ids of the first and the last run that had it; `closed` is the id
    of the run that ended it or no longer found it.
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

    `effect` is the ratio of the last version's level to the first one's. `versions` and `runs` are the numbers of
    versions and runs that show it. `p` is the p-value, corrected for all tests, also those at earlier looks at this
    history.
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
    """Merge two lists of versions, each oldest first. Where they leave the order open, the numbers in the versions
    decide.
    """
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
    """A history to show. `versions` are the versions shown, oldest first; `left_out` is the number of older ones.
    `measured` are their cells in all runs, oldest first. `runs` are by id.
    """

    history: IndexedHistory
    versions: tuple[str, ...]
    left_out: int
    measured: tuple[Measurement, ...]
    lives: tuple[FindingLife, ...]
    drifts: tuple[Drift, ...]
    runs: Mapping[int, IndexedRun]


# ---------------------------------------------------------------- site


@dataclass(frozen=True, kw_only=True)
class SeriesNow:
    """The current state of one history: the newest measurement of its newest known version, and how many versions it
    has.
    """

    history: IndexedHistory
    newest: Measurement | None
    versions: int


@dataclass(frozen=True, kw_only=True)
class SiteSource:
    """The index as pages need it. `runs` are by id, oldest first; `histories` by id. `series_of` names the series of
    each run, by the run's id. `views` returns the whole histories of a series (matrix, series), `now` the state of a
    matrix's histories, `cells` and `findings` those of a run (each finding with the id of its history).
    """

    runs: Mapping[int, IndexedRun]
    series_of: Mapping[int, frozenset[str]]
    histories: Mapping[int, IndexedHistory]
    lives: tuple[FindingLife, ...]
    drifts: tuple[Drift, ...]
    views: Callable[[str, str], list[HistoryView]]
    now: Callable[[str], list[SeriesNow]]
    cells: Callable[[int], list[Measurement]]
    findings: Callable[[int], list[tuple[int, SeenFinding]]]


@dataclass(frozen=True, kw_only=True)
class SitePage:
    """A file of the site: `name` is its path, and `key` is a hash of everything that it is made from."""

    name: str
    key: str
    render: Callable[[], str]


@dataclass(frozen=True, kw_only=True)
class Published:
    """The numbers of files written, files removed, and all files of the site."""

    written: int
    removed: int
    files: int
