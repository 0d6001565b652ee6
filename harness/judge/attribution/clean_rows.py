"""Tells which rows are clean of a fault that other rows have: those whose launches rule it out. Pure.

A row in which nothing was found may have the same fault, just below its limit or by luck. It therefore contradicts the
accused rows only if it would have shown an effect of their size: its upper bound lies below the lower bound of the
smallest one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from harness.judge.history.flaky import Evidence, chance_of_luck
from harness.model import (
    GOOD,
    SIGNALS,
    CellResult,
    CellVerdict,
    Effect,
    Finding,
    Lane,
    Metric,
    Variant,
    VersionRow,
    signal_of,
)
from harness.model.attributed import Sign, sign_of
from harness.model.judged import State

LUCK = 0.01
"""Highest probability that a clean row has the failure of an accused one, and its launches missed it."""

LaneOfVariant = tuple[Variant, Lane]
RowStates = Sequence[State]


def with_clean_rows(
    rows: Sequence[VersionRow],
    states: Mapping[LaneOfVariant, RowStates],
    known: Mapping[str, CellResult],
    findings: Iterable[Finding],
    *,
    sign: Sign,
) -> dict[LaneOfVariant, RowStates]:
    """Return the states of the rows of a scenario, with None for each good version that does not rule out the effect
    that another row has in the same version. `findings` are those of these rows.
    """
    of = {(row.variant, row.lane): _Row(row, states[row.variant, row.lane], known) for row in rows}
    accused = [
        (of[one.variant, one.lane], one) for one in findings if sign_of(one) == sign and one.kind != "first_fixed"
    ]
    told: dict[LaneOfVariant, RowStates] = {}
    for place, row in of.items():
        unclear = {at for other, finding in accused if other is not row for at in _unclear(row, other, finding)}
        told[place] = tuple(None if at in unclear else state for at, state in enumerate(row.states))
    return told


class _Row:
    """A row with the states of its versions and the verdicts on them."""

    def __init__(self, row: VersionRow, states: RowStates, known: Mapping[str, CellResult]) -> None:
        self.states = states
        self.verdicts = [known[cell.id].verdict if cell.id in known else None for cell in row.cells]
        self.order = {cell.image.version: at for at, cell in enumerate(row.cells)}

    def at(self, places: Iterable[int]) -> list[CellVerdict]:
        return [verdict for place in places if (verdict := self.verdicts[place]) is not None]


def _unclear(row: _Row, accused: _Row, finding: Finding) -> list[int]:
    """Return the good versions of a row that are bad in the accused row, unless the row rules out its effect."""
    since = accused.order[finding.after]
    bad = [at for at, state in enumerate(accused.states) if state and at >= since]
    both = [at for at in bad if row.states[at] is False]
    if not both:
        return []
    kind = signal_of(finding.metric).kind
    if kind == "outcome" or finding.verdict == "two modes":
        clean = _luck(row.at(both), accused.at(bad), outcome=kind == "outcome") <= LUCK
    elif kind == "growth" and finding.effect is not None:
        clean = all(_grows_less(each, finding.metric, finding.effect) for each in row.at(both))
    elif kind == "level" and finding.verdict != "slowdown" and finding.effect and finding.before is not None:
        old = row.at([accused.order[finding.before]])
        clean = not old or all(_changes_less(old[0], each, finding) for each in row.at(both))
    else:
        clean = True
    return [] if clean else both


def _luck(good: Sequence[CellVerdict], bad: Sequence[CellVerdict], *, outcome: bool) -> float:
    """Return the probability that the launches of good cells are merely lucky, given those of the bad ones. `outcome`:
    they fail; otherwise they are slow. Good cells of which a launch failed have the failure.
    """
    counts = [[_failures(each) if outcome else _slow(each) for each in cells] for cells in (good, bad)]
    seen = [Evidence(bad=sum(failed for failed, _ in own), good=sum(fine for _, fine in own)) for own in counts]
    return 1.0 if seen[0].bad else chance_of_luck([seen[1]], [seen[0]])


def _failures(cell: CellVerdict) -> tuple[int, int]:
    """Return how many launches of a cell failed, and how many could have failed and did not."""
    return cell.failed, cell.at_risk - cell.failed


def _slow(cell: CellVerdict) -> tuple[int, int]:
    """Return how many launches of a cell were slow, and how many were not."""
    slow, launches = cell.of("step_time").slow or (0, cell.trials)
    return slow, launches - slow


def _grows_less(cell: CellVerdict, metric: Metric, effect: Effect) -> bool:
    """Return whether a growth is certainly smaller than this effect. A count is exact, and has no interval. A cell
    whose own memory is flat has no leak, even if the GPU's memory could not be judged.
    """
    signal = cell.of(metric)
    if signal.value is None:
        return signal.seen == "good" or (metric == "memory" and cell.verdict in GOOD)
    return (signal.ci or (0.0, signal.value))[1] < effect.bounds[0]


def _changes_less(old: CellVerdict, new: CellVerdict, finding: Finding) -> bool:
    """Return whether a level certainly changes by less between two versions than the finding says."""
    effect, before, after = finding.effect, old.of(finding.metric), new.of(finding.metric)
    if effect is None or before.value is None or after.value is None:
        return after.seen == "good"
    if before.apart or after.apart:
        return False
    bounds = effect.bounds
    sides = [(each.value or 0.0, each.ci or (each.value or 0.0, each.value or 0.0)) for each in (before, after)]
    if effect.unit == "ratio":
        if min(low for _, (low, _) in sides) <= 0 or min(bounds) <= 0:
            return after.seen == "good"
        bounds = math.log(bounds[0]), math.log(bounds[1])
        sides = [(math.log(value), (math.log(low), math.log(high))) for value, (low, high) in sides]
    least = min(map(abs, bounds)) if bounds[0] * bounds[1] > 0 else 0.0
    more = (sides[1][0] - sides[0][0]) * (-1 if SIGNALS[finding.metric].falls else 1)
    return more + math.hypot(*((high - low) / 2 for _, (low, high) in sides)) < least
