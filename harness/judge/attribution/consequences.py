"""Finds consequences: findings that another finding of the same row explains. Pure.

A leak that also raises the peak and slows the steps is one finding. The table of signals lists what each signal
explains.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from harness.model import SIGNALS, Effect, Episode, Finding
from harness.model.episodes import EpisodeBounds, Order, Sign, bounds_of, episodes_of, met, sign_of

REASON = 2.0
"""Maximum size of a consequence relative to its cause: in logs for ratios, in rates for growth of the same unit."""


def with_consequences(findings: Sequence[Finding], versions: Mapping[str, Sequence[str]]) -> tuple[Finding, ...]:
    """Return the same findings, in the same order, with `consequence_of` filled in. `versions` holds the versions of
    each series, oldest first.

    A consequence begins with its cause, and both end together or not at all. In a chain, the first cause counts.
    """
    places: dict[object, list[Finding]] = {}
    for finding in findings:
        places.setdefault((finding.series, finding.lane, finding.variant), []).append(finding)
    causes: dict[Finding, str] = {}
    for of_row in places.values():
        order = {version: place for place, version in enumerate(versions[of_row[0].series])}
        causes |= _consequences(of_row, order)
    return tuple(replace(finding, consequence_of=causes.get(finding, "")) for finding in findings)


def _consequences(findings: Sequence[Finding], order: Order) -> dict[Finding, str]:
    """Return, by each finding of one row that is a consequence, the metric of its first cause."""
    signs: dict[Sign, list[Finding]] = {}
    for finding in findings:
        signs.setdefault(sign_of(finding), []).append(finding)
    items = [
        _BoundedEpisode(episode=episode, bounds=bounds_of(episode, order))
        for of_sign in signs.values()
        for episode in episodes_of(of_sign, order)
    ]
    causes = {item: [other for other in items if _explains(other, item)] for item in items}
    first = [(item, _first_cause(item, causes)) for item in items]
    own = {finding for item, cause in first if cause is item for finding in item.episode.findings}
    return {finding: cause.metric for item, cause in first for finding in item.episode.findings if finding not in own}


@dataclass(frozen=True, kw_only=True, eq=False)
class _BoundedEpisode:
    episode: Episode
    bounds: EpisodeBounds

    @property
    def metric(self) -> str:
        return self.episode.finding.metric

    @property
    def effect(self) -> Effect | None:
        return self.episode.finding.effect


def _first_cause(item: _BoundedEpisode, causes: Mapping[_BoundedEpisode, Sequence[_BoundedEpisode]]) -> _BoundedEpisode:
    while causes[item]:
        item = min(causes[item], key=lambda cause: _place(cause.metric))
    return item


def _place(metric: str) -> int:
    return list(SIGNALS).index(metric)


def _explains(cause: _BoundedEpisode, result: _BoundedEpisode) -> bool:
    if not _names(cause.metric, result.metric) or not _same_time(cause, result):
        return False
    if not _in_reason(cause.effect, result.effect):
        return False
    mutual = _names(result.metric, cause.metric) and _in_reason(result.effect, cause.effect)
    return not mutual or _place(cause.metric) > _place(result.metric)  # the more specific one is the cause


def _names(cause: str, effect: str) -> bool:
    return cause in SIGNALS and effect in SIGNALS[cause].explains


def _same_time(cause: _BoundedEpisode, result: _BoundedEpisode) -> bool:
    """Return whether both may have begun at the same version and, if either ended, have ended at the same version."""
    first, second = cause.episode.begins, result.episode.begins
    if first is None or second is None or (first.kind == "bad_from_start") != (second.kind == "bad_from_start"):
        return False
    both_end = (cause.bounds.ends is None) == (result.bounds.ends is None)
    return both_end and met((cause.bounds, result.bounds)) is not None


def _in_reason(cause: Effect | None, effect: Effect | None) -> bool:
    """Return whether a cause of this size can explain the effect; True if the sizes are not known in one unit."""
    if cause is None or effect is None or cause.unit != effect.unit:
        return True
    return _size(effect, most=False) <= REASON * _size(cause, most=True)


def _size(effect: Effect, *, most: bool) -> float:
    """Return the largest or smallest size within the interval of an effect; the size of a ratio is its absolute log."""
    ends = [effect.value, *(effect.ci or ())]
    sizes = [abs(math.log(end)) if end > 0 else math.inf for end in ends] if effect.unit == "ratio" else ends
    return max(sizes) if most else min(sizes)
