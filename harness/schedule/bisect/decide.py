"""Decision of a bisection: what to launch next. Pure: the same evidence gives the same decision.

The search terminates: every decision launches only versions that can be launched and have fewer than `most` launches,
so the sum of `most - launches` over these versions falls with every launch.
"""

from __future__ import annotations

from collections.abc import Sequence

from harness.schedule.bisect import flaky_extent, halving
from harness.schedule.bisect.conclude import bad_from_start, conclude
from harness.schedule.bisect.records import Boundary, Decision, Rules, VersionEvidence, name_of
from harness.schedule.bisect.side_by_side import compare
from harness.schedule.bisect.states import (
    PATIENCE,
    StateChange,
    agreeing,
    changes_of,
    doubtful_runs,
    enough_failures,
    evidence,
    failures_from,
    is_mixed,
    metrics_of,
    state_of,
)

LEVEL_WORDS = {"step_time": ("slower", "faster"), "peak_memory": ("larger", "smaller")}
SHOWN = 20
"""Most entries of a posterior that are logged."""


def decide(spots: Sequence[VersionEvidence], *, rules: Rules) -> Decision:
    """Return the next launches, or the end of the search with its conclusion."""
    for ask in (_ends, _lucky, _between, _levels, _alike, _accused_once):
        decision = ask(spots, rules)
        if decision is not None:
            return decision
    return Decision(launch=(), kind="done", reason=_found(spots, rules))


# ---------------------------------------------------------------- both ends


def _usable(spots: Sequence[VersionEvidence], rules: Rules) -> list[int]:
    """Return the versions that can be launched and are not known to say nothing."""
    return [place for place, spot in enumerate(spots) if spot.testable and not _given_up(spot, rules)]


def _given_up(spot: VersionEvidence, rules: Rules) -> bool:
    return spot.launches >= min(PATIENCE, rules.most) and all(state_of(spot, each) is None for each in spot.states)


def _outer(spots: Sequence[VersionEvidence], rules: Rules) -> list[int]:
    usable = _usable(spots, rules)
    return sorted({usable[0], usable[-1]}) if usable else []


def _ends(spots: Sequence[VersionEvidence], rules: Rules) -> Decision | None:
    """Decide to launch the oldest and the newest usable version, and the baseline."""
    ends = _outer(spots, rules)
    usual = rules.baseline
    wanted = ends if usual is None or usual in ends or not spots[usual].testable else sorted([*ends, usual])
    silent = [p for p in wanted if not spots[p].launches or _is_silent(spots[p], rules)]
    if not silent:
        return None
    names = " and ".join(name_of(spots, place) for place in silent)
    return Decision(launch=tuple(silent), kind="end", reason=f"nothing is known of {names}: both ends come first")


def _is_silent(spot: VersionEvidence, rules: Rules) -> bool:
    return not _given_up(spot, rules) and all(state_of(spot, metric) is None for metric in spot.states)


def _alike(spots: Sequence[VersionEvidence], rules: Rules) -> Decision | None:
    """Decide to launch both ends again if nothing changes between them: all else rests on them, and a flaky failure
    that comes late shows only in whole launches.
    """
    if any(changes_of(spots, metric) for metric in metrics_of(spots)):
        return None
    again = tuple(p for p in _outer(spots, rules) if not _believed(spots[p], rules))
    if not again:
        return None
    names = " and ".join(name_of(spots, place) for place in again)
    reason = f"both ends are alike so far: {names} once more, to be sure"
    return Decision(launch=again, kind="confirm", reason=reason, whole=True)


def _accused_once(spots: Sequence[VersionEvidence], rules: Rules) -> Decision | None:
    """Decide to launch a version again that was bad once and has no known neighbour, so that no change confirms it."""
    for metric in metrics_of(spots):
        bad = [place for place, spot in enumerate(spots) if state_of(spot, metric)]
        able = [place for place in bad if spots[place].testable and spots[place].launches < rules.most]
        if able and not any(agreeing(spots[place], metric, bad=True, rules=rules) for place in bad):
            place = max(able, key=lambda p: (evidence(spots[p], metric).bad, -p))
            reason = f"{metric}: {name_of(spots, place)} was bad too few times to be believed: once more"
            return Decision(launch=(place,), kind="confirm", reason=reason, metric=metric)
    return None


def _believed(spot: VersionEvidence, rules: Rules) -> bool:
    bad = any(agreeing(spot, metric, bad=True, rules=rules) for metric in spot.states)
    some = any(evidence(spot, metric).bad for metric in spot.states)
    return bad or spot.launches >= (rules.most if some else min(rules.least, rules.most))


# ---------------------------------------------------------------- between two that differ


def _lucky(spots: Sequence[VersionEvidence], rules: Rules) -> Decision | None:
    """Decide to launch good versions between two bad ones again: are they good, or were they lucky?"""
    for metric in metrics_of(spots):
        for run in doubtful_runs(spots, metric):
            able = [place for place in run if spots[place].testable and spots[place].launches < rules.most]
            if able:
                place = min(able, key=lambda p: (spots[p].launches, not spots[p].at_hand, p))
                reason = f"{name_of(spots, place)} was good between two bad versions: may it have been lucky?"
                return Decision(launch=(place,), kind="repeat", reason=reason, metric=metric)
    return None


def _between(spots: Sequence[VersionEvidence], rules: Rules) -> Decision | None:
    for metric in metrics_of(spots):
        mixed = is_mixed(spots, metric)
        for change in changes_of(spots, metric):
            ask = _part_time if mixed else _halve
            decision = ask(spots, change, rules) or (None if mixed else _in_time(spots, change, rules))
            if decision is not None:
                return decision
    return None


def _halve(spots: Sequence[VersionEvidence], change: StateChange, rules: Rules) -> Decision | None:
    place = halving.pick(spots, change, rules)
    if place is None:
        return _confirm(spots, change, change.good, rules)
    count = len(halving.open_places(spots, change, rules))
    reason = f"{_sides(spots, change)}: {name_of(spots, place)} splits the {count} version{'s'[: count > 1]} between"
    return Decision(
        launch=(place,), kind="halve", reason=reason, metric=change.metric, bracket=(change.before, change.after)
    )


def _confirm(spots: Sequence[VersionEvidence], change: StateChange, good: int, rules: Rules) -> Decision | None:
    """Decide to launch both sides again until each has launches that agree; so too the oldest version, if it is bad."""
    sides = {good: False, change.bad: True}
    oldest = bad_from_start(spots, change.metric)
    if oldest is not None:
        sides[oldest] = True
    enough = enough_failures(spots, change, rules)
    lacking = [
        place
        for place, bad in sorted(sides.items())
        if not (agreeing(spots[place], change.metric, bad=bad, rules=rules) and (place != change.bad or enough))
        and spots[place].testable
        and spots[place].launches < rules.most
    ]
    if not lacking:
        return None
    names = " and ".join(name_of(spots, place) for place in lacking)
    reason = f"{_sides(spots, change)}: {names} once more, before a version is named"
    return Decision(
        launch=tuple(lacking), kind="confirm", reason=reason, metric=change.metric,
        bracket=(change.before, change.after),
    )  # fmt: skip


def _part_time(spots: Sequence[VersionEvidence], change: StateChange, rules: Rules) -> Decision | None:
    """Decide, for a flaky failure, which launch is the most informative about how far it reaches."""
    known = flaky_extent.reach_of(spots, change)
    place = flaky_extent.pick(spots, change, known, rules)
    if place is None:
        return _confirm(spots, change, change.good, rules)
    order = sorted(zip(known.places, known.outermost, strict=True), key=lambda each: -each[1])
    posterior = tuple((int(p), round(float(chance), 4)) for p, chance in order[:SHOWN])
    seen = evidence(spots[change.bad], change.metric)
    share = known.fails(max(seen.survived, default=None))
    why = f"fails in about {share:.0%} of its launches" if seen.good else "may fail in a part of its launches"
    reason = (
        f"{name_of(spots, change.bad)} {why}, so that good ones may be luck:"
        f" {name_of(spots, place)} says most about how far it reaches"
    )
    return Decision(
        launch=(place,), kind="repeat", reason=reason, metric=change.metric,
        bracket=(change.before, change.after), posterior=posterior,
    )  # fmt: skip


def _in_time(spots: Sequence[VersionEvidence], change: StateChange, rules: Rules) -> Decision | None:
    """Decide to launch a side again if failures come so late or so seldom that the good side may have missed one."""
    chance = flaky_extent.doubt(spots, change)
    place = flaky_extent.settling(spots, change, rules) if chance > rules.alpha else None
    if place is None:
        return None
    good = name_of(spots, change.good)
    reason = (
        f"by the steps at which launches failed, {good} may be bad and have ended before its failure was due"
        f" ({chance:.1%}): {name_of(spots, place)} once more"
    )
    return Decision(
        launch=(place,), kind="repeat", reason=reason, metric=change.metric, bracket=(change.before, change.after)
    )


def _sides(spots: Sequence[VersionEvidence], change: StateChange) -> str:
    words = ("good", "bad") if change.worse else ("bad", "good")
    before, after = name_of(spots, change.before), name_of(spots, change.after)
    return f"{change.metric}: {before} is {words[0]} and {after} {words[1]}"


def _levels(spots: Sequence[VersionEvidence], rules: Rules) -> Decision | None:
    """Decide on levels if nothing worse was found: versions that fail or leak have no levels to compare."""
    if any(state_of(spot, metric) for spot in spots for metric in spot.states):
        return None
    return compare(spots, rules)


# ---------------------------------------------------------------- the end


def _found(spots: Sequence[VersionEvidence], rules: Rules) -> str:
    ends = _outer(spots, rules)
    if not ends:
        return "no version could be launched"
    conclusions = [_told(spots, boundary, rules) for boundary in conclude(spots, rules=rules)]
    since = {metric: bad_from_start(spots, metric) for metric in metrics_of(spots)}
    conclusions += [_since(spots, p, metric, rules) for metric, p in since.items() if p is not None]
    if conclusions:
        return "; ".join(conclusions)
    unclear = [name_of(spots, place) for place, spot in enumerate(spots) if _is_unclear(spot)]
    if unclear:
        return f"nothing bad was found, but it is unclear whether {' and '.join(unclear)} is good: --trials for more"
    return "both ends are good; a bad version in between would need --search full"


def _is_unclear(spot: VersionEvidence) -> bool:
    """Return whether launches showed something that is neither good nor bad."""
    return any(state_of(spot, metric) is None and (seen.bad or seen.unsure) for metric, seen in spot.states.items())


def _told(spots: Sequence[VersionEvidence], boundary: Boundary, rules: Rules) -> str:
    word = _word(boundary)
    sure = "" if boundary.confirmed else f", without {rules.agree} launches that agree on both sides"
    if not boundary.between:
        verb = "is" if boundary.confirmed else "may be"
        return f"{boundary.metric}: {name_of(spots, boundary.after)} {verb} the {word}{sure}{_doubt(spots, boundary)}"
    start = "the start" if boundary.before is None else name_of(spots, boundary.before)
    return (
        f"{boundary.metric}: the {word} lies between {start} and {name_of(spots, boundary.after)};"
        f" {len(boundary.between)} between are unclear{sure}"
    )


def _word(boundary: Boundary) -> str:
    """Return the word for a boundary. A level is no verdict: whether more is bad depends on the baseline."""
    if boundary.metric in LEVEL_WORDS:
        return f"first that is {LEVEL_WORDS[boundary.metric][not boundary.worse]}"
    return "first bad" if boundary.worse else "first good again"


def _since(spots: Sequence[VersionEvidence], oldest: int, metric: str, rules: Rules) -> str:
    if agreeing(spots[oldest], metric, bad=True, rules=rules):
        return f"{metric}: bad since before {name_of(spots, oldest)}"
    return f"{metric}: may be bad since before {name_of(spots, oldest)}, without {rules.agree} launches that agree"


def _doubt(spots: Sequence[VersionEvidence], boundary: Boundary) -> str:
    """Return the reservation about a version whose few launches all failed."""
    if boundary.metric != "outcome" or not boundary.worse or boundary.before is None or is_mixed(spots, "outcome"):
        return ""
    change = StateChange(metric=boundary.metric, before=boundary.before, after=boundary.after, worse=True)
    failed = failures_from(spots, change)
    launches = f"all {failed} launches" if failed > 1 else "the only launch"
    return f" ({launches} from there on failed; if it fails only in some of them, it may be older: see --search full)"
