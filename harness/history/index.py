"""Answers from the open index what was measured, as records."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any

from harness.history.records import FindingLife, HistoryView, IndexedHistory, IndexedRun, Measurement, SeenFinding
from harness.model import CellVerdict, Drift, Effect, SignalVerdict, grouped, merged_versions

Some = Sequence[object] | None
"""The values of a column that are asked for; None asks for all."""


class OpenIndex:
    """The open index. Runs, and what was measured in them, come in the order in which the runs started."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    @cached_property
    def runs(self) -> dict[str, IndexedRun]:
        """Return all runs by path, including directories that cannot be read, without what `try` launched first."""
        said = self._connection.execute("SELECT run, sentence FROM causes ORDER BY run, number")
        sentences: dict[int, list[str]] = grouped(said)
        found = {}
        for row in self._named(
            "SELECT id, path, matrix, kind, started, coalesce(duration_s, 0.0) AS duration_s, verdict, cells, bad,"
            " findings, warnings, problem, stamp FROM runs WHERE kind != 'rehearsal' ORDER BY started, path"
        ):
            own, warnings = sentences.get(row.pop("id"), ()), json.loads(row.pop("warnings"))
            found[row["path"]] = IndexedRun(**row, warnings=tuple(warnings), sentences=tuple(own))
        return found

    def _named(self, query: str, values: Sequence[object] = ()) -> Iterator[dict[str, Any]]:
        """Yield the rows that a query finds, each by the names of its columns."""
        cursor = self._connection.execute(query, values)
        names = [name for name, *_ in cursor.description]
        return (dict(zip(names, row, strict=True)) for row in cursor)

    def series_of(self) -> dict[str, set[str]]:
        """Return the names of each run's series, by the run's path."""
        rows = self._connection.execute("SELECT DISTINCT path, series FROM images JOIN runs ON runs.id = run")
        return {path: set(series) for path, series in grouped(rows).items()}

    def histories(self, *, matrix: Some = None) -> list[IndexedHistory]:
        """Return the histories with at least one cell in any run."""
        condition, values = _where(matrix=matrix)
        rows = self._named(
            "SELECT id, matrix, series, host, gpu, scenario, params, lane, variant, concluded,"
            " row_number() OVER (PARTITION BY matrix, series ORDER BY id) - 1 AS number,"
            " EXISTS (SELECT 1 FROM cells WHERE history = histories.id AND per = 'request') AS is_served FROM histories"
            f" WHERE {condition} AND id IN (SELECT history FROM cells) ORDER BY matrix, series, id",
            values,
        )
        return list(map(_history, rows))

    def versions(self, matrix: str, series: str) -> list[str]:
        """Return the versions of a series over all runs, oldest first. Start from the run that has most of them (the
        newest, if several do), and merge in the order of every other run.
        """
        rows = self._connection.execute(
            "SELECT run, version FROM images JOIN runs ON runs.id = run WHERE matrix = ? AND series = ?"
            " ORDER BY started DESC, path DESC, position",
            (matrix, series),
        )
        found: list[str] = []
        for order in sorted(grouped(rows).values(), key=len, reverse=True):
            if not set(order) <= set(found):
                found = merged_versions(found, list(dict.fromkeys(order)))
        return found

    def measurements(
        self, *, histories: Some = None, runs: Some = None, versions: Some = None, signals: Some = None, since: str = ""
    ) -> list[Measurement]:
        """Return the cells of these histories (by id) in these runs (by path), with the figures of these signals.
        `since` leaves out runs that started earlier.
        """
        condition, values = _where(history=histories, path=runs, version=versions)
        source = "FROM cells JOIN runs ON runs.id = cells.run"
        condition, values = f"WHERE {condition} AND started >= ?", [*values, since]
        chosen, names = _where(signal=signals)
        figures: dict[int, dict[str, SignalVerdict]] = {}
        for cell, signal, seen, value, low, high, limit, visible in self._connection.execute(
            f'SELECT cell, signal, seen, value, low, high, "limit", visible {source} JOIN figures ON cell = cells.id'
            f" {condition} AND {chosen}",
            [*values, *names],
        ):
            figures.setdefault(cell, {})[signal] = SignalVerdict(
                seen=seen, value=value, ci=None if low is None else (low, high), limit=limit, visible=visible
            )
        rows = self._connection.execute(
            "SELECT history, path, started, version, digest, first_launch, taken_over, state, cells.id, cells.verdict,"
            f" why, trials, failed, provisional, per {source} {condition} ORDER BY started, path",
            values,
        )
        return [
            Measurement(
                history=history, run=run, started=started, version=version, digest=digest, first_launch=first_launch,
                taken_over=taken_over, state=state,
                verdict=CellVerdict(
                    verdicts=(verdict,), why=why, trials=trials, failed=failed, provisional=bool(provisional), per=per,
                    signals=figures.get(cell, {}),
                ),
            )
            for history, run, started, version, digest, first_launch, taken_over, state, cell, verdict, why, trials,
            failed, provisional, per in rows
        ]  # fmt: skip

    def views(
        self, histories: Iterable[IndexedHistory], *, last: int | None = None, signals: Some = None, since: str = ""
    ) -> list[HistoryView]:
        """Return a view of each history, series by series: of its `last` newest versions, in runs that began at `since`
        or later, with the figures of these signals.
        """
        found = []
        for (matrix, series), group in grouped(((one.matrix, one.series), one) for one in histories).items():
            order = self.versions(matrix, series)
            shown = order if last is None else order[-last:]
            cells = self.measurements(
                histories=[one.id for one in group], versions=None if len(shown) == len(order) else shown,
                signals=signals, since=since,
            )  # fmt: skip
            by_history = grouped((cell.history, cell) for cell in cells)
            for history in group:
                measured = tuple(by_history.get(history.id, ()))
                there = {cell.version for cell in measured}
                versions = tuple(version for version in shown if version in there)
                left_out = len(order) - len(shown)
                found.append(HistoryView(history=history, versions=versions, left_out=left_out, measured=measured))
        return found

    def findings(self, *, histories: Some = None, runs: Some = None) -> list[tuple[int, SeenFinding]]:
        """Return the findings of these histories (by id) in these runs (by path), each with the id of its history."""
        condition, values = _where(history=histories, path=runs)
        rows = self._named(
            "SELECT history, path AS run, number, signal AS metric, findings.kind AS kind, before, after,"
            " findings.verdict AS verdict, effect, unit, low, high, p, confirmed, consequence_of"
            f" FROM findings JOIN runs ON runs.id = run WHERE {condition} ORDER BY started, path, number",
            values,
        )
        found = []
        for row in rows:
            history, value, unit, low, high = (row.pop(name) for name in ("history", "effect", "unit", "low", "high"))
            ci = None if low is None else (low, high)
            effect = None if value is None else Effect(value=value, unit=unit, ci=ci)
            found.append((history, SeenFinding(**{**row, "effect": effect, "confirmed": bool(row["confirmed"])})))
        return found


def _where(**asked: Some) -> tuple[str, list[object]]:
    """Return an SQL condition under which each column has one of the values asked for, and these values in order."""
    some = {column: values for column, values in asked.items() if values is not None}
    conditions = [f"{column} IN ({','.join('?' * len(values))})" for column, values in some.items()]
    return " AND ".join(["TRUE", *conditions]), [value for values in some.values() for value in values]


# ---------------------------------------------------------------- what is concluded from all runs


def _history(row: dict[str, Any]) -> IndexedHistory:
    params, concluded, is_served = (row.pop(name) for name in ("params", "concluded", "is_served"))
    # NULL: another process has just added a run, and will conclude.
    known = json.loads(concluded) if concluded else {"lives": (), "drifts": ()}
    return IndexedHistory(
        **row, params=tuple(json.loads(params).items()), per="request" if is_served else "step",
        lives=tuple(map(_life, known["lives"])),
        drifts=tuple(Drift(**{**drift, "effect": _effect(drift["effect"])}) for drift in known["drifts"]),
    )  # fmt: skip


def _life(told: dict[str, Any]) -> FindingLife:
    return FindingLife(**{**told, "begins": _finding(told["begins"]), "ends": told["ends"] and _finding(told["ends"])})


def _finding(told: dict[str, Any]) -> SeenFinding:
    return SeenFinding(**{**told, "effect": told["effect"] and _effect(told["effect"])})


def _effect(told: dict[str, Any]) -> Effect:
    return Effect(value=told["value"], unit=told["unit"], ci=told["ci"] and tuple(told["ci"]))
