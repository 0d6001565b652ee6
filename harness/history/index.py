"""Queries the index for commands and pages."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from harness.history.records import (
    Drift,
    FindingLife,
    HistoryView,
    IndexedHistory,
    IndexedRun,
    Measurement,
    SeenFinding,
    merged,
)
from harness.model import Effect, SignalVerdict, grouped

_MOST_AT_ONCE = 500
"""Most ids in one query; SQLite's own limit is higher."""


class OpenIndex:
    """The open index. Methods return runs in the order in which they started."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def _rows(self, query: str, values: Sequence[Any] = ()) -> Iterator[sqlite3.Row]:
        cursor = self._connection.cursor()
        cursor.row_factory = sqlite3.Row
        return iter(cursor.execute(query, values))

    def _rows_of(self, query: str, ids: Iterable[int]) -> Iterator[sqlite3.Row]:
        """Yield the rows of `query`, in which `(?)` stands for the ids. It runs for _MOST_AT_ONCE ids at a time."""
        every = list(ids)
        for start in range(0, len(every), _MOST_AT_ONCE):
            some = every[start : start + _MOST_AT_ONCE]
            yield from self._rows(query.replace("(?)", f"({','.join('?' * len(some))})"), some)

    # ------------------------------------------------------------ runs

    def runs(self, *, matrix: str | None = None) -> list[IndexedRun]:
        """Return all runs, or those of one matrix, including directories that cannot be read."""
        sentences = grouped(
            (run, sentence) for run, sentence in self._rows("SELECT run, sentence FROM causes ORDER BY run, number")
        )
        rows = self._rows(
            "SELECT id, path, matrix, kind, started, coalesce(duration_s, 0.0) AS duration_s, verdict, cells, bad,"
            " findings, warnings, problem, stamp FROM runs WHERE ? IS NULL OR matrix = ? ORDER BY started, path",
            (matrix, matrix),
        )
        return [
            IndexedRun(
                **{**dict(row), "warnings": tuple(json.loads(row["warnings"]))},
                sentences=tuple(sentences.get(row["id"], ())),
            )
            for row in rows
        ]

    def run_ids(self) -> list[int]:
        return [row["id"] for row in self._rows("SELECT id FROM runs ORDER BY started, path")]

    def series_of(self) -> dict[int, frozenset[str]]:
        """Return the names of each run's series, by run id."""
        found: dict[int, set[str]] = {}
        for run, series in self._rows("SELECT DISTINCT run, series FROM images"):
            found.setdefault(run, set()).add(series)
        return {run: frozenset(series) for run, series in found.items()}

    # ------------------------------------------------------------ histories

    def histories(self, *, matrix: str | None = None, series: str | None = None) -> list[IndexedHistory]:
        """Return the histories with at least one cell in any run."""
        rows = self._rows(
            f"SELECT {_HISTORY} FROM histories WHERE (? IS NULL OR matrix = ?) AND (? IS NULL OR series = ?)"
            " AND id IN (SELECT history FROM cells) ORDER BY matrix, series, id",
            (matrix, matrix, series, series),
        )
        return [_history(row) for row in rows]

    def stale_histories(self) -> list[IndexedHistory]:
        """Return the histories that new or removed runs may have changed."""
        return [_history(row) for row in self._rows(f"SELECT {_HISTORY} FROM histories WHERE stale")]

    def versions(self, matrix: str, series: str) -> list[str]:
        """Return the versions of a series over all runs, oldest first. Start from the run that has most of them (the
        newest, if several do), and merge in the order of every other run.
        """
        orders = grouped(
            (run, version)
            for run, version in self._rows(
                "SELECT run, version FROM images JOIN runs ON runs.id = run WHERE matrix = ? AND series = ?"
                " ORDER BY started DESC, path DESC, position",
                (matrix, series),
            )
        )
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
        """Return the cells of these histories, oldest run first, with their figures.

        `versions` and `signals` select versions and figures (None: all). `since` leaves out runs that started earlier;
        `run` selects one run by its id.
        """
        chosen = list(histories)
        condition = f"history IN (?) AND started >= {_quoted(since)}"
        if versions is not None:
            condition += f" AND version IN ({_listed(versions)})"
        if run is not None:
            condition += f" AND cells.run = {run:d}"
        only = "" if signals is None else f" AND signal IN ({_listed(signals)})"
        figures: dict[int, dict[str, SignalVerdict]] = {}
        for cell, signal, seen, value, low, high, limit, visible in self._rows_of(
            'SELECT cell, signal, seen, value, low, high, "limit", visible FROM cells'
            " JOIN runs ON runs.id = cells.run JOIN figures ON cell = cells.id"
            f" WHERE {condition}{only}",
            chosen,
        ):
            ci = None if low is None else (low, high)
            figure = SignalVerdict(seen=seen, value=value, ci=ci, limit=limit, visible=visible)
            figures.setdefault(cell, {})[signal] = figure
        rows = self._rows_of(
            "SELECT history, runs.id AS run_id, path AS run, started, first_launch, version, digest, cells.verdict,"
            " state, why, trials, failed, taken_over, provisional, per, cells.id AS cell FROM cells"
            f" JOIN runs ON runs.id = cells.run WHERE {condition}",
            chosen,
        )
        measured = [_measurement(dict(row), figures) for row in rows]
        return sorted(measured, key=lambda measurement: (measurement.started, measurement.run))

    # ------------------------------------------------------------ findings

    def seen_findings(self, history: int) -> list[SeenFinding]:
        query = f"SELECT {_FINDING} FROM findings WHERE history = ? ORDER BY run, number"
        return [_finding(row) for row in self._rows(query, (history,))]

    def findings_of(self, run: int) -> list[tuple[int, SeenFinding]]:
        """Return the findings of a run, each with the id of its history."""
        query = f"SELECT history, {_FINDING} FROM findings WHERE run = ? ORDER BY number"
        return [(row["history"], _finding(row)) for row in self._rows(query, (run,))]

    def histories_of(self, run: int) -> list[int]:
        """Return the ids of the histories of a run's cells."""
        return [row["history"] for row in self._rows("SELECT DISTINCT history FROM cells WHERE run = ?", (run,))]

    def lives(self, histories: Iterable[int]) -> list[FindingLife]:
        """Return the lives of these histories' findings."""
        chosen = list(histories)
        findings = {
            (row["run"], row["number"]): _finding(row)
            for row in self._rows_of(f"SELECT {_FINDING} FROM findings WHERE history IN (?)", chosen)
        }
        return [
            FindingLife(
                history=row["history"], status=row["status"], begins=findings[row["begin_run"], row["begin_number"]],
                ends=findings.get((row["end_run"], row["end_number"])), found=row["found_run"], seen=row["seen_run"],
                closed=row["closed_run"],
            )
            for row in self._rows_of(
                "SELECT history, status, begin_run, begin_number, end_run, end_number, found_run, seen_run, closed_run"
                " FROM lives WHERE history IN (?) ORDER BY rowid",
                chosen,
            )
        ]  # fmt: skip

    def drifts(self, histories: Iterable[int]) -> list[Drift]:
        """Return the current drifts of these histories."""
        return [
            Drift(
                history=row["history"], signal=row["signal"], first=row["first"], last=row["last"], p=row["p"],
                versions=row["versions"], runs=row["runs"], effect=_effect(row["effect"], "ratio", row),
            )
            for row in self._rows_of(
                "SELECT history, signal, first, last, effect, low, high, p, versions, runs FROM drifts"
                " WHERE history IN (?) ORDER BY history, signal",
                histories,
            )
        ]  # fmt: skip


_HISTORY = "id, matrix, series, host, gpu, scenario, params, lane, variant"
_FINDING = "run, number, signal, kind, before, after, verdict, effect, unit, low, high, p, confirmed, consequence_of"


def _history(row: sqlite3.Row) -> IndexedHistory:
    return IndexedHistory(**{**dict(row), "params": tuple(json.loads(row["params"]).items())})


def _measurement(row: dict[str, Any], figures: Mapping[int, Mapping[str, SignalVerdict]]) -> Measurement:
    cell, provisional = row.pop("cell"), bool(row.pop("provisional"))
    return Measurement(**row, provisional=provisional, figures=figures.get(cell, {}))


def _finding(row: sqlite3.Row) -> SeenFinding:
    effect = None if row["effect"] is None else _effect(row["effect"], row["unit"], row)
    known = {name: row[name] for name in _FINDING.split(", ") if name not in ("unit", "low", "high")}
    return SeenFinding(**{**known, "effect": effect, "confirmed": bool(row["confirmed"])})


def _effect(value: float, unit: str, row: sqlite3.Row) -> Effect:
    return Effect(value=value, unit=unit, ci=None if row["low"] is None else (row["low"], row["high"]))


def _listed(names: Iterable[str]) -> str:
    return ",".join(map(_quoted, names))


def _quoted(name: str) -> str:
    """Return a name as an SQL text expression, in hexadecimal so that no character of it has a meaning in SQL."""
    return f"CAST(x'{name.encode().hex()}' AS TEXT)"


# ---------------------------------------------------------------- views


def views_of(
    index: OpenIndex,
    histories: Iterable[IndexedHistory],
    runs: Mapping[int, IndexedRun],
    *,
    last: int | None = None,
    signals: Sequence[str] = (),
    since: str = "",
) -> Iterator[HistoryView]:
    """Yield a view of each history, series by series, from runs that began at `since` or later.

    `last`: only that many of the newest versions. `signals`: only the figures of these; (): of all.
    """
    groups = grouped(((history.matrix, history.series), history) for history in histories)
    for (matrix, series), group in groups.items():
        versions = index.versions(matrix, series)
        shown = versions if last is None else versions[-last:]
        ids = [history.id for history in group]
        some = None if len(shown) == len(versions) else shown
        measured = index.measurements(ids, signals=signals or None, versions=some, since=since)
        lives, drifts = index.lives(ids), index.drifts(ids)
        for history in group:
            own = tuple(one for one in measured if one.history == history.id)
            there = {one.version for one in own}
            yield HistoryView(
                history=history,
                versions=tuple(version for version in shown if version in there),
                left_out=len(versions) - len(shown),
                measured=own,
                lives=tuple(one for one in lives if one.history == history.id),
                drifts=tuple(one for one in drifts if one.history == history.id),
                runs=runs,
            )
