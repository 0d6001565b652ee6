"""Groups the episodes of one sign into faults, over all lanes and variants of a scenario. Pure.

On several lanes of a variant, episodes that may have begun at the same version are one fault, and so are others that
share a version: an image that is bad on two lanes is bad for one reason. In several variants, episodes are one fault if
they may have begun and ended at the same versions, no version is known to be bad in one variant and good in the other,
and their launches did not fail by something else.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from types import MappingProxyType

from harness.judge.attribution.row_states import RowStates
from harness.judge.history.transitions import FailureName
from harness.judge.launches import SAME_RATE
from harness.model import (
    METRIC_PREFIX,
    SIGNALS,
    CellVerdict,
    Effect,
    Episode,
    Finding,
    Lane,
    Variant,
    grouped,
    signal_of,
    worse_measure,
)
from harness.model.attributed import Order, episodes_of, met, mostly_fixed, sign_of
from harness.model.signals import STAND_INS, STEP_TIMES


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A fault of one variant: its `episodes` by lane, the `states` of the versions by lane, for this fault, and its
    `failures`, on all lanes.

    A version that is bad in another episode is unknown for this one; one that this fault made worse later is good.
    """

    variant: Variant
    episodes: Mapping[Lane, Sequence[Episode]]
    states: Mapping[Lane, RowStates]
    failures: Set[FailureName]

    @property
    def findings(self) -> Iterator[Finding]:
        """Return the findings of all its episodes."""
        return (finding for own in self.episodes.values() for episode in own for finding in episode.findings)


Failures = Mapping[Lane, Sequence[Collection[FailureName]]]
"""What tells apart the failures that were seen in each version on a lane."""


def faults_of(
    variant: Variant,
    episodes: Mapping[Lane, Sequence[Episode]],
    states: Mapping[Lane, RowStates],
    failures: Failures = MappingProxyType({}),
) -> list[Fault]:
    """Return the faults of a variant, from its episodes and the states of its versions on each lane.

    Episodes that may have begun at the same version, with the same effect, are linked first; then those of one size or
    failure that share a version. No fault has two episodes in the same version of a lane: they are two faults.
    """
    rises = {episode: _rise(episode, own) for own in episodes.values() for episode in own}
    pairs = [pair for pair in itertools.combinations(rises, 2) if pair[0].finding.lane != pair[1].finding.lane]
    alike = {pair for pair in pairs if _are_alike(*(rises[each] for each in pair))}
    begun = [pair for pair in pairs if _begin_alike(*pair, alike=pair in alike)]
    links = sorted(begun, key=lambda pair: pair[0].since != pair[1].since)
    links += [pair for pair in pairs if _share(*pair, alike=pair in alike, failures=failures)]
    group_of = {each: [each] for each in rises}
    for one, other in links:
        both = [*group_of[one], *group_of[other]]
        is_doubled = any(a.finding.lane == b.finding.lane and _meet(a, b) for a, b in itertools.combinations(both, 2))
        if not is_doubled:
            group_of |= dict.fromkeys(both, both)
    groups = {id(group): group for group in group_of.values()}
    return [_fault(variant, group, states, failures) for group in groups.values()]


def _rise(episode: Episode, on_lane: Sequence[Episode]) -> Effect | None:
    """Return by how much the growth of an episode exceeds that of the one which it makes worse, at least and at most;
    None if it is no growth."""
    effect = episode.finding.effect
    if signal_of(episode.finding.metric).kind != "growth" or effect is None:
        return None
    others = (one.finding.effect for one in on_lane if one.depth == episode.depth - 1 and _meet(one, episode))
    milder = next(others, None)
    least, most = effect.bounds
    low, high = (0.0, 0.0) if milder is None else milder.bounds
    return replace(effect, ci=(max(least - high, 0.0), max(most - low, 0.0)))


def _meet(one: Episode, other: Episode) -> bool:
    """Return whether the episodes share a version that may be bad."""
    return bool(set(one.span) & set(other.span))


def _turned(early: Episode, late: Episode) -> bool:
    """Return whether the lane of `late` is known to be good in a version that is bad on the other lane, where none was
    ever good."""
    is_apart = early.from_start and not late.from_start
    return is_apart and any(early.states[place] and late.states[place] is False for place in early.span)


def _begin_alike(one: Episode, other: Episode, *, alike: bool) -> bool:
    """Return whether both may have begun at the same version. Growth must rise by rates that are `alike`, unless both
    lanes were certainly good in the version before and turned bad at the same one.
    """
    if one.since is None or other.since is None:
        return False
    (low, high), (other_low, other_high) = one.since, other.since
    if one.since == other.since and high - low == 1 and not one.from_start:
        return True
    return max(low, other_low) < min(high, other_high) and alike


def _share(one: Episode, other: Episode, *, alike: bool, failures: Failures) -> bool:
    """Return whether the episodes share a version that may be bad, and have the same depth and a failure in common, or
    are `alike` in size. If one lane always grew and the other one turned bad, each has a fault of its own; of failures,
    the later one may have been there all along.
    """
    if one.depth != other.depth or not _meet(one, other):
        return False
    names, others = (_failures_of(each, failures) for each in (one, other))
    if names and others:
        return not names.isdisjoint(others)
    return alike and not (_turned(one, other) or _turned(other, one))


def _failures_of(episode: Episode, failures: Failures) -> Set[FailureName]:
    on_lane = failures.get(episode.finding.lane, ())
    return {name for place in episode.span if place < len(on_lane) for name in on_lane[place]}


def _are_alike(one: Effect | None, other: Effect | None) -> bool:
    """Return whether two growths may be one fault: they rise by rates that differ by a factor of at most SAME_RATE, or
    whose intervals overlap. What is no growth, or has another unit, is alike.
    """
    if one is None or other is None or one.unit != other.unit:
        return True
    small, large = sorted((one.bounds, other.bounds))
    return small[1] >= large[0] or sum(large) <= SAME_RATE * sum(small)


def _fault(variant: Variant, group: Sequence[Episode], states: Mapping[Lane, RowStates], failures: Failures) -> Fault:
    by_lane = grouped((each.finding.lane, each) for each in sorted(group, key=lambda episode: episode.span.start))
    return Fault(
        variant=variant,
        episodes={lane: by_lane[lane] for lane in states if lane in by_lane},
        states={lane: states_of(by_lane.get(lane, ()), on_lane) for lane, on_lane in states.items()},
        failures=frozenset().union(*(_failures_of(episode, failures) for episode in group)),
    )


def states_of(episodes: Sequence[Episode], on_lane: RowStates) -> RowStates:
    """Return the states of a lane's versions for this fault alone. Versions before a worsening are good."""
    inside = {place for episode in episodes for place in episode.span}
    first = min(inside, default=0)
    milder = any(episode.depth for episode in episodes)
    return tuple(
        state if not state or place in inside else False if milder and place < first else None
        for place, state in enumerate(on_lane)
    )


# ---------------------------------------------------------------- in several variants


def alike(faults: Sequence[Fault]) -> list[list[Fault]]:
    """Group the faults of all variants that may be one fault; the oldest group comes first.

    The most precise faults are grouped first, so that the result does not depend on the input order. A vague fault that
    fits several groups gets its own.
    """
    groups: list[list[Fault]] = []
    for fault in sorted(faults, key=_precision):
        fitting = [group for group in groups if _fits(fault, group)]
        chosen = [group for group in fitting if _when(group[0]) == _when(fault)] or fitting
        if len(chosen) != 1:
            groups.append([])
            chosen = groups[-1:]
        chosen[0].append(fault)
    return sorted(groups, key=lambda group: _precision(group[0])[1:])


def _when(fault: Fault) -> dict[Lane, list[tuple[object, ...]]]:
    return {lane: [episode.when for episode in own] for lane, own in fault.episodes.items()}


def _precision(fault: Fault) -> tuple[int, int, list[tuple[int, int, int, int, int]]]:
    """Return a sort key: the width of the fault's bounds, its start, and all bounds. Equal keys mean equal bounds."""
    episodes = [episode for on_lane in fault.episodes.values() for episode in on_lane]
    unknown = (len(episodes[0].states), len(episodes[0].states))
    ends = [(*(each.since or (-1, -1)), *(each.until or unknown), each.seen) for each in episodes]
    start = min(episode.span.start for episode in episodes)
    return sum(high - low for end in ends for low, high in (end[:2], end[2:4])), start, ends


def _fits(fault: Fault, group: Sequence[Fault]) -> bool:
    """Return whether a fault may be the same as those of a group, and shares a lane or a version with any of them.
    Intervals that overlap pairwise also have a common overlap, so that comparing it with each of them is enough."""
    places = _places(fault)
    is_near = any(each.episodes.keys() & fault.episodes.keys() or _places(each) & places for each in group)
    return is_near and all(_may_be_one(each, fault) for each in group)


def _may_be_one(one: Fault, other: Fault) -> bool:
    """Return whether neither the episodes nor the states of faults of two variants contradict each other, and their
    launches may have failed alike."""
    if one.variant == other.variant:  # their sizes differ
        return False
    if one.failures and other.failures and one.failures.isdisjoint(other.failures):
        return False
    for lane in one.episodes.keys() & other.episodes.keys():
        own, others = one.episodes[lane], other.episodes[lane]
        if len(own) != len(others) or None in map(met, zip(own, others, strict=True)):
            return False
    states = (
        zip(one.states[lane], other.states[lane], strict=True) for lane in one.states.keys() & other.states.keys()
    )
    return not any({True, False} == {*pair} for pair in itertools.chain(*states))


def _places(fault: Fault) -> set[int]:
    """Return the positions of the versions that may be bad by this fault, on any lane."""
    return {place for own in fault.episodes.values() for episode in own for place in episode.span}


# ---------------------------------------------------------------- consequences


REASON = 2.0
"""Maximum size of a consequence relative to its cause: in logs for ratios, in rates for growth of the same unit."""

BYTE_S = 1e-6
"""Longest time, in seconds, that a program takes to make and print a byte of output: what is slower by more has another
cause."""

Ratios = Mapping[tuple[str, str], Effect | None]
"""The ratios of findings whose effect is a difference of small levels, by signal and newer version."""


def with_consequences(
    findings: Sequence[Finding],
    versions: Sequence[str],
    known: Mapping[str, CellVerdict] = MappingProxyType({}),
    ratios: Ratios = MappingProxyType({}),
) -> tuple[Finding, ...]:
    """Return the findings of a row, in the same order, with `consequence_of` filled in. `versions` are those of the
    row, oldest first, `known` the verdicts on them, and `ratios` the sizes of findings that are told as differences.

    A consequence begins with its cause, and both end together or not at all; a version in which one is mostly repaired
    may be the end of the other. In a chain, the first cause counts.
    """
    order = {version: place for place, version in enumerate(versions)}
    sized = [replace(one, effect=ratios.get((one.metric, one.after), one.effect)) for one in findings]
    signs = grouped((sign_of(one), one) for one in sized)
    episodes = [episode for of_sign in signs.values() for episode in episodes_of(of_sign, order)]
    ends = {episode.finding: _ends(episode, known, order) for episode in episodes}
    causes = {
        result: [cause for cause in ends if _same_time(ends[cause], ends[result]) and _explains(cause, result, known)]
        for result in ends
    }
    first = [(episode, _first_cause(episode.finding, causes)) for episode in episodes]
    own = {one for episode, cause in first if cause == episode.finding for one in episode.findings}
    told = {one: cause.metric for episode, cause in first for one in episode.findings if one not in own}
    return tuple(replace(one, consequence_of=told.get(of, "")) for one, of in zip(findings, sized, strict=True))


def _ends(episode: Episode, known: Mapping[str, CellVerdict], order: Order) -> list[Episode]:
    """Return an episode with its end, and with the version in which it is mostly repaired in place of its end."""
    mild = mostly_fixed(episode, known, order)
    return [episode] if mild is None else [episode, replace(episode, until=(mild - 1, mild), seen=mild - 1)]


_PLACES = {name: place for place, name in enumerate(SIGNALS)}


def _first_cause(finding: Finding, causes: Mapping[Finding, Sequence[Finding]]) -> Finding:
    while causes[finding]:
        finding = min(causes[finding], key=lambda cause: _PLACES[cause.metric])
    return finding


def _explains(cause: Finding, result: Finding, known: Mapping[str, CellVerdict]) -> bool:
    if not _may_explain(cause, result, known):
        return False
    is_mutual = _may_explain(result, cause, known)
    return not is_mutual or _PLACES[cause.metric] > _PLACES[result.metric]  # the more specific one is the cause


def _may_explain(cause: Finding, result: Finding, known: Mapping[str, CellVerdict]) -> bool:
    is_named = _names(cause.metric, result.metric) or _is_printing(cause, result, known)
    return is_named and _in_reason(cause.effect, result.effect) and _is_plausible(cause, result, known)


def _names(cause: str, effect: str) -> bool:
    """Return whether the one may have the other as a consequence; a time or a rate that is printed is a throughput."""
    is_printed = effect.startswith(METRIC_PREFIX) and worse_measure(effect.removeprefix(METRIC_PREFIX))
    effects = {"throughput" if is_printed else effect, STAND_INS.get(effect, effect)}
    return cause in SIGNALS and not effects.isdisjoint(SIGNALS[cause].explains)


ITEM_KIB: Mapping[str, float] = {"open_files": 1024.0, "threads": 16 * 1024.0}
"""Most memory that an open file takes with its buffers, and a thread with its stack and its arena, in KiB."""
TOUCHED_S = 5e-6
"""Most seconds that it takes to map, fill and copy a KiB of memory that grows."""


def _is_plausible(cause: Finding, result: Finding, known: Mapping[str, CellVerdict]) -> bool:
    """Return whether a cause is large enough; True if the sizes are not known. Growth explains memory that grows, a
    peak, and steps that take longer by the time to use that memory and by as much as they slow down within a launch.
    What takes time once in a launch explains a run that is longer by at most REASON times as much.
    """
    growth, effect = cause.effect, result.effect
    if growth is None or effect is None:
        return True
    if cause.metric in ITEM_KIB and result.metric in ("memory", "worker_memory"):
        return effect.value <= ITEM_KIB[cause.metric] * growth.value
    old, new = known.get(result.before or ""), known.get(result.after)
    if old is None or new is None or (more := _difference(result.metric, old, new)) is None:
        return True
    if result.metric == "run_time" and SIGNALS[cause.metric].spent == "once":
        part = _difference(cause.metric, old, new)
        return part is None or abs(more) <= REASON * abs(part)
    if (cause.metric, result.metric) == ("memory", "peak_memory"):
        return more <= REASON * _size(growth, most=True) * new.steps
    touches = cause.metric in ("memory", "worker_memory", "shm") and result.metric in STEP_TIMES
    drift = math.inf if new.drift is None else max(new.drift, 0.0) * (new.of("step_time").value or 0.0)
    return not touches or more <= TOUCHED_S * growth.value + drift


def _difference(metric: str, old: CellVerdict, new: CellVerdict) -> float | None:
    before, after = old.of(metric).value, new.of(metric).value
    return None if before is None or after is None else after - before


def _is_printing(cause: Finding, result: Finding, known: Mapping[str, CellVerdict]) -> bool:
    """Return whether steps, or runs without steps, take longer by no more than their additional output may take."""
    old, new = known.get(result.before or ""), known.get(result.after)
    if cause.metric != "output" or result.metric not in (*STEP_TIMES, "run_time") or old is None or new is None:
        return False
    more_s, more = (_difference(name, old, new) for name in (result.metric, cause.metric))
    return more_s is not None and more is not None and 0 < more_s <= BYTE_S * more


def _same_time(cause: Sequence[Episode], result: Sequence[Episode]) -> bool:
    """Return whether both may have begun at the same version and, if either ended, have ended at the same version. Each
    is one episode with all versions in which it may have ended."""
    first, second = cause[0], result[0]
    if first.begins is None or second.begins is None or first.from_start != second.from_start:
        return False
    pairs = itertools.product(cause, result)
    return any((one.until is None) == (other.until is None) and met([one, other]) is not None for one, other in pairs)


def _in_reason(cause: Effect | None, effect: Effect | None) -> bool:
    """Return whether a cause of this size can explain the effect; True if the sizes are not known in one unit."""
    if cause is None or effect is None or cause.unit != effect.unit:
        return True
    return _size(effect, most=False) <= REASON * _size(cause, most=True)


def _size(effect: Effect, *, most: bool) -> float:
    """Return the largest or smallest size within the interval of an effect; the size of a ratio is its absolute log."""
    ends = [effect.value, *effect.bounds]
    sizes = [abs(math.log(end)) if end > 0 else math.inf for end in ends] if effect.unit == "ratio" else ends
    return max(sizes) if most else min(sizes)
