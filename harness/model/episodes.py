"""Combines findings into episodes (from the version at which a fault began to the one at which it ended), and tests
whether several episodes may be one. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from harness.model.judged import CellVerdict, Finding, State
from harness.model.signals import signal_of

Sign = str
"""A metric, or "slowdown": a step time that drifts within a trial."""
Order = Mapping[str, int]
"""Version -> its position in the series; 0 is the oldest."""


@dataclass(frozen=True, kw_only=True)
class Episode:
    """One period in which one metric is bad at one place. `begins` is None if only its end was found, `ends` is None
    if it lasts. `seen`: the last version in which it was seen. `depth`: number of episodes that were already open
    when it began. `states`: the state of the metric in all versions of the place, oldest first, also outside the
    episode."""

    begins: Finding | None
    ends: Finding | None
    seen: str
    depth: int = 0
    states: tuple[State, ...] = ()

    @property
    def finding(self) -> Finding:
        """Return the finding that gives the size of the effect."""
        finding = self.begins or self.ends
        assert finding is not None, "an episode has a begin or an end"
        return finding

    @property
    def findings(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in (self.begins, self.ends) if finding is not None)


def sign_of(finding: Finding) -> Sign:
    """Return the sign by which a finding is judged: its metric, or `slowdown`."""
    return "slowdown" if finding.verdict == "slowdown" else finding.metric


def episodes_of(findings: Iterable[Finding], order: Order, states: Sequence[State] = ()) -> list[Episode]:
    """Return the episodes of one sign at one place, oldest first. `states`: the state of each version, if known.

    A repair ends everything that is bad at that point. A fault that begins while another one lasts makes it worse.
    """
    episodes: list[Episode] = []
    lasting: list[Finding] = []
    for finding in sorted(findings, key=lambda finding: order[finding.after]):
        if finding.kind != "first_fixed":
            lasting.append(finding)
            continue
        episodes += _episodes(lasting, finding, order, tuple(states))
        lasting = []
    return episodes + (_episodes(lasting, None, order, tuple(states)) if lasting else [])


def _episodes(
    begins: Sequence[Finding], ends: Finding | None, order: Order, states: tuple[State, ...]
) -> list[Episode]:
    if not begins:
        assert ends is not None, "an episode has a begin or an end"
        return [Episode(begins=None, ends=ends, seen=ends.before or ends.after, states=states)]
    versions, stop = list(order), len(order) if ends is None else order[ends.after]
    episodes = []
    for depth, begin in enumerate(begins):
        bad = [versions[place] for place in range(order[begin.after], stop) if place < len(states) and states[place]]
        seen_in = [begin.after, *bad, *([ends.before] if ends is not None and ends.before is not None else [])]
        seen = max(seen_in, key=order.__getitem__)
        episodes.append(Episode(begins=begin, ends=ends, seen=seen, depth=depth, states=states))
    return episodes


def span(episode: Episode, order: Order) -> range:
    """Return the positions that the episode covers: from its first bad version up to the first good one after it."""
    first = 0 if episode.begins is None else order[episode.begins.after]
    return range(first, len(order) if episode.ends is None else order[episode.ends.after])


MOSTLY = 0.75
"""The share of a change, as a log, without which a fault is mostly repaired."""


def mostly_fixed(episode: Episode, known: Mapping[str, CellVerdict], order: Order) -> int | None:
    """Return the position from which on the fault is mostly repaired, though the rest is still beyond the limit, until
    it ends; None if it never is. `known` are the verdicts on the versions of its place.
    """
    begins, kind = episode.begins, signal_of(episode.finding.metric).kind
    if begins is None or begins.before is None or begins.kind != "first_bad" or kind not in ("growth", "level"):
        return None
    if begins.verdict == "two modes":  # the figures are those of the usual mode
        return None
    figures: dict[int, float] = {}
    for version, verdict in known.items():
        signal = verdict.of(begins.metric)
        figure = max(signal.value or 0.0, signal.limit or 0.0) if kind == "growth" else signal.value
        if figure is not None and figure > 0 and version in order:
            figures[order[version]] = math.log(figure)
    good, worst = figures.get(order[begins.before]), figures.get(order[begins.after])
    if good is None or worst is None or good == worst:
        return None
    found = None
    fine = {order[version] for version, verdict in known.items() if verdict.of(begins.metric).seen == "good"}
    for place in span(episode, order):
        if place in fine:
            return None
        if place in figures:
            is_mild = (figures[place] - good) / (worst - good) <= 1 - MOSTLY
            found = None if not is_mild else place if found is None else found
    return found


# ---------------------------------------------------------------- several as one


@dataclass(frozen=True, kw_only=True)
class EpisodeBounds:
    """Bounds of several episodes that count as one, by positions. `begins` (low, high): it began after low (-1:
    possibly before all versions) and at high at the latest; None: its start is unknown. `ends` is the same for its
    end; None: it lasts. `seen` is the last position at which it was seen. `open`: the end is known for some of the
    episodes only. `gradual`: it became worse with each version of `begins`."""

    begins: tuple[int, int] | None
    ends: tuple[int, int] | None
    seen: int
    open: bool = False
    gradual: bool = False


def bounds_of(episode: Episode, order: Order) -> EpisodeBounds:
    """Return the positions in the order of images between which an episode begins and ends."""
    return EpisodeBounds(
        begins=None if episode.begins is None else _interval(episode.begins, order),
        ends=None if episode.ends is None else _interval(episode.ends, order),
        seen=order[episode.seen],
        gradual=episode.begins is not None and episode.begins.kind == "drift",
    )


def _interval(finding: Finding, order: Order) -> tuple[int, int]:
    return -1 if finding.before is None else order[finding.before], order[finding.after]


def met(several: Iterable[EpisodeBounds]) -> EpisodeBounds | None:
    """Return the intersection of the episodes' bounds; None if they cannot be one episode. The end must come after
    the last version in which the fault was seen."""
    several = list(several)
    begins = _intersection([bounds.begins for bounds in several if bounds.begins is not None])
    ends = _intersection([bounds.ends for bounds in several if bounds.ends is not None])
    seen = max(bounds.seen for bounds in several)
    if ends is not None:
        ends = max(ends[0], seen), ends[1]
    if any(interval is not None and interval[0] >= interval[1] for interval in (begins, ends)):
        return None
    lasts = any(bounds.ends is None or bounds.open for bounds in several)
    gradual = all(bounds.gradual for bounds in several)
    return EpisodeBounds(begins=begins, ends=ends, seen=seen, open=ends is not None and lasts, gradual=gradual)


def _intersection(intervals: Sequence[tuple[int, int]]) -> tuple[int, int] | None:
    if not intervals:
        return None
    return max(low for low, _ in intervals), min(high for _, high in intervals)
