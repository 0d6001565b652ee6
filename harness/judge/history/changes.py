"""Finds the versions at which a series became bad, or good again. Positions are those in the series."""

from __future__ import annotations

import itertools
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from harness.judge import intervals
from harness.judge.comparison.compared_levels import Compared
from harness.judge.comparison.level_rules import EXACT
from harness.judge.comparison.noise import Spread, floor, spread_of
from harness.judge.comparison.round_tables import RoundTable
from harness.judge.history.changepoints import Changepoint, Levels, exact_levels, find_levels
from harness.judge.history.flaky import MISS
from harness.judge.history.transitions import growth_changes, memory_changes, outcome_changes, slowdown_changes
from harness.model import (
    GROWTHS,
    LEVELS,
    SIGNALS,
    CellVerdict,
    Change,
    Effect,
    FindingKind,
    Interval,
    Limits,
    Metric,
    Noise,
    log_of,
    signal_of,
)

ALPHA = 0.008
"""Chance of a false change in a series, for each metric."""
FAMILY_ALPHA = 0.01
"""Family-wise error (Holm's correction): the chance that any level in a scenario seems to change though none does."""
_VERDICTS: Mapping[Metric, str] = {"step_time": "slower", "peak_memory": "more memory"}


def signal_share_of(name: str, log: float) -> float:
    """Convert a log to a relative change: the inverse of `log_of`."""
    return -intervals.share_of(-log) if SIGNALS[name].falls else intervals.share_of(log)


def strictest(name: str, *, rows: int) -> float:
    """Return the significance level at which a change of the level signal `name` is certainly found: that of the search
    or that of Holm's correction for the smallest p-value of the family, whichever is lower. `rows` is the number of
    rows in the scenario.
    """
    return min(ALPHA, FAMILY_ALPHA * signal_of(name).weight / (TOTAL_WEIGHT * rows))


TOTAL_WEIGHT = sum(SIGNALS[name].weight for name in LEVELS)


@dataclass(frozen=True, kw_only=True)
class LevelRule:
    """The rule by which tables are judged. `least` is the smallest change that counts, a log.

    `baseline` is the position with which levels are compared; None means the last good level. `noise` is the A/A noise
    of the lane.
    """

    least: float
    baseline: int | None = None
    noise: Spread | None = None


def signal_changes(metric: Metric, table: RoundTable, rule: LevelRule) -> list[Change]:
    """Return the changes of a level signal, oldest first, without those below the signal's smallest amount."""
    if metric in EXACT:
        levels = exact_levels(table.values[0], least=rule.least)
    else:
        levels = find_levels(table.values, least=rule.least, alpha=ALPHA, noise=rule.noise)
    return [
        replace(change, p=None) if metric in EXACT else change
        for shift, change in level_changes(metric, table, levels, rule=rule)
        if _step_of(metric, table, shift) > SIGNALS[metric].least
    ]


def _step_of(metric: Metric, table: RoundTable, shift: Changepoint) -> float:
    """Return the difference of the two levels, in the signal's unit."""
    begin, end = shift.stretch
    figures = np.exp(-table.values if SIGNALS[metric].falls else table.values)
    size = abs(float(figures[:, shift.first : end].mean() - figures[:, begin : shift.first].mean()))
    return (2 if shift.drift else 1) * size


def level_changes(
    metric: Metric, table: RoundTable, levels: Levels, *, rule: LevelRule
) -> list[tuple[Changepoint, Change]]:
    """Return the shifts that are findings, with the changes that they make. A higher level is worse; an improvement is
    a finding only if it ends a bad level.
    """
    fixed = _level_at(table, levels, rule.baseline)
    good = levels.means[0] if fixed is None else fixed
    bad = levels.means[0] > good + rule.least
    findings: list[tuple[Changepoint, Change]] = []
    if bad:
        findings.append((levels.shifts[0], _from_start(metric, table, levels, good=good)))
    for shift, level in zip(levels.shifts, levels.means[1:], strict=True):
        worse = level > good + rule.least
        if worse and shift.size > 0:
            kind: FindingKind = "drift" if shift.drift else "worse" if bad else "first_bad"
            findings.append((shift, _level_change(metric, kind, table, shift)))
        elif bad and not worse:
            findings.append((shift, _level_change(metric, "first_fixed", table, shift)))
        if not worse and fixed is None:
            good = level
        bad = worse
    return findings


def _from_start(metric: Metric, table: RoundTable, levels: Levels, *, good: float) -> Change:
    """Return the change for a first level that is worse than the baseline. All shifts between the two must be real: its
    p-value is their largest.
    """
    shifts = itertools.takewhile(lambda pair: pair[1] != good, zip(levels.shifts, levels.means, strict=False))
    return Change(
        metric=metric,
        kind="bad_from_start",
        before=None,
        after=table.positions[0],
        untestable=tuple(range(table.positions[0])),
        effect=_ratio(metric, levels.means[0] - good),
        p=max(shift.p for shift, _ in shifts),
        verdict=_VERDICTS.get(metric, metric),
    )


def _level_at(table: RoundTable, levels: Levels, baseline: int | None) -> float | None:
    if baseline is None or baseline not in table.positions:
        return None
    place = table.positions.index(baseline)
    return levels.means[sum(1 for bound in levels.bounds[1:-1] if bound <= place)]


def _level_change(metric: Metric, kind: FindingKind, table: RoundTable, shift: Changepoint) -> Change:
    before, after = table.positions[shift.before], table.positions[shift.after]
    return Change(
        metric=metric,
        kind=kind,
        before=before,
        after=after,
        untestable=uncompared_between(table.positions, before, after),
        effect=_ratio(metric, shift.size, shift.interval),
        p=shift.p,
        verdict=_VERDICTS.get(metric, metric),
    )


def _ratio(metric: Metric, size: float, interval: Interval | None = None) -> Effect:
    """Return the ratio of the new level to the old one. If a signal is worse when it falls, so is a ratio below 1."""
    sign = -1.0 if metric in SIGNALS and SIGNALS[metric].falls else 1.0
    ci = None if interval is None else sorted(intervals.ratio_of(sign * bound) for bound in interval)
    return Effect(value=intervals.ratio_of(sign * size), unit="ratio", ci=None if ci is None else (ci[0], ci[1]))


def uncompared_between(positions: Container[int], before: int, after: int) -> tuple[int, ...]:
    """Return the positions between two versions that were not compared."""
    return tuple(place for place in range(before + 1, after) if place not in positions)


def find_changes(
    compared: Compared,
    *,
    limits: Limits,
    baseline: int | None = None,
    noise: Noise | None = None,
    miss: float = MISS,
) -> tuple[Change, ...]:
    """Return all changes of one row.

    Versions between the two sides of a change are `untestable` if they are neither clearly good nor clearly bad.
    `baseline` is the position of the baseline image. `noise` is the A/A noise of the lane, which a change of a level
    must exceed. `miss` is the highest probability allowed that
    the last good version also has the failure, but its launches missed it; a bisection passes its own.
    """
    cells = compared.cells
    outcome = outcome_changes(cells, compared.trials, baseline=baseline, miss=miss)
    if limits.exit_only:
        return outcome
    row = _Row(compared=compared, limits=limits, baseline=baseline, noise=noise)
    memory = memory_changes(cells, baseline=baseline, limit=limits.leak_kib_per_step)
    slowdown = slowdown_changes(cells, baseline=baseline, limit=limits.slowdown)
    levels = _levels(row)
    timed = _merged(levels.pop("step_time", []), slowdown)
    step_time = [change for change in timed if not _is_symptom(change, memory, cells)]
    return (*outcome, *memory, *_growths(row), *step_time, *itertools.chain.from_iterable(levels.values()))


@dataclass(frozen=True, kw_only=True)
class _Row:
    """The figures of one row that are compared, with the rules for judging them."""

    compared: Compared
    limits: Limits
    baseline: int | None
    noise: Noise | None

    def rule(self, metric: Metric, table: RoundTable, *, limit: float) -> LevelRule:
        """Return the rule for a table: a change must reach the limit and exceed the lane's A/A noise."""
        least = max(log_of(metric, limit), floor(self.noise, metric, rounds=len(table.values)))
        noise = spread_of(self.noise, metric)
        return LevelRule(least=least, baseline=self.baseline, noise=noise)


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


def _growths(row: _Row) -> list[Change]:
    """Return the changes of growth, for all counts that have a limit."""
    return [
        change
        for name in GROWTHS
        if (limit := row.limits.of(name)) is not None
        for change in growth_changes(name, row.compared.cells, baseline=row.baseline, limit=limit)
    ]


def _levels(row: _Row) -> dict[Metric, list[Change]]:
    """Return the changes of each level signal that has a limit."""
    return {
        name: signal_changes(name, table, row.rule(name, table, limit=limit))
        for name, table in row.compared.tables.items()
        if (limit := row.limits.of(name)) is not None
    }


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
