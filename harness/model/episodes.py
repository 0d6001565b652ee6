"""Findings put together: from which version to which something was bad, and whether several may be one. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from harness.model.judged import Episode, Finding, State

Sign = str
"""A metric; "slowdown" is a step time that drifts within a trial."""
Order = Mapping[str, int]
"""Version -> its position in the series, 0 is the oldest."""


def sign_of(finding: Finding) -> Sign:
    return "slowdown" if finding.verdict == "slowdown" else finding.metric


def episodes_of(findings: Iterable[Finding], order: Order, states: Sequence[State] = ()) -> list[Episode]:
    """The episodes of one sign at one place, oldest first. `states`: how its versions stand, if that is known.

    A repair ends all that is bad then. What begins while something is bad already made that worse.
    """
    told: list[Episode] = []
    lasting: list[Finding] = []
    for finding in sorted(findings, key=lambda one: order[one.after]):
        if finding.kind != "first_fixed":
            lasting.append(finding)
            continue
        told += _episodes(lasting, finding, order, tuple(states))
        lasting = []
    return told + (_episodes(lasting, None, order, tuple(states)) if lasting else [])


def _episodes(
    begins: Sequence[Finding], ends: Finding | None, order: Order, states: tuple[State, ...]
) -> list[Episode]:
    if not begins:
        assert ends is not None, "an episode has a begin or an end"
        return [Episode(begins=None, ends=ends, seen=ends.before or ends.after, states=states)]
    versions, stop = list(order), len(order) if ends is None else order[ends.after]
    found = []
    for depth, one in enumerate(begins):
        bad = [versions[place] for place in range(order[one.after], stop) if place < len(states) and states[place]]
        known = [one.after, *bad, *([ends.before] if ends is not None and ends.before is not None else [])]
        seen = max(known, key=order.__getitem__)
        found.append(Episode(begins=one, ends=ends, seen=seen, depth=depth, states=states))
    return found


def span(episode: Episode, order: Order) -> range:
    """The positions where a version that is bad is bad in this episode: up to the first that is good again."""
    first = 0 if episode.begins is None else order[episode.begins.after]
    return range(first, len(order) if episode.ends is None else order[episode.ends.after])


# ---------------------------------------------------------------- several as one


@dataclass(frozen=True, kw_only=True)
class EpisodeBounds:
    """Where episodes lie that are one, by positions: it began after the first of `begins` (-1: maybe before all), at
    the second at the latest; `ends` is the same of its end. None: it is not known when it began; it lasts.

    `seen` is the last position at which it was seen. `open`: of some episodes no end is known, of others one is.
    `gradual`: it became worse from each version of `begins` to the next.
    """

    begins: tuple[int, int] | None
    ends: tuple[int, int] | None
    seen: int
    open: bool = False
    gradual: bool = False


def bounds_of(episode: Episode, order: Order) -> EpisodeBounds:
    return EpisodeBounds(
        begins=None if episode.begins is None else _interval(episode.begins, order),
        ends=None if episode.ends is None else _interval(episode.ends, order),
        seen=order[episode.seen],
        gradual=episode.begins is not None and episode.begins.kind == "drift",
    )


def _interval(finding: Finding, order: Order) -> tuple[int, int]:
    return -1 if finding.before is None else order[finding.before], order[finding.after]


def met(several: Iterable[EpisodeBounds]) -> EpisodeBounds | None:
    """What all of them allow: the intersection of their intervals. None if they cannot be one. The end of what lasts
    can only be after the version in which it was seen last.
    """
    several = list(several)
    begins = _intersection([one.begins for one in several if one.begins is not None])
    ends = _intersection([one.ends for one in several if one.ends is not None])
    seen = max(one.seen for one in several)
    if ends is not None:
        ends = max(ends[0], seen), ends[1]
    if any(interval is not None and interval[0] >= interval[1] for interval in (begins, ends)):
        return None
    lasts = any(one.ends is None or one.open for one in several)
    gradual = all(one.gradual for one in several)
    return EpisodeBounds(begins=begins, ends=ends, seen=seen, open=ends is not None and lasts, gradual=gradual)


def _intersection(intervals: Sequence[tuple[int, int]]) -> tuple[int, int] | None:
    if not intervals:
        return None
    return max(low for low, _ in intervals), min(high for _, high in intervals)
