"""Which version to launch between two that differ, while every launch is believed."""

from __future__ import annotations

from collections.abc import Sequence

from harness.schedule.bisect.records import Rules, VersionEvidence
from harness.schedule.bisect.states import StateChange, failures_from, is_open, says_nothing


def open_places(spots: Sequence[VersionEvidence], change: StateChange, rules: Rules) -> list[int]:
    """The versions between the two sides that can still be asked."""
    return [p for p in range(change.before + 1, change.after) if is_open(spots[p], change.metric, rules)]


def pick(spots: Sequence[VersionEvidence], change: StateChange, rules: Rules) -> int | None:
    """The version that halves what is between the two sides, or None if nothing is left to ask.

    Of `n` places where the change may be, any split into parts of at most 2^(ceil(log2 n) - 1) costs no launch more in
    the worst case. As long as the bad side has failed only once, the part next to it is smaller by one where that is
    free: if nothing else fails, the launch that is saved shows once more that it does. Of those splits an image at hand
    is the best (not at the very rim: it would cost launches on average), then one further from versions that said
    nothing (their neighbours often say nothing either), then the middle.
    """
    places = open_places(spots, change, rules)
    if not places:
        return None
    count = len(places) + 1
    silent = [p for p in range(change.before + 1, change.after) if says_nothing(spots[p], change.metric)]
    largest = (1 << (count - 1).bit_length()) // 2
    spare = count < 2 * largest and failures_from(spots, change) < 2

    def affordable(index: int) -> bool:
        older, newer = index, count - index
        beside_bad = newer if change.worse else older
        return max(older, newer) <= largest and beside_bad <= largest - spare

    def rank(index: int) -> tuple[bool, int, int, int]:
        place = places[index - 1]
        cheap = spots[place].at_hand and 4 * min(index, count - index) >= count
        distance = min((abs(place - other) for other in silent), default=0)
        return not cheap, spots[place].launches, -min(distance, len(silent) + 1), abs(2 * index - count)

    return places[min(filter(affordable, range(1, count)), key=rank) - 1]
