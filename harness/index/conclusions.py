"""Computes the lives of findings and the drifts from all runs of a history together, and stores them in the index."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any

from harness.index.lives import RunOfHistory, lives_of
from harness.index.queries import OpenIndex
from harness.judge.comparison.level_rules import RULES
from harness.judge.history.drift import DriftFound, LevelPoint, drift_of
from harness.model import BAD, LEVELS, SIGNALS, log_of
from harness.model.answers.indexed import FindingLife, IndexedHistory, Measurement, SeenFinding


def conclude(connection: sqlite3.Connection) -> None:
    """Recompute the lives and drifts of the histories that new or removed runs may have changed."""
    index = OpenIndex(connection)
    orders: dict[tuple[str, str], dict[str, int]] = {}
    for history in index.stale_histories():
        place = history.matrix, history.series
        if place not in orders:
            orders[place] = {version: turn for turn, version in enumerate(index.versions(*place))}
        _conclude(connection, index, history, orders[place])


def _conclude(connection: sqlite3.Connection, index: OpenIndex, history: IndexedHistory, order: dict[str, int]) -> None:
    connection.execute("BEGIN IMMEDIATE")
    measured, findings = index.measurements([history.id]), index.seen_findings(history.id)
    connection.execute("DELETE FROM lives WHERE history = ?", (history.id,))
    connection.execute("DELETE FROM drifts WHERE history = ?", (history.id,))
    connection.executemany(
        "INSERT INTO lives VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (_life_row(life) for life in _lives(history.id, index.run_ids(), measured, findings, order)),
    )
    versions = list(order)
    for signal, found in _drifts(measured, order):
        connection.execute(
            "INSERT INTO drifts VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (history.id, signal, versions[found.first], versions[found.last], *_drift_row(signal, found)),
        )
    connection.execute("UPDATE histories SET stale = 0 WHERE id = ?", (history.id,))
    connection.execute("COMMIT")


# ---------------------------------------------------------------- lives


def _lives(
    history: int,
    runs: Sequence[int],
    measured: Sequence[Measurement],
    findings: Sequence[SeenFinding],
    order: dict[str, int],
) -> Iterable[FindingLife]:
    cells: dict[int, list[Measurement]] = {}
    for measurement in measured:
        cells.setdefault(measurement.run_id, []).append(measurement)
    told_by: dict[tuple[int, str], list[SeenFinding]] = {}
    for finding in findings:
        told_by.setdefault((finding.run, finding.signal), []).append(finding)
    for signal in dict.fromkeys(finding.signal for finding in findings):
        told = [
            RunOfHistory(
                run=run,
                findings=tuple(told_by.get((run, signal), ())),
                states={
                    measurement.version: measurement.figures[signal].seen
                    for measurement in cells[run]
                    if signal in measurement.figures
                },
            )
            for run in runs
            if run in cells
        ]
        yield from lives_of(told, history=history, order=order)


def _life_row(life: FindingLife) -> tuple[Any, ...]:
    ends = (None, None) if life.ends is None else (life.ends.run, life.ends.number)
    begins = life.begins
    return (
        life.history, begins.signal, life.status, begins.run, begins.number, *ends, life.found, life.seen, life.closed
    )  # fmt: skip


# ---------------------------------------------------------------- drifts


def _drifts(measured: Sequence[Measurement], order: dict[str, int]) -> Iterable[tuple[str, DriftFound]]:
    usable = _launched_once(measured)
    for signal in LEVELS:
        least = RULES[signal].least(())
        known = [
            (measurement, figure)
            for measurement in usable
            if (figure := measurement.figures.get(signal)) and figure.value is not None and (figure.value > 0 or least)
        ]
        limit = next((figure.limit for _, figure in reversed(known) if figure.limit is not None), None)
        if limit is None or limit <= 0:
            continue
        sign = -1 if SIGNALS[signal].falls else 1
        points = [
            LevelPoint(
                run=measurement.run_id,
                version=order[measurement.version],
                log=sign * math.log(max(figure.value or 0.0, least) or 1.0),
                launches=max(1, measurement.trials),
            )
            for measurement, figure in known
        ]
        found = drift_of(points, signal=signal, least=log_of(signal, limit))
        if (
            found is not None
            and _amount(signal, found, [figure.value or 0.0 for _, figure in known]) > SIGNALS[signal].least
        ):
            yield signal, found


def _launched_once(measured: Sequence[Measurement]) -> list[Measurement]:
    """Return the measurements that may show a drift.

    Leave out measurements that a run took over from an earlier run, bad cells, and all but the newest image of a
    version that was published more than once.
    """
    newest = {measurement.version: measurement.digest for measurement in measured}
    return [
        measurement
        for measurement in measured
        if not measurement.taken_over
        and measurement.digest == newest[measurement.version]
        and measurement.verdict not in BAD
        and measurement.is_known
    ]


def _amount(signal: str, found: DriftFound, values: Sequence[float]) -> float:
    """Return by how much the newest version differs from the oldest, in the signal's unit, as an absolute value."""
    last = values[-1]
    return abs(last - last * math.exp((1 if SIGNALS[signal].falls else -1) * found.size))


def _drift_row(signal: str, found: DriftFound) -> tuple[Any, ...]:
    """Return the columns of a drift. The effect is the ratio of the last version's level to the first version's, which
    is below one for a signal that falls.
    """
    sign = -1 if SIGNALS[signal].falls else 1
    low, high = sorted(math.exp(sign * bound) for bound in found.interval)
    return math.exp(sign * found.size), low, high, found.p, found.versions, found.runs
