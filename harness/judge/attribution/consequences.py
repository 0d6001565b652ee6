"""Consequences: findings that another finding of the same block explains. Pure.

A leak that also raises the peak and slows the steps is one finding. The table of signals lists what each one explains.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from harness.model import SIGNALS, Effect, Episode, Finding
from harness.model.episodes import EpisodeBounds, Order, Sign, bounds_of, episodes_of, met, sign_of

REASON = 2.0
"""Maximum size of a consequence relative to its cause: in logs for ratios, in rates for growth of the same unit."""


def explained(findings: Sequence[Finding], versions: Mapping[str, Sequence[str]]) -> tuple[Finding, ...]:
    """Return the same findings, in the same order, with `consequence_of` filled in. `versions`: by series, oldest
    first.

    A consequence begins with its cause, and both end together or not at all. It is attributed to the first cause of a
    chain.
    """
    places: dict[object, list[Finding]] = {}
    for one in findings:
        places.setdefault((one.series, one.lane, one.variant), []).append(one)
    causes: dict[int, str] = {}
    for here in places.values():
        order = {version: place for place, version in enumerate(versions[here[0].series])}
        causes |= _consequences(here, order)
    return tuple(replace(one, consequence_of=causes.get(id(one), "")) for one in findings)


def _consequences(here: Sequence[Finding], order: Order) -> dict[int, str]:
    """Return the metric of the first cause by the `id()` of each finding of one block that is a consequence."""
    signs: dict[Sign, list[Finding]] = {}
    for one in here:
        signs.setdefault(sign_of(one), []).append(one)
    several = [
        _Told(episode=one, bounds=bounds_of(one, order)) for of in signs.values() for one in episodes_of(of, order)
    ]
    causes = {id(one): [other for other in several if _explains(other, one)] for one in several}
    first = [(one, _first_cause(one, causes)) for one in several]
    own = {id(finding) for one, cause in first if cause is one for finding in one.episode.findings}
    return {
        id(finding): cause.metric for one, cause in first for finding in one.episode.findings if id(finding) not in own
    }


@dataclass(frozen=True, kw_only=True)
class _Told:
    episode: Episode
    bounds: EpisodeBounds

    @property
    def metric(self) -> str:
        return self.episode.finding.metric


def _first_cause(one: _Told, causes: Mapping[int, Sequence[_Told]]) -> _Told:
    while causes[id(one)]:
        one = min(causes[id(one)], key=lambda cause: _place(cause.metric))
    return one


def _place(metric: str) -> int:
    return list(SIGNALS).index(metric)


def _explains(cause: _Told, one: _Told) -> bool:
    if not _names(cause.metric, one.metric) or not _same_time(cause, one):
        return False
    if not _in_reason(cause.episode.finding.effect, one.episode.finding.effect):
        return False
    mutual = _names(one.metric, cause.metric) and _in_reason(one.episode.finding.effect, cause.episode.finding.effect)
    return not mutual or _place(cause.metric) > _place(one.metric)  # of a mutual pair, the more specific


def _names(cause: str, one: str) -> bool:
    return cause in SIGNALS and one in SIGNALS[cause].explains


def _same_time(cause: _Told, one: _Told) -> bool:
    """Return whether both may have begun at one version, and have ended at one if either ended."""
    first, second = cause.episode.begins, one.episode.begins
    if first is None or second is None or (first.kind == "bad_from_start") != (second.kind == "bad_from_start"):
        return False
    both_end = (cause.bounds.ends is None) == (one.bounds.ends is None)
    return both_end and met((cause.bounds, one.bounds)) is not None


def _in_reason(cause: Effect | None, one: Effect | None) -> bool:
    """Return whether a cause of this size explains the other effect. Unknown sizes and other units count as
    explained.
    """
    if cause is None or one is None or cause.unit != one.unit:
        return True
    return _size(one, most=False) <= REASON * _size(cause, most=True)


def _size(effect: Effect, *, most: bool) -> float:
    """Return the largest or smallest size within the interval of an effect; that of a ratio is the absolute log."""
    ends = [effect.value, *(effect.ci or ())]
    sizes = [abs(math.log(end)) if end > 0 else math.inf for end in ends] if effect.unit == "ratio" else ends
    return max(sizes) if most else min(sizes)
