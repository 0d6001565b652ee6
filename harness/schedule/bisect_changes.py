"""Merges the changes that a bisection found with those that the judge of histories finds in the same launches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate

import numpy as np

from harness.judge.comparison.round_tables import RoundTable
from harness.judge.history.changepoints import Changepoint, Levels
from harness.judge.history.changes import LevelRule, level_changes
from harness.model import CellVerdict, Change
from harness.schedule.bisect.bisect_records import LEVEL, Boundary, Rules


def with_boundaries(
    changes: Sequence[Change], boundaries: Sequence[Boundary], *, cells: Sequence[CellVerdict], rules: Rules
) -> tuple[Change, ...]:
    """Return the changes of a row that was bisected.

    Changes of levels come from the bisection, because a history compares full rounds and a bisection has none. Every
    other change spans the versions that the bisection left open, since good launches may have missed a flaky failure.
    """
    if rules.step_limit is None:
        return _as_searched(changes, boundaries)
    states = [change for change in changes if change.metric != LEVEL]
    levels = _levels(boundaries, cells=cells, baseline=rules.baseline, limit=rules.step_limit)
    reported = {(change.kind, change.after) for change in levels}
    drifts = [change for change in changes if change.metric == LEVEL and change.p is None]
    others = [change for change in drifts if (change.kind, change.after) not in reported]
    return (*_as_searched(states, boundaries), *levels, *others)


def _as_searched(changes: Sequence[Change], boundaries: Sequence[Boundary]) -> tuple[Change, ...]:
    searched = (_widened(change, boundaries) for change in changes)
    return tuple(change for change in searched if change is not None)


def _widened(change: Change, boundaries: Sequence[Boundary]) -> Change | None:
    """Return a change that spans the versions that the bisection left open. If no version before it is certainly good,
    the change becomes `bad_from_start`. Return None for a fix without a version that is certainly good after it.
    """
    boundary = next((boundary for boundary in boundaries if _meet(boundary, change)), None)
    if boundary is None or change.before is None or change.kind == "worse":
        return change
    if boundary.before is None:
        after, between = boundary.after, boundary.between
        return replace(change, kind="bad_from_start", before=None, after=after, untestable=between, p=None)
    if not boundary.worse and not boundary.confirmed:
        return None
    return replace(change, before=min(change.before, boundary.before), after=max(change.after, boundary.after))


def _meet(boundary: Boundary, change: Change) -> bool:
    """Return whether a boundary and a change may be the same: metric and direction are equal, and positions overlap."""
    if boundary.metric != change.metric or boundary.worse != (change.kind in ("first_bad", "drift")):
        return False
    return (-1 if boundary.before is None else boundary.before) < change.after and (change.before or 0) < boundary.after


def _levels(
    boundaries: Sequence[Boundary], *, cells: Sequence[CellVerdict], baseline: int | None, limit: float
) -> list[Change]:
    """Return the steps that are findings, by the rule of every history of levels."""
    steps = sorted((boundary for boundary in boundaries if boundary.metric == LEVEL), key=lambda step: step.after)
    ends = {place for step in steps for place in (step.before, step.after)}
    ran = tuple(place for place, cell in enumerate(cells) if cell.trials or place in ends)
    shifts = [
        Changepoint(
            first=ran.index(step.after), stretch=(0, len(ran)), before=ran.index(step.before or 0),
            after=ran.index(step.after), size=step.size or 0.0, interval=step.interval or (0.0, 0.0),
            p=1.0 if step.p is None else step.p,
        )
        for step in steps
    ]  # fmt: skip
    if not shifts:
        return []
    levels = Levels(
        bounds=(0, *(shift.first for shift in shifts), len(ran)),
        means=tuple(accumulate((shift.size for shift in shifts), initial=0.0)),
        shifts=tuple(shifts),
    )
    table = RoundTable(values=np.zeros((1, len(ran))), positions=ran)
    found = level_changes(LEVEL, table, levels, rule=LevelRule(least=limit, baseline=baseline))
    return [change if change.before is None else replace(change, untestable=()) for _, change in found]
