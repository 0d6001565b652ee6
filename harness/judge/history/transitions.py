"""Finds where verdicts along a series change from good to bad and back, and the unknown versions in between."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import comb

import numpy as np
from scipy.special import betaincinv  # scipy.stats takes longer to import than all the rest of a sweep

from harness.judge.comparison.compared_levels import FEWEST_OF_MODE, Modes
from harness.judge.history.changepoints import named
from harness.judge.history.flaky import MISS, Evidence, outliving, proven, seen_in, wanted_launches
from harness.judge.launches import AGREE, SAME_RATE
from harness.model import (
    BAD,
    FAILURES,
    SIGNALS,
    UNSURE,
    CellVerdict,
    Change,
    ChangeKind,
    Effect,
    Floats,
    Interval,
    Metric,
    SignalVerdict,
    Trial,
    Trials,
    VerdictName,
    unit_per,
)
from harness.model.judged import UNMEASURED, State
from harness.model.signals import MOST_LOG

FailureName = tuple[str, int | None, str]
"""What tells one failure from another: see `Trial.failed_by`."""
ALPHA = 0.008
"""Chance of a false change in a series, for each metric."""
UNTOLD = UNSURE | UNMEASURED
MUCH_WORSE = 2.0
"""Factor by which growth that is already bad must increase to be a new finding; the rates of one leak differ by less.
"""


def state_changes(metric: Metric, states: Sequence[State], *, verdict: str = "") -> list[Change[int]]:
    """Return the changes, without figures, wherever known states differ, oldest first. If the first known one is bad,
    the first change has no old side.
    """
    changes: list[Change[int]] = []
    last: int | None = None
    for place, bad in enumerate(states):
        if bad is None:
            continue
        if bad if last is None else bad != states[last]:
            kind: ChangeKind = "bad_from_start" if last is None else "first_bad" if bad else "first_fixed"
            changes.append(Change(metric=metric, kind=kind, before=last, after=place, verdict=verdict))
        last = place
    return changes


def usual_failures(baseline: CellVerdict | None) -> frozenset[str]:
    """Return the failures on which the baseline's launches agree, which make no other version bad."""
    return frozenset() if baseline is None else frozenset(FAILURES & set(baseline.verdicts))


def usual_rate(baseline: CellVerdict | None, name: str = "memory") -> float:
    """Return the rate up to which growth makes no version bad, because it is that of the baseline; -1 if that does not
    grow. Other growth counts as worse only beyond SAME_RATE times the baseline's rate.
    """
    if baseline is None or not ("leak" in baseline.verdicts if name == "memory" else baseline.of(name).seen == "bad"):
        return -1.0
    return SAME_RATE * (baseline.of(name).value or 0.0)


def _states(cells: Sequence[CellVerdict], name: str) -> list[State]:
    """Return, for each cell, True if it has the verdict `name`, False if it ran without it, None if that is unknown."""
    return [
        True if name in cell.verdicts else None if cell.verdict in UNTOLD or FAILURES & set(cell.verdicts) else False
        for cell in cells
    ]


# ---------------------------------------------------------------- failures


def outcome_changes(
    cells: Sequence[CellVerdict], trials: Sequence[Sequence[Trial]], *, baseline: int | None, miss: float = MISS
) -> tuple[Change[int], ...]:
    """Return where crashes, hangs and out-of-memory failures begin or end. If the baseline fails, only other failures
    count. `miss` is as for `find_changes`.
    """
    usual = usual_failures(None if baseline is None else cells[baseline])
    cells, trials = without_flakes(cells, trials)
    states = outcome_states(cells)
    if usual:
        # A cell that has no such verdict, but died by the signal of a crash, crashed.
        failures = [FAILURES & set(cell.verdicts) or {"crash"} for cell in cells]
        states = [bad and not usual & own for bad, own in zip(states, failures, strict=True)]
    telling = outliving(states, cells, trials)
    seen = seen_in(states, telling)
    states = proven(states, seen, miss=miss)
    changes: list[Change[int]] = []
    for change, *sides in with_sides(state_changes("outcome", states), versions=len(cells)):
        side = sides[0] if change.kind == "first_fixed" else sides[1]
        bad = [place for place in side if states[place]]
        failed, fine = _counted(seen, bad)
        if fine:  # it does not always come, so that versions between that seem good are evidence of how often it does
            is_last = side.stop == len(cells) and change.before is not None  # else only what failed is known to fail
            failed, fine = _counted(seen, range(bad[0], side.stop if is_last else bad[-1] + 1))
        p = None
        if change.before is not None:
            # Corrected for the places at which failures might have begun: the same failures chose the place.
            cuts = range(change.before + 1, change.after + 1)
            parts = ([range(sides[0].start, cut), range(cut, sides[1].stop)] for cut in cuts)
            least = min(exact_p(*(_counted(seen, side) for side in both)) for both in parts)
            p = min(1.0, least * (sum(own is not None for own in seen) - 1))
        ci = exact_interval(failed, failed + fine)
        effect = Effect(value=failed / (failed + fine), unit="failures", ci=ci) if failed + fine else None
        symptom = next((name for name in telling[change.bad_side].verdicts if name in FAILURES), "crash")
        changes.append(replace(change, effect=effect, p=p, verdict=symptom))
    return tuple(changes)


def with_sides(changes: Sequence[Change[int]], *, versions: int) -> Iterator[tuple[Change[int], range, range]]:
    """Yield each change of a row with the versions before it, back to the change before, and with those from it on, up
    to the next one."""
    bounds = [0, *(change.after for change in changes), versions]
    for change, begin, middle, end in zip(changes, bounds, bounds[1:], bounds[2:], strict=False):
        yield change, range(begin, middle), range(middle, end)


def _counted(seen: Sequence[Evidence | None], places: Iterable[int]) -> tuple[int, int]:
    """Return how many launches of these versions were bad, and how many were good."""
    known = [own for place in places if (own := seen[place]) is not None]
    return sum(own.bad for own in known), sum(own.good for own in known)


DOUBT = 0.03
"""Highest probability that a failure comes as often in all versions, if it is said to begin or to end."""
POSSIBLE = 0.6
"""The same for what may be a version from which on a failure is more frequent."""
CLEARER = 4.0
"""Ratio of probabilities from which one failure, rather than all of them together, tells what becomes more frequent."""


def without_flakes(
    cells: Sequence[CellVerdict], trials: Sequence[Sequence[Trial]]
) -> tuple[Sequence[CellVerdict], Sequence[Sequence[Trial]]]:
    """Return the cells and the trials without the failures that do not show where a failure begins or ends.

    Each failure, by its end, signal and exception, is looked for in the versions where it is most frequent. If it comes
    elsewhere, too, it does not count there, and makes nobody bad in versions that may be of either kind. A failure that
    is nowhere more frequent does not count if another one certainly is. It does not count either if another one
    possibly is, provided that launches of a version agree on that one, and that all failures together do not show a
    change as clearly.
    """
    fine, counts = _failures_by_name(cells, trials)
    together = _frequency([sum(own) for own in zip(*counts.values(), strict=True)], fine)
    every = 1.0 if together is None else together.p_same
    found: dict[FailureName, Frequency] = {}
    for name, own in counts.items():
        seen = _frequency(own, fine)
        if seen is not None and (
            seen.p_same <= DOUBT or (seen.p_same <= POSSIBLE and max(own) >= AGREE and CLEARER * seen.p_same < every)
        ):
            found[name] = seen
    if not found:
        return cells, trials
    rare = {(name, at) for name in counts for at in range(len(cells)) if name not in found}
    unclear = set[int]()
    for name, seen in found.items():
        failing = {at for at, count in enumerate(counts[name]) if count}
        if not failing.issubset(seen.likeliest):  # else all that failed is where it is most frequent
            rare |= {(name, at) for at in failing.difference(seen.possible)}
            unclear |= failing.intersection(seen.possible).difference(seen.certain)
    kept = [[trial for trial in version if (trial.failed_by, at) not in rare] for at, version in enumerate(trials)]
    told = [_without(cell, own, left) for cell, own, left in zip(cells, trials, kept, strict=True)]
    for at in unclear:
        told[at] = replace(told[at], verdicts=("inconclusive",), signal=None)
    return told, kept


def _failures_by_name(
    cells: Sequence[CellVerdict], trials: Sequence[Sequence[Trial]]
) -> tuple[Sequence[int], Mapping[FailureName, Sequence[int]]]:
    """Return how many launches of each version ended well, and how many failed, by what tells failures apart."""
    failed = [[trial.failed_by for trial in version if trial.end in FAILURES] for version in trials]
    names = dict.fromkeys(itertools.chain(*failed))
    fine = [max(cell.at_risk - cell.failed, 0) for cell in cells]
    return fine, {name: [own.count(name) for own in failed] for name in names}


@dataclass(frozen=True, kw_only=True)
class Frequency:
    """The positions in which a failure is more frequent than elsewhere: those that are `certain`, the `likeliest` ones,
    and those that are `possible`, all without a gap. `p_same` is the probability that it comes as often in all
    versions."""

    certain: range
    likeliest: range
    possible: range
    p_same: float


OFTEN: Floats = np.array([0.002, 0.005, 0.01, 0.02, 0.035, 0.05, 0.075, *np.arange(0.1, 0.96, 0.05), 0.999])
"""Grid of the rates of a failure, denser where they are low; the last stands for launches that always fail."""
FULLY = 0.3
"""Prior probability that a failure that begins comes in every launch; the rest is even over OFTEN."""
NEVER = 0.3
"""Prior probability that it did not come before."""


def _frequency(failed: Sequence[int], fine: Sequence[int]) -> Frequency | None:
    """Return where a failure is more frequent than elsewhere; None if it is nowhere. `failed` and `fine` count the
    launches of each version.

    A failure either comes at one rate in all versions, or at a higher one in a row of versions without a gap; both are
    as likely a priori. Of the latter, half of the prior goes to failures that last up to the newest version, and a
    quarter each to those that began before the oldest one and to those that came and went.
    """
    versions = len(failed)
    if not any(failed) or versions < 2:
        return None
    ends = [np.concatenate([[0.0], np.cumsum(each)]) for each in (failed, fine)]
    inside = [np.subtract.outer(own, own).T for own in ends]  # [first, end]
    outside = [own[-1] - each for own, each in zip(ends, inside, strict=True)]
    fits = [f[..., None] * np.log(OFTEN) + n[..., None] * np.log1p(-OFTEN) for f, n in (inside, outside)]
    even = np.full(len(OFTEN), 1 / len(OFTEN))
    high, seldom = (1 - FULLY) * even, (1 - NEVER) * even
    high[-1] += FULLY
    seldom[0] += NEVER
    peak = [own.max(axis=-1, keepdims=True) for own in fits]
    low = np.exp(fits[1] - peak[1]) * seldom
    lower = np.cumsum(low, axis=-1) - low  # at a lower rate than the one inside
    both = (np.exp(fits[0] - peak[0]) * high * lower).sum(axis=-1) / (high * (np.cumsum(seldom) - seldom)).sum()
    scale = (peak[0] + peak[1])[..., 0]
    prior = np.zeros_like(both)
    others = versions - 1
    prior[1:versions, versions], prior[0, 1:versions] = 0.5 / others, 0.25 / others
    prior[1:versions, 1:versions] = np.triu(np.ones((others, others)), 1) * 0.5 / max(others * (others - 1), 1)
    alone = float(fits[0][0, versions].max())
    same = float((np.exp(fits[0][0, versions] - alone) * even).sum())
    odds = both * prior * np.exp(np.minimum(scale - alone, MOST_LOG))
    total = float(odds.sum())
    if not total > 0:
        return None
    (first, late), (early, end) = (named(odds.sum(axis=axis) / total) for axis in (1, 0))
    return Frequency(
        certain=range(late, early),
        likeliest=range(*divmod(int(np.argmax(odds)), versions + 1)),
        possible=range(first, end),
        p_same=same / (same + total),
    )


def _frequencies(
    cells: Sequence[CellVerdict], trials: Sequence[Sequence[Trial]]
) -> list[tuple[Sequence[int], Frequency]]:
    """Return, for each failure that is more frequent somewhere, how often it comes in each version, and where."""
    fine, counts = _failures_by_name(cells, trials)
    return [(own, seen) for own in counts.values() if (seen := _frequency(own, fine)) is not None]


def perhaps_frequent(cells: Sequence[CellVerdict], trials: Sequence[Sequence[Trial]]) -> range | None:
    """Return the positions in which a failure of the other versions may be more frequent, though chance explains that,
    too; None if there are none, or if it is certain somewhere."""
    found = _frequencies(cells, trials)
    if any(seen.p_same <= DOUBT for _, seen in found):
        return None
    likely = ((own, seen.likeliest) for own, seen in found if seen.p_same <= POSSIBLE)
    return next((places for own, places in likely if sum(own) > sum(own[at] for at in places)), None)


def _without(cell: CellVerdict, trials: Sequence[Trial], kept: Sequence[Trial]) -> CellVerdict:
    """Return the cell as its `kept` trials leave it: what agreed on flakes alone, or was denied by them, ended well."""
    gone = len(trials) - len(kept)
    if not gone:
        return cell
    failed, launches = cell.failed - gone, cell.trials - gone
    left: VerdictName = "inconclusive" if failed else "flat" if launches else "untested"
    return replace(cell, failed=failed, trials=launches, verdicts=cell.verdicts if failed >= AGREE else (left,))


def outcome_states(cells: Sequence[CellVerdict]) -> list[State]:
    """Return whether each cell fails. A launch that died by the signal of a known crash counts as the same failure. If
    all launches of a cell ended well, it is good even if its memory verdict is unsure, unless they ended before the
    earliest failure of the series.
    """
    failing = [cell for cell in cells if FAILURES & set(cell.verdicts)]
    signals = {cell.signal for cell in failing} - {None}
    least_steps = min((cell.steps for cell in failing), default=0)
    states: list[State] = []
    for cell in cells:
        if FAILURES & set(cell.verdicts) or (cell.failed and cell.signal in signals):
            states.append(True)
        elif cell.verdict in UNSURE:
            states.append(False if cell.trials and not cell.failed and cell.steps >= least_steps else None)
        else:
            states.append(None if cell.verdict in UNTOLD else False)
    return states


def wants_launches(
    cells: Sequence[CellVerdict], trials: Sequence[Sequence[Trial]], *, trials_asked: Trials
) -> Mapping[int, str]:
    """Return the versions, by position, for which another launch could settle where a flaky failure began or ended,
    with the reason.

    These are good versions near the failure that may have missed it by luck, and bad versions with few failed launches;
    all have fewer launches than `trials_asked.most`.
    """
    told, kept = without_flakes(cells, trials)
    states = outcome_states(told)
    wanted = dict(wanted_launches(states, outliving(states, told, kept), trials, asked=trials_asked))
    if told is cells:
        why = "it fails, as other versions do, in too few launches to show whether more often"
        launches = [sum(trial.measured for trial in version) for version in trials]
        doubted = [own for own, seen in _frequencies(cells, trials) if DOUBT < seen.p_same <= POSSIBLE]
        failing = [at for at, own in enumerate(zip(*doubted, strict=True)) if any(own)]
        wanted |= {at: why for at in failing if launches[at] < trials_asked.most and at not in wanted}
    return wanted


def exact_interval(failed: int, trials: int) -> Interval:
    """Return the 95 % confidence interval of the failure rate (Clopper and Pearson, 1934)."""
    fine = trials - failed
    low = float(betaincinv(failed, fine + 1, 0.025)) if failed else 0.0
    return low, float(betaincinv(failed + 1, fine, 0.975)) if fine else 1.0


def exact_p(old: tuple[int, int], new: tuple[int, int]) -> float:
    """Return the two-sided p-value of Fisher's exact test for the (failed, other) launches of two sides: the
    probability of all distributions of the failures that are at most as likely as the observed one.
    """
    failed, launches = old[0] + new[0], sum(old)
    others = sum(new)
    ways = [comb(launches, new_failed) * comb(others, failed - new_failed) for new_failed in range(failed + 1)]
    return sum(way for way in ways if way <= ways[old[0]]) / sum(ways)


# ---------------------------------------------------------------- launches in a slow mode

MOSTLY = 2 / 3
"""Share of slow launches beyond which a version has another level."""


def mode_changes(modes: Modes, *, versions: int, baseline: int | None) -> tuple[Change[int], ...]:
    """Return where launches begin or cease to be in a slow mode, by the rules for flaky failures.

    Unlike a failure, a slow launch may be the host's fault. Slow launches therefore begin only where chance explains
    their number with a probability of at most ALPHA.
    """
    counts = modes.counts(versions)
    states = [None if own is None or own[0] == 1 else own[0] >= FEWEST_OF_MODE for own in counts]
    if baseline is not None and states[baseline]:
        return ()
    seen = [None if own is None else Evidence(bad=own[0], good=own[1] - own[0]) for own in counts]
    found = state_changes("step_time", proven(states, seen), verdict="two modes")
    kept: list[Change[int]] = []
    for change, *sides in with_sides(found, versions=versions):
        old, new = (_counted(seen, side) for side in sides)
        p = min(1.0, exact_p(old, new) * (sum(own is not None for own in counts) - 1))
        begins, ends = change.kind == "first_bad", bool(kept) and kept[-1].kind == "first_bad"
        if (begins and p <= ALPHA and new[0] <= MOSTLY * sum(new)) or (not begins and ends):
            effect = Effect(value=math.exp(modes.gap if begins else -modes.gap), unit="ratio")
            kept.append(replace(change, effect=effect, p=p))
    return tuple(kept)


# ---------------------------------------------------------------- growth, and step times that drift


def growth_changes(name: str, cells: Sequence[CellVerdict], *, baseline: int | None, limit: float) -> list[Change[int]]:
    """Return where memory or a count begins or ceases to grow, or grows much faster, oldest first; `limit` is an amount
    per step. If it grows in the baseline, too, only faster growth counts.
    """
    shown = [cell.of(name) for cell in cells]
    if name == "memory":
        bad, verdict = _states(cells, "leak"), "leak"
    else:
        bad, verdict = [{"good": False, "bad": True}.get(signal.seen) for signal in shown], "growth"
    usual = usual_rate(None if baseline is None else cells[baseline], name)
    states = [is_bad and (signal.value or 0.0) > usual for is_bad, signal in zip(bad, shown, strict=True)]
    states = _without_near(states, shown)
    rates = [
        None
        if signal.value is None
        else Effect(value=signal.value, unit=unit_per(SIGNALS[name], cell.per), ci=signal.ci)
        for cell, signal in zip(cells, shown, strict=True)
    ]
    found = state_changes(name, states, verdict=verdict)
    changes = [replace(change, effect=rates[change.bad_side]) for change in found]
    known = [place for place, state in enumerate(states) if state is not None]
    changes += [
        Change(metric=name, kind="worse", before=old, after=new, effect=rates[new], verdict=verdict)
        for old, new in itertools.pairwise(known)
        if states[old] and states[new] and _is_much_worse(rates[old], rates[new], limit=limit)
    ]
    return sorted(changes, key=lambda change: change.after)


ALIKE = 1.25
"""Ratio up to which the rates of two versions are the same growth, whatever the limit."""


def _without_near(states: Sequence[State], shown: Sequence[SignalVerdict]) -> list[State]:
    """Return the states, with None for versions that certainly grow and by nearly as much as a bad one: that the limit
    lies between them is no change; and for versions whose growth was not judged and may be as much."""
    least = min((signal.value or 0.0 for state, signal in zip(states, shown, strict=True) if state), default=math.inf)
    return [
        None
        if state is False
        and (
            (signal.ci is not None and signal.ci[0] > 0 and ALIKE * (signal.value or 0.0) >= least)
            or (signal.seen == "none" and (signal.visible or math.inf) >= least)
        )
        else state
        for state, signal in zip(states, shown, strict=True)
    ]


def _is_much_worse(before: Effect | None, after: Effect | None, *, limit: float) -> bool:
    """Return whether growth becomes worse by more than the factor MUCH_WORSE and by at least `limit`, with confidence
    intervals that do not overlap.
    """
    if before is None or after is None or before.ci is None or after.ci is None or before.ci[1] >= after.ci[0]:
        return False
    return after.value > MUCH_WORSE * before.value and after.value - before.value >= limit


def slowdown_changes(cells: Sequence[CellVerdict], *, baseline: int | None, limit: float) -> list[Change[int]]:
    """Return where step times begin or cease to drift within a trial; nothing if those of the baseline drift, too.

    A version that is bad for another reason and drifts by more than `limit` (a share), but not in two launches that
    agree, is unknown: launches of a plain leak end early, before a slowdown shows.
    """
    if baseline is not None and "slowdown" in cells[baseline].verdicts:
        return []
    doubtful = [bool(BAD & set(cell.verdicts)) and (cell.drift or 0.0) > limit for cell in cells]
    shown = zip(_states(cells, "slowdown"), doubtful, strict=True)
    states = [None if bad is False and doubts else bad for bad, doubts in shown]
    drifts = [None if cell.drift is None else Effect(value=1 + cell.drift, unit="ratio") for cell in cells]
    found = state_changes("step_time", states, verdict="slowdown")
    return [replace(change, effect=drifts[change.bad_side]) for change in found]
