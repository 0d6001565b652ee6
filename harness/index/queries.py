"""Answers the questions that commands and pages ask of the index."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from harness.model import Effect
from harness.model.history import (
    Drift,
    FindingLife,
    IndexedFigure,
    IndexedHistory,
    IndexedRun,
    Measurement,
    SeenFinding,
    merged,
)

_MOST_AT_ONCE = 500
"""Most ids in one query; SQLite allows more."""


class OpenIndex:
    """The open index. Runs are in the order in which they began."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def _rows(self, query: str, values: Sequence[Any] = ()) -> Iterator[tuple[Any, ...]]:
        return iter(self._connection.execute(query, values))

    def _rows_of(self, query: str, ids: Iterable[int]) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of `query`, in which `(?)` stands for the ids; it is asked for some of them at a time."""
        every = list(ids)
        for start in range(0, len(every), _MOST_AT_ONCE):
            some = every[start : start + _MOST_AT_ONCE]
            yield from self._rows(query.replace("(?)", f"({','.join('?' * len(some))})"), some)

    # ------------------------------------------------------------ runs

    def runs(self, *, matrix: str | None = None) -> list[IndexedRun]:
        """Return all runs, or those of one matrix, also directories that cannot be read."""
        sentences: dict[int, list[str]] = {}
        for run, sentence in self._rows("SELECT run, sentence FROM causes ORDER BY run, number"):
            sentences.setdefault(run, []).append(sentence)
        return [
            IndexedRun(
                id=row[0], path=row[1], matrix=row[2], kind=row[3], started=row[4], duration_s=row[5] or 0.0,
                verdict=row[6], cells=row[7], bad=row[8], findings=row[9], warnings=tuple(json.loads(row[10])),
                problem=row[11], stamp=row[12], sentences=tuple(sentences.get(row[0], ())),
            )
            for row in self._rows(
                "SELECT id, path, matrix, kind, started, duration_s, verdict, cells, bad, findings, warnings, problem,"
                " stamp FROM runs WHERE ? IS NULL OR matrix = ? ORDER BY started, path",
                (matrix, matrix),
            )
        ]  # fmt: skip

    def run_ids(self) -> list[int]:
        """Return the ids of all runs."""
        return [row[0] for row in self._rows("SELECT id FROM runs ORDER BY started, path")]

    def series_of(self) -> dict[int, frozenset[str]]:
        """Return the names of the series of each run, by its id."""
        found: dict[int, set[str]] = {}
        for run, series in self._rows("SELECT DISTINCT run, series FROM images"):
            found.setdefault(run, set()).add(series)
        return {run: frozenset(series) for run, series in found.items()}

    # ------------------------------------------------------------ histories

    def histories(self, *, matrix: str | None = None, series: str | None = None) -> list[IndexedHistory]:
        """Return the histories that some run has cells of."""
        rows = self._rows(
            f"SELECT {_HISTORY} FROM histories WHERE (? IS NULL OR matrix = ?) AND (? IS NULL OR series = ?)"
            " AND id IN (SELECT history FROM cells) ORDER BY matrix, series, id",
            (matrix, matrix, series, series),
        )
        return [_history(row) for row in rows]

    def histories_by_id(self, ids: Iterable[int]) -> list[IndexedHistory]:
        """Return these histories."""
        return [_history(row) for row in self._rows_of(f"SELECT {_HISTORY} FROM histories WHERE id IN (?)", ids)]

    def versions(self, matrix: str, series: str) -> list[str]:
        """Return the versions of a series over all runs, oldest first. The newest run's order counts most."""
        orders: dict[int, list[str]] = {}
        for run, version in self._rows(
            "SELECT run, version FROM images JOIN runs ON runs.id = run WHERE matrix = ? AND series = ?"
            " ORDER BY started DESC, path DESC, position",
            (matrix, series),
        ):
            orders.setdefault(run, []).append(version)
        found: list[str] = []
        for order in sorted(orders.values(), key=len, reverse=True):
            if not set(order) <= set(found):
                found = merged(found, list(dict.fromkeys(order)))
        return found

    # ------------------------------------------------------------ what was measured

    def measurements(
        self,
        histories: Iterable[int],
        *,
        signals: Sequence[str] | None = None,
        versions: Sequence[str] | None = None,
        since: str = "",
        run: int | None = None,
    ) -> list[Measurement]:
        """Return the cells of these histories in all runs, from old to new: those of `versions` (None: of all), in runs
        that began at `since` or later or in one run, with the figures of `signals` (None: of all).
        """
        chosen = _Chosen(histories=tuple(histories), signals=signals, versions=versions, since=since, run=run)
        figures = self._figures(chosen)
        rows = self._rows_of(
            "SELECT cells.id, history, runs.id, path, started, first_launch, version, digest, cells.verdict, state,"
            " why, trials, failed, taken_over, provisional FROM cells JOIN runs ON runs.id = cells.run"
            f" WHERE {chosen.condition}",
            chosen.histories,
        )
        found = [
            Measurement(
                history=row[1], run_id=row[2], run=row[3], started=row[4], first_launch=row[5], version=row[6],
                digest=row[7], verdict=row[8], state=row[9], why=row[10], trials=row[11], failed=row[12],
                taken_over=row[13], provisional=bool(row[14]), figures=figures.get(row[0], {}),
            )
            for row in rows
        ]  # fmt: skip
        return sorted(found, key=lambda one: (one.started, one.run))

    def _figures(self, chosen: _Chosen) -> dict[int, dict[str, IndexedFigure]]:
        only = "" if chosen.signals is None else f" AND signal IN ({_listed(chosen.signals)})"
        found: dict[int, dict[str, IndexedFigure]] = {}
        for cell, signal, seen, value, low, high, limit, visible in self._rows_of(
            'SELECT cell, signal, seen, value, low, high, "limit", visible FROM cells'
            " JOIN runs ON runs.id = cells.run JOIN figures ON cell = cells.id"
            f" WHERE {chosen.condition}{only}",
            chosen.histories,
        ):
            figure = IndexedFigure(seen=seen, value=value, low=low, high=high, limit=limit, visible=visible)
            found.setdefault(cell, {})[signal] = figure
        return found

    # ------------------------------------------------------------ findings

    def seen_findings(self, history: int) -> list[SeenFinding]:
        """Return the findings of a history in all runs."""
        query = f"SELECT {_FINDING} FROM findings WHERE history = ? ORDER BY run, number"
        return [_finding(row) for row in self._rows(query, (history,))]

    def findings_of(self, run: int) -> list[tuple[int, SeenFinding]]:
        """Return the findings of a run, each with the id of its history."""
        query = f"SELECT history, {_FINDING} FROM findings WHERE run = ? ORDER BY number"
        return [(row[0], _finding(row[1:])) for row in self._rows(query, (run,))]

    def histories_of(self, run: int) -> list[int]:
        """Return the ids of the histories that a run has cells of."""
        return [row[0] for row in self._rows("SELECT DISTINCT history FROM cells WHERE run = ?", (run,))]

    def lives(self, histories: Iterable[int]) -> list[FindingLife]:
        """Return the findings of these histories over all runs, with their life."""
        chosen = list(histories)
        findings = {
            (row[0], row[1]): _finding(row)
            for row in self._rows_of(f"SELECT {_FINDING} FROM findings WHERE history IN (?)", chosen)
        }
        return [
            FindingLife(
                history=row[0], begins=findings[row[2], row[3]], status=row[1], found=row[6], seen=row[7],
                ends=None if row[4] is None else findings[row[4], row[5]], closed=row[8],
            )
            for row in self._rows_of(
                "SELECT history, status, begin_run, begin_number, end_run, end_number, found_run, seen_run, closed_run"
                " FROM lives WHERE history IN (?) ORDER BY rowid",
                chosen,
            )
        ]  # fmt: skip

    def drifts(self, histories: Iterable[int]) -> list[Drift]:
        """Return the drifts that these histories have now."""
        return [
            Drift(
                history=row[0], signal=row[1], first=row[2], last=row[3], p=row[7], versions=row[8], runs=row[9],
                effect=Effect(value=row[4], unit="ratio", ci=None if row[5] is None else (row[5], row[6])),
            )
            for row in self._rows_of(
                "SELECT history, signal, first, last, effect, low, high, p, versions, runs FROM drifts"
                " WHERE history IN (?) ORDER BY history, signal",
                histories,
            )
        ]  # fmt: skip


_HISTORY = "id, matrix, series, host, gpu, scenario, params, lane, variant"
_FINDING = "run, number, signal, kind, before, after, verdict, effect, unit, low, high, p, confirmed, consequence_of"


def _history(row: tuple[Any, ...]) -> IndexedHistory:
    names = ("id", "matrix", "series", "host", "gpu", "scenario", "params", "lane", "variant")
    known = dict(zip(names, row, strict=True))
    return IndexedHistory(**{**known, "params": tuple(json.loads(known["params"]).items())})


def _finding(row: tuple[Any, ...]) -> SeenFinding:
    run, number, signal, kind, before, after, verdict, value, unit, low, high, p, confirmed, consequence = row
    effect = None if value is None else Effect(value=value, unit=unit, ci=None if low is None else (low, high))
    return SeenFinding(
        run=run, number=number, signal=signal, kind=kind, before=before, after=after, verdict=verdict, effect=effect,
        p=p, confirmed=bool(confirmed), consequence_of=consequence,
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class _Chosen:
    """The arguments of `OpenIndex.measurements`."""

    histories: tuple[int, ...]
    signals: Sequence[str] | None
    versions: Sequence[str] | None
    since: str
    run: int | None

    @property
    def condition(self) -> str:
        only = "" if self.versions is None else f" AND version IN ({_listed(self.versions)})"
        in_run = "" if self.run is None else f" AND cells.run = {self.run:d}"
        return f"history IN (?){only}{in_run} AND started >= {_quoted(self.since)}"


def _listed(names: Iterable[str]) -> str:
    return ",".join(map(_quoted, names))


def _quoted(name: str) -> str:
    """Return a name as a text of SQL. Its characters are in hexadecimal, so that none of them has a meaning there."""
    return f"CAST(x'{name.encode().hex()}' AS TEXT)"
