"""Changes that a bisection found, in the form of a history's changes: it knows more than its few launches show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from harness.judge import logs
from harness.model import BAD, CellResult, CellVerdict, Change, Effect, Metric
from harness.schedule.bisect import Boundary, Rules
from harness.schedule.oracle import describe

WORDS: dict[Metric, str] = {"step_time": "slower"}
"""Levels that are searched, with their verdicts."""


def with_boundaries(
    changes: Sequence[Change], boundaries: Sequence[Boundary], *, cells: Sequence[CellVerdict], rules: Rules
) -> tuple[Change, ...]:
    """Return the changes of a block that was bisected.

    Levels are those of the bisection: a history compares full rounds, and a bisection has none. Every other change is
    as wide as the bisection says: next to a flaky failure it counts what good launches may have missed.
    """
    kept = [
        found
        for change in changes
        if change.metric not in rules.limits and (found := _as_searched(change, boundaries)) is not None
    ]
    drifts = [change for change in changes if change.metric in rules.limits and change.p is None]
    levels = [
        change
        for metric in WORDS
        if metric in rules.limits
        for change in _levels(metric, boundaries, cells=cells, rules=rules)
    ]
    reported = {(change.metric, change.kind, change.after) for change in levels}
    return (*kept, *levels, *(each for each in drifts if (each.metric, each.kind, each.after) not in reported))


def _as_searched(change: Change, boundaries: Sequence[Boundary]) -> Change | None:
    """Return a change as wide as the bisection says. If no version before it is surely good, it is bad from the start,
    as far as is known; if no version after it is surely good, there is no fix.
    """
    found = next((each for each in boundaries if _meet(each, change)), None)
    if found is None or change.before is None or change.kind == "worse":
        return change
    if found.before is None:
        return replace(change, kind="bad_from_start", before=None, after=found.after, untestable=found.between, p=None)
    if not found.worse and not found.confirmed:
        return None
    return replace(change, before=min(change.before, found.before), after=max(change.after, found.after))


def _meet(found: Boundary, change: Change) -> bool:
    """Return whether a boundary and a change may be one: of the same metric and direction, at positions that
    overlap.
    """
    if found.metric != change.metric or found.worse != (change.kind in ("first_bad", "drift")):
        return False
    return (-1 if found.before is None else found.before) < change.after and (change.before or 0) < found.after


def _levels(
    metric: Metric, boundaries: Sequence[Boundary], *, cells: Sequence[CellVerdict], rules: Rules
) -> list[Change]:
    """Return the steps that are findings. More is worse; an improvement is a finding only if it ends something bad."""
    steps = sorted((each for each in boundaries if each.metric == metric), key=lambda each: each.after)
    heights = [0.0]
    for step in steps:
        heights.append(heights[-1] + (step.size or 0.0))
    measured = rules.baseline is not None and cells[rules.baseline].trials > 0
    usual = rules.baseline if measured else None
    good = heights[0] if usual is None else heights[sum(step.after <= usual for step in steps)]
    bad = heights[0] > good + rules.limits[metric]
    found = [_from_start(metric, steps, above=heights[0] - good, cells=cells)] if bad else []
    for step, height in zip(steps, heights[1:], strict=True):
        worse = height > good + rules.limits[metric]
        if step.worse if worse else bad:
            found.append(_change(metric, step, worse=worse))
        good = good if worse or usual is not None else height
        bad = worse
    return found


def _from_start(metric: Metric, steps: Sequence[Boundary], *, above: float, cells: Sequence[CellVerdict]) -> Change:
    """Return the change of an oldest launched version that is worse than the baseline, by the steps between them."""
    oldest = next(place for place, cell in enumerate(cells) if cell.trials)
    return Change(
        metric=metric,
        kind="bad_from_start",
        before=None,
        after=oldest,
        untestable=tuple(range(oldest)),
        effect=Effect(value=logs.ratio_of(above), unit="ratio"),
        p=max((step.p for step in steps if step.p is not None), default=None),
        verdict=WORDS[metric],
    )


def _change(metric: Metric, step: Boundary, *, worse: bool) -> Change:
    low, high = step.interval or (None, None)
    return Change(
        metric=metric,
        kind="first_bad" if worse else "first_fixed",
        before=step.before,
        after=step.after,
        effect=Effect(
            value=logs.ratio_of(step.size or 0.0),
            unit="ratio",
            ci=None if low is None or high is None else (logs.ratio_of(low), logs.ratio_of(high)),
        ),
        p=step.p,
        verdict=WORDS[metric],
    )


def with_confirmation(cells: Sequence[CellResult], changes: Sequence[Change]) -> tuple[CellResult, ...]:
    """Explain versions that were bad once, beyond one with launches that agree: why they had no second launch."""
    bad_at = {place: at for change in changes for place, at in _beyond(change, changes, len(cells))}
    return tuple(
        cell if place not in bad_at else _confirmed(cell, cells[bad_at[place]]) for place, cell in enumerate(cells)
    )


def _beyond(change: Change, changes: Sequence[Change], count: int) -> list[tuple[int, int]]:
    """Return the positions that this change makes bad, each with the version that it names."""
    if change.kind == "first_fixed":
        return []
    fixes = [each.after for each in changes if each.metric == change.metric and each.kind == "first_fixed"]
    end = min((place for place in fixes if place > change.after), default=count)
    return [(place, change.after) for place in range(change.after + 1, end)]


def _confirmed(cell: CellResult, named: CellResult) -> CellResult:
    measured = [trial for trial in cell.trials if trial.measured]
    if cell.verdict.verdict != "suspect" or len(measured) != 1 or not BAD & set(named.verdict.verdicts):
        return cell
    seen, is_bad = describe(cell.cell, measured[0])
    if not is_bad:
        return cell
    reason = (
        f"bad since {named.cell.image.version}, where launches agree: the search needed no more launches of this one"
    )
    return replace(cell, verdict=replace(cell.verdict, why=f"{seen}; {reason}"))
