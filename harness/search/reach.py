"""How far a failure that comes in a part of the launches reaches: a posterior over its outermost version."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from harness.model import Floats
from harness.rates import chances, mean_rate
from harness.search.records import Rules, Spot
from harness.search.states import Change, always, believed_states, evidence

NEARLY = 0.9
"""An image at hand is preferred if its launch tells this share of the best one's."""


@dataclass(frozen=True, kw_only=True)
class Reach:
    """`places` go from the bad version next to the good ones outwards; `outermost[i]` is the chance that places[i] is
    the last of them that is bad. `rate` is how often a bad version fails.
    """

    places: tuple[int, ...]
    outermost: Floats
    rate: float

    def bad(self, index: int) -> float:
        """The chance that places[index] is bad."""
        return float(self.outermost[index:].sum())


def reach_of(spots: Sequence[Spot], change: Change) -> Reach:
    """All versions from the bad side outwards, up to the next bad one, may be bad and were lucky so far."""
    outwards = -1 if change.worse else 1
    states = believed_states(spots, change.metric)
    places = [change.bad, *_until(states, spots, change.bad, step=outwards, stop=True)]
    inside = [change.bad, *_until(states, spots, change.bad, step=-outwards, stop=False)]
    seen = [evidence(spots[place], change.metric) for place in inside]
    failed, fine = sum(each.bad for each in seen), sum(each.good for each in seen)
    goods = np.cumsum([0, *(evidence(spots[place], change.metric).good for place in places[1:])])
    prior = always(spots, change.metric)
    fits = chances(failed, fine, goods.astype(np.float64), always=prior)
    rate = mean_rate(failed, fine, always=prior)
    return Reach(places=tuple(places), outermost=fits / fits.sum(), rate=rate)


def _until(states: Sequence[bool | None], spots: Sequence[Spot], start: int, *, step: int, stop: bool) -> list[int]:
    """The testable places from `start` on, up to the next whose state is `stop`."""
    found: list[int] = []
    place = start + step
    while 0 <= place < len(states) and states[place] is not stop:
        if spots[place].testable:
            found.append(place)
        place += step
    return found


def pick(spots: Sequence[Spot], reach: Reach, rules: Rules) -> int | None:
    """The version whose next launch tells most about how far the failure reaches; None if that could change nothing."""
    left = [0, *(max(0, rules.most - spots[place].launches) for place in reach.places[1:])]
    end = _provable(reach, left, rules)
    told = {
        place: _bits(reach.bad(index), reach.rate)
        for index, place in enumerate(reach.places[: end + 1])
        if left[index] > 0
    }
    if not told:
        return None
    best = max(told.values())
    at_hand = [place for place in told if spots[place].at_hand and told[place] >= NEARLY * best]
    return max(at_hand or told, key=told.__getitem__)


def _provable(reach: Reach, left: Sequence[int], rules: Rules) -> int:
    """The index of the outermost place that is not yet known to be good, but would be if all launches that are left
    from the bad side to there were good; 0 if there is none.
    """
    launches = np.cumsum(left)
    indices = range(1, len(reach.places))
    doubtful = [index for index in indices if reach.bad(index) > rules.alpha]
    able = [i for i in doubtful if reach.bad(i) * (1 - reach.rate) ** float(launches[i]) <= rules.alpha]
    return max(able, default=0)


def _bits(bad: float, rate: float) -> float:
    """The mutual information of "is it bad?" and "does it fail now?"."""
    return _entropy(bad * rate) - bad * _entropy(rate)


def _entropy(share: float) -> float:
    if share <= 0 or share >= 1:
        return 0.0
    return float(-share * np.log2(share) - (1 - share) * np.log2(1 - share))
