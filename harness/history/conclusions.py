"""Computes the lives of findings and the drifts from all runs of a history together, and stores them in the index."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from harness.history.index import OpenIndex
from harness.history.records import FindingLife, IndexedHistory, Measurement, SeenFinding
from harness.judge.comparison.level_rules import RULES
from harness.judge.history.drift import DriftFound, LevelPoint, drift_of
from harness.model import BAD, LEVELS, SIGNALS, grouped, log_of
from harness.model.attributed import Order
from harness.model.judged import SignalState


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
    cells = grouped((measurement.run_id, measurement) for measurement in measured)
    told_by = grouped(((finding.run, finding.signal), finding) for finding in findings)
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
    newest = {measurement.version: measurement.digest for measurement in measured}
    # A version that was published more than once counts with its newest image, and a launch only in its own run.
    usable = [
        measurement
        for measurement in measured
        if not measurement.taken_over
        and measurement.digest == newest[measurement.version]
        and measurement.verdict not in BAD
        and measurement.is_known
    ]
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


# ---------------------------------------------------------------- lives


@dataclass(frozen=True, kw_only=True)
class RunOfHistory:
    """The findings of one run for one signal of a history. `states` holds the signal's state in each version that the
    run measured.
    """

    run: int
    findings: tuple[SeenFinding, ...]
    states: Mapping[str, SignalState]


def lives_of(runs: Iterable[RunOfHistory], *, history: int, order: Order) -> list[FindingLife]:
    """Return the lives of one signal's findings over `runs`, oldest run first. Findings of two runs belong to the same
    life if they may have begun at the same version.
    """
    lives: list[FindingLife] = []
    for run in runs:
        begun: set[int] = set()
        for finding in _by_version(run.findings, order):
            if finding.kind != "first_fixed":
                begun.add(_begin(lives, finding, history=history, order=order))
        for finding in _by_version(run.findings, order):
            if finding.kind == "first_fixed":
                begun |= _end(lives, finding, order=order)
        for place, life in enumerate(lives):
            sides = {life.begins.before or life.begins.after, life.begins.after}
            is_missed = all(run.states.get(side) == "good" for side in sides)  # it measured both, and called both good
            if place not in begun and life.status == "open" and is_missed:
                lives[place] = replace(life, status="not seen again", closed=run.run)
    return lives


def _by_version(findings: Sequence[SeenFinding], order: Order) -> list[SeenFinding]:
    return sorted(findings, key=lambda finding: order[finding.after])


def _begin(lives: list[FindingLife], finding: SeenFinding, *, history: int, order: Order) -> int:
    """Add a finding to the newest life that it matches, or to a new life. Return the position of that life."""
    for place in reversed(range(len(lives))):
        if _is_same(lives[place], finding, order):
            lives[place] = _seen(lives[place], finding, order)
            return place
    lives.append(FindingLife(history=history, begins=finding, status="open", found=finding.run, seen=finding.run))
    return len(lives) - 1


def _seen(life: FindingLife, finding: SeenFinding, order: Order) -> FindingLife:
    narrower = finding if _width(finding, order) < _width(life.begins, order) else life.begins
    if life.ends is not None:
        return replace(life, begins=narrower, seen=finding.run)
    return replace(life, begins=narrower, seen=finding.run, status="open", closed=None)


def _is_same(life: FindingLife, finding: SeenFinding, order: Order) -> bool:
    """Return whether a finding may continue a life. A finding of kind `bad_from_start` began before the oldest version
    of its run.
    """
    if (life.begins.kind == "worse") != (finding.kind == "worse"):
        return False
    (low, high), (other_low, other_high) = _bounds(life.begins, order), _bounds(finding, order)
    end = len(order) if life.ends is None else order[life.ends.after]
    if finding.kind == "bad_from_start":
        return low < other_high < end
    return low < other_high and other_low < high


def _bounds(finding: SeenFinding, order: Order) -> tuple[int, int]:
    """Return the positions of two versions: the change came after the first, and no later than the second."""
    return -1 if finding.before is None else order[finding.before], order[finding.after]


def _width(finding: SeenFinding, order: Order) -> int:
    low, high = _bounds(finding, order)
    return high - low if finding.before is not None else len(order) + high


def _end(lives: list[FindingLife], finding: SeenFinding, *, order: Order) -> set[int]:
    """End every life that lasts until the version that is good again. Return the positions of these lives."""
    last, good = _bounds(finding, order)
    ended = set()
    for place, life in enumerate(lives):
        lasts = life.ends is None or (order[life.ends.after] > last and _bounds(life.ends, order)[0] < good)
        if order[life.begins.after] < good and lasts:
            ends = life.ends if life.ends and _width(life.ends, order) <= _width(finding, order) else finding
            closed = life.closed if life.status == "fixed" else finding.run
            lives[place] = replace(life, status="fixed", ends=ends, closed=closed, seen=finding.run)
            ended.add(place)
    return ended
