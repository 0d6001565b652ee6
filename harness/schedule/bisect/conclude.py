"""Conclusions of a bisection so far, from the evidence alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from harness.schedule.bisect.flaky_extent import Reach, doubt, reach_of
from harness.schedule.bisect.records import Boundary, Rules, VersionEvidence, name_of
from harness.schedule.bisect.side_by_side import level_boundaries
from harness.schedule.bisect.states import StateChange, agreeing, changes_of, is_mixed, metrics_of, state_of


def conclude(spots: Sequence[VersionEvidence], *, rules: Rules) -> tuple[Boundary, ...]:
    """Return the changes of states; if there are none, those of levels.

    For a flaky failure, or one that comes later than some launches ran, the good versions next to it that may have been
    lucky are `between`, so that the right version is left out with a chance of at most `rules.alpha`.
    """
    states = [_boundary(spots, change, rules) for metric in metrics_of(spots) for change in changes_of(spots, metric)]
    return tuple(states) or level_boundaries(spots, rules)


def bad_from_start(spots: Sequence[VersionEvidence], metric: str) -> int | None:
    """Return the oldest version whose state is known, if it is bad."""
    known = [place for place, spot in enumerate(spots) if state_of(spot, metric) is not None]
    return known[0] if known and state_of(spots[known[0]], metric) else None


def not_needed(spots: Sequence[VersionEvidence], *, rules: Rules) -> Mapping[int, str]:
    """Return why each version that could be launched, and was not, did not need to be."""
    found = conclude(spots, rules=rules)
    return {place: _why(spots, place, found) for place, spot in enumerate(spots) if spot.testable and not spot.launches}


def _why(spots: Sequence[VersionEvidence], place: int, found: Sequence[Boundary]) -> str:
    known = [p for p, spot in enumerate(spots) if spot.launches]
    older = max((p for p in known if p < place), default=None)
    newer = min((p for p in known if p > place), default=None)
    if older is None or newer is None:
        return "not needed: outside the versions that were launched"
    word = _word(spots, older, newer, found)
    return f"not needed: between {name_of(spots, older)} and {name_of(spots, newer)}, {word}"


def _word(spots: Sequence[VersionEvidence], older: int, newer: int, found: Sequence[Boundary]) -> str:
    crossed = any((b.before if b.before is not None else -1) <= older and newer <= b.after for b in found)
    if crossed:
        return "which differ"
    bad = [any(state_of(spots[p], metric) for metric in spots[p].states) for p in (older, newer)]
    return "both bad" if all(bad) else "both good" if not any(bad) else "which differ"


def _boundary(spots: Sequence[VersionEvidence], change: StateChange, rules: Rules) -> Boundary:
    doubted = is_mixed(spots, change.metric) or doubt(spots, change) > rules.alpha
    good = _proven(spots, reach_of(spots, change), rules) if doubted else change.good
    before, after = (good, change.bad) if change.worse else (change.bad, change.after if good is None else good)
    between = range(0 if before is None else before + 1, after)
    sure = good is not None and agreeing(spots[good], change.metric, bad=False, rules=rules)
    return Boundary(
        metric=change.metric,
        before=before,
        after=after,
        worse=change.worse,
        between=tuple(between),
        confirmed=sure and agreeing(spots[change.bad], change.metric, bad=True, rules=rules),
    )


def _proven(spots: Sequence[VersionEvidence], reach: Reach, rules: Rules) -> int | None:
    """Return the first version outwards that has good launches and is bad with a chance of at most `alpha`."""
    for index, place in enumerate(reach.places):
        if index and spots[place].launches and reach.bad(index) <= rules.alpha:
            return place
    return None
