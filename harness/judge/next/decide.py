"""Concludes what a bisection has found so far, and decides what it launches next. Pure.

The search terminates: every decision launches only versions that can be launched and have fewer than `most` launches,
so the sum of `most - launches` over these versions falls with every launch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from harness.amounts import every
from harness.judge.history.flaky import Evidence, Reach, chance_of_luck, chances
from harness.judge.next.bisect_records import (
    PATIENCE,
    Decision,
    DecisionKind,
    RowVersions,
    Rules,
    StateHistory,
    VersionEvidence,
    histories_of,
    likeliest,
    version_name,
    version_names,
)
from harness.judge.next.level_bisection import level_history
from harness.model import SIGNALS, Change


def conclude(versions: RowVersions, *, rules: Rules) -> tuple[Change[int], ...]:
    """Return the changes of states; if there are none, those of levels.

    For a flaky failure, or one that comes later than some launches ran, the good versions next to it that may have been
    lucky are between both sides, so that the probability of leaving out the right version is at most `rules.alpha`.
    """
    states = [_known(history, change) for history in histories_of(versions, rules) for change in history.changes]
    if states:
        return tuple(states)
    levels = level_history(versions, rules)
    return () if levels is None else levels.changes()


def _known(history: StateHistory, change: Change[int]) -> Change[int]:
    """Return a change with the versions on its good side that are known to be good."""
    good = change.good_side
    if history.is_mixed or history.doubt(change) > history.rules.alpha:
        # The first version outwards that has launches and is certainly good.
        reach = history.reach(change)
        far = (
            place
            for index, place in enumerate(reach.places)
            if index and history.versions[place].launches and reach.bad(index) <= history.rules.alpha
        )
        good = next(far, -1)
    confirmed = good >= 0 and history.agrees(good, bad=False) and history.agrees(change.bad_side, bad=True)
    if change.kind == "first_fixed":
        return replace(change, after=change.after if good < 0 else good, confirmed=confirmed)
    return replace(change, before=None if good < 0 else good, confirmed=confirmed)


def not_needed(versions: RowVersions, *, rules: Rules) -> Mapping[int, str]:
    """Return, for each version that could have been launched but was not, why this was not needed."""
    changes = conclude(versions, rules=rules)
    return {
        place: _why_not(versions, place, changes)
        for place, version in enumerate(versions)
        if version.testable and not version.launches
    }


def _why_not(versions: RowVersions, place: int, changes: Sequence[Change[int]]) -> str:
    launched = [p for p, version in enumerate(versions) if version.launches]
    older = max((p for p in launched if p < place), default=None)
    newer = min((p for p in launched if p > place), default=None)
    if older is None or newer is None:
        return "not needed: outside the versions that were launched"
    crossed = any(change.begin <= older and newer <= change.after for change in changes)
    bad = {any(map(versions[p].state, versions[p].states)) for p in (older, newer)}
    alike = "both bad" if True in bad else "both good"
    seen = "which differ" if crossed or len(bad) > 1 else alike
    return f"not needed: between {version_name(versions, older)} and {version_name(versions, newer)}, {seen}"


def decide(versions: RowVersions, *, rules: Rules) -> Decision:
    """Return the next launches, or the end of the search with its conclusion."""
    histories = histories_of(versions, rules)
    return (
        _ends(versions, rules)
        or _lucky(histories)
        or _between(histories)
        or _levels(versions, rules)
        or _alike(versions, histories, rules)
        or _bad_once(histories)
        or Decision(launch=(), kind="done", reason=_found(versions, histories, rules))
    )


# ---------------------------------------------------------------- both ends


def _given_up(version: VersionEvidence, rules: Rules) -> bool:
    return version.launches >= min(PATIENCE, rules.most) and version.is_unknown


def _outer(versions: RowVersions, rules: Rules) -> list[int]:
    """Return the oldest and the newest version that can be launched and may give a result."""
    usable = [place for place, version in enumerate(versions) if version.testable and not _given_up(version, rules)]
    return sorted({usable[0], usable[-1]}) if usable else []


def _ends(versions: RowVersions, rules: Rules) -> Decision | None:
    """Decide to launch the oldest and the newest usable version, and the baseline."""
    wanted, usual = _outer(versions, rules), rules.baseline
    if usual is not None and versions[usual].testable:
        wanted = sorted({*wanted, usual})
    silent = [
        place
        for place in wanted
        if not versions[place].launches or (versions[place].is_unknown and not _given_up(versions[place], rules))
    ]
    if not silent:
        return None
    reason = f"nothing is known about {version_names(versions, silent)}: both ends come first"
    return Decision(launch=tuple(silent), kind="end", reason=reason)


def _alike(versions: RowVersions, histories: Sequence[StateHistory], rules: Rules) -> Decision | None:
    """Decide to launch both ends again, to their whole budgets, if nothing changes between them: the result rests on
    them alone.
    """
    if any(history.changes for history in histories):
        return None
    again = tuple(place for place in _outer(versions, rules) if not _believed(versions[place], rules))
    if not again:
        return None
    reason = f"both ends are alike so far: launching {version_names(versions, again)} once more to be sure"
    return Decision(launch=again, kind="confirm", reason=reason, whole=True)


def _believed(version: VersionEvidence, rules: Rules) -> bool:
    if any(seen.bad >= rules.agree for seen in version.states.values()):
        return True
    some = any(seen.bad for seen in version.states.values())
    return version.launches >= (rules.most if some else min(rules.least, rules.most))


def _bad_once(histories: Sequence[StateHistory]) -> Decision | None:
    """Decide to relaunch a version that was bad once and has no known neighbour, so that no change confirms it."""
    for history in histories:
        bad = [place for place, state in enumerate(history.states) if state]
        able = [place for place in bad if history.versions[place].left(history.rules)]
        if able and not any(history.agrees(place, bad=True) for place in bad):
            place = max(able, key=lambda p: (history.evidence(p).bad, -p))
            version = version_name(history.versions, place)
            reason = f"{history.metric}: {version} was bad in too few launches to be sure: launching it once more"
            return Decision(launch=(place,), kind="confirm", reason=reason, metric=history.metric)
    return None


# ---------------------------------------------------------------- between two that differ


def _lucky(histories: Sequence[StateHistory]) -> Decision | None:
    """Decide to launch good versions between two bad ones again, because they may only have been lucky."""
    for history in histories:
        versions = history.versions
        for run in history.lucky_runs:
            able = [place for place in run if versions[place].left(history.rules)]
            if able:
                place = min(able, key=lambda p: (versions[p].launches, not versions[p].at_hand, p))
                version = version_name(versions, place)
                reason = f"{version} was good between two bad versions, perhaps by luck: launching it again"
                return Decision(launch=(place,), kind="repeat", reason=reason, metric=history.metric)
    return None


def _between(histories: Sequence[StateHistory]) -> Decision | None:
    for history in histories:
        for change in history.changes:
            if history.is_mixed:
                decision = _part_time(history, change)
            else:
                decision = _halve(history, change) or _confirm(history, change) or _in_time(history, change)
            if decision is not None:
                return decision
    return None


def _halve(history: StateHistory, change: Change[int]) -> Decision | None:
    place = splitting_version(history, change)
    if place is None:
        return None
    count = len(open_places(history, change))
    sides, version = _sides(history, change), version_name(history.versions, place)
    reason = f"{sides}: {version} splits the {count} version{'s' if count > 1 else ''} between them"
    return _about(history, change, "halve", [place], reason)


def _confirm(history: StateHistory, change: Change[int]) -> Decision | None:
    """Decide to launch both sides again until each has launches that agree, and likewise a bad oldest version."""
    sides = {change.good_side: False, change.bad_side: True}
    if history.bad_from_start is not None:
        sides[history.bad_from_start] = True
    enough = history.enough_failures(change)
    lacking = [
        place
        for place, bad in sorted(sides.items())
        if not (history.agrees(place, bad=bad) and (place != change.bad_side or enough))
        and history.versions[place].left(history.rules)
    ]
    if not lacking:
        return None
    versions = version_names(history.versions, lacking)
    reason = f"{_sides(history, change)}: launching {versions} once more before a version is named"
    return _about(history, change, "confirm", lacking, reason)


def _about(
    history: StateHistory, change: Change[int], kind: DecisionKind, launch: Sequence[int], reason: str
) -> Decision:
    bracket = (change.begin, change.after)
    return Decision(launch=tuple(launch), kind=kind, reason=reason, metric=history.metric, bracket=bracket)


def _part_time(history: StateHistory, change: Change[int]) -> Decision | None:
    """Decide to launch the version that is the most informative about how far a flaky failure reaches."""
    reach = history.reach(change)
    place = most_informative(history, change, reach)
    if place is None:
        return _confirm(history, change)
    seen, bad = history.evidence(change.bad_side), version_name(history.versions, change.bad_side)
    if seen.good:
        share = fails(reach, max(seen.survived, default=None))
        found = f"{bad} fails in about {share:.0%} of its launches"
    else:
        found = f"{bad} may fail in only some of its launches"
    version = version_name(history.versions, place)
    reason = f"{found}, so good launches may be luck: {version} tells most about how far the failure reaches"
    posterior = likeliest(zip(reach.places, map(float, reach.outermost), strict=True))
    return replace(_about(history, change, "repeat", [place], reason), posterior=posterior)


def _in_time(history: StateHistory, change: Change[int]) -> Decision | None:
    """Decide to launch a side again if failures come so late or so rarely that the good side may have missed one."""
    chance = history.doubt(change)
    place = settling(history, change) if chance > history.rules.alpha else None
    if place is None:
        return None
    good, version = version_name(history.versions, change.good_side), version_name(history.versions, place)
    reason = (
        f"judging by the steps at which launches failed, {good} may be bad and may have ended before its failure "
        f"was due ({chance:.1%}): launching {version} once more"
    )
    return _about(history, change, "repeat", [place], reason)


def _sides(history: StateHistory, change: Change[int]) -> str:
    before, after = (version_name(history.versions, place) for place in (change.begin, change.after))
    was, is_ = ("bad", "good") if change.kind == "first_fixed" else ("good", "bad")
    return f"{history.metric}: {before} is {was} and {after} is {is_}"


def _levels(versions: RowVersions, rules: Rules) -> Decision | None:
    """Decide on levels if nothing worse was found: versions that fail or leak have no levels to compare."""
    if any(version.state(metric) for version in versions for metric in version.states):
        return None
    levels = level_history(versions, rules)
    return None if levels is None else levels.next()


# ---------------------------------------------------------------- the end


def _found(versions: RowVersions, histories: Sequence[StateHistory], rules: Rules) -> str:
    ends = _outer(versions, rules)
    if not ends:
        return "no version could be launched"
    found = [_change_found(versions, change, rules) for change in conclude(versions, rules=rules)]
    for history in histories:
        oldest = history.bad_from_start
        if oldest is not None:
            metric, version = history.metric, version_name(versions, oldest)
            maybe = f"{metric}: may be bad since before {version}, but fewer than {rules.agree} launches agree"
            is_sure = history.agrees(oldest, bad=True)
            found.append(f"{metric}: bad since before {version}" if is_sure else maybe)
    if found:
        return "; ".join(found)
    # Launches of these showed something that is neither good nor bad.
    unclear = [
        place
        for place, version in enumerate(versions)
        if any(version.state(metric) is None and (own.bad or own.unsure) for metric, own in version.states.items())
    ]
    if unclear:
        names = version_names(versions, unclear)
        return f"nothing bad was found, but it is unclear whether {names} is good; launch more with --trials"
    oldest, newest = ends[0], ends[-1]
    if oldest == newest:
        return f"{version_name(versions, oldest)}, the only version that could run, is good"
    good = "both ends are good"
    if (oldest, newest) != (0, len(versions) - 1):
        good = f"{version_names(versions, ends)}, the oldest and the newest version that could run, are good"
    unsearched = any(version.testable and not version.launches for version in versions[oldest:newest])
    return f"{good}; only --search full would find a bad version between them" if unsearched else good


def _change_found(versions: RowVersions, change: Change[int], rules: Rules) -> str:
    metric, after, is_worse = change.metric, version_name(versions, change.after), change.kind == "first_bad"
    if metric == rules.level:  # whether that is bad depends on the baseline
        what = f"first version {'with' if is_worse else 'without'} {SIGNALS[metric].noun}"
    else:
        what = "first bad version" if is_worse else "first version that is good again"
    if not change.between:
        doubt = _doubt(versions, change, rules)
        if change.confirmed:
            return f"{metric}: {after} is the {what}{doubt}"
        return f"{metric}: {after} may be the {what}, but not both sides have {rules.agree} launches that agree{doubt}"
    start = "the start" if change.before is None else version_name(versions, change.before)
    unclear = len(change.between)
    found = f"{metric}: the {what} lies between {start} and {after}; unclear versions between them: {unclear}"
    return found if change.confirmed else f"{found}; not both sides have {rules.agree} launches that agree"


def _doubt(versions: RowVersions, change: Change[int], rules: Rules) -> str:
    """Return the reservation about a version whose few launches all failed."""
    if change.metric != "outcome" or change.kind == "first_fixed" or change.before is None:
        return ""
    history = StateHistory(versions=versions, metric="outcome", rules=rules)
    if history.is_mixed:
        return ""
    failed = history.failures_from(change)
    return (
        f" ({every(failed, 'launch')} from there on failed; if only some launches fail, the failure may have begun "
        "earlier: see --search full)"
    )


# ---------------------------------------------------------------- which version next


NEARLY = 0.9
"""Share of the best launch's information from which an image at hand is preferred."""


def open_places(history: StateHistory, change: Change[int]) -> list[int]:
    """Return the versions between the two sides that can still be launched."""
    return [place for place in change.between if history.may_be_settled(place)]


def splitting_version(history: StateHistory, change: Change[int]) -> int | None:
    """Return the version that halves the range between the two sides, or None if nothing is left to launch.

    With `n` possible positions of the change, any split into parts of at most 2^(ceil(log2 n) - 1) is optimal in the
    worst case. If the bad side has failed only once, the part next to it is smaller by one if that costs nothing: if
    nothing else fails, the launch that is saved confirms the failure. Among these splits, the best is an image at hand
    (but not close to the edge, which would cost launches on average), then one far from versions that gave no result
    (their neighbours often give none either), then the middle.
    """
    places, versions = open_places(history, change), history.versions
    if not places:
        return None
    count = len(places) + 1
    silent = [
        place
        for place in change.between
        if not versions[place].testable or (versions[place].launches > 0 and history.states[place] is None)
    ]
    largest = (1 << (count - 1).bit_length()) // 2
    spare = count < 2 * largest and history.failures_from(change) < 2

    def affordable(index: int) -> bool:
        older, newer = index, count - index
        beside_bad = older if change.kind == "first_fixed" else newer
        return max(older, newer) <= largest and beside_bad <= largest - spare

    def rank(index: int) -> tuple[bool, int, int, int]:
        place = places[index - 1]
        cheap = versions[place].at_hand and 4 * min(index, count - index) >= count
        distance = min((abs(place - other) for other in silent), default=0)
        return not cheap, versions[place].launches, -min(distance, len(silent) + 1), abs(2 * index - count)

    return places[min(filter(affordable, range(1, count)), key=rank) - 1]


# ---------------------------------------------------------------- a flaky failure


def fails(reach: Reach, steps: int | None) -> float:
    """Return the probability that a launch of `steps` steps fails, if its version is bad."""
    return 1 - chance_of_luck(reach.seen, [_good(steps)])


def most_informative(history: StateHistory, change: Change[int], reach: Reach) -> int | None:
    """Return the version whose next launch is the most informative about the extent; None if no launch could matter."""
    versions, alpha = history.versions, history.rules.alpha
    left = [0, *(versions[place].left(history.rules) for place in reach.places[1:])]
    steps = _steps(history, reach.places)
    shares = {each: fails(reach, each) for each in set(steps)}
    # The outermost place that is not known to be good yet, but would be if all remaining launches from the bad side up
    # to that place were good.
    fits = chances(reach.seen, [_good(each, count) for each, count in zip(steps, left, strict=True)])[1:]
    missed = fits / fits[0]
    provable = [index for index in range(1, len(reach.places)) if reach.bad(index) * missed[index] <= alpha]
    end = max((index for index in provable if reach.bad(index) > alpha), default=0)
    # The mutual information, in bits, of "the version is bad" and "the next launch fails".
    bits = {
        place: _entropy(reach.bad(index) * shares[steps[index]]) - reach.bad(index) * _entropy(shares[steps[index]])
        for index, place in enumerate(reach.places[: end + 1])
        if left[index] > 0
    }
    if not bits:
        return None
    best = max(bits.values())
    at_hand = [place for place in bits if versions[place].at_hand and bits[place] >= NEARLY * best]
    return max(at_hand or bits, key=bits.__getitem__)


def settling(history: StateHistory, change: Change[int]) -> int | None:
    """Return the side of a change whose next launch, if it ends like the earlier ones, leaves the smaller doubt."""
    good, bad = history.evidence(change.good_side), history.evidence(change.bad_side)
    (steps,) = _steps(history, [change.good_side])
    again = {
        change.good_side: replace(good, good=good.good + 1) if steps is None else good.fine(steps),
        change.bad_side: bad.failed(sorted(bad.failed_at)[len(bad.failed_at) // 2]),
    }

    def left(place: int) -> float:
        versions = list(history.versions)
        states = {**versions[place].states, history.metric: again[place]}
        versions[place] = replace(versions[place], states=states)
        return replace(history, versions=versions).doubt(change)

    able = [place for place in again if history.versions[place].left(history.rules)]
    return min(able, key=left, default=None)


def _steps(history: StateHistory, places: Sequence[int]) -> list[int | None]:
    """Return the number of steps that the next launch of each version makes if it ends well: that of its last such
    launch, or of the longest one of any version. None if steps are not counted.
    """
    survived = [history.evidence(place).survived for place in range(len(history.versions))]
    longest = max((max(each) for each in survived if each), default=None)
    return [survived[place][-1] if survived[place] and not history.rules.whole else longest for place in places]


def _good(steps: int | None, launches: int = 1) -> Evidence:
    return Evidence(good=launches, survived=() if steps is None else (steps,) * launches)


def _entropy(share: float) -> float:
    if share <= 0 or share >= 1:
        return 0.0
    return float(-share * np.log2(share) - (1 - share) * np.log2(1 - share))
