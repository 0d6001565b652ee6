"""Chooses the version to launch between two that differ, as long as every launch is believed."""

from __future__ import annotations

from harness.schedule.bisect.bisect_records import RowVersions, Rules
from harness.schedule.bisect.states import StateChange, failures_from, may_be_settled, says_nothing


def open_places(versions: RowVersions, change: StateChange, rules: Rules) -> list[int]:
    """Return the versions between the two sides that can still be launched."""
    return [p for p in range(change.before + 1, change.after) if may_be_settled(versions[p], change.metric, rules)]


def splitting_version(versions: RowVersions, change: StateChange, rules: Rules) -> int | None:
    """Return the version that halves the range between the two sides, or None if nothing is left to launch.

    With `n` possible positions of the change, any split into parts of at most 2^(ceil(log2 n) - 1) is optimal in the
    worst case. If the bad side has failed only once, the part next to it is smaller by one if that costs nothing: if
    nothing else fails, the launch that is saved confirms the failure. Among these splits, the best is an image at hand
    (but not close to the edge, which would cost launches on average), then one far from versions that gave no result
    (their neighbours often give none either), then the middle.
    """
    places = open_places(versions, change, rules)
    if not places:
        return None
    count = len(places) + 1
    silent = [p for p in range(change.before + 1, change.after) if says_nothing(versions[p], change.metric)]
    largest = (1 << (count - 1).bit_length()) // 2
    spare = count < 2 * largest and failures_from(versions, change) < 2

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
