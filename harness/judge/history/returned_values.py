"""Judges the values that a scenario returns or prints: those that differ between versions, those that vanish, and NaN.

A value is *exact* if all launches of a version return the same numbers at the same steps. It is compared step by step
with that of the version before, unless the matrix file has a limit for it. A value that differs from launch to launch
is compared as a level: by the medians of the launches, in rounds. Any other difference of an exact value is reported;
so is the version from which on a value is no longer exact, which is a finding if the value is a result.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, pairwise, takewhile
from typing import Literal

import numpy as np

from harness.agent.result_names import IS_EARLIER, is_error, is_measure
from harness.amounts import count, general, number
from harness.judge.cell import ENOUGH_LAUNCHES, SETTLED, launches_needed, wider, with_trials
from harness.judge.comparison.printed_lines import is_luck, prints_number
from harness.judge.comparison.round_tables import Columns, RoundTable, measured_together, table_of
from harness.judge.comparison.which_launches import Launches, common_steps, is_clean, last_step
from harness.judge.history.changepoints import Laid, find_levels, lay_out
from harness.judge.history.changes import BACK, joined, of_parts
from harness.judge.history.exact_values import (
    EXACT_LIMIT,
    LAST_DIGITS,
    SCORE_LIMIT,
    are_whole,
    in_both,
    is_other,
    is_rounding,
    late_value,
    parts_from,
    relative,
    same_values,
    unit_of,
    usual_value,
    worse_by,
)
from harness.judge.history.rises import SURE, Rise, rises_over
from harness.judge.history.transitions import ALPHA, state_changes, with_sides
from harness.judge.launches import AGREE
from harness.model import (
    METRIC_PREFIX,
    Change,
    ChangeKind,
    Effect,
    Floats,
    Limits,
    MetricLimit,
    Observed,
    SignalVerdict,
    Steps,
    Trial,
    worse_if,
    worse_measure,
)
from harness.model.judged import State
from harness.model.measured import AGENT_COLUMNS, MOST_METRICS, NOT_FINITE


def returned_names(trial: Trial) -> set[str]:
    """Return the names of the numbers that the scenario returned."""
    names = {*(() if trial.trace is None else trial.trace.metrics), *trial.not_finite} - AGENT_COLUMNS
    return {name for name in names if is_returned(name, trial)}


def is_returned(name: str, trial: Trial) -> bool:
    """Return whether a step returned this number, even as NaN. A column without numbers holds text."""
    return name in trial.not_finite or trial.figures(name) is not None


def is_text(name: str, trial: Trial) -> bool:
    """Return whether the launch has this name, but no number under it: its steps returned something else."""
    return trial.trace is not None and trial.trace.column(name) is not None and not is_returned(name, trial)


def first_nan(name: str, launches: Launches) -> int:
    """Return the first step at which any version returned NaN under this name, or the last step of that launch, after
    which it came; 0 if none did."""
    nan = [trial for version in launches for trial in version if name in trial.not_finite]
    return min((min(trial.not_finite[name][1], trial.last_step) for trial in nan), default=0)


def nan_states(name: str, launches: Launches) -> list[State]:
    """Return, for each version, whether it returns NaN under this name; None if that is unknown. Launches that ended
    before the first NaN of any version do not count."""
    states: list[State] = []
    first = first_nan(name, launches)
    for version in launches:
        asked = [trial for trial in version if trial.measured and is_returned(name, trial)]
        is_nan = [name in trial.not_finite for trial in asked if trial.last_step >= first]
        states.append(None if not is_nan or 0 < sum(is_nan) < AGREE else any(is_nan))
    return states


def nan_versions(launches: Launches, limits: Limits) -> Mapping[int, Sequence[str]]:
    """Return, by position, the numbers whose NaN makes a version bad, as another version is without. Its steps may do
    other work than those of other versions, so their times are not compared.
    """
    ignored = {limit.metric for limit in limits.metrics if limit.rule == "none"} | AGENT_COLUMNS
    names = {name for version in launches for trial in version for name in trial.not_finite} - ignored
    bad: dict[int, list[str]] = {}
    for name in sorted(names):
        states = nan_states(name, launches)
        for place, is_nan in enumerate(states):
            if is_nan and False in states:
                bad.setdefault(place, []).append(name)
    return bad


def without_nan(launches: Launches, limits: Limits) -> Launches:
    """Return the launches, without those of versions that are bad because of NaN."""
    bad = nan_versions(launches, limits)
    return [[] if place in bad else version for place, version in enumerate(launches)]


NOISY_LIMIT = 0.10
"""Least change of level, as a share, that is bad for a value that varies between launches and has no limit."""
ABSURD = 1e9
"""Largest multiple of the usual size of a value that is told from still larger ones: their squares must have digits."""
LUCK = 0.05
"""Largest probability that launches agree by chance, if they are said to have had the same value in all."""
OFTEN = 0.25
"""Largest share of launches that repeat another one's value if a version is accused of another value in each launch."""
LOST = 1e-4
"""Least difference between launches, as a share of the largest value, that other seeds make and arithmetic does not."""
UNITS = 2.5
"""Largest difference, in units of the last decimal place, that rounding may hide in other versions."""
BOUNDS = (0.0, 1.0, 100.0)
"""Values that a score or a loss cannot pass, so that launches agree there however much they vary."""
HARDLY_DIFFERENT = 5e-9
"""Share below which a change of a returned value has no size: as a percentage it would read 0."""


OTHER_RESULT = "other_result"
"""Signal of the observation that an exact value is another one, without a proof that it is worse."""
MOST_ASKED = 50.0
"""Largest limit, in percent, that is named for another result."""
SAME = Rise(size=0.0, margin=0.0)
"""The rise of a value that is the same in all launches."""
_WORSE = ("value", "late")


@dataclass(frozen=True, kw_only=True)
class Values:
    """The judgement of one metric of a row: changes, a verdict for each version, and observations. `is_tested`:
    its levels were searched for a change, which chance may produce.
    """

    changes: tuple[Change[int], ...]
    seen: tuple[SignalVerdict, ...]
    observed: tuple[Observed, ...]
    is_tested: bool


def judge_values(
    launches: Launches, *, limits: Limits, steps: Steps, apart: Collection[int] = ()
) -> Mapping[str, Values]:
    """Judge each number that the scenario returned or the matrix file limits, by signal (`metrics.NAME`). `apart`: the
    versions whose launches all ran under other conditions."""
    metrics = _metrics(launches, limits=limits, steps=steps, apart=apart)
    return {metric.signal: metric.judged() for metric in metrics}


def differs_at_its_end(launches: Launches, *, limits: Limits, steps: Steps) -> bool:
    """Return whether a number that launches which stop early do not reach, such as the accuracy that a program prints
    at its end, seems to differ between versions, and only more whole launches can settle that."""
    metrics = _metrics(launches, limits=limits, steps=steps)
    return any(metric.is_late and metric.needs_launches for metric in metrics)


def hides_a_change(launches: Launches, *, limits: Limits, steps: Steps, most: int) -> str | None:
    """Return why one more round of all versions should run, or None: a number varies so much that a change beyond its
    limit in the matrix file may be hidden, which at most `most` launches would show."""
    if any(map(_is_range, limits.metrics)) and max(map(len, launches), default=0) < most:
        for metric in _metrics(launches, limits=limits, steps=steps):
            if metric.hides_a_change(most):
                return f"`{metric.name}` varies between launches by too much for its limit"
    return None


def _is_range(limit: MetricLimit) -> bool:
    return limit.rule in ("rise", "drop", "change")


def _metrics(launches: Launches, *, limits: Limits, steps: Steps, apart: Collection[int] = ()) -> list[_Metric]:
    """Return each number that the scenario returned or the matrix file limits, by name."""
    clean = [[trial for trial in version if is_clean(trial, steps)] for version in launches]
    returned = {name for version in launches for trial in version for name in returned_names(trial)}
    given = {limit.metric: limit for limit in limits.metrics}
    return [
        _Metric(name=name, given=limit, launches=launches, clean=clean, apart=apart)
        for name in sorted(returned | set(given))
        if (limit := given.get(name)) is None or limit.rule != "none"
    ]


@dataclass(frozen=True, kw_only=True)
class _Metric:
    """One metric of a row. `given` is what the matrix file says of it; `clean`: the launches that can be compared."""

    name: str
    given: MetricLimit | None
    launches: Launches
    clean: Launches
    apart: Collection[int]

    # ------------------------------------------------------------ its numbers

    @cached_property
    def returned(self) -> Sequence[State]:
        """Return, for each version, whether a step returned the number; None if no launch can have shown that."""
        shown = [[is_returned(self.name, trial) for trial in own if self._reached(trial)] for own in self.clean]
        return [any(own) if own else None for own in shown]

    @cached_property
    def due(self) -> tuple[float, bool]:
        """Return the latest step at which a launch first had the number, and whether all that have it had ended by
        themselves by then."""
        have = [trial for trial in chain(*self.clean) if first_step(trial, self.name) is not None]
        due = max(self.firsts, default=0.0)
        return due, all(trial.run_s is not None and trial.last_step <= due for trial in have)

    def _reached(self, trial: Trial) -> bool:
        """Return whether a launch has the number, or was long enough for it."""
        due, is_at_end = self.due
        is_cut = is_at_end and trial.run_s is None
        return is_returned(self.name, trial) or (trial.last_step > due if is_cut else trial.last_step >= due)

    @cached_property
    def compared(self) -> Launches:
        """Return the launches without those that ended before the first of these numbers was due."""
        have = [[trial for trial in version if first_step(trial, self.name) is not None] for version in self.clean]
        return have if self.is_late else self.clean

    @cached_property
    def rows(self) -> Sequence[Mapping[Trial, Floats]]:
        """Return the numbers of each launch over the steps that all launches made."""
        common = math.inf if self.is_at_end else common_steps(self.compared)
        return [{trial: _rows(trial, self.name, last=common) for trial in version} for version in self.compared]

    @cached_property
    def firsts(self) -> Sequence[float]:
        """Return the first step of each launch of which it has the number."""
        return [at for trial in chain(*self.clean) if (at := first_step(trial, self.name)) is not None]

    @cached_property
    def is_late(self) -> bool:
        """Return whether some launches ended before the first of these numbers was due."""
        return bool(self.firsts) and min(last_step(trial.trace) for trial in chain(*self.clean)) < min(self.firsts)

    @cached_property
    def is_at_end(self) -> bool:
        """Return whether the number is late and comes only in the last row of launches, or their rows are no steps."""
        return self.is_late and all(
            not _has_steps(trial) or first_step(trial, self.name) == last_step(trial.trace)
            for trial in chain(*self.compared)
        )

    @cached_property
    def long_rows(self) -> Sequence[Mapping[Trial, Floats]]:
        """Return the numbers of the launches that made as many steps as most did: the first round is brief, and an end
        that differs comes late. A number that comes at the end counts whenever it comes."""
        last, least = (math.inf, 0) if self.is_at_end else [reached_steps(self.compared)] * 2
        return [
            {trial: _rows(trial, self.name, last=last) for trial in version if last_step(trial.trace) >= least}
            for version in self.compared
        ]

    @cached_property
    def having(self) -> Sequence[Mapping[Trial, Floats]]:
        """Return the `long_rows` that have a number."""
        return [{trial: values for trial, values in own.items() if np.isfinite(values).any()} for own in self.long_rows]

    @cached_property
    def known(self) -> Sequence[Sequence[Floats]]:
        return [[*own.values()] for own in self.having]

    @cached_property
    def exact(self) -> Sequence[Floats | None]:
        """Return the numbers of each version of which all launches that have any, at least AGREE, have the same. If
        they are the same in all launches of all versions, those of one launch are enough. A rate is never exact."""
        every = list(chain(*self.known))
        enough = 1 if len(every) >= AGREE and _are_same(every) else AGREE
        if self.is_answer and worse_measure(self.name):
            return [None for _ in self.known]  # it varies, even if a few launches agree
        return [own[0] if len(own) >= enough and _are_same(own) else None for own in self.known]

    @cached_property
    def is_noisy(self) -> bool:
        """Return whether the launches of any version differ."""
        return any(len(own) >= AGREE and values is None for own, values in zip(self.known, self.exact, strict=True))

    @property
    def needs_launches(self) -> bool:
        """Return whether more launches that have the number may change what is told: its levels differ by more than the
        limit, or versions have other numbers that may be exact, which AGREE launches of each version show."""
        every = list(chain(*self.known))
        levels = [float(np.mean([late_value(values) for values in own])) for own in self.known if own]
        limit = math.inf if self.rule is None or self.rule.rule == "equal" else self.rule.limit
        if levels and np.ptp(levels) > limit * max(map(abs, levels)):
            return True
        may_be_exact = not self.is_noisy and (self.rule is not None or any(own is not None for own in self.exact))
        is_shown = len(every) >= AGREE * len(levels)
        return may_be_exact and not is_shown and not _are_same(every)

    @cached_property
    def largest(self) -> float:
        """Return the largest size of a number, to which the last digits are relative."""
        every = (values[np.isfinite(values)] for own in self.known for values in own)
        return max((float(np.abs(values).max()) for values in every), default=0.0)

    def _is_rounding(self, old: Floats, new: Floats) -> bool:
        least = LAST_DIGITS if self.limit is None else 0.0
        return is_rounding(*in_both(old, new), largest=self.largest, least=least)

    def _sized(self, values: Floats) -> Floats:
        """Return what is compared: of an error, of which a rise is worse, its size."""
        by_size = self.rule is not None and self.rule.rule == "rise" and is_error(self.name)
        return np.abs(values) if by_size else values

    # ------------------------------------------------------------ what counts as bad

    @property
    def limit(self) -> MetricLimit | None:
        """Return the limit of the matrix file; None if it has none, so that the usual ones apply."""
        return None if self.given is not None and self.given.rule == "reproducible" else self.given

    @cached_property
    def rule(self) -> MetricLimit | None:
        """Return the limit of the matrix file, or the usual one. None: nothing is bad, as if a number varies whose name
        does not tell what is worse."""
        usual = worse_if(self.name) or (worse_measure(self.name) if self.is_answer else None)
        if self.limit is not None or not usual:
            return self.limit
        if usual == "change" and (self.is_noisy or self._is_package):
            return None
        return MetricLimit(metric=self.name, rule=usual, limit=self.noisy_limit)

    @cached_property
    def is_answer(self) -> bool:
        """Return whether the number is a time, a rate or an amount that a program without steps printed."""
        return is_measure(self.name) and not any(map(_has_steps, chain(*self.clean)))

    @cached_property
    def noisy_limit(self) -> float:
        """Return the usual limit of a value that varies. That of a score between 0 and 1 is narrower: users compare
        accuracies by the point."""
        every = [values[np.isfinite(values)] for own in self.known for values in own]
        is_share = worse_if(self.name) == "drop" and all(((each >= 0) & (each <= 1)).all() for each in every)
        return SCORE_LIMIT if is_share else NOISY_LIMIT

    @property
    def _is_package(self) -> bool:
        """Return whether the number is the version of a package: `numpy 2.1`."""
        packages = (trial.facts.packages for version in self.launches for trial in version)
        return any(self.name.lower() in each for each in packages if each)

    @property
    def signal(self) -> str:
        return f"{METRIC_PREFIX}{self.name}"

    @cached_property
    def nan(self) -> Sequence[State]:
        return nan_states(self.name, self.launches)

    def _is_other(self, place: int) -> bool:
        """Return whether a version is bad because of NaN: what it has are the numbers of other steps."""
        return bool(self.nan[place]) and False in self.nan

    def judged(self) -> Values:
        exact, is_noisy = self.exact, self.is_noisy
        rises = {place: SAME for place, own in enumerate(exact) if own is not None}
        varies, lost = self._no_longer_exact()
        if is_noisy:
            changes, observed, rises = self._of_noisy(self.rows, usual_value)
            if not changes and not self.is_at_end:
                late, _, of_late = self._of_noisy(self.long_rows, late_value)
                changes = [replace(change, verdict="late") for change in late]
                rises = of_late if changes else rises
            changes = [one for one in changes if not any(one.after == each.after for each in varies)]
        else:
            known = {at: own for at, own in enumerate(exact) if own is not None and not self._is_other(at)}
            changes, observed, worse = self._of_exact(known)
            rises |= {place: Rise(size=share, margin=0.0) for place, share in worse.items() if self.limit is not None}
        some = [one for one in self._in_some_steps() if not any(one.after == each.after for each in changes)]
        observed = [*some, *(one for one in observed if not any(one.after == each.after for each in some))]
        is_late = any(change.verdict == "late" for change in changes)
        figure, rows = (
            (late_value if is_late else usual_value),
            (self.rows if is_noisy and not is_late else self.long_rows),
        )
        seen = [
            self._verdict(place, list(own.values()), figure=figure, rise=rises.get(place))
            for place, own in enumerate(rows)
        ]
        for one in observed:
            for place in range(one.after, one.after if one.last is None else one.last + 1):
                seen[place] = self._undecided(seen[place], exact[one.before], exact[place])
        vanished = self._vanished()
        begun = [
            change
            for verdict, states in {"nan": self.nan, "vanished": vanished}.items()
            for change in state_changes(self.signal, states, verdict=verdict)
        ]
        return Values(
            # NaN or an infinity from the start is not a change.
            changes=(*(change for change in begun if change.before is not None), *varies, *changes),
            seen=tuple(seen),
            observed=(
                *self._came_and_went(vanished),
                *lost,
                *(() if first_nan(self.name, self.launches) else observed),
            ),
            is_tested=is_noisy and bool(rises),
        )

    def _vanished(self) -> list[State]:
        """Return, for each version, whether it no longer returns the number, if its name tells that it is a result: all
        launches of the versions before do. A launch that ended before the first of these numbers does not count, nor
        one that has no room for it. A number that another of the same kind replaces (`acc`, `accuracy`) is renamed, and
        without `accuracy (1)`, `accuracy` is printed another number of times, perhaps more than the agent tells apart.
        """
        is_result = self.given is not None or worse_if(self.name) in ("rise", "drop")
        states: list[State] = []
        for own in self.clean:
            # The agent records MOST_METRICS numbers, so that others may be missing beside as many.
            able = [trial for trial in own if trial.trace is None or len(trial.trace.metrics) < MOST_METRICS]
            long = [trial for trial in able if is_result and self.firsts and self._reached(trial)]
            asked = [is_returned(self.name, trial) for trial in long if not is_text(self.name, trial)]
            is_known = any(state is False for state in states) or all(asked)
            agree = len(set(asked)) == 1 and len(asked) >= AGREE
            states.append(not asked[0] if agree and is_known else None)
        had = [place for place, state in enumerate(states) if state is False]
        return [None if state and self._is_replaced(had, place) else state for place, state in enumerate(states)]

    def _is_replaced(self, had: Sequence[int], place: int) -> bool:
        """Return whether the version has the later numbers of this name, or a number of the same kind that those at
        `had` do not have."""
        names = {name for trial in self.clean[place] for name in returned_names(trial)}
        if IS_EARLIER.sub("", self.name) in names:
            return True
        names -= {name for at in had for trial in self.clean[at] for name in returned_names(trial)}
        return any(worse_if(name) == worse_if(self.name) for name in names)

    # ------------------------------------------------------------ values that are no longer exact

    def _no_longer_exact(self) -> tuple[list[Change[int]], list[Observed]]:
        """Return where launches cease to agree to the last digit, and begin again: as changes if the matrix file asks,
        or if the number is a result that differs by more than rounding; else as observations.
        """
        is_asked = self.given is not None and self.given.rule == "reproducible"
        agreeing = [
            max(sum(same_values(each, other) for other in own) for each in own) if own else 0 for own in self.known
        ]
        states = [None if len(own) < AGREE else same < len(own) for own, same in zip(self.known, agreeing, strict=True)]
        found = () if self.is_answer else state_changes(self.signal, states, verdict="varies")
        begun = [change for change in found if change.before is not None]
        changes: list[Change[int]] = []
        observed: list[Observed] = []
        for change, *sides in with_sides(begun, versions=len(states)):
            exact, other = (
                [place for side in sides for place in side if states[place] is state] for state in (False, True)
            )
            before, after = (sum(len(self.known[place]) for place in side) for side in (exact, other))
            same = sum(agreeing[place] for place in other)
            if (same / after) ** before > LUCK:
                continue
            repeats = (same - len(other)) / (after - len(other))
            is_result = after > AGREE and repeats <= OFTEN and self._is_lost_result(exact, other)
            is_begun = change.kind == "first_bad" or bool(changes and changes[-1].kind == "first_bad")
            if is_asked or (is_result and is_begun):
                changes.append(change)
            elif change.kind == "first_bad" and change.before is not None:
                text = f"{self.name} was the same in all launches and now differs from launch to launch"
                text = f"{text} ({count(after, 'launch')} against {before:,})"
                observed.append(Observed(signal=self.signal, before=change.before, after=change.after, text=text))
        return changes, observed

    def _is_lost_result(self, exact: Sequence[int], other: Sequence[int]) -> bool:
        """Return whether a result was exact in some versions and differs in the others by more than the last digits, or
        the rounding of printed numbers, hide."""
        old = np.concatenate([values for place in exact for values in self.known[place]])
        every = np.concatenate([old, *(values for place in other for values in self.known[place])])
        rows = min(map(len, (values for place in other for values in self.known[place])))
        spreads = [np.ptp([values[:rows] for values in self.known[place]], axis=0) for place in other]
        spread = float(np.nanmax(spreads, initial=0.0))
        is_bound = bool(np.isin(old[np.isfinite(old)], BOUNDS).all())
        least = max(UNITS * unit_of(every[np.isfinite(every)]), LOST * self.largest, LAST_DIGITS)
        return worse_if(self.name) in ("rise", "drop") and not is_bound and spread > least

    def _came_and_went(self, vanished: Sequence[State]) -> Iterator[Observed]:
        """Yield where versions begin or cease to return a number that has no limit, unless that is a finding; one with
        a limit is blind there. How often a number is printed between two steps may depend on the time."""
        known = (
            []
            if self.limit or IS_EARLIER.search(self.name)
            else [(place, state) for place, state in enumerate(self.returned) if state is not None]
        )
        for (before, old), (after, new) in pairwise(known):
            lacking = self.launches[before if new else after]
            if old != new and not vanished[after] and not prints_number(self.name, lacking):
                text = f"{self.name} is new" if new else f"{self.name} is gone"
                yield Observed(signal=self.signal, before=before, after=after, text=text)

    def _in_some_steps(self) -> Iterator[Observed]:
        """Yield where a result that was the same in all steps of all launches of all versions before is another one, or
        missing, in some steps of all launches, but not where it comes by chance. Requests that failed do not count."""
        is_judged = worse_if(self.name) and not self._is_package if self.limit is None else self.limit.rule == "equal"
        answers = {place: list(map(_answers, own, own.values())) for place, own in enumerate(self.having) if own}
        if not is_judged or IS_EARLIER.search(self.name) or is_luck(list(map(len, answers.values()))):
            return
        usual = {place: usual_value(np.concatenate(own)) for place, own in answers.items()}
        least = LAST_DIGITS * self.largest
        strays = {
            place: [each[~(np.abs(each - usual[place]) <= least)] for each in answers[place]] for place in answers
        }
        shows = {place: {len(each) > 0 for each in own} for place, own in strays.items()}
        after = next((place for place in shows if True in shows[place]), -1)
        before = max((place for place in shows if place < after), default=-1)
        if before < 0 or {True, False} in shows.values() or abs(usual[after] - usual[before]) > least:
            return
        last = [*takewhile(lambda place: True in shows[place], (place for place in shows if place >= after))][-1]
        every = np.concatenate(strays[after])
        others = every[np.isfinite(every)]
        told = dict.fromkeys(general(value, 6) for value in (others.min(), others.max())) if len(others) else ()
        what = f"{' to '.join(told)} instead of {general(usual[after], 6)}" if told else "is missing"
        share = (len(others) or len(every)) / sum(map(len, answers[after]))
        text = f"{self.name} {what} in {general(100 * share, 2)} % of its steps"
        yield Observed(signal=OTHER_RESULT, before=before, after=after, last=last, text=text)

    def _observed(self, before: int, after: int, old: float, new: float, *, last: int | None = None) -> Observed:
        """Return a change that is no finding; up to the version `last`, if that is known, it is another result."""
        if old == new:
            text = f"{self.name} differs in some steps"
        else:
            told = [general(value, 15 if are_whole(np.array([old, new])) else 6) for value in (old, new)]
            text = f"{self.name} {' → '.join(told if told[0] != told[1] else map(repr, (old, new)))}"
        if last is not None:
            return Observed(signal=OTHER_RESULT, before=before, after=after, last=last, text=f"{text} in every launch")
        return Observed(signal=self.signal, before=before, after=after, text=text)

    def _is_beyond(self, old: float, new: float, *, scale: float = 0.0) -> bool:
        """Return whether a value is worse than another by more than the limit, and by more than rounding."""
        if self.rule is None or self._is_rounding(np.array([old]), np.array([new])):
            return False
        return worse_by(relative(old, new, scale=scale), self.rule.rule) > self.rule.limit

    @property
    def _is_one_way(self) -> bool:
        """Return whether only a rise or only a drop is bad. Then a bad value can become worse: of a value of which any
        change is bad, none is worse than another."""
        return self.rule is not None and self.rule.rule in ("rise", "drop")

    def _is_better(self, best: float, value: float) -> bool:
        """Return whether a value takes the place of the best one so far, with which later ones are compared. A value of
        which any change is worse is compared with that of the version before."""
        return self.rule is None or not self._is_one_way or worse_by(relative(best, value), self.rule.rule) < 0

    # ------------------------------------------------------------ exact values

    def _of_exact(self, known: Mapping[int, Floats]) -> tuple[list[Change[int]], list[Observed], Mapping[int, float]]:
        """Return the changes beyond the limit, all other differences between neighbouring versions, and by which share
        each version is worse, unless that is rounding."""
        usual = {place: usual_value(values) for place, values in known.items()}
        sizes = {place: usual_value(self._sized(values)) for place, values in known.items()}
        how, beside, best = dict[int, str](), dict[int, int](), next(iter(known), 0)
        for place, values in known.items():
            how[place], beside[place] = self._how_other(known[best], values), best
            if how[place] not in _WORSE and self._is_better(sizes[best], sizes[place]):
                best = place
        states: list[State] = [
            None if place not in how else how[place] in _WORSE for place in range(len(self.launches))
        ]
        figure, verdict = (late_value, "late") if "late" in how.values() else (usual_value, "value")
        figures = {place: figure(self._sized(values)) for place, values in known.items()}
        changes = list[Change[int]]()
        for change in state_changes(self.signal, states, verdict=verdict):
            before, after = change.before, change.after
            if before is not None:
                creeps = change.kind == "first_bad" and self._how_other(known[before], known[after]) not in _WORSE
                base = beside[after] if creeps else before
                gradual = base != before and all(one.after <= base for one in changes)
                kind: ChangeKind = "drift" if gradual else change.kind
                effect = ratio(figures[base], figures[after])
                changes.append(replace(change, kind=kind, before=base if gradual else before, effect=effect))
        worst = next(iter(known), 0)
        for before, place in pairwise(known):
            beyond = all(self._how_other(known[one], known[place]) in _WORSE for one in (before, worst))
            if not (states[before] and states[place]):
                worst = place
            elif self._is_one_way and beyond:
                effect, worst = ratio(figures[before], figures[place]), place
                changes.append(replace(changes[0], kind="worse", before=before, after=place, effect=effect))
        changes.sort(key=lambda one: one.after)
        named = {change.after for change in changes}
        other = [(a, b) for a, b in pairwise(known) if not same_values(known[a], known[b])]
        lasts = [*(a for a, _ in other[1:]), max(known, default=0)]
        observed = [
            self._observed(beside[b], b, usual[beside[b]], usual[b], last=last)
            if how[b] == "other"
            else self._observed(a, b, usual[a], usual[b])
            for (a, b), last in zip(other, lasts, strict=False)
            if not (b in named or (self.limit is None and self._is_package))
        ]
        rule = "" if self.rule is None else self.rule.rule
        worse = {
            at: worse_by(relative(sizes[one], sizes[at]), rule)
            for at, one in beside.items()
            if not self._is_rounding(np.array([sizes[one]]), np.array([sizes[at]]))
        }
        return changes, observed, worse

    def _how_other(self, good: Floats, values: Floats) -> Literal["value", "late", "other", ""]:
        """Return whether an exact value is worse than a good one, all along or at its end, or another result without a
        limit of the matrix file; "" if neither."""
        rule = self.rule
        if self.limit is not None and self.limit.rule == "equal":
            return "" if same_values(good, values) else "value"
        if rule is None or self._is_rounding(good, values):
            return ""
        old, new = self._sized(good), self._sized(values)
        if self.limit is not None:
            if self._is_beyond(usual_value(old), usual_value(new)):
                return "value"
            is_late = parts_from(old, new, rule.rule) == "late" and self._is_beyond(late_value(old), late_value(new))
            return "late" if is_late else ""
        return parts_from(old, new, rule.rule) or ("other" if is_other(old, new, rule.rule) else "")

    # ------------------------------------------------------------ values that differ from launch to launch

    def _of_noisy(
        self, rows: Sequence[Mapping[Trial, Floats]], figure: Callable[[Floats], float]
    ) -> tuple[list[Change[int]], list[Observed], dict[int, Rise]]:
        """Return the changes beyond the limit, without a limit of the matrix file also the other changes, which are
        observed; and by which share each version may be worse. `figure` is that of a launch.
        """
        rows = [{trial: values for trial, values in own.items() if not trial.is_replicate} for own in rows]
        columns = {
            place: {
                (trial.run, trial.round): figure(self._sized(values))
                for trial, values in own.items()
                if np.isfinite(values).any()
            }
            for place, own in enumerate(rows)
            if not self._is_other(place)
        }
        size, told = scale(columns), list[tuple[Sequence[int], Sequence[Change[int]]]]()
        observed, rises = list[Observed](), dict[int, Rise]()
        for part in measured_together([list(own) for own in rows]):
            ran = [{(trial.run, trial.round) for trial in own} for own in part]
            own = {place: {at: column[at] for at in column if at in ran[place]} for place, column in columns.items()}
            table = table_of(own, scale=lambda value: min(max(value / size, -ABSURD), ABSURD))
            if table is not None:
                found, seen, own_rises = self._of_table(table, size=size)
                rises = {**own_rises, **rises}
                observed += [each for each in seen if not any({each.before, each.after} <= {*at} for at, _ in told)]
                told.append((table.positions, found))
        usual = {place: float(np.mean([*column.values()])) for place, column in columns.items() if column}
        if rises and (few := usual.keys() - rises.keys()):  # versions with too few launches to compare by rounds
            oldest, rule = usual[min(rises)], "change" if self.rule is None else self.rule.rule
            wide = max(rise.margin for rise in rises.values()) * math.sqrt(max(map(len, columns.values())))
            for place in few:
                change = relative(oldest, usual[place], scale=0.0 if oldest else size)
                rises[place] = Rise(size=worse_by(change, rule), margin=wide)
        return of_parts(told), observed, rises

    def _of_table(self, table: RoundTable, *, size: float) -> tuple[list[Change[int]], list[Observed], dict[int, Rise]]:
        """Return what `_of_noisy` does, by one table of values as shares of `size`."""
        limit = NOISY_LIMIT if self.rule is None or self.rule.rule == "equal" else self.rule.limit
        laid, places = lay_out(table.values), table.positions
        levels = find_levels(laid, least=limit, alpha=ALPHA)
        means = dict(zip(places, (float(mean) * size for mean in table.levels), strict=True))
        observed = []
        heights = [float(table.levels.mean()) + mean for mean in levels.means]  # levels are relative to the mean
        sizes = np.maximum(np.abs(heights), laid.spread.deviation)  # a level may be near zero
        best, bad, top, worst, low, over = 0, False, heights[0], heights[0], 0, [0]
        changes: list[Change[int]] = []
        for at, (shift, level) in enumerate(zip(levels.shifts, heights[1:], strict=True)):
            is_jump, good = abs(shift.size) >= limit * sizes[at], heights[best]
            is_back = abs(level - top) > BACK * abs(top - good)
            worse = self._is_beyond(good * size, level * size, scale=sizes[best] * size) or (bad and not is_back)
            beyond = all(self._is_beyond(one * size, level * size) for one in (heights[at], worst))
            if worse != bad or (bad and is_jump and self._is_one_way and beyond):
                whole = shift if bad or is_jump or low == at else joined(levels.shifts[low : at + 1])
                begins: ChangeKind = "drift" if whole.drift else "worse" if bad else "first_bad"
                margin = (whole.interval[1] - whole.interval[0]) / 2
                change = Change(
                    metric=self.signal, kind=begins if worse else "first_fixed", before=places[whole.before],
                    after=places[whole.after], effect=ratio(heights[at] if bad else good, level, margin=margin),
                    p=whole.p, verdict="value",
                )  # fmt: skip
                changes.append(change)
                low, worst = at + 1, level
            elif is_jump and self.limit is None:
                before, after = places[shift.before], places[shift.after]
                observed.append(self._observed(before, after, means[before], means[after]))
            bad, top = worse, level if worse else top
            over.append(best)
            if not worse and self._is_better(good * size, level * size):
                best = low = at + 1
        rises = self._rises(laid, levels.pieces(laid.versions), [(one,) for one in over], sizes)
        return changes, observed, dict(zip(places, rises, strict=True))

    def _rises(self, laid: Laid, pieces: Sequence[range], over: Sequence[tuple[int]], sizes: Floats) -> Iterator[Rise]:
        """Yield for each version by which share it may be worse than the level that it is compared with, or may differ
        from it if both directions count."""
        signs = {"rise": (1,), "drop": (-1,)}.get("" if self.rule is None else self.rule.rule, (1, -1))
        turned = (replace(laid, values=sign * laid.values, raw=sign * laid.raw) for sign in signs)
        ways = [rises_over(each, pieces, over, base=0, least=0.0) for each in turned]
        shares = [float(sizes[one]) for piece, (one,) in zip(pieces, over, strict=True) for _ in piece]
        for rises, share in zip(zip(*ways, strict=True), shares, strict=True):
            rise = max(rises, key=lambda one: one.high)
            yield Rise(size=rise.size / share, margin=rise.margin / share)

    # ------------------------------------------------------------ verdicts

    def _verdict(
        self, place: int, rows: Sequence[Floats], *, figure: Callable[[Floats], float], rise: Rise | None
    ) -> SignalVerdict:
        """Return what a version shows. `figure` is that of a launch, `rise` the share by which it may be worse."""
        medians = [figure(values) for values in rows if np.isfinite(values).any()]
        is_nan, name = self.nan[place], self.name
        value = math.nan if is_nan else float(np.median(medians)) if medians else None
        limit = None if self.limit is None else self.limit.limit
        if self.limit is None and self.rule is not None and (self.is_noisy or len(self.clean) > 1):
            limit = self.noisy_limit if self.is_noisy else EXACT_LIMIT
        plain = SignalVerdict(seen="good", value=value, limit=limit, visible=None if rise is None else rise.high)
        if place in self.apart:
            why = "its launches ran under other conditions than those of the other versions"
            remedy = "`--fresh` measures all versions again, side by side"
            return replace(
                plain, seen="blind" if self.limit else "none", why=why, remedy=remedy, apart=True, visible=None
            )
        if is_nan:
            why = f"`{name}` was {NOT_FINITE}{' in every version' if all(self.nan) else ''}"
            return replace(plain, seen="blind" if self.limit else "none", why=why, visible=None)
        if is_nan is None and any(name in trial.not_finite for trial in self.launches[place]):
            return replace(plain, seen="suspect", why=f"`{name}` was {NOT_FINITE} in one launch", remedy=SETTLED)
        if not rows or (self.limit is None and not self.returned[place]):
            gave = (
                f"this version gave no `{name}`" if self.returned[place] is False else "its launches did not reach it"
            )
            why = gave if rows else "not measured: no launch completed its steps"
            return replace(plain, seen="none", why=why)
        if self.limit is None:
            return self._by_usual_limit(plain)
        return self._by_limit(plain, rows, place=place, limit=self.limit, rise=rise)

    def _by_usual_limit(self, plain: SignalVerdict) -> SignalVerdict:
        """Return `plain`, which is good, or a verdict of `none` if a change might not have shown. It is not blind:
        nobody asked for this limit."""
        if self.rule is None:
            plain, why = replace(plain, visible=None), "checked for NaN and infinity only"
            if not (self.is_noisy and (worse_if(self.name) == "change" or self.is_answer)):
                return replace(plain, why=f"{why}: it has no limit")
            remedy = f"`metrics: {{{self.name}: {{rise: 10%}}}}` or `drop` judges it"
            return replace(plain, seen="none", why=f"{why}: its name does not tell what is worse", remedy=remedy)
        if plain.visible is None:
            return replace(plain, seen="none", why="two launches that agree are needed")
        if plain.visible > self.noisy_limit:
            why = "its launches differ so much that a change beyond the limit might not have shown"
            return replace(plain, seen="none", why=why)
        return plain

    def _undecided(self, plain: SignalVerdict, old: Floats | None, new: Floats | None) -> SignalVerdict:
        """Return the verdict on an exact value that is another one, but not worse by the usual limits. The limit that
        is named is at most half the change, so that this is a finding, or accepted if it is better."""
        if plain.seen != "good" or self.limit or self.rule is None or old is None or new is None:
            return plain
        change = relative(*(usual_value(self._sized(values)) for values in (old, new)))
        limit = min(100 * abs(change) / 2, MOST_ASKED) or 1.0
        is_worse = self.rule.rule == "change" or worse_by(change, self.rule.rule) > 0
        is_exact = is_worse and are_whole(old, new)
        asked = "equal" if is_exact else f"{{{self.rule.rule}: {number(limit, digits=1)}%}}"
        judges = "makes it a finding" if is_worse else "accepts it"
        why = "another result, the same in all launches; whether another seed, or rounding, makes it cannot be told"
        remedy = f"`metrics: {{{self.name}: {asked}}}` {judges}"
        return replace(plain, seen="none", why=why, remedy=remedy)

    def _by_limit(
        self, plain: SignalVerdict, rows: Sequence[Floats], *, place: int, limit: MetricLimit, rise: Rise | None
    ) -> SignalVerdict:
        """Return `plain`, which is good, or a blind verdict if the limit cannot be checked."""
        if plain.value is None:
            remedy = "a larger `steps: {first: …}` lets every launch make such a step" if self.returned[place] else ""
            return replace(plain, seen="blind", why=self._why_absent(place, rows), remedy=remedy, visible=None)
        if self.is_noisy and limit.rule == "equal":
            why = (
                f"`{self.name}: equal` cannot be checked: the value differs between launches of one version; seed the "
                f"scenario, or write `{self.name}: {{change: 1%}}`"
            )
            return replace(plain, seen="blind", why=why)
        if rise is None and sum(map(bool, self.known)) < 2:
            return replace(plain, seen="blind", why="there is no other version to compare it with")
        if rise is None:
            remedy = with_trials(ENOUGH_LAUNCHES)
            return replace(plain, seen="blind", why="two launches that agree are needed", remedy=remedy)
        if _is_range(limit) and rise.high > limit.limit:
            needed = self._needed(len(rows), rise, limit=limit.limit)
            more = "" if needed is None else with_trials(needed)
            written = f"metrics: {{{self.name}: {{{limit.rule}: …}}}}"
            return replace(plain, seen="blind", remedy=wider(written, more=more, timed=False))
        return plain

    def _needed(self, launches: int, rise: Rise, *, limit: float) -> int | None:
        """Return how many launches of each version would rule out a change beyond the limit."""
        left, versions = limit - max(rise.size, 0.0), len(self.launches)
        return launches_needed(launches, visible=rise.margin, limit=left, versions=versions, share=1 - SURE)

    def hides_a_change(self, most: int) -> bool:
        """Return whether a change beyond the limit of the matrix file may be hidden that `most` launches would show."""
        if self.limit is None or not _is_range(self.limit) or not self.is_noisy:
            return False
        limit, (_, _, rises) = self.limit.limit, self._of_noisy(self.rows, usual_value)
        return any(
            rise.high > limit and (self._needed(len(self.rows[place]), rise, limit=limit) or math.inf) <= most
            for place, rise in rises.items()
        )

    def _why_absent(self, place: int, rows: Sequence[Floats]) -> str:
        """Return why a version has no value of a metric with a limit."""
        is_text, elsewhere = any(map(len, rows)), any(self.returned)
        if self.returned[place]:
            return f"none of the steps that all launches made gave `{self.name}`"
        unlike = ", unlike in other versions" if elsewhere else ""
        return f"no step gave {'a number as ' if is_text else ''}`{self.name}`{unlike}"


# ---------------------------------------------------------------- figures


def _rows(trial: Trial, name: str, *, last: float) -> Floats:
    """Return the numbers that the launch returned up to step `last`; if that is infinite, the last number, whenever it
    came, as for a command without steps: its rows are samples, of which each launch takes another number."""
    values = None if trial.trace is None else trial.trace.column(name)
    if trial.trace is None or values is None:
        return np.empty(0)
    if not _has_steps(trial) or math.isinf(last):
        return values[np.isfinite(values)][-1:]
    return values[: int(np.searchsorted(trial.trace.step, last, side="right"))]


def _answers(trial: Trial, values: Floats) -> Floats:
    """Return the numbers without those of requests that failed, which have none."""
    failed = None if trial.trace is None else trial.trace.column("failed")
    return values if failed is None else values[~(failed[: len(values)] > 0)]


def _are_same(every: Sequence[Floats]) -> bool:
    """Return whether launches have the same numbers."""
    return all(same_values(every[0], other) for other in every[1:])


def _has_steps(trial: Trial) -> bool:
    """Return whether its rows are steps, rather than samples of a command."""
    step_s = None if trial.trace is None else trial.trace.column("step_s")
    return step_s is None or bool(np.isfinite(step_s).any())


def reached_steps(launches: Launches) -> float:
    """Return the number of steps that AGREE launches of each version made, or all of them if it has fewer."""
    ends = [sorted((last_step(trial.trace) for trial in version), reverse=True)[:AGREE] for version in launches]
    return min((version[-1] for version in ends if version), default=0.0)


def first_step(trial: Trial, name: str) -> float | None:
    """Return the first step of which the launch has the number; None if it has none."""
    values = trial.figures(name)
    if trial.trace is None or values is None:
        return None
    return float(trial.trace.step[int(np.isfinite(values).argmax())])


def ratio(old: float, new: float, *, margin: float | None = None) -> Effect | None:
    """Return the ratio of two different positive values, else None: for negative values, "20 % more" would mean the
    opposite, and for values that hardly differ, or differ only in other steps, "0 % more" would mean nothing. `margin`
    is that of their difference, if there is one.
    """
    if min(old, new) <= 0 or not math.isfinite(new / old) or abs(new / old - 1) < HARDLY_DIFFERENT:
        return None
    ci = None if margin is None or margin >= new else ((new - margin) / old, (new + margin) / old)
    return Effect(value=new / old, unit="ratio", ci=ci)


def scale(columns: Columns) -> float:
    """Return the size by which differences are divided: the median of the oldest version's values, because later
    versions must not change what is said of earlier ones. If it is nothing beside the median of all values, the latter;
    1 if that is zero or unknown."""
    sizes = [[abs(value) for value in column.values() if math.isfinite(value)] for column in columns.values()]
    every = float(np.median([*chain(*sizes)])) if any(sizes) else 0.0
    oldest = next((float(np.median(own)) for own in sizes if own), 0.0)
    return (oldest if oldest > LAST_DIGITS * every else every) or 1.0
