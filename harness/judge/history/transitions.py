"""Finds where verdicts along a series change from good to bad and back, and the unknown versions in between."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import comb

from scipy.special import betaincinv  # scipy.stats takes longer to import than all the rest of a sweep

from harness.judge.history.flaky import MISS, outliving, proven, wanted_launches
from harness.judge.launches import SAME_RATE
from harness.model import (
    BAD,
    FAILURES,
    SIGNALS,
    UNSURE,
    CellVerdict,
    Change,
    Effect,
    FindingKind,
    Interval,
    Metric,
    Trial,
    Trials,
)
from harness.model.judged import State

UNTOLD = UNSURE | {"untested", "incompatible"}
MUCH_WORSE = 2.0
"""Factor by which growth that is already bad must increase to be a new finding; the rates of one leak differ by less.
"""


@dataclass(frozen=True, kw_only=True)
class Usual:
    """The faults that the baseline has, which make no other version bad: failures, leaks up to a rate, a slowdown."""

    failures: frozenset[str] = frozenset()
    leak_kib_per_step: float = -1.0
    slowdown: bool = False


def usual_of(baseline: CellVerdict) -> Usual:
    """Return the faults on which the baseline's launches agree. Leaks count as worse only beyond SAME_RATE times its
    rate.
    """
    shown = set(baseline.verdicts)
    rate = SAME_RATE * (baseline.of("memory").value or 0.0) if "leak" in shown else -1.0
    return Usual(failures=frozenset(shown & FAILURES), leak_kib_per_step=rate, slowdown="slowdown" in shown)


def _usual(cells: Sequence[CellVerdict], baseline: int | None) -> Usual:
    return Usual() if baseline is None else usual_of(cells[baseline])


def outcome_changes(
    cells: Sequence[CellVerdict], trials: Sequence[Sequence[Trial]], *, baseline: int | None, miss: float = MISS
) -> tuple[Change, ...]:
    """Return where crashes, hangs and out-of-memory failures begin or end. If the baseline fails, only other failures
    count. `miss` is as for `find_changes`.
    """
    usual = _usual(cells, baseline).failures
    states = outcome_states(cells)
    if usual:
        states = [bad and not usual & _failures(cell) for bad, cell in zip(states, cells, strict=True)]
    telling = outliving(states, cells, trials)
    return _changes("outcome", proven(states, telling, miss=miss), telling)


def _failures(cell: CellVerdict) -> frozenset[str]:
    """Return the failures of a failing cell; "crash" if it has no such verdict, but died by the signal of a crash."""
    return FAILURES & set(cell.verdicts) or frozenset({"crash"})


def memory_changes(cells: Sequence[CellVerdict], *, baseline: int | None, limit: float) -> tuple[Change, ...]:
    """Return where leaks begin, end, or become much worse, oldest first; `limit` is in KiB/step. If the baseline
    leaks, only worse leaks count.
    """
    least = _usual(cells, baseline).leak_kib_per_step
    states = [
        bad and (cell.of("memory").value or 0.0) > least
        for bad, cell in zip(_states(cells, "leak"), cells, strict=True)
    ]
    worse = worsenings("memory", states, [_effect("memory", cell) for cell in cells], limit=limit)
    return tuple(sorted([*_changes("memory", states, cells), *worse], key=lambda change: change.after))


def growth_changes(
    name: str, cells: Sequence[CellVerdict], *, baseline: int | None, limit: float
) -> tuple[Change, ...]:
    """Return where a count begins or ceases to grow, or grows much faster, oldest first; `limit` is an amount per step.
    If the count grows in the baseline, too, only faster growth counts.
    """
    shown = [cell.signals.get(name) for cell in cells]
    usual = None if baseline is None else shown[baseline]
    least = SAME_RATE * (usual.value or 0.0) if usual is not None and usual.seen == "bad" else -1.0
    states: list[State] = [
        None
        if signal is None or signal.seen not in ("good", "bad")
        else signal.seen == "bad" and (signal.value or 0.0) > least
        for signal in shown
    ]
    rates = [
        None
        if signal is None or signal.value is None
        else Effect(value=signal.value, unit=SIGNALS[name].unit, ci=signal.ci)
        for signal in shown
    ]
    changes = [
        replace(change, effect=rates[change.bad_side], verdict="growth") for change in _changes(name, states, cells)
    ]
    return tuple(sorted([*changes, *worsenings(name, states, rates, limit=limit)], key=lambda change: change.after))


def worsenings(
    metric: Metric, states: Sequence[State], rates: Sequence[Effect | None], *, limit: float
) -> Iterator[Change]:
    """Yield where growth that was already bad becomes much worse: by more than the factor MUCH_WORSE and by at least
    `limit`, with confidence intervals that do not overlap.
    """
    known = [place for place, state in enumerate(states) if state is not None]
    for old, new in itertools.pairwise(known):
        if states[old] and states[new] and _is_much_worse(rates[old], rates[new], limit=limit):
            yield Change(
                metric=metric,
                kind="worse",
                before=old,
                after=new,
                untestable=tuple(range(old + 1, new)),
                effect=rates[new],
                verdict="leak" if metric == "memory" else "growth",
            )


def _is_much_worse(before: Effect | None, after: Effect | None, *, limit: float) -> bool:
    if before is None or after is None or before.ci is None or after.ci is None or before.ci[1] >= after.ci[0]:
        return False
    return after.value > MUCH_WORSE * before.value and after.value - before.value >= limit


def slowdown_changes(cells: Sequence[CellVerdict], *, baseline: int | None, limit: float) -> tuple[Change, ...]:
    """Return where step times begin or cease to drift within a trial; nothing if those of the baseline drift, too.

    A version that is bad for another reason and drifts by more than `limit` (a share), but not in two launches that
    agree, is unknown: launches of a plain leak end early, before a slowdown shows.
    """
    doubtful = [bool(BAD & set(cell.verdicts)) and (cell.drift or 0.0) > limit for cell in cells]
    shown = zip(_states(cells, "slowdown"), doubtful, strict=True)
    states = [None if bad is False and doubts else bad for bad, doubts in shown]
    if _usual(cells, baseline).slowdown:
        states = [None if bad is None else False for bad in states]
    return _changes("step_time", states, cells)


def wants_launches(
    cells: Sequence[CellVerdict], trials: Sequence[Sequence[Trial]], *, trials_asked: Trials
) -> Mapping[int, str]:
    """Return the versions, by position, for which another launch could settle where a flaky failure began or ended,
    with the reason.

    These are good versions near the failure that may have missed it by luck, and bad versions with few failed launches;
    all have fewer launches than `trials_asked.most`.
    """
    states = outcome_states(cells)
    return wanted_launches(states, outliving(states, cells, trials), trials, asked=trials_asked)


def transitions(states: Sequence[State]) -> list[tuple[FindingKind, int | None, int]]:
    """Return (kind, last position of the old side, first of the new side) wherever known states differ. If the first
    one is bad, it begins with an entry that has None for the old side.
    """
    pairs: list[tuple[FindingKind, int | None, int]] = []
    last: int | None = None
    for place, bad in enumerate(states):
        if bad is None:
            continue
        if last is None and bad:
            pairs.append(("bad_from_start", None, place))
        elif last is not None and bad != states[last]:
            pairs.append(("first_bad" if bad else "first_fixed", last, place))
        last = place
    return pairs


def _changes(metric: Metric, states: Sequence[State], cells: Sequence[CellVerdict]) -> tuple[Change, ...]:
    return tuple(
        _change(metric, kind, before=before, after=after, states=states, cells=cells)
        for kind, before, after in transitions(states)
    )


def _change(
    metric: Metric,
    kind: FindingKind,
    *,
    before: int | None,
    after: int,
    states: Sequence[State],
    cells: Sequence[CellVerdict],
) -> Change:
    bad = cells[before] if kind == "first_fixed" and before is not None else cells[after]
    between = range(0 if before is None else before + 1, after)
    p = None if metric != "outcome" or before is None else _fisher_p(states, cells, before=before, after=after)
    return Change(
        metric=metric,
        kind=kind,
        before=before,
        after=after,
        untestable=tuple(place for place in between if states[place] is None),
        effect=_effect(metric, bad),
        p=p,
        verdict=_symptom(metric, bad),
    )


def _symptom(metric: Metric, bad: CellVerdict) -> str:
    if metric == "memory":
        return "leak"
    return "slowdown" if metric == "step_time" else next((name for name in bad.verdicts if name in FAILURES), "crash")


def _effect(metric: Metric, bad: CellVerdict) -> Effect | None:
    memory = bad.of("memory")
    if metric == "memory" and memory.value is not None:
        return Effect(value=memory.value, unit="KiB/step", ci=memory.ci)
    if metric == "step_time" and bad.drift is not None:
        return Effect(value=1 + bad.drift, unit="ratio")
    if metric == "outcome" and bad.trials:
        return Effect(value=bad.failed / bad.trials, unit="failures", ci=exact_interval(bad.failed, bad.trials))
    return None


def exact_interval(failed: int, trials: int) -> Interval:
    """Return the 95 % confidence interval of the failure rate (Clopper and Pearson, 1934)."""
    fine = trials - failed
    low = float(betaincinv(failed, fine + 1, 0.025)) if failed else 0.0
    return low, float(betaincinv(failed + 1, fine, 0.975)) if fine else 1.0


def outcome_states(cells: Sequence[CellVerdict]) -> list[State]:
    """Return whether each cell fails. A launch that died by the signal of a known crash counts as the same failure."""
    failing = [cell for cell in cells if FAILURES & set(cell.verdicts)]
    signals = {cell.signal for cell in failing} - {None}
    least_steps = min((cell.steps for cell in failing), default=0)
    return [
        True if cell.failed and cell.signal in signals else _outcome(cell, least_steps=least_steps) for cell in cells
    ]


def _outcome(cell: CellVerdict, *, least_steps: int) -> State:
    """Return whether a cell fails. If all its launches ended well, it is good even if its memory verdict is unsure,
    unless they ended before `least_steps`, the earliest failure of the series.
    """
    if FAILURES & set(cell.verdicts):
        return True
    if cell.verdict in UNSURE:
        return False if cell.trials and not cell.failed and cell.steps >= least_steps else None
    return None if cell.verdict in UNTOLD else False


def _states(cells: Sequence[CellVerdict], name: str) -> list[State]:
    """Return, for each cell, True if it has the verdict `name`, False if it ran without it, None if that is unknown."""
    states: list[State] = []
    for cell in cells:
        failed = bool(FAILURES & set(cell.verdicts))
        states.append(True if name in cell.verdicts else None if failed or cell.verdict in UNTOLD else False)
    return states


def _fisher_p(states: Sequence[State], cells: Sequence[CellVerdict], *, before: int, after: int) -> float:
    """Return the p-value of Fisher's exact test of the failures on both sides of a change: each side extends over the
    versions of the same state. It is corrected for the number of places at which the failures might have begun, because
    the same failures chose the place.
    """
    places = sum(state is not None for state in states) - 1
    old = _run_counts(states, cells, start=before, direction=-1)
    new = _run_counts(states, cells, start=after, direction=1)
    return min(1.0, places * exact_p(old, new))


def exact_p(old: tuple[int, int], new: tuple[int, int]) -> float:
    """Return the two-sided p-value of Fisher's exact test for the (failed, other) launches of two sides: the
    probability of all distributions of the failures that are at most as likely as the observed one.
    """
    failed, launches = old[0] + new[0], sum(old)
    others = sum(new)
    ways = [comb(launches, new_failed) * comb(others, failed - new_failed) for new_failed in range(failed + 1)]
    return sum(way for way in ways if way <= ways[old[0]]) / sum(ways)


def _run_counts(
    states: Sequence[State], cells: Sequence[CellVerdict], *, start: int, direction: int
) -> tuple[int, int]:
    """Count failed and other launches from `start` on, until the state changes."""
    failed = fine = 0
    place = start
    while 0 <= place < len(states) and states[place] == states[start]:
        failed += cells[place].failed
        fine += cells[place].trials - cells[place].failed
        place += direction
    return failed, fine
