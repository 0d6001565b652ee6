"""Chooses the version whose launch says most about where a state changes.

As long as every launch is believed, that is the version that halves the range between the two sides. If the failure is
flaky, it is the one with the most information about how far the failure reaches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from harness.judge.history.flaky import Evidence, Reach, chance_of_luck, chances
from harness.schedule.bisect.bisect_records import Rules, VersionEvidence
from harness.schedule.bisect.states import StateChange, StateHistory

NEARLY = 0.9
"""Share of the best launch's information from which an image at hand is preferred."""


def open_places(history: StateHistory, change: StateChange) -> list[int]:
    """Return the versions between the two sides that can still be launched."""
    return [place for place in range(change.before + 1, change.after) if history.may_be_settled(place)]


def splitting_version(history: StateHistory, change: StateChange) -> int | None:
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
        for place in range(change.before + 1, change.after)
        if not versions[place].testable or (versions[place].launches > 0 and history.states[place] is None)
    ]
    largest = (1 << (count - 1).bit_length()) // 2
    spare = count < 2 * largest and history.failures_from(change) < 2

    def affordable(index: int) -> bool:
        older, newer = index, count - index
        beside_bad = newer if change.worse else older
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


def most_informative(history: StateHistory, change: StateChange, reach: Reach) -> int | None:
    """Return the version whose next launch is the most informative about the extent; None if no launch could matter."""
    versions, alpha = history.versions, history.rules.alpha
    left = [0, *(_left(versions[place], history.rules) for place in reach.places[1:])]
    steps = _steps(history, reach.places)
    shares = {each: fails(reach, each) for each in set(steps)}
    # The outermost place that is not known to be good yet, but would be if all remaining launches from the bad side up
    # to that place were good.
    fits = chances(reach.seen, [_good(each, count) for each, count in zip(steps, left, strict=True)])[1:]
    missed = fits / fits[0]
    provable = [index for index in range(1, len(reach.places)) if reach.bad(index) * missed[index] <= alpha]
    end = max((index for index in provable if reach.bad(index) > alpha), default=0)
    bits = {
        place: _bits(reach.bad(index), shares[steps[index]])
        for index, place in enumerate(reach.places[: end + 1])
        if left[index] > 0
    }
    if not bits:
        return None
    best = max(bits.values())
    at_hand = [place for place in bits if versions[place].at_hand and bits[place] >= NEARLY * best]
    return max(at_hand or bits, key=bits.__getitem__)


def settling(history: StateHistory, change: StateChange) -> int | None:
    """Return the side of a change whose next launch, if it ends like the earlier ones, leaves the smaller doubt."""
    good, bad = history.evidence(change.good), history.evidence(change.bad)
    (steps,) = _steps(history, [change.good])
    again = {
        change.good: replace(good, good=good.good + 1) if steps is None else good.fine(steps),
        change.bad: bad.failed(sorted(bad.failed_at)[len(bad.failed_at) // 2]),
    }

    def left(place: int) -> float:
        versions = list(history.versions)
        states = {**versions[place].states, history.metric: again[place]}
        versions[place] = replace(versions[place], states=states)
        return replace(history, versions=versions).doubt(change)

    able = [place for place in again if _left(history.versions[place], history.rules) > 0]
    return min(able, key=left, default=None)


def _left(version: VersionEvidence, rules: Rules) -> int:
    return max(0, rules.most - version.launches) if version.testable else 0


def _steps(history: StateHistory, places: Sequence[int]) -> list[int | None]:
    """Return the number of steps that the next launch of each version makes if it ends well: that of its last such
    launch, or of the longest one of any version. None if steps are not counted.
    """
    survived = [history.evidence(place).survived for place in range(len(history.versions))]
    longest = max((max(each) for each in survived if each), default=None)
    return [survived[place][-1] if survived[place] and not history.rules.whole else longest for place in places]


def _good(steps: int | None, launches: int = 1) -> Evidence:
    return Evidence(good=launches, survived=() if steps is None else (steps,) * launches)


def _bits(bad: float, rate: float) -> float:
    """Return the mutual information, in bits, of "the version is bad" and "the next launch fails"."""
    return _entropy(bad * rate) - bad * _entropy(rate)


def _entropy(share: float) -> float:
    if share <= 0 or share >= 1:
        return 0.0
    return float(-share * np.log2(share) - (1 - share) * np.log2(1 - share))
