"""Finds the versions at which a series became bad, or good again. Positions are those in the series."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from harness import amounts
from harness.judge.comparison.compared_levels import Compared, Modes, modes_of
from harness.judge.comparison.level_rules import EXACT
from harness.judge.comparison.noise import floor, spread_of, without_rounds
from harness.judge.comparison.round_tables import RoundTable
from harness.judge.history.changepoints import Changepoint, Laid, Levels, exact_levels, find_levels, lay_out
from harness.judge.history.flaky import MISS
from harness.judge.history.transitions import ALPHA, growth_changes, mode_changes, outcome_changes, slowdown_changes
from harness.model import (
    GROWTHS,
    LEVELS,
    SIGNALS,
    STEP_TIMES,
    Change,
    ChangeKind,
    Effect,
    Interval,
    Metric,
    Noise,
    Observed,
    Spread,
    bad_along,
    log_of,
    ratio_of,
    share_of,
    signal_of,
)

FAMILY_ALPHA = 0.01
"""Family-wise error (Holm's correction): the chance that any level in a scenario seems to change though none does."""
BACK = 1 / 3
"""Share of its rise that a bad level must undo to count as ended, even if it undoes less than the limit."""
TOTAL_WEIGHT = sum(SIGNALS[name].weight for name in LEVELS if not SIGNALS[name].of_server)
"""A server has no `setup_time`, `run_time`, `rank_spread` and `pool_peak`. It has levels of its own in their place, and
the weights of these have the same sum."""


def find_changes(compared: Compared, *, miss: float = MISS) -> tuple[Change[int], ...]:
    """Return all changes of one row.

    Versions between the two sides of a change are `untestable` if they are neither clearly good nor clearly bad. `miss`
    is the highest probability allowed that the last good version also has the failure, but its launches missed it; a
    bisection passes its own."""
    cells, limits, baseline = compared.cells, compared.limits, compared.baseline
    outcome = outcome_changes(cells, compared.trials, baseline=baseline, miss=miss)
    if limits.exit_only:
        return outcome
    growths = {
        name: growth_changes(name, cells, baseline=baseline, limit=limit)
        for name in ("memory", *GROWTHS)
        if (limit := limits.leak_kib_per_step if name == "memory" else limits.of(name)) is not None
    }
    slowdown = slowdown_changes(cells, baseline=baseline, limit=limits.slowdown)
    levels: dict[Metric, list[Change[int]]] = {}
    for name, tables in compared.tables.items():
        if (limit := limits.of(name)) is not None:
            known = (known_levels(name, table, limit=limit, noise=compared.noise) for table in tables)
            levels[name] = of_parts((each.table.positions, each.changes(baseline)) for each in known)
    timed = with_slowdowns(levels.pop("step_time", []), slowdown)
    if timed:
        levels = {name: own for name, own in levels.items() if name not in STEP_TIMES}
    # A leak often slows the steps, and is then the finding.
    leaks = {(leak.kind, leak.before, leak.after) for leak in growths["memory"]}
    step_time = [
        each
        for each in timed
        if (each.kind, each.before, each.after) not in leaks or "slowdown" not in cells[each.bad_side].verdicts
    ]
    return (*outcome, *itertools.chain(*growths.values()), *step_time, *itertools.chain(*levels.values()))


def improvements(compared: Compared, changes: Sequence[Change[int]]) -> Iterator[Observed]:
    """Yield where the step time, or without steps the run time, and the peak fall by more than the limit and end no bad
    level: the oldest version may be a bad one."""
    for name in ("step_time" if "step_time" in compared.tables else "run_time", "peak_memory"):
        limit, signal = compared.limits.of(name), SIGNALS[name]
        if limit is None:
            continue
        figures = {**{place: level for place, (level, _) in compared.levels(name).items()}, **compared.little(name)}
        bad = bad_along(range(len(compared.cells)), [change for change in changes if change.metric == name])
        for table in compared.tables.get(name, ()):
            known = known_levels(name, table, limit=limit, noise=compared.noise)
            for shift in known.levels.shifts:
                before, after = table.positions[shift.before], table.positions[shift.after]
                old, new = figures[before], figures[after]
                if -shift.size > known.least and old - signal.least > new > 0 and not bad[before]:
                    like, share = amounts.middle((old, new)), Effect(value=new / old, unit="ratio")
                    begin, end = (amounts.in_unit(each, signal.unit, like=like) for each in (old, new))
                    text = f"{amounts.without_unit(begin, end)} → {end}; {amounts.change(share)}"
                    yield Observed(signal=name, before=before, after=after, text=text)


def of_parts(parts: Iterable[tuple[Sequence[int], Sequence[Change[int]]]]) -> list[Change[int]]:
    """Return the changes of a level in all parts of its row, oldest first. A part is the positions that were compared
    and the changes between them; later ones have versions that were added, and known ones beside them. A change between
    two versions of an earlier part would show there. One that shows in several is between the closer versions."""
    changes: list[Change[int]] = []
    told: list[set[int | None]] = []
    for positions, found in parts:
        for change in found:
            one = next(filter(change.meets, changes), None)
            if one is not None:
                sides = max(one, change, key=lambda each: each.begin).before, min(one.after, change.after)
                closer = change if (one.before, one.after) != sides == (change.before, change.after) else one
                changes[changes.index(one)] = replace(closer, before=sides[0], after=sides[1])
            elif not any({change.before, change.after} <= versions for versions in told):
                changes.append(change)
        changes.sort(key=lambda change: change.after)
        told.append({None, *positions})
    return changes


def two_modes(compared: Compared) -> tuple[Modes | None, tuple[Change[int], ...]]:
    """Return the two modes of the step times of a row's launches, None if they have only one, and their changes."""
    tables, limit = compared.tables.get("step_time"), compared.limits.log_of("step_time")
    if tables is None or limit is None:
        return None, ()
    modes = modes_of(tables[0], least=limit, noise=spread_of(compared.noise, "step_time"))
    return modes, () if modes is None else mode_changes(modes, versions=len(compared.cells), baseline=compared.baseline)


def with_slowdowns(levels: Sequence[Change[int]], slowdown: Sequence[Change[int]]) -> list[Change[int]]:
    """Merge levels and drifts of the step time: if both change at one version, the level's figures are kept."""
    drifts = {(change.kind, change.after) for change in slowdown}
    changed = {(change.kind, change.after) for change in levels}
    both = [
        replace(change, verdict="slowdown") if (change.kind, change.after) in drifts else change for change in levels
    ]
    both += [change for change in slowdown if (change.kind, change.after) not in changed]
    return sorted(both, key=lambda change: change.after)


# ---------------------------------------------------------------- levels that change


def signal_share_of(name: str, log: float) -> float:
    """Convert a log to a relative change: the inverse of `log_of`."""
    return -share_of(-log) if SIGNALS[name].falls else share_of(log)


def strictest(name: str, *, rows: int) -> float:
    """Return the significance level at which a change of the level signal `name` is certainly found: that of the search
    or that of Holm's correction for the smallest p-value of the family, whichever is lower. `rows` is the number of
    rows in the scenario."""
    return min(ALPHA, FAMILY_ALPHA * signal_of(name).weight / (TOTAL_WEIGHT * rows))


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


@dataclass(frozen=True, kw_only=True)
class KnownLevels:
    """The levels of a level signal in a table. `alike`: by how much equal images differ, a log, by the A/A noise of the
    lane; `least`: the least change that counts, which is the limit or, if it is larger, `alike`."""

    metric: Metric
    table: RoundTable
    laid: Laid
    levels: Levels
    alike: float
    least: float

    def changes(self, baseline: int | None = None) -> list[Change[int]]:
        """Return the changes, oldest first, without those below the signal's smallest amount."""
        signal, logs = SIGNALS[self.metric], self.table.values
        figures = np.exp(-logs if signal.falls else logs)
        changes = []
        for shift, change in level_changes(
            self.metric, self.table.positions, self.levels, least=self.least, baseline=baseline
        ):
            begin, end = shift.stretch
            size = abs(float(np.nanmean(figures[:, shift.first : end]) - np.nanmean(figures[:, begin : shift.first])))
            if (2 if shift.drift else 1) * size > signal.least:
                changes.append(replace(change, p=None) if self.metric in EXACT else change)
        return changes


def known_levels(
    metric: Metric, table: RoundTable, *, limit: float, noise: Noise | None = None, doubted: bool = False
) -> KnownLevels:
    """Return the levels of a table. With few versions, its noise is pooled with `noise`, the lane's A/A noise.
    `doubted`: as in `Laid`."""
    of_lane = spread_of(noise, metric)
    if metric in EXACT:
        values, raw = without_rounds(table.values)
        laid = Laid(values=values, raw=raw, known=np.isfinite(raw), spread=Spread(deviation=0.0, freedom=1))
    else:
        laid = replace(lay_out(table.values, of_lane), doubted=doubted)
    alike = floor(of_lane, rounds=laid.rounds)
    least = max(log_of(metric, limit), alike)
    levels = exact_levels(table.values[0]) if metric in EXACT else find_levels(laid, least=least, alpha=ALPHA)
    return KnownLevels(metric=metric, table=table, laid=laid, levels=levels, alike=alike, least=least)


def level_changes(
    metric: Metric, positions: Sequence[int], levels: Levels, *, least: float, baseline: int | None = None
) -> list[tuple[Changepoint, Change[int]]]:
    """Return the shifts that are findings, with the changes that they make. A higher level is worse; an improvement is
    a finding only if it ends a bad level.

    `positions` are the versions that the levels are of. A level is bad if it is above the reference, which is the level
    of the version at `baseline` or else the oldest one, by more than `least`; without a baseline, also if it is above
    the level before it by more than that. If no single shift is that large, the change is a drift from the lowest level
    before it. A bad level ends where it is no longer above what it was compared with, if a third of its rise is undone.
    """
    verdict = {"step_time": "slower", "peak_memory": "more memory"}.get(metric, metric)
    means, fixed = levels.means, baseline in positions
    reference = levels.mean_at(positions.index(baseline)) if baseline in positions else levels.height
    findings: list[tuple[Changepoint, Change[int]]] = []
    base, top, low = reference, levels.height, 0
    bad = top > reference + least
    if bad:
        # All shifts between the first level and the baseline must be real: the p-value is their largest.
        both = zip(levels.shifts, means, strict=False)
        start = Change(
            metric=metric,
            kind="bad_from_start",
            before=None,
            after=positions[0],
            effect=level_ratio(metric, top - reference),
            p=max(shift.p for shift, _ in itertools.takewhile(lambda pair: pair[1] != reference, both)),
            verdict=verdict,
        )
        findings.append((levels.shifts[0], start))
    for number, shift in enumerate(levels.shifts):
        old, level, whole = means[number], means[number + 1], shift
        is_jump, is_above = shift.size > least, level > reference + least
        is_above = is_above and (not findings or level > means[low] + least)  # a repair may leave a part
        if not bad and shift.size > 0 and (is_above or (is_jump and not fixed)):
            kind: ChangeKind = "drift" if shift.drift or not is_jump else "first_bad"
            base, top, bad = reference if is_above else old, level, True
        elif bad and level > top + least:
            kind, top = "drift" if shift.drift else "worse", level
        elif bad and level <= base + least and top - level > BACK * (top - base):
            kind, bad = "first_fixed", False
        else:
            low = number + 1 if level < means[low] else low
            continue
        if kind != "first_fixed" and not is_jump:
            whole = joined(levels.shifts[low : number + 1])
        low = number + 1
        change = Change(
            metric=metric,
            kind=kind,
            before=positions[whole.before],
            after=positions[whole.after],
            effect=level_ratio(metric, whole.size, whole.interval),
            p=whole.p,
            verdict=verdict,
        )
        findings.append((whole, change))
    return findings


def joined(shifts: Sequence[Changepoint]) -> Changepoint:
    """Return neighbouring shifts as one, which changes the level from version to version."""
    first, last, size = shifts[0], shifts[-1], sum(shift.size for shift in shifts)
    margin = math.hypot(*((shift.interval[1] - shift.interval[0]) / 2 for shift in shifts))
    return Changepoint(
        first=last.first,
        stretch=(first.stretch[0], last.stretch[1]),
        before=first.before,
        after=last.after,
        size=size,
        interval=(size - margin, size + margin),
        p=min(shift.p for shift in shifts),
        drift=True,
    )


def level_ratio(metric: Metric, size: float, interval: Interval | None = None) -> Effect:
    """Return the ratio of the new level to the old one. If a signal is worse when it falls, so is a ratio below 1."""
    sign = -1.0 if metric in SIGNALS and SIGNALS[metric].falls else 1.0
    ci = None if interval is None else sorted(ratio_of(sign * bound) for bound in interval)
    return Effect(value=ratio_of(sign * size), unit="ratio", ci=None if ci is None else (ci[0], ci[1]))
