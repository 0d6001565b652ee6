"""Defines the records of a fault: its episodes, from the version at which it began to the one at which it ended, its
cause (the image, the GPU, the host or several), and the params that matter. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from harness.model.from_file import Scalar, grouped
from harness.model.judged import CellVerdict, Change, Finding, Metric, State
from harness.model.matrix import Lane
from harness.model.planned import Cell
from harness.model.scenario import Variant
from harness.model.signals import signal_of

# ---------------------------------------------------------------- episodes


Sign = str
"""A metric, or "slowdown": a step time that drifts within a trial."""
Order = Mapping[str, int]
"""Version -> its position in the series; 0 is the oldest."""
Bounds = tuple[int, int]
"""The positions between which something changed: after the first (-1: the start), at the second at the latest."""


@dataclass(frozen=True, kw_only=True)
class Episode:
    """One period in which one metric is bad: at one place or, if several that may be one are merged (`met`), at all.

    `begins` is None if only its end was found, `ends` is None if it lasts; `since` and `until` are the positions of
    both. `seen`: the last position at which it was seen. `depth`: number of episodes that were already open when it
    began. `states`: the state of the metric in all versions of the place, oldest first, also outside the episode.
    `is_open`: of several, the end of some only is known.
    """

    begins: Finding | None
    ends: Finding | None
    since: Bounds | None
    until: Bounds | None
    seen: int
    depth: int = 0
    states: tuple[State, ...] = ()
    is_open: bool = False

    @property
    def finding(self) -> Finding:
        """Return the finding that gives the size of the effect."""
        finding = self.begins or self.ends
        assert finding is not None, "an episode has a begin or an end"
        return finding

    @property
    def findings(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in (self.begins, self.ends) if finding is not None)

    @property
    def from_start(self) -> bool:
        """Return whether no version before it is known to be good."""
        return self.begins is not None and self.begins.kind == "bad_from_start"

    @property
    def is_gradual(self) -> bool:
        """Return whether it became worse with each version of `since`."""
        return self.begins is not None and self.begins.kind == "drift"

    @property
    def when(self) -> tuple[object, ...]:
        """Return what is equal for episodes that began and ended at the same versions."""
        return self.since, self.until, self.seen, self.is_open, self.is_gradual

    @property
    def span(self) -> range:
        """Return the positions that it covers: from its first bad version up to the first good one after it."""
        first = 0 if self.since is None else self.since[1]
        return range(first, len(self.states) if self.until is None else self.until[1])


def sign_of(finding: Finding) -> Sign:
    """Return the sign by which a finding is judged: its metric, or `slowdown`."""
    return "slowdown" if finding.verdict == "slowdown" else finding.metric


def episodes_of(findings: Iterable[Finding], order: Order, states: Sequence[State] = ()) -> list[Episode]:
    """Return the episodes of one sign at one place, oldest first. `states`: the state of each version, if known.

    A repair ends everything that is bad at that point, but of a value only what is bad in the same way, such as NaN.
    A fault that begins while another one lasts makes it worse.
    """
    known = (*states, *[None] * (len(order) - len(states)))
    episodes: list[Episode] = []
    lasting: list[Finding] = []
    for finding in sorted(findings, key=lambda finding: order[finding.after]):
        if finding.kind != "first_fixed":
            lasting.append(finding)
            continue
        by_way = signal_of(finding.metric).kind == "value"
        ended = [one for one in lasting if not by_way or one.verdict == finding.verdict]
        episodes += _episodes(ended, finding, order, known)
        lasting = [one for one in lasting if one not in ended]
    return episodes + (_episodes(lasting, None, order, known) if lasting else [])


def _episodes(
    begins: Sequence[Finding], ends: Finding | None, order: Order, states: tuple[State, ...]
) -> list[Episode]:
    until = None if ends is None else bounds_of(ends, order)
    if not begins:
        assert ends is not None, "an episode has a begin or an end"
        seen = order[ends.before or ends.after]
        return [Episode(begins=None, ends=ends, since=None, until=until, seen=seen, states=states)]
    stop = len(order) if until is None else until[1]
    episodes = []
    for depth, begin in enumerate(begins):
        since = bounds_of(begin, order)
        bad = [place for place in range(since[1], stop) if states[place]]
        seen = max([since[1], *bad, *([] if until is None else [until[0]])])
        episodes.append(
            Episode(begins=begin, ends=ends, since=since, until=until, seen=seen, depth=depth, states=states)
        )
    return episodes


def versions_in_episodes(findings: Iterable[Finding], versions: Sequence[str]) -> set[str]:
    """Return the versions of a row, oldest first in `versions`, from each first bad one up to, but not including, the
    one that fixed it. They include slower versions, whose own verdicts are not bad.
    """
    order = {version: place for place, version in enumerate(versions)}
    episodes = (episodes_of(same, order) for same in grouped((sign_of(one), one) for one in findings).values())
    begun = (each for several in episodes for each in several if each.begins is not None)
    return {versions[place] for each in begun for place in each.span}


def beside_new(known: Sequence[str], *, good: Collection[str], baseline: str | None) -> set[str]:
    """Return which of the `known` versions, oldest first, are launched in the same rounds as new ones: the last good
    one, the last one and the baseline. Without a baseline, the oldest good one takes its place: a version that is in
    every run links the runs, so that a drift shows (`judge/history/drift.py`).
    """
    firm = [version for version in known if version in good]
    return {*firm[-1:], *known[-1:], *(firm[:1] if baseline is None else [baseline])}


def bounds_of(change: Change[str], order: Order) -> Bounds:
    """Return the positions of both sides of a change."""
    return -1 if change.before is None else order[change.before], order[change.after]


def met(several: Sequence[Episode]) -> Episode | None:
    """Return several episodes as one, with what their bounds have in common; None if they cannot be one episode. The
    end must come after the last version in which the fault was seen."""
    since = _intersection([each.since for each in several if each.since is not None])
    until = _intersection([each.until for each in several if each.until is not None])
    seen = max(each.seen for each in several)
    if until is not None:
        until = max(until[0], seen), until[1]
    if any(bounds is not None and bounds[0] >= bounds[1] for bounds in (since, until)):
        return None
    lasts = any(each.until is None or each.is_open for each in several)
    first = next((each for each in several if not each.is_gradual), several[0])
    return replace(first, since=since, until=until, seen=seen, is_open=until is not None and lasts)


def _intersection(several: Sequence[Bounds]) -> Bounds | None:
    if not several:
        return None
    return max(low for low, _ in several), min(high for _, high in several)


MOSTLY = 0.75
"""The share of a change, as a log, without which a fault is mostly repaired."""


def mostly_fixed(episode: Episode, known: Mapping[str, CellVerdict], order: Order) -> int | None:
    """Return the position from which on the fault is mostly repaired, though the rest is still beyond the limit, until
    it ends; None if it never is, or if its figure there may be that of the version before. `known` are the verdicts on
    the versions of its place, and `order` their positions.
    """
    begins, kind = episode.begins, signal_of(episode.finding.metric).kind
    if begins is None or begins.before is None or begins.kind != "first_bad" or kind not in ("growth", "level"):
        return None
    if begins.verdict == "two modes":  # the figures are those of the usual mode
        return None
    figures: dict[int, float] = {}
    for version, verdict in known.items():
        signal = verdict.of(begins.metric)
        is_floored = kind == "growth" and (signal.value is not None or signal.seen == "good")
        figure = max(signal.value or 0.0, signal.limit or 0.0) if is_floored else signal.value
        if figure is not None and figure > 0 and version in order:
            figures[order[version]] = math.log(figure)
    good, worst = figures.get(order[begins.before]), figures.get(order[begins.after])
    if good is None or worst is None or good == worst:
        return None
    found = None
    fine = {order[version] for version, verdict in known.items() if verdict.of(begins.metric).seen == "good"}
    for place in episode.span:
        if place in fine:
            return None
        if place in figures:
            is_mild = (figures[place] - good) / (worst - good) <= 1 - MOSTLY
            found = None if not is_mild else place if found is None else found
    intervals = {order[version]: verdict.of(begins.metric).ci for version, verdict in known.items() if version in order}
    before = max((place for place in figures if found is not None and place < found), default=None)
    own, last = (intervals.get(place) if place is not None else None for place in (found, before))
    return None if own and last and own[0] <= last[1] and last[0] <= own[1] else found


# ---------------------------------------------------------------- causes


@dataclass(frozen=True, kw_only=True)
class ParamCondition:
    """The condition that a param has one of these values."""

    param: str
    values: tuple[Scalar, ...]


@dataclass(frozen=True, kw_only=True)
class Rule:
    """The variants that are bad, by their params (`judge/attribution/param_rules.py`): those that fulfil all
    conditions, or any of them with `any_of`. Without conditions all variants are bad.

    `indifferent` are the params that made no difference among the bad variants. `bad` and `good` are the numbers of
    variants behind the rule, `otherwise` that of variants with another fault. `exceptions` are variants that the rule
    misclassifies, `never_run` those that were not judged. `also` are rules over the same number of params that fit the
    results equally well.
    """

    conditions: tuple[ParamCondition, ...]
    any_of: bool = False
    indifferent: tuple[str, ...] = ()
    bad: int = 0
    good: int = 0
    otherwise: int = 0
    exceptions: tuple[Variant, ...] = ()
    never_run: tuple[Variant, ...] = ()
    also: tuple[tuple[ParamCondition, ...], ...] = ()


Cause = Literal["image", "gpu", "host", "software", "interaction", "undecided"]
"""`software`: that of the machines, such as the driver, which they have in common."""
Doubt = Literal[
    "image or lane",  # bad and good never occur together on one lane, nor in one image
    "lane or both",  # bad on a lane with the only image measured there, good with that image elsewhere
    "nothing good",  # nothing to compare with
]


@dataclass(frozen=True, kw_only=True)
class Attribution:
    """One fault of a series, and its cause (`judge/attribution/cause.py`): the episodes that count as one, on all lanes
    and in all variants of a scenario.

    `bad_lanes` are those where it was seen, `good_lanes` those where an image that is bad elsewhere is good, and
    `open_lanes` those where it is unknown. `cleared` are bad lanes without any good image that are not at fault,
    because other lanes share their bad images. `missing` are cells that would add evidence, most informative first.
    `rule` is None if the scenario has no params to choose, or no small rule separates bad from good (`unruly`).
    `controls` are scenarios that stay good on all of `bad_lanes`. `apart`: lanes became bad at different versions.
    `alike`: `bad_lanes` have GPUs of one kind. `episodes` are those of the bad lanes, in the order of variants and
    lanes. `machines` are those of a pool where it was seen; `suspect` is the only one of them, if nothing is good there
    and something is good on another machine of the pool. `software`: what all of `bad_lanes` and none of `good_lanes`
    have, such as `driver 580.65.06`; it may be at fault in place of the card or the host.
    """

    series: str
    scenario: str
    metric: Metric
    cause: Cause
    variants: tuple[Variant, ...]
    episodes: tuple[Episode, ...]
    bad_lanes: tuple[Lane, ...]
    good_lanes: tuple[Lane, ...] = ()
    open_lanes: tuple[Lane, ...] = ()
    cleared: tuple[Lane, ...] = ()
    images: tuple[str, ...] = ()
    apart: bool = False
    alike: bool = False
    doubt: Doubt | None = None
    rule: Rule | None = None
    unruly: bool = False
    layer: str | None = None
    controls: tuple[str, ...] = ()
    missing: tuple[Cell, ...] = ()
    machines: tuple[str, ...] = ()
    suspect: str = ""
    software: tuple[str, ...] = ()


def on_lanes(attribution: Attribution) -> dict[Lane, tuple[Episode, ...]]:
    """Return the episodes on each bad lane, of its variants as one. Raises ValueError if they have none in common."""
    of: dict[Lane, dict[Variant, list[Episode]]] = {}
    for episode in attribution.episodes:
        of.setdefault(episode.finding.lane, {}).setdefault(episode.finding.variant, []).append(episode)
    return {lane: tuple(_one(same) for same in zip(*variants.values(), strict=True)) for lane, variants in of.items()}


def _one(same: Sequence[Episode]) -> Episode:
    found = met(same)
    if found is None:
        raise ValueError("variants share an attribution only if their episodes may be one")
    return found
