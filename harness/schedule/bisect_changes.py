"""Merges the changes that a bisection found with those that the judge of histories finds in the same launches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate

from harness.judge import intervals
from harness.judge.api import describe_trial
from harness.model import BAD, CellResult, CellVerdict, Change, Effect
from harness.reasons import SkipReason
from harness.schedule.bisect.bisect_records import LEVEL, Boundary, Rules

SLOWER = "slower"
"""Verdict of a change of level."""


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
    """Return the steps that are findings. Higher is worse; a step down is a finding only if it ends something bad."""
    steps = sorted((boundary for boundary in boundaries if boundary.metric == LEVEL), key=lambda step: step.after)
    heights = list(accumulate((step.size or 0.0 for step in steps), initial=0.0))
    usual = baseline if baseline is not None and cells[baseline].trials else None
    good = heights[0] if usual is None else heights[sum(step.after <= usual for step in steps)]
    bad = heights[0] > good + limit
    levels = [_from_start(steps, above=heights[0] - good, cells=cells)] if bad else []
    for step, height in zip(steps, heights[1:], strict=True):
        worse = height > good + limit
        if step.worse if worse else bad:
            levels.append(_change(step, worse=worse))
        good = good if worse or usual is not None else height
        bad = worse
    return levels


def _from_start(steps: Sequence[Boundary], *, above: float, cells: Sequence[CellVerdict]) -> Change:
    """Return the change for an oldest launched version that is worse than the baseline, by `above` (a log ratio)."""
    oldest = next(place for place, cell in enumerate(cells) if cell.trials)
    return Change(
        metric=LEVEL,
        kind="bad_from_start",
        before=None,
        after=oldest,
        untestable=tuple(range(oldest)),
        effect=Effect(value=intervals.ratio_of(above), unit="ratio"),
        p=max((step.p for step in steps if step.p is not None), default=None),
        verdict=SLOWER,
    )


def _change(step: Boundary, *, worse: bool) -> Change:
    ci = None if step.interval is None else (intervals.ratio_of(step.interval[0]), intervals.ratio_of(step.interval[1]))
    return Change(
        metric=LEVEL,
        kind="first_bad" if worse else "first_fixed",
        before=step.before,
        after=step.after,
        effect=Effect(value=intervals.ratio_of(step.size or 0.0), unit="ratio", ci=ci),
        p=step.p,
        verdict=SLOWER,
    )


def with_confirmation(cells: Sequence[CellResult], changes: Sequence[Change]) -> tuple[CellResult, ...]:
    """Return the cells, with an explanation for each that was bad once and needed no second launch."""
    bad_at = {
        place: change.after
        for change in changes
        if change.kind != "first_fixed"
        for place in range(change.after + 1, _end_of(change, changes, len(cells)))
    }
    return tuple(
        cell if place not in bad_at else _confirmed(cell, cells[bad_at[place]]) for place, cell in enumerate(cells)
    )


def _end_of(change: Change, changes: Sequence[Change], count: int) -> int:
    """Return the position of the version that fixes what a change made bad; `count` if none does."""
    fixes = [each.after for each in changes if each.metric == change.metric and each.kind == "first_fixed"]
    return min((place for place in fixes if place > change.after), default=count)


def _confirmed(cell: CellResult, named: CellResult) -> CellResult:
    measured = [trial for trial in cell.trials if trial.measured]
    if cell.verdict.verdict != "suspect" or len(measured) != 1 or not BAD & set(named.verdict.verdicts):
        return cell
    seen, is_bad = describe_trial(cell.cell, measured[0])
    if not is_bad:
        return cell
    why = SkipReason.BAD_SINCE(seen=seen, version=named.cell.image.version)
    return replace(cell, verdict=replace(cell.verdict, why=why))
