"""The numbers that a scenario returns: NaN where there was none, and values that differ between versions.

A value is *exact* where all launches of a version return the same numbers at the same steps. Any difference of an exact
value between versions is told; only a limit of the matrix file makes it bad. A value that differs from launch to launch
is compared as a level is: by the medians of the launches, in rounds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np

from harness.judge.figures import WARM_UP, Launches, common_steps, is_clean
from harness.judge.layout import spread_within, without_rounds
from harness.judge.levels import ALPHA
from harness.judge.shift import Levels, find_levels
from harness.judge.tables import Columns, Table, often, table_of
from harness.judge.transitions import transitions
from harness.model import (
    METRIC_PREFIX,
    Change,
    Effect,
    Floats,
    Kind,
    Limits,
    MetricLimit,
    Observed,
    SignalVerdict,
    Steps,
    Trial,
)

OURS = frozenset(
    {"rss_kib", "heap_kib", "blocks", "step_s", "gpu_kib", "gpu_process_kib", "gpu_pool_kib", "gpu_reserved_kib"}
)
"""The columns that are the agent's own."""
TOLD_CHANGE = 0.05
"""A value that differs from launch to launch, and has no limit, is told where its level changes by this share."""
AGREE = 2
"""Launches that must return NaN before their version is said to."""
NO_LIMIT = MetricLimit(metric="", rule="change", limit=math.inf)


@dataclass(frozen=True, kw_only=True)
class Values:
    """What a block's versions show of one metric: changes, what each version shows, and what is only told."""

    changes: tuple[Change, ...]
    seen: Mapping[int, SignalVerdict]
    observed: tuple[Observed, ...]


def judge_values(launches: Launches, *, limits: Limits, steps: Steps, seed: int) -> Mapping[str, Values]:
    """By signal (`metrics.NAME`), for each number that the scenario returned or the matrix file has a limit for."""
    clean = [[trial for trial in version if is_clean(trial, steps)] for version in launches]
    returned = {name for version in launches for trial in version for name in _names(trial)}
    given = {limit.metric: limit for limit in limits.metrics}
    found = {}
    for name in sorted(returned | set(given)):
        limit = given.get(name)
        if limit is None or limit.rule != "none":
            metric = _Metric(name=name, limit=limit, launches=launches, clean=clean, seed=seed, returned=returned)
            found[metric.signal] = metric.judged()
    return found


def _names(trial: Trial) -> set[str]:
    return {*(() if trial.trace is None else trial.trace.columns), *trial.not_finite} - OURS


@dataclass(frozen=True, kw_only=True)
class _Metric:
    """One metric of a block. `clean` are the launches whose values can be compared; `returned` are all metrics."""

    name: str
    limit: MetricLimit | None
    launches: Launches
    clean: Launches
    seed: int
    returned: set[str]

    @property
    def signal(self) -> str:
        return f"{METRIC_PREFIX}{self.name}"

    @cached_property
    def common(self) -> int:
        """The steps that all launches have."""
        return common_steps(self.clean)

    def judged(self) -> Values:
        nan = self._nan_changes()
        rows = [[self._rows(trial) for trial in version] for version in self.clean]
        exact = [_exact(version) for version in rows]
        told = [place for place, version in enumerate(exact) if version is not None]
        if len(told) == sum(map(bool, rows)):
            changes, observed = self._of_exact({place: exact[place] for place in told})
            visible: float | None = 0.0
        else:
            changes, observed, visible = self._of_noisy(rows)
        blind = self._cannot_be_equal(rows, exact)
        seen = {place: self._seen(place, rows[place], visible=visible, blind=blind) for place in range(len(rows))}
        return Values(changes=(*nan, *changes), seen=seen, observed=observed)

    # ------------------------------------------------------------ NaN

    def _nan_changes(self) -> tuple[Change, ...]:
        """Where NaN or an infinity came or went; a series whose first version has it already says nothing."""
        states = [self._is_nan(version) for version in self.launches]
        return tuple(
            Change(metric=self.signal, kind=kind, before=before, after=after, verdict="nan",
                   untestable=tuple(place for place in range(before + 1, after) if states[place] is None))
            for kind, before, after in transitions(states)
            if before is not None
        )  # fmt: skip

    def _is_nan(self, version: Sequence[Trial]) -> bool | None:
        """Launches that ended before it first came say nothing."""
        asked = [trial for trial in version if trial.measured and self.name in _names(trial)]
        first = min((trial.not_finite[self.name][1] for trial in asked if self.name in trial.not_finite), default=0)
        told = [self.name in trial.not_finite for trial in asked if trial.last_step >= first]
        if not told or (any(told) and sum(told) < AGREE):
            return None
        return any(told)

    # ------------------------------------------------------------ exact values

    def _of_exact(self, rows: Mapping[int, Floats | None]) -> tuple[tuple[Change, ...], tuple[Observed, ...]]:
        """Changes by the limit, and every difference of neighbours that no change tells."""
        known = {place: values for place, values in rows.items() if values is not None}
        if not known:
            return (), ()
        first = next(iter(known.values()))
        states: list[bool | None] = [None] * len(self.launches)
        for place, values in known.items():
            states[place] = self._is_worse(first, values)
        changes = tuple(
            self._change(kind, before, after, known)
            for kind, before, after in transitions(states)
            if before is not None
        )
        named = {change.after for change in changes}
        differ = [(a, b) for a, b in pairwise(known) if not _same(known[a], known[b]) and b not in named]
        return changes, tuple(self._observed(a, b, _median(known[a]), _median(known[b])) for a, b in differ)

    def _is_worse(self, first: Floats, values: Floats) -> bool:
        if self.limit is None:
            return False
        if self.limit.rule == "equal":
            return not _same(first, values)
        return self._is_beyond(_relative(_median(first), _median(values)))

    def _is_beyond(self, relative: float) -> bool:
        limit = self.limit or NO_LIMIT
        worse = {"change": abs(relative), "rise": relative, "drop": -relative}.get(limit.rule, 0.0)
        return worse > limit.limit

    def _change(self, kind: Kind, before: int, after: int, known: Mapping[int, Floats]) -> Change:
        old, new = _median(known[before]), _median(known[after])
        between = tuple(place for place in range(before + 1, after) if place not in known)
        effect = Effect(value=new / old, unit="ratio") if old and math.isfinite(new / old) else None
        return Change(
            metric=self.signal,
            kind=kind,
            before=before,
            after=after,
            untestable=between,
            effect=effect,
            verdict="value",
        )

    def _observed(self, before: int, after: int, old: float, new: float) -> Observed:
        text = f"{self.name} {old:.6g} → {new:.6g}" if old != new else f"{self.name} differs in single steps"
        return Observed(signal=self.signal, before=before, after=after, text=text)

    # ------------------------------------------------------------ values that differ from launch to launch

    def _of_noisy(
        self, rows: Sequence[Sequence[Floats]]
    ) -> tuple[tuple[Change, ...], tuple[Observed, ...], float | None]:
        """Changes by the limit, or levels that are only told; and the smallest change that would have shown."""
        both = [list(zip(trials, own, strict=True)) for trials, own in zip(self.clean, rows, strict=True)]
        columns = {
            place: {(trial.run, trial.round): _median(values) for trial, values in version if np.isfinite(values).any()}
            for place, version in enumerate(both)
        }
        scale = _scale(columns)
        table = table_of(often(columns), scale=lambda value: value / scale)
        spread = None if table is None else spread_within(without_rounds(table.values))
        if table is None or spread is None:
            return (), (), None
        limit = TOLD_CHANGE if self.limit is None or self.limit.rule == "equal" else self.limit.limit
        levels = find_levels(table.values, least=limit, alpha=ALPHA, seed=self.seed)
        changes = tuple(self._noisy_changes(table, levels))
        if self.limit is None:
            told = ((table.positions[shift.before], table.positions[shift.after]) for shift in levels.shifts)
            means = dict(zip(table.positions, table.values.mean(axis=0) * scale, strict=True))
            return (), tuple(self._observed(a, b, float(means[a]), float(means[b])) for a, b in told), None
        return changes, (), spread.half_width(len(table.values))

    def _noisy_changes(self, table: Table, levels: Levels) -> Iterator[Change]:
        middle = float(table.values.mean())  # levels are told beside their round's mean
        good, bad = middle + levels.means[0], False
        for shift, level in zip(levels.shifts, (middle + mean for mean in levels.means[1:]), strict=True):
            worse = self._is_beyond(_relative(good, level))
            kind: Kind = "first_bad" if worse else "first_fixed"
            before, after = table.positions[shift.before], table.positions[shift.after]
            if worse != bad:
                effect = Effect(value=level / good, unit="ratio") if good else None
                between = tuple(place for place in range(before + 1, after) if place not in table.positions)
                yield Change(metric=self.signal, kind=kind, before=before, after=after, untestable=between,
                             effect=effect, p=shift.p, verdict="value")  # fmt: skip
            bad = worse

    # ------------------------------------------------------------ what each version shows

    def _rows(self, trial: Trial) -> Floats:
        """What the launch returned over the steps that all have."""
        trace = trial.trace
        values = None if trace is None else trace.column(self.name)
        if trace is None or values is None:
            return np.empty(0)
        return values[: int(np.searchsorted(trace.step, self.common, side="right"))]

    def _cannot_be_equal(self, rows: Sequence[Sequence[Floats]], exact: Sequence[Floats | None]) -> str:
        if self.limit is None or self.limit.rule != "equal":
            return ""
        if not any(version and one is None for version, one in zip(rows, exact, strict=True)):
            return ""
        return (
            f"`{self.name}: equal` cannot be kept: it differs between launches of one version; seed the scenario, or "
            f"write `{self.name}: {{change: 1%}}`"
        )

    def _seen(self, place: int, rows: Sequence[Floats], *, visible: float | None, blind: str) -> SignalVerdict:
        medians = [_median(values) for values in rows if np.isfinite(values).any()]
        value = float(np.median(medians)) if medians else None
        value = math.nan if self._is_nan(self.launches[place]) else value
        is_absent = not any(map(len, rows))
        limit = None if self.limit is None else self.limit.limit
        plain = SignalVerdict(seen="good", value=value, limit=limit, visible=visible)
        if not self.launches[place]:
            return replace(plain, seen="none", why="no launch")
        if is_absent and self.limit is not None:
            others = ", ".join(sorted(self.returned - {self.name})) or "nothing"
            return replace(plain, seen="blind", why=f"no step returned `{self.name}`; returned were: {others}")
        if is_absent:
            return replace(plain, seen="none", why=f"this version returned no `{self.name}`")
        if blind:
            return replace(plain, seen="blind", why=blind)
        if self.limit is not None and self.limit.rule != "equal" and (visible is None or visible > self.limit.limit):
            shown = "too few rounds" if visible is None else f"only a change of {visible:.2%} would have shown"
            return replace(
                plain, seen="blind", why=f"{shown}, and the limit is {self.limit.limit:.2%}; `--trials 3:12`"
            )
        return (
            plain if self.limit is not None else replace(plain, visible=None, why="looked at for NaN alone: no limit")
        )


def _exact(rows: Sequence[Floats]) -> Floats | None:
    """What all launches of a version returned, if there are two at least and it is the same."""
    if len(rows) < AGREE or not len(rows[0]) or not all(_same(rows[0], other) for other in rows[1:]):
        return None
    return rows[0]


def _same(one: Floats, other: Floats) -> bool:
    return one.shape == other.shape and bool(np.array_equal(one, other, equal_nan=True))


def _median(values: Floats) -> float:
    """The median after the warm-up quarter; NaN if nothing is left."""
    known = values[np.isfinite(values)]
    return float(np.median(known[int(len(known) * WARM_UP) :])) if len(known) else math.nan


def _relative(old: float, new: float) -> float:
    if old == new:
        return 0.0
    return (new - old) / abs(old) if old else math.copysign(math.inf, new - old)


def _scale(columns: Columns) -> float:
    """What differences are shares of: the usual size of the value, one where that is nothing."""
    sizes = [abs(value) for column in columns.values() for value in column.values() if math.isfinite(value)]
    return float(np.median(sizes)) or 1.0 if sizes else 1.0
