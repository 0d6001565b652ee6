"""A series: at which version it became bad, or good again, for each metric. Positions are places in the series."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from harness.judge.shift import Levels, Shift, find_levels
from harness.judge.tables import Table, best_step_s, median_step_s, never_side_by_side, peak_table, step_time_table
from harness.judge.transitions import memory_changes, outcome_changes, slowdown_changes
from harness.model import CellVerdict, Change, Effect, Kind, Limits, Metric, Steps, Trial

ALPHA = 0.01
PEAK_LEAST_KIB = 1024.0
"""Less than this is no finding, however small the process."""


def find_changes(
    cells: Sequence[CellVerdict],
    trials: Sequence[Sequence[Trial]],
    *,
    limits: Limits,
    steps: Steps,
    seed: int,
    baseline: int | None = None,
) -> tuple[Change, ...]:
    """All changes of one block: cells and trials of one series on one lane, oldest version first.

    Versions between two that differ and that cannot be said to be good or bad are `untestable`: none of them is named.
    `baseline` is the position of the image that bad is measured against. The same seed gives the same answer.
    """
    block = _Block(cells=cells, trials=trials, limits=limits, steps=steps, seed=seed, baseline=baseline)
    memory = memory_changes(cells, baseline=baseline)
    slowdown = slowdown_changes(cells, baseline=baseline)
    step_time = [change for change in _merged(_step_times(block), slowdown) if not _is_symptom(change, memory, cells)]
    return (*outcome_changes(cells, baseline=baseline), *memory, *step_time, *_peaks(block))


def not_comparable(trials: Sequence[Sequence[Trial]], *, steps: Steps) -> tuple[int, ...]:
    """The positions whose step times were measured but not compared: not in the rounds of the others (another day).

    `trials` are those of one block, oldest version first. Changes of the step time say nothing about these versions.
    """
    return never_side_by_side(trials, least_steps=steps.first)


@dataclass(frozen=True, kw_only=True)
class _Block:
    """What is known of one series on one lane, oldest version first, and how to judge it."""

    cells: Sequence[CellVerdict]
    trials: Sequence[Sequence[Trial]]
    limits: Limits
    steps: Steps
    seed: int
    baseline: int | None


def holm(p_values: Sequence[float], alpha: float) -> list[bool]:
    """Which of the hypotheses are rejected at the family-wise error `alpha` (Holm, 1979), in the order given."""
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    rejected = [False] * len(p_values)
    for rank, index in enumerate(order):
        if p_values[index] > alpha / (len(p_values) - rank):
            break
        rejected[index] = True
    return rejected


# ---------------------------------------------------------------- levels that change


def _step_times(block: _Block) -> list[Change]:
    """Changes of the step time that the medians and the best blocks both show: what only the medians show is a
    neighbour's load, unless the step time drifts. Either may be the one that decides, at half of ALPHA.
    """
    medians = step_time_table(block.trials, median_step_s, least_steps=block.steps.first)
    best = step_time_table(block.trials, best_step_s, least_steps=block.steps.first)
    if medians is None or best is None or medians.positions != best.positions:
        return []
    least = math.log1p(block.limits.step_time)
    kept: list[Change] = []
    for table, other in ((medians, best), (best, medians)):
        levels = find_levels(table.values, least=least, alpha=ALPHA / 2, seed=block.seed)
        for shift, change in _level_changes("step_time", table, levels, least=least, baseline=block.baseline):
            drifts = "slowdown" in block.cells[change.after].verdicts
            if (drifts or _agrees(other, shift)) and not any(_same(change, one) for one in kept):
                kept.append(replace(change, p=min(1.0, 2 * shift.p)))
    return sorted(kept, key=lambda change: change.after)


def _same(one: Change, other: Change) -> bool:
    """Whether two changes may be the same one: of a kind, within places that overlap."""
    if one.kind != other.kind or one.before is None or other.before is None:
        return one.kind == other.kind and one.after == other.after
    return one.before < other.after and other.before < one.after


def _agrees(other: Table, shift: Shift) -> bool:
    """Whether another figure of the same trials differs the same way, by half as much at least."""
    begin, end = shift.stretch
    new = other.values[:, shift.first : end].mean()
    old = other.values[:, begin : shift.first].mean()
    return float(new - old) / shift.size >= 0.5


def _peaks(block: _Block) -> list[Change]:
    table = peak_table(block.cells, block.trials, least_steps=block.steps.first)
    if table is None:
        return []
    least = math.log1p(block.limits.peak_memory)
    levels = find_levels(table.values, least=least, alpha=ALPHA, seed=block.seed)
    found = _level_changes("peak_memory", table, levels, least=least, baseline=block.baseline)
    return [change for shift, change in found if _peak_step_kib(table, shift) > PEAK_LEAST_KIB]


def _peak_step_kib(table: Table, shift: Shift) -> float:
    begin, end = shift.stretch
    peaks = np.exp(table.values)
    return abs(float(peaks[:, shift.first : end].mean() - peaks[:, begin : shift.first].mean()))


def _level_changes(
    metric: Metric, table: Table, levels: Levels, *, least: float, baseline: int | None
) -> list[tuple[Shift, Change]]:
    """The shifts that are findings. Worse is more. An improvement is one only if it ends something bad."""
    fixed = _level_at(table, levels, baseline)
    good = levels.means[0] if fixed is None else fixed
    bad = levels.means[0] > good + least
    found: list[tuple[Shift, Change]] = []
    for shift, level in zip(levels.shifts, levels.means[1:], strict=True):
        worse = level > good + least
        if worse and shift.size > 0:
            found.append((shift, _level_change(metric, "first_bad", table, shift)))
        elif bad and not worse:
            found.append((shift, _level_change(metric, "first_fixed", table, shift)))
        if not worse and fixed is None:
            good = level
        bad = worse
    return found


def _level_at(table: Table, levels: Levels, baseline: int | None) -> float | None:
    if baseline is None or baseline not in table.positions:
        return None
    place = table.positions.index(baseline)
    return levels.means[sum(1 for bound in levels.bounds[1:-1] if bound <= place)]


def _level_change(metric: Metric, kind: Kind, table: Table, shift: Shift) -> Change:
    before, after = table.positions[shift.before], table.positions[shift.after]
    interval = None if shift.interval is None else (math.exp(shift.interval[0]), math.exp(shift.interval[1]))
    return Change(
        metric=metric,
        kind=kind,
        before=before,
        after=after,
        untestable=tuple(place for place in range(before + 1, after) if place not in table.positions),
        effect=Effect(value=math.exp(shift.size), unit="ratio", ci=interval),
        p=shift.p,
        verdict="slower" if metric == "step_time" else "more memory",
    )


# ---------------------------------------------------------------- one cause, one finding


def _merged(levels: Sequence[Change], slowdown: Sequence[Change]) -> list[Change]:
    """Levels and drifts of the step time; where both change at one version, one finding with the level's figures."""
    drifts = {(change.kind, change.after): change for change in slowdown}
    both = [
        replace(change, verdict="slowdown") if (change.kind, change.after) in drifts else change for change in levels
    ]
    told = {(change.kind, change.after) for change in levels}
    return sorted(
        [*both, *(change for change in slowdown if (change.kind, change.after) not in told)],
        key=lambda change: change.after,
    )


def _is_symptom(change: Change, memory: Sequence[Change], cells: Sequence[CellVerdict]) -> bool:
    """Whether a slowdown only comes and goes with a leak: a leak often slows things down, and is one finding."""
    if (change.kind, change.before, change.after) not in {(leak.kind, leak.before, leak.after) for leak in memory}:
        return False
    leaking = change.before if change.kind == "first_fixed" and change.before is not None else change.after
    return "slowdown" in cells[leaking].verdicts
