"""Judges the values that a scenario returns: those that differ between versions, and NaN.

A value is *exact* if all launches of a version return the same numbers at the same steps. Any difference of an exact
value between versions is reported; only a limit of the matrix file makes it bad. A value that differs from launch to
launch is compared as a level: by the medians of the launches, in rounds.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np

from harness.judge.comparison.round_tables import Columns, RoundTable, often, table_of
from harness.judge.comparison.slow_versions import WARM_UP
from harness.judge.comparison.which_launches import Launches, common_steps, is_clean
from harness.judge.history.changepoints import Levels, find_levels, least_found, noise_within
from harness.judge.history.changes import ALPHA, strictest, uncompared_between
from harness.judge.history.transitions import transitions
from harness.judge.launches import AGREE
from harness.judge.remedies import ENOUGH_LAUNCHES, more_launches, wider
from harness.model import (
    METRIC_PREFIX,
    Change,
    Effect,
    FindingKind,
    Floats,
    Limits,
    Metric,
    MetricLimit,
    Observed,
    SignalVerdict,
    Steps,
    Trial,
    log_of_change,
)
from harness.model.measured import AGENT_COLUMNS
from harness.reasons import ObservedDifference, Remedy, ValueReason


def returned_names(trial: Trial) -> set[str]:
    """Return the names of the numbers that the scenario returned."""
    names = {*(() if trial.trace is None else trial.trace.metrics), *trial.not_finite} - AGENT_COLUMNS
    return {name for name in names if is_returned(name, trial)}


def is_returned(name: str, trial: Trial) -> bool:
    """Return whether a step returned this number, even as NaN. A column without numbers holds text."""
    column = None if trial.trace is None else trial.trace.column(name)
    return name in trial.not_finite or (column is not None and bool(np.isfinite(column).any()))


@dataclass(frozen=True, kw_only=True)
class ReturnedNan:
    """NaN in one number that the versions of a row returned."""

    name: str
    launches: Launches

    @cached_property
    def first_step(self) -> int:
        """Return the first step at which any version returned NaN; 0 if none did."""
        trials = (trial for version in self.launches for trial in version)
        return min((trial.not_finite[self.name][1] for trial in trials if self.name in trial.not_finite), default=0)

    @cached_property
    def states(self) -> tuple[bool | None, ...]:
        """Return, for each version, whether it returns NaN; None if that is unknown. Launches that ended before the
        first NaN of any version do not count."""
        return tuple(map(self._state, self.launches))

    @property
    def bad(self) -> tuple[int, ...]:
        """Return the positions of the versions that are bad because of NaN: none unless another version is without."""
        return tuple(place for place, is_nan in enumerate(self.states) if is_nan and False in self.states)

    def _state(self, version: Sequence[Trial]) -> bool | None:
        asked = [trial for trial in version if trial.measured and is_returned(self.name, trial)]
        is_nan = [self.name in trial.not_finite for trial in asked if trial.last_step >= self.first_step]
        if not is_nan or (any(is_nan) and sum(is_nan) < AGREE):
            return None
        return any(is_nan)

    def changes(self, metric: Metric) -> tuple[Change, ...]:
        """Return the changes at which NaN or an infinity began or ended; NaN from the start is not a change."""
        return tuple(
            Change(metric=metric, kind=kind, before=before, after=after, verdict="nan",
                   untestable=tuple(place for place in range(before + 1, after) if self.states[place] is None))
            for kind, before, after in transitions(self.states)
            if before is not None
        )  # fmt: skip


def nan_versions(launches: Launches, limits: Limits) -> Mapping[int, Sequence[str]]:
    """Return, by position, the numbers whose NaN makes a version bad. Its steps may do other work than those of other
    versions, so their times are not compared.
    """
    ignored = {limit.metric for limit in limits.metrics if limit.rule == "none"} | AGENT_COLUMNS
    names = {name for version in launches for trial in version for name in trial.not_finite} - ignored
    bad: dict[int, list[str]] = {}
    for name in sorted(names):
        for place in ReturnedNan(name=name, launches=launches).bad:
            bad.setdefault(place, []).append(name)
    return bad


def without_nan(launches: Launches, limits: Limits) -> Launches:
    """Return the launches, without those of versions that are bad because of NaN."""
    bad = nan_versions(launches, limits)
    return [[] if place in bad else version for place, version in enumerate(launches)]


TOLD_CHANGE = 0.05
"""Least change of level, as a share, that is reported for a value that varies between launches and has no limit."""
HARDLY_DIFFERENT = 5e-9
"""Share below which a change of a returned value has no size: as a percentage it would read 0."""
NO_LIMIT = MetricLimit(metric="", rule="change", limit=math.inf)


@dataclass(frozen=True, kw_only=True)
class Values:
    """The judgement of one metric of a row: changes, a verdict for each version, and observations. `is_tested`:
    its levels were searched for a change, which chance may produce.
    """

    changes: tuple[Change, ...]
    seen: tuple[SignalVerdict, ...]
    observed: tuple[Observed, ...]
    is_tested: bool


def judge_values(launches: Launches, *, limits: Limits, steps: Steps) -> Mapping[str, Values]:
    """Judge each number that the scenario returned or the matrix file limits, by signal (`metrics.NAME`)."""
    clean = [[trial for trial in version if is_clean(trial, steps)] for version in launches]
    returned = {name for version in launches for trial in version for name in returned_names(trial)}
    given = {limit.metric: limit for limit in limits.metrics}
    judged = {}
    for name in sorted(returned | set(given)):
        limit = given.get(name)
        if limit is None or limit.rule != "none":
            metric = _Metric(name=name, limit=limit, launches=launches, clean=clean)
            judged[metric.signal] = metric.judged()
    return judged


@dataclass(frozen=True, kw_only=True)
class _Metric:
    """One metric of a row. `clean` are the launches whose values can be compared."""

    name: str
    limit: MetricLimit | None
    launches: Launches
    clean: Launches

    @property
    def signal(self) -> str:
        return f"{METRIC_PREFIX}{self.name}"

    @cached_property
    def nan(self) -> ReturnedNan:
        return ReturnedNan(name=self.name, launches=self.launches)

    @cached_property
    def common(self) -> int:
        """Return the number of steps that all launches have."""
        return common_steps(self.clean)

    @cached_property
    def returned(self) -> Sequence[bool | None]:
        """Return, for each version, whether a step returned the number; None if no launch can be compared."""
        return [any(is_returned(self.name, trial) for trial in own) if own else None for own in self.clean]

    def judged(self) -> Values:
        rows = [[self._rows(trial) for trial in version] for version in self.clean]
        returned = [[values for values in version if np.isfinite(values).any()] for version in rows]
        exact = [_exact(version) for version in returned]
        is_noisy = any(len(own) >= AGREE and values is None for own, values in zip(returned, exact, strict=True))
        if is_noisy:
            changes, observed, visible = self._of_noisy(rows)
        else:
            changes, observed = self._of_exact(
                {place: values for place, values in enumerate(exact) if values is not None}
            )
            visible = 0.0
        seen = [
            self._seen(place, own, visible=visible if is_noisy or agreed is not None else None, is_noisy=is_noisy)
            for place, (own, agreed) in enumerate(zip(rows, exact, strict=True))
        ]
        return Values(
            changes=(*self.nan.changes(self.signal), *changes),
            seen=tuple(seen),
            observed=(*self._came_and_went(), *(() if self.nan.first_step else observed)),
            is_tested=is_noisy and visible is not None,
        )

    def _came_and_went(self) -> Iterator[Observed]:
        """Yield where versions begin or cease to return a number that has no limit; one with a limit is blind there."""
        known = [] if self.limit else [(place, state) for place, state in enumerate(self.returned) if state is not None]
        for (before, old), (after, new) in pairwise(known):
            if old != new:
                text = (
                    ObservedDifference.RETURNED(name=self.name)
                    if new
                    else ObservedDifference.NO_LONGER_RETURNED(name=self.name)
                )
                yield Observed(signal=self.signal, before=before, after=after, text=text)

    # ------------------------------------------------------------ exact values

    def _of_exact(self, rows: Mapping[int, Floats | None]) -> tuple[tuple[Change, ...], tuple[Observed, ...]]:
        """Return the changes beyond the limit, and all other differences between neighbouring versions."""
        known = {place: values for place, values in rows.items() if values is not None}
        if not known:
            return (), ()
        good = next(iter(known.values()))
        states: list[bool | None] = [None] * len(self.launches)
        for place, values in known.items():
            states[place] = self._is_worse(good, values)
            if not states[place]:
                good = values
        changes = tuple(
            self._change(
                kind, before, after, known, effect=ratio(usual_value(known[before]), usual_value(known[after]))
            )
            for kind, before, after in transitions(states)
            if before is not None
        )
        named = {change.after for change in changes}
        differ = [(a, b) for a, b in pairwise(known) if not same_values(known[a], known[b]) and b not in named]
        return changes, tuple(self._observed(a, b, usual_value(known[a]), usual_value(known[b])) for a, b in differ)

    def _is_worse(self, first: Floats, values: Floats) -> bool:
        if self.limit is None:
            return False
        if self.limit.rule == "equal":
            return not same_values(first, values)
        return self._is_beyond(relative(usual_value(first), usual_value(values)))

    def _is_beyond(self, relative: float) -> bool:
        limit = self.limit or NO_LIMIT
        worse = {"change": abs(relative), "rise": relative, "drop": -relative}.get(limit.rule, 0.0)
        return worse > limit.limit

    def _change(
        self,
        kind: FindingKind,
        before: int,
        after: int,
        known: Collection[int],
        *,
        effect: Effect | None,
        p: float | None = None,
    ) -> Change:
        return Change(
            metric=self.signal,
            kind=kind,
            before=before,
            after=after,
            untestable=uncompared_between(known, before, after),
            effect=effect,
            p=p,
            verdict="value",
        )

    def _observed(self, before: int, after: int, old: float, new: float) -> Observed:
        if old == new:
            text = ObservedDifference.SOME_STEPS_DIFFER(name=self.name)
        elif f"{old:.6g}" == f"{new:.6g}":
            text = ObservedDifference.LAST_DIGITS_CHANGED(name=self.name, old=old, new=new)
        else:
            text = ObservedDifference.VALUE_CHANGED(name=self.name, old=old, new=new)
        return Observed(signal=self.signal, before=before, after=after, text=text)

    # ------------------------------------------------------------ values that differ from launch to launch

    def _of_noisy(
        self, rows: Sequence[Sequence[Floats]]
    ) -> tuple[tuple[Change, ...], tuple[Observed, ...], float | None]:
        """Return the changes beyond the limit or, without a limit, the observed changes; and the minimum detectable
        effect.
        """
        both = [list(zip(trials, own, strict=True)) for trials, own in zip(self.clean, rows, strict=True)]
        columns = {
            place: {
                (trial.run, trial.round): usual_value(values) for trial, values in version if np.isfinite(values).any()
            }
            for place, version in enumerate(both)
        }
        size = scale(columns)
        table = table_of(often(columns), scale=lambda value: value / size)
        spread = None if table is None else noise_within(table.values)
        if table is None or spread is None:
            return (), (), None
        limit = TOLD_CHANGE if self.limit is None or self.limit.rule == "equal" else self.limit.limit
        levels = find_levels(table.values, least=limit, alpha=ALPHA)
        changes = tuple(self._noisy_changes(table, levels))
        if self.limit is None:
            shifts = ((table.positions[shift.before], table.positions[shift.after]) for shift in levels.shifts)
            means = dict(zip(table.positions, table.values.mean(axis=0) * size, strict=True))
            return (), tuple(self._observed(a, b, float(means[a]), float(means[b])) for a, b in shifts), None
        alpha = strictest(self.signal, rows=1)
        rounds, versions = table.values.shape
        return changes, (), least_found(spread, rounds=rounds, versions=versions, alpha=alpha)

    def _noisy_changes(self, table: RoundTable, levels: Levels) -> Iterator[Change]:
        middle = float(table.values.mean())  # levels are relative to their round's mean
        good, bad = middle + levels.means[0], False
        for shift, level in zip(levels.shifts, (middle + mean for mean in levels.means[1:]), strict=True):
            worse = self._is_beyond(relative(good, level, scale=1.0))
            kind: FindingKind = "first_bad" if worse else "first_fixed"
            before, after = table.positions[shift.before], table.positions[shift.after]
            if worse != bad:
                yield self._change(kind, before, after, table.positions, effect=ratio(good, level), p=shift.p)
            bad = worse
            good = good if worse else level

    # ------------------------------------------------------------ what each version shows

    def _rows(self, trial: Trial) -> Floats:
        """Return what the launch returned over the steps that all launches have."""
        trace = trial.trace
        values = None if trace is None else trace.column(self.name)
        if trace is None or values is None:
            return np.empty(0)
        return values[: int(np.searchsorted(trace.step, self.common, side="right"))]

    def _seen(self, place: int, rows: Sequence[Floats], *, visible: float | None, is_noisy: bool) -> SignalVerdict:
        medians = [usual_value(values) for values in rows if np.isfinite(values).any()]
        is_nan = self.nan.states[place]
        value = math.nan if is_nan else float(np.median(medians)) if medians else None
        limit = None if self.limit is None else self.limit.limit
        plain = SignalVerdict(seen="good", value=value, limit=limit, visible=visible)
        if not self.launches[place] or (self.limit is None and not self.returned[place]):
            why = ValueReason.NOT_RETURNED(name=self.name) if rows else ValueReason.NO_WHOLE_LAUNCH()
            return replace(plain, seen="none", why=why)
        if is_nan:
            why = (
                ValueReason.NAN_EVERYWHERE(name=self.name) if all(self.nan.states) else ValueReason.NAN(name=self.name)
            )
            return replace(plain, seen="blind" if self.limit else "none", why=why, visible=None)
        if is_nan is None and any(self.name in trial.not_finite for trial in self.launches[place]):
            return replace(plain, seen="suspect", why=ValueReason.NAN_ONCE(), remedy=Remedy.SETTLED())
        if self.limit is None:
            return replace(plain, visible=None, why=ValueReason.NO_LIMIT())
        return self._by_limit(plain, rows, place=place, limit=self.limit, is_noisy=is_noisy)

    def _why_absent(self, place: int, rows: Sequence[Floats]) -> str:
        """Return why a version has no value of a metric with a limit."""
        if self.returned[place]:
            return ValueReason.NOT_IN_COMMON_STEPS(name=self.name)
        is_text = any(map(len, rows))
        if any(self.returned):
            return (
                ValueReason.RETURNED_TEXT_HERE(name=self.name) if is_text else ValueReason.ABSENT_HERE(name=self.name)
            )
        return ValueReason.RETURNED_TEXT(name=self.name) if is_text else ValueReason.ABSENT(name=self.name)

    def _by_limit(
        self, plain: SignalVerdict, rows: Sequence[Floats], *, place: int, limit: MetricLimit, is_noisy: bool
    ) -> SignalVerdict:
        """Return `plain`, which is good, or a blind verdict if the limit cannot be checked."""
        if not rows:
            return replace(plain, seen="none", why=ValueReason.NO_WHOLE_LAUNCH())
        if plain.value is None:
            remedy = Remedy.LATER_LOOK() if self.returned[place] else ""
            return replace(plain, seen="blind", why=self._why_absent(place, rows), remedy=remedy, visible=None)
        if is_noisy and limit.rule == "equal":
            return replace(plain, seen="blind", why=ValueReason.VARIES(name=self.name))
        if plain.visible is None:
            remedy = Remedy.MORE_LAUNCHES(launches=ENOUGH_LAUNCHES)
            return replace(plain, seen="blind", why=ValueReason.TOO_FEW_AGREE(), remedy=remedy)
        if limit.rule != "equal" and plain.visible > limit.limit:
            falls = limit.rule == "drop"
            visible, least = (log_of_change(share, falls=falls) for share in (plain.visible, limit.limit))
            more = more_launches(len(rows), visible=visible, limit=least)
            written = f"metrics: {{{self.name}: {{{limit.rule}: …}}}}"
            return replace(plain, seen="blind", remedy=wider(written, more=more, timed=False))
        return plain


def _exact(rows: Sequence[Floats]) -> Floats | None:
    """Return the values that all launches returned, of those that returned any; None if they differ or are too few."""
    if len(rows) < AGREE or not all(same_values(rows[0], other) for other in rows[1:]):
        return None
    return rows[0]


# ---------------------------------------------------------------- figures


def same_values(first: Floats, second: Floats) -> bool:
    """Return whether two launches returned the same values."""
    return first.shape == second.shape and bool(np.array_equal(first, second, equal_nan=True))


def usual_value(values: Floats) -> float:
    """Return the median of the finite values after the warm-up quarter; NaN if there are none."""
    finite = values[np.isfinite(values)]
    return float(np.median(finite[int(len(finite) * WARM_UP) :])) if len(finite) else math.nan


def relative(old: float, new: float, *, scale: float = 0.0) -> float:
    """Return the change as a share of the old value, or of `scale` if given, because old values may be near zero."""
    if old == new:
        return 0.0
    size = scale or abs(old)
    return (new - old) / size if size else math.copysign(math.inf, new - old)


def ratio(old: float, new: float) -> Effect | None:
    """Return the ratio of two different positive values, else None: for negative values, "20 % more" would mean the
    opposite, and for values that hardly differ, or differ only in other steps, "0 % more" would mean nothing.
    """
    if min(old, new) <= 0 or not math.isfinite(new / old) or abs(new / old - 1) < HARDLY_DIFFERENT:
        return None
    return Effect(value=new / old, unit="ratio")


def scale(columns: Columns) -> float:
    """Return the median size of the values, by which differences are divided; 1 if it is zero or unknown."""
    sizes = [abs(value) for column in columns.values() for value in column.values() if math.isfinite(value)]
    return float(np.median(sizes)) or 1.0 if sizes else 1.0
