"""Concludes what a bisection has found so far, and decides what it launches next. Pure.

The search terminates: every decision launches only versions that can be launched and have fewer than `most` launches,
so the sum of `most - launches` over these versions falls with every launch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from harness.judge.history.flaky import Reach, lucky_runs
from harness.reasons import BisectReason, SkipReason
from harness.schedule.bisect import which_next
from harness.schedule.bisect.bisect_records import (
    LEVEL,
    Boundary,
    Decision,
    DecisionKind,
    RowVersions,
    Rules,
    VersionEvidence,
    likeliest,
    version_name,
    version_names,
)
from harness.schedule.bisect.level_bisection import compare_levels, level_boundaries
from harness.schedule.bisect.states import (
    PATIENCE,
    StateChange,
    changes_of,
    enough_failures,
    evidence_of,
    evidences,
    failures_from,
    has_agreeing,
    is_mixed,
    metrics_of,
    states_of,
    version_state,
)
from harness.schedule.bisect.which_next import doubt, reach_of


def conclude(versions: RowVersions, *, rules: Rules) -> tuple[Boundary, ...]:
    """Return the changes of states; if there are none, those of levels.

    For a flaky failure, or one that comes later than some launches ran, the good versions next to it that may have been
    lucky are `between`, so that the probability of leaving out the right version is at most `rules.alpha`.
    """
    states = [
        _boundary(versions, change, rules) for metric in metrics_of(versions) for change in changes_of(versions, metric)
    ]
    return tuple(states) or level_boundaries(versions, rules)


def bad_from_start(versions: RowVersions, metric: str) -> int | None:
    """Return the oldest version whose state is decided, if it is bad."""
    decided = [place for place, version in enumerate(versions) if version_state(version, metric) is not None]
    return decided[0] if decided and version_state(versions[decided[0]], metric) else None


def not_needed(versions: RowVersions, *, rules: Rules) -> Mapping[int, str]:
    """Return, for each version that could have been launched but was not, why this was not needed."""
    boundaries = conclude(versions, rules=rules)
    return {
        place: _why(versions, place, boundaries)
        for place, version in enumerate(versions)
        if version.testable and not version.launches
    }


def _why(versions: RowVersions, place: int, boundaries: Sequence[Boundary]) -> str:
    launched = [p for p, version in enumerate(versions) if version.launches]
    older = max((p for p in launched if p < place), default=None)
    newer = min((p for p in launched if p > place), default=None)
    if older is None or newer is None:
        return SkipReason.OUTSIDE_LAUNCHED()
    crossed = any((b.before if b.before is not None else -1) <= older and newer <= b.after for b in boundaries)
    bad = {any(version_state(versions[p], metric) for metric in versions[p].states) for p in (older, newer)}
    return (
        SkipReason.BETWEEN_DIFFERENT
        if crossed or len(bad) > 1
        else (SkipReason.BETWEEN_BAD if True in bad else SkipReason.BETWEEN_GOOD)
    )(older=version_name(versions, older), newer=version_name(versions, newer))


def _boundary(versions: RowVersions, change: StateChange, rules: Rules) -> Boundary:
    doubted = is_mixed(versions, change.metric) or doubt(versions, change) > rules.alpha
    good = _proven(versions, reach_of(versions, change), rules) if doubted else change.good
    before, after = (good, change.bad) if change.worse else (change.bad, change.after if good is None else good)
    between = range(0 if before is None else before + 1, after)
    sure = good is not None and has_agreeing(versions[good], change.metric, bad=False, rules=rules)
    return Boundary(
        metric=change.metric,
        before=before,
        after=after,
        worse=change.worse,
        between=tuple(between),
        confirmed=sure and has_agreeing(versions[change.bad], change.metric, bad=True, rules=rules),
    )


def _proven(versions: RowVersions, reach: Reach, rules: Rules) -> int | None:
    """Return the first version outwards that has launches and is bad with a probability of at most `alpha`; or None."""
    for index, place in enumerate(reach.places):
        if index and versions[place].launches and reach.bad(index) <= rules.alpha:
            return place
    return None


def decide(versions: RowVersions, *, rules: Rules) -> Decision:
    """Return the next launches, or the end of the search with its conclusion."""
    for ask in (_ends, _lucky, _between, _levels, _alike, _bad_once):
        decision = ask(versions, rules)
        if decision is not None:
            return decision
    return Decision(launch=(), kind="done", reason=_found(versions, rules))


# ---------------------------------------------------------------- both ends


def _usable(versions: RowVersions, rules: Rules) -> list[int]:
    """Return the versions that can be launched and may give a result."""
    return [place for place, version in enumerate(versions) if version.testable and not _given_up(version, rules)]


def _given_up(version: VersionEvidence, rules: Rules) -> bool:
    return version.launches >= min(PATIENCE, rules.most) and all(
        version_state(version, each) is None for each in version.states
    )


def _outer(versions: RowVersions, rules: Rules) -> list[int]:
    usable = _usable(versions, rules)
    return sorted({usable[0], usable[-1]}) if usable else []


def _ends(versions: RowVersions, rules: Rules) -> Decision | None:
    """Decide to launch the oldest and the newest usable version, and the baseline."""
    ends = _outer(versions, rules)
    usual = rules.baseline
    wanted = ends if usual is None or usual in ends or not versions[usual].testable else sorted([*ends, usual])
    silent = [p for p in wanted if not versions[p].launches or _is_silent(versions[p], rules)]
    if not silent:
        return None
    reason = BisectReason.ENDS_UNKNOWN(versions=version_names(versions, silent))
    return Decision(launch=tuple(silent), kind="end", reason=reason)


def _is_silent(version: VersionEvidence, rules: Rules) -> bool:
    return not _given_up(version, rules) and all(version_state(version, metric) is None for metric in version.states)


def _alike(versions: RowVersions, rules: Rules) -> Decision | None:
    """Decide to launch both ends again, to their whole budgets, if nothing changes between them: the result rests on
    them alone.
    """
    if any(changes_of(versions, metric) for metric in metrics_of(versions)):
        return None
    again = tuple(p for p in _outer(versions, rules) if not _believed(versions[p], rules))
    if not again:
        return None
    reason = BisectReason.ENDS_ALIKE(versions=version_names(versions, again))
    return Decision(launch=again, kind="confirm", reason=reason, whole=True)


def _bad_once(versions: RowVersions, rules: Rules) -> Decision | None:
    """Decide to relaunch a version that was bad once and has no known neighbour, so that no change confirms it."""
    for metric in metrics_of(versions):
        bad = [place for place, version in enumerate(versions) if version_state(version, metric)]
        able = [place for place in bad if versions[place].launchable(rules)]
        if able and not any(has_agreeing(versions[place], metric, bad=True, rules=rules) for place in bad):
            place = max(able, key=lambda p: (evidence_of(versions[p], metric).bad, -p))
            reason = BisectReason.BAD_TOO_FEW_TIMES(metric=metric, version=version_name(versions, place))
            return Decision(launch=(place,), kind="confirm", reason=reason, metric=metric)
    return None


def _believed(version: VersionEvidence, rules: Rules) -> bool:
    bad = any(has_agreeing(version, metric, bad=True, rules=rules) for metric in version.states)
    some = any(evidence_of(version, metric).bad for metric in version.states)
    return bad or version.launches >= (rules.most if some else min(rules.least, rules.most))


# ---------------------------------------------------------------- between two that differ


def _lucky(versions: RowVersions, rules: Rules) -> Decision | None:
    """Decide to launch good versions between two bad ones again, because they may only have been lucky."""
    for metric in metrics_of(versions):
        for run in lucky_runs(states_of(versions, metric), evidences(versions, metric)):
            able = [place for place in run if versions[place].launchable(rules)]
            if able:
                place = min(able, key=lambda p: (versions[p].launches, not versions[p].at_hand, p))
                reason = BisectReason.GOOD_BETWEEN_BAD(version=version_name(versions, place))
                return Decision(launch=(place,), kind="repeat", reason=reason, metric=metric)
    return None


def _between(versions: RowVersions, rules: Rules) -> Decision | None:
    for metric in metrics_of(versions):
        mixed = is_mixed(versions, metric)
        for change in changes_of(versions, metric):
            ask = _part_time if mixed else _halve
            decision = ask(versions, change, rules) or (None if mixed else _in_time(versions, change, rules))
            if decision is not None:
                return decision
    return None


def _halve(versions: RowVersions, change: StateChange, rules: Rules) -> Decision | None:
    place = which_next.splitting_version(versions, change, rules)
    if place is None:
        return _confirm(versions, change, rules)
    count = len(which_next.open_places(versions, change, rules))
    sides, version = _sides(versions, change), version_name(versions, place)
    reason = BisectReason.SPLITS(sides=sides, version=version, count=count, s="s" if count > 1 else "")
    return _about(change, "halve", [place], reason)


def _confirm(versions: RowVersions, change: StateChange, rules: Rules) -> Decision | None:
    """Decide to launch both sides again until each has launches that agree, and likewise a bad oldest version."""
    sides = {change.good: False, change.bad: True}
    oldest = bad_from_start(versions, change.metric)
    if oldest is not None:
        sides[oldest] = True
    enough = enough_failures(versions, change, rules)
    lacking = [
        place
        for place, bad in sorted(sides.items())
        if not (has_agreeing(versions[place], change.metric, bad=bad, rules=rules) and (place != change.bad or enough))
        and versions[place].launchable(rules)
    ]
    if not lacking:
        return None
    reason = BisectReason.SIDES_UNCONFIRMED(sides=_sides(versions, change), versions=version_names(versions, lacking))
    return _about(change, "confirm", lacking, reason)


def _about(change: StateChange, kind: DecisionKind, launch: Sequence[int], reason: str) -> Decision:
    bracket = (change.before, change.after)
    return Decision(launch=tuple(launch), kind=kind, reason=reason, metric=change.metric, bracket=bracket)


def _part_time(versions: RowVersions, change: StateChange, rules: Rules) -> Decision | None:
    """Decide to launch the version that is the most informative about how far a flaky failure reaches."""
    reach = which_next.reach_of(versions, change)
    place = which_next.most_informative(versions, change, reach, rules)
    if place is None:
        return _confirm(versions, change, rules)
    posterior = likeliest(zip(reach.places, map(float, reach.outermost), strict=True))
    seen = evidence_of(versions[change.bad], change.metric)
    bad, version = version_name(versions, change.bad), version_name(versions, place)
    if seen.good:
        share = which_next.fails(reach, max(seen.survived, default=None))
        found = BisectReason.FLAKY(bad=bad, share=share)
    else:
        found = BisectReason.MAYBE_FLAKY(bad=bad)
    reason = BisectReason.MAY_BE_LUCK(found=found, version=version)
    return replace(_about(change, "repeat", [place], reason), posterior=posterior)


def _in_time(versions: RowVersions, change: StateChange, rules: Rules) -> Decision | None:
    """Decide to launch a side again if failures come so late or so rarely that the good side may have missed one."""
    chance = which_next.doubt(versions, change)
    place = which_next.settling(versions, change, rules) if chance > rules.alpha else None
    if place is None:
        return None
    good, version = version_name(versions, change.good), version_name(versions, place)
    reason = BisectReason.ENDED_TOO_EARLY(good=good, chance=chance, version=version)
    return _about(change, "repeat", [place], reason)


def _sides(versions: RowVersions, change: StateChange) -> str:
    before, after = version_name(versions, change.before), version_name(versions, change.after)
    return (BisectReason.GETS_BAD if change.worse else BisectReason.GETS_GOOD)(
        metric=change.metric, before=before, after=after
    )


def _levels(versions: RowVersions, rules: Rules) -> Decision | None:
    """Decide on levels if nothing worse was found: versions that fail or leak have no levels to compare."""
    if any(version_state(version, metric) for version in versions for metric in version.states):
        return None
    return compare_levels(versions, rules)


# ---------------------------------------------------------------- the end


def _found(versions: RowVersions, rules: Rules) -> str:
    ends = _outer(versions, rules)
    if not ends:
        return BisectReason.NONE_LAUNCHED()
    conclusions = [_boundary_found(versions, boundary, rules) for boundary in conclude(versions, rules=rules)]
    since = {metric: bad_from_start(versions, metric) for metric in metrics_of(versions)}
    conclusions += [_since(versions, p, metric, rules) for metric, p in since.items() if p is not None]
    if conclusions:
        return "; ".join(conclusions)
    unclear = version_names(versions, (place for place, version in enumerate(versions) if _is_unclear(version)))
    if unclear:
        return BisectReason.ENDS_UNCLEAR(versions=unclear)
    oldest, newest = ends[0], ends[-1]
    if oldest == newest:
        return BisectReason.ONLY_GOOD(version=version_name(versions, oldest))
    found = BisectReason.ENDS_GOOD()
    if (oldest, newest) != (0, len(versions) - 1):
        found = BisectReason.OUTERMOST_GOOD(versions=version_names(versions, ends))
    unsearched = any(version.testable and not version.launches for version in versions[oldest:newest])
    return BisectReason.UNSEARCHED(found=found) if unsearched else found


def _is_unclear(version: VersionEvidence) -> bool:
    """Return whether launches showed something that is neither good nor bad."""
    return any(
        version_state(version, metric) is None and (seen.bad or seen.unsure) for metric, seen in version.states.items()
    )


def _boundary_found(versions: RowVersions, boundary: Boundary, rules: Rules) -> str:
    metric, what, after = boundary.metric, _what(boundary), version_name(versions, boundary.after)
    if not boundary.between:
        doubt = _doubt(versions, boundary)
        if boundary.confirmed:
            return BisectReason.NAMED(metric=metric, version=after, what=what, doubt=doubt)
        return BisectReason.MAYBE_NAMED(metric=metric, version=after, what=what, agree=rules.agree, doubt=doubt)
    start = "the start" if boundary.before is None else version_name(versions, boundary.before)
    unclear = len(boundary.between)
    found = BisectReason.BETWEEN(metric=metric, what=what, start=start, after=after, unclear=unclear)
    return found if boundary.confirmed else BisectReason.MAYBE_BETWEEN(found=found, agree=rules.agree)


def _what(boundary: Boundary) -> str:
    """Return a boundary's name. A change of level is named slower or faster: whether slower is bad depends on the
    baseline.
    """
    if boundary.metric == LEVEL:
        return (BisectReason.FIRST_SLOWER if boundary.worse else BisectReason.FIRST_FASTER)()
    return (BisectReason.FIRST_BAD if boundary.worse else BisectReason.FIRST_GOOD)()


def _since(versions: RowVersions, oldest: int, metric: str, rules: Rules) -> str:
    version = version_name(versions, oldest)
    if has_agreeing(versions[oldest], metric, bad=True, rules=rules):
        return BisectReason.BAD_SINCE_BEFORE(metric=metric, version=version)
    return BisectReason.MAYBE_BAD_SINCE_BEFORE(metric=metric, version=version, agree=rules.agree)


def _doubt(versions: RowVersions, boundary: Boundary) -> str:
    """Return the reservation about a version whose few launches all failed."""
    if boundary.metric != "outcome" or not boundary.worse or boundary.before is None or is_mixed(versions, "outcome"):
        return ""
    change = StateChange(metric=boundary.metric, before=boundary.before, after=boundary.after, worse=True)
    failed = failures_from(versions, change)
    launches = BisectReason.ALL_LAUNCHES(count=failed) if failed > 1 else BisectReason.ONLY_LAUNCH()
    return BisectReason.ALL_FAILED(launches=launches)
