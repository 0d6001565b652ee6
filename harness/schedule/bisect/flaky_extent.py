"""Estimates the extent of a flaky failure: a posterior over the outermost version that has it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from harness.model import Floats
from harness.schedule.bisect.bisect_records import Evidence, RowVersions, Rules, VersionEvidence
from harness.schedule.bisect.states import StateChange, believed_states, evidence_of
from harness.schedule.bisect.survival import chance_of_luck, chances, chances_in_time

NEARLY = 0.9
"""Share of the best launch's information from which an image at hand is preferred."""


@dataclass(frozen=True, kw_only=True)
class Reach:
    """The extent that a failure may have. `places` go from the bad version next to the good ones outwards;
    `outermost[i]` is the probability that places[i] is the last bad one of them. `seen` is the evidence of bad
    versions.
    """

    places: tuple[int, ...]
    outermost: Floats
    seen: tuple[Evidence, ...]

    def bad(self, index: int) -> float:
        """Return the probability that places[index] is bad."""
        return float(self.outermost[index:].sum())

    def fails(self, steps: int | None) -> float:
        """Return the probability that a launch of `steps` steps fails, if its version is bad."""
        return 1 - chance_of_luck(self.seen, [_good(steps)])


def reach_of(versions: RowVersions, change: StateChange, *, by: Callable[..., Floats] = chances) -> Reach:
    """Return the posterior: each version outwards, up to the next bad one, may be bad and have been lucky so far."""
    outwards = -1 if change.worse else 1
    states = believed_states(versions, change.metric)
    places = [change.bad, *_until(states, versions, change.bad, step=outwards, stop=True)]
    inside = [change.bad, *_until(states, versions, change.bad, step=-outwards, stop=False)]
    seen = tuple(evidence_of(versions[place], change.metric) for place in inside)
    fits = by(seen, [evidence_of(versions[place], change.metric) for place in places[1:]])
    return Reach(places=tuple(places), outermost=fits / fits.sum(), seen=seen)


def _until(states: Sequence[bool | None], versions: RowVersions, start: int, *, step: int, stop: bool) -> list[int]:
    """Return the testable positions from `start` on, up to the next whose state is `stop`."""
    places: list[int] = []
    place = start + step
    while 0 <= place < len(states) and states[place] is not stop:
        if versions[place].testable or versions[place].launches:
            places.append(place)
        place += step
    return places


def most_informative(versions: RowVersions, change: StateChange, reach: Reach, rules: Rules) -> int | None:
    """Return the version whose next launch is the most informative about the extent; None if no launch could matter."""
    left = [0, *(_left(versions[place], rules) for place in reach.places[1:])]
    steps = _steps(versions, reach.places, change, rules)
    fails = {each: reach.fails(each) for each in set(steps)}
    end = _provable(reach, [_good(each, count) for each, count in zip(steps, left, strict=True)], rules)
    bits = {
        place: _bits(reach.bad(index), fails[steps[index]])
        for index, place in enumerate(reach.places[: end + 1])
        if left[index] > 0
    }
    if not bits:
        return None
    best = max(bits.values())
    at_hand = [place for place in bits if versions[place].at_hand and bits[place] >= NEARLY * best]
    return max(at_hand or bits, key=bits.__getitem__)


def _provable(reach: Reach, left: Sequence[Evidence], rules: Rules) -> int:
    """Return the index of the outermost place that is not known to be good yet, but would be if all remaining launches
    from the bad side up to that place were good; 0 if there is none.
    """
    fits = chances(reach.seen, left)[1:]
    missed = fits / fits[0]
    indices = range(1, len(reach.places))
    doubtful = [index for index in indices if reach.bad(index) > rules.alpha]
    return max((i for i in doubtful if reach.bad(i) * missed[i] <= rules.alpha), default=0)


def doubt(versions: RowVersions, change: StateChange) -> float:
    """Return the probability that the good version is bad, and ended well only because its failure was not due yet. It
    is 0 if steps are not counted, because there is no evidence then.
    """
    if not evidence_of(versions[change.bad], change.metric).timed:
        return 0.0
    reach = reach_of(versions, change, by=chances_in_time)
    return reach.bad(reach.places.index(change.good))


def settling(versions: RowVersions, change: StateChange, rules: Rules) -> int | None:
    """Return the side of a change whose next launch, if it ends like the earlier ones, leaves the smaller `doubt`."""
    good, bad = (evidence_of(versions[place], change.metric) for place in (change.good, change.bad))
    (steps,) = _steps(versions, [change.good], change, rules)
    again = {
        change.good: replace(good, good=good.good + 1) if steps is None else good.fine(steps),
        change.bad: bad.failed(sorted(bad.failed_at)[len(bad.failed_at) // 2]),
    }
    able = [place for place in again if _left(versions[place], rules) > 0]

    def left(place: int) -> float:
        changed = list(versions)
        changed[place] = replace(versions[place], states={**versions[place].states, change.metric: again[place]})
        return doubt(changed, change)

    return min(able, key=left, default=None)


def _left(version: VersionEvidence, rules: Rules) -> int:
    return max(0, rules.most - version.launches) if version.testable else 0


def _steps(versions: RowVersions, places: Sequence[int], change: StateChange, rules: Rules) -> list[int | None]:
    """Return the number of steps that the next launch of each version makes if it ends well: that of its last such
    launch, or of the longest one of any version. None if steps are not counted.
    """
    survived = [evidence_of(version, change.metric).survived for version in versions]
    longest = max((max(each) for each in survived if each), default=None)
    return [survived[place][-1] if survived[place] and not rules.whole else longest for place in places]


def _good(steps: int | None, launches: int = 1) -> Evidence:
    return Evidence(good=launches, survived=() if steps is None else (steps,) * launches)


def _bits(bad: float, rate: float) -> float:
    """Return the mutual information, in bits, of "the version is bad" and "the next launch fails"."""
    return _entropy(bad * rate) - bad * _entropy(rate)


def _entropy(share: float) -> float:
    if share <= 0 or share >= 1:
        return 0.0
    return float(-share * np.log2(share) - (1 - share) * np.log2(1 - share))
