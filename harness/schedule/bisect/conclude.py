"""Concludes what a bisection has found so far, from the evidence alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from harness.judge.history.flaky import Reach
from harness.reasons import SkipReason
from harness.schedule.bisect.bisect_records import Boundary, RowVersions, Rules, version_name
from harness.schedule.bisect.level_bisection import level_boundaries
from harness.schedule.bisect.states import StateChange, changes_of, has_agreeing, is_mixed, metrics_of, version_state
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
