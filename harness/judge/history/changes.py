"""Finds the versions at which a series became bad, or good again. Positions are those in the series."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from harness.judge.comparison.aa_noise import floor, spread_of
from harness.judge.comparison.compared_levels import Compared
from harness.judge.comparison.round_tables import RoundTable
from harness.judge.history.flaky import MISS
from harness.judge.history.level_changes import LevelRule, signal_changes, step_time_changes
from harness.judge.history.transitions import growth_changes, memory_changes, outcome_changes, slowdown_changes
from harness.model import GROWTHS, CellVerdict, Change, Limits, Metric, Noise, log_of


def find_changes(
    compared: Compared,
    *,
    limits: Limits,
    baseline: int | None = None,
    noise: Noise | None = None,
    exit_only: bool = False,
    miss: float = MISS,
) -> tuple[Change, ...]:
    """Return all changes of one row.

    Versions between the two sides of a change are `untestable` if they are neither clearly good nor clearly bad.
    `baseline` is the position of the baseline image. `noise` is the A/A noise of the lane, which a change of a level
    must exceed. With `exit_only`, only the way that launches end counts. `miss` is the highest probability allowed that
    the last good version also has the failure, but its launches missed it; a bisection passes its own.
    """
    cells = compared.cells
    outcome = outcome_changes(cells, compared.trials, baseline=baseline, miss=miss)
    if exit_only:
        return outcome
    row = _Row(compared=compared, limits=limits, baseline=baseline, noise=noise)
    memory = memory_changes(cells, baseline=baseline, limit=limits.leak_kib_per_step)
    slowdown = slowdown_changes(cells, baseline=baseline, limit=limits.slowdown)
    step_time = [change for change in _merged(_step_times(row), slowdown) if not _is_symptom(change, memory, cells)]
    return (*outcome, *memory, *_growths(row), *step_time, *_others(row))


@dataclass(frozen=True, kw_only=True)
class _Row:
    """The figures of one row that are compared, with the rules for judging them."""

    compared: Compared
    limits: Limits
    baseline: int | None
    noise: Noise | None

    def rule(self, metric: Metric, table: RoundTable, *, limit: float, drifting: Collection[int] = ()) -> LevelRule:
        """Return the rule for a table: a change must reach the limit and exceed the lane's A/A noise."""
        least = max(log_of(metric, limit), floor(self.noise, metric, rounds=len(table.values)))
        noise = spread_of(self.noise, metric)
        return LevelRule(least=least, baseline=self.baseline, noise=noise, drifting=drifting)


def holm(p_values: Sequence[float], alpha: float, *, weights: Sequence[float] = ()) -> list[bool]:
    """Return which hypotheses are rejected at the family-wise error `alpha`, in the order given (Holm, 1979).

    `weights` are the hypotheses' relative shares of alpha; by default, the shares are equal.
    """
    shares = list(weights) or [1.0] * len(p_values)
    order = sorted(range(len(p_values)), key=lambda index: p_values[index] / shares[index])
    rejected, left = [False] * len(p_values), sum(shares)
    for index in order:
        if p_values[index] > alpha * shares[index] / left:
            break
        rejected[index], left = True, left - shares[index]
    return rejected


# ---------------------------------------------------------------- levels that change


def _step_times(row: _Row) -> list[Change]:
    limit = row.limits.of("step_time")
    if limit is None:
        return []
    medians, best = row.compared.tables.get("step_time"), row.compared.best
    if medians is None or best is None or medians.positions != best.positions:
        return []
    drifting = {place for place, cell in enumerate(row.compared.cells) if "slowdown" in cell.verdicts}
    return step_time_changes(medians, best, row.rule("step_time", medians, limit=limit, drifting=drifting))


def _growths(row: _Row) -> list[Change]:
    """Return the changes of growth, for all counts that have a limit."""
    return [
        change
        for name in GROWTHS
        if (limit := row.limits.of(name)) is not None
        for change in growth_changes(name, row.compared.cells, baseline=row.baseline, limit=limit)
    ]


def _others(row: _Row) -> list[Change]:
    """Return the changes of all other level signals that have a limit."""
    changes: list[Change] = []
    for name, table in row.compared.tables.items():
        limit = row.limits.of(name)
        if name != "step_time" and limit is not None:
            changes += signal_changes(name, table, row.rule(name, table, limit=limit))
    return changes


# ---------------------------------------------------------------- one cause, one finding


def _merged(levels: Sequence[Change], slowdown: Sequence[Change]) -> list[Change]:
    """Merge levels and drifts of the step time: if both change at one version, the level's figures are kept."""
    drifts = {(change.kind, change.after): change for change in slowdown}
    both = [
        replace(change, verdict="slowdown") if (change.kind, change.after) in drifts else change for change in levels
    ]
    changed = {(change.kind, change.after) for change in levels}
    return sorted(
        [*both, *(change for change in slowdown if (change.kind, change.after) not in changed)],
        key=lambda change: change.after,
    )


def _is_symptom(change: Change, memory: Sequence[Change], cells: Sequence[CellVerdict]) -> bool:
    """Return whether a slowdown begins or ends with a leak: leaks often slow the steps, and are then the finding."""
    if (change.kind, change.before, change.after) not in {(leak.kind, leak.before, leak.after) for leak in memory}:
        return False
    return "slowdown" in cells[change.bad_side].verdicts
