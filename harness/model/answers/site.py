"""Defines the data of `harness publish` and its pages. Nothing here is read before a page asks for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from harness.model.answers.indexed import (
    Drift,
    FindingLife,
    HistoryView,
    IndexedHistory,
    IndexedRun,
    Measurement,
    SeenFinding,
)


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
