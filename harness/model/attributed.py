"""Defines records of the causes of faults: the image, the GPU, the host or several, and the params that matter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from harness.model.episodes import Episode, EpisodeBounds, Order, bounds_of, met
from harness.model.judged import Metric
from harness.model.matrix import Lane
from harness.model.planned import Cell
from harness.model.scenario import Scalar, Variant


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


Cause = Literal["image", "gpu", "host", "interaction", "undecided"]
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
    and something is good on another machine of the pool.
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


def lane_bounds(attribution: Attribution, order: Order) -> dict[Lane, tuple[EpisodeBounds, ...]]:
    """Return the bounds of the episodes on each bad lane: the intersection of the bounds in all its variants. Raises
    ValueError if the variants have no episodes in common, and KeyError for a version that `order` lacks.
    """
    of: dict[Lane, dict[object, list[EpisodeBounds]]] = {}
    for episode in attribution.episodes:
        finding = episode.finding
        of.setdefault(finding.lane, {}).setdefault(finding.variant, []).append(bounds_of(episode, order))
    return {lane: tuple(_one(same) for same in zip(*variants.values(), strict=True)) for lane, variants in of.items()}


def _one(same: Sequence[EpisodeBounds]) -> EpisodeBounds:
    found = met(same)
    if found is None:
        raise ValueError("variants share an attribution only if their episodes may be one")
    return found
