"""Bisection of levels: which versions to launch side by side to find where the level of a figure changes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from harness.schedule.bisect.level_pieces import (
    Figures,
    PiecewiseFit,
    figures_of,
    find_steps,
    first_of,
    p_of_a_step,
    widest_unseen,
)
from harness.schedule.bisect.records import LEVEL_METRICS, Boundary, Decision, Rules, VersionEvidence, name_of

SPREAD = (4, 8)
"""Versions of a round while nothing is found, both ends included: first this many, then more after ROUNDS rounds."""
HINT = 0.05
"""Largest p-value of a step that justifies more rounds."""
CLEAR = 4.0
"""Size of a step, in standard deviations of one launch, from which it stands out of the noise."""
APART = 7.0
"""Wanted size of a step, in standard errors of the rounds in which both its sides ran together."""
BEYOND = 0.01
"""Largest chance that a version beside a step lies beyond the next one."""
ROUNDS = 3
"""Fewest rounds in which both sides of a step must have been side by side."""
SHOWN = 20


@dataclass(frozen=True, kw_only=True)
class Step:
    """A step of a level: the probability of each place to be the first of the new level."""

    number: int
    chances: Mapping[int, float]

    @property
    def first(self) -> int:
        return max(self.chances, key=self.chances.__getitem__)

    def reached(self, place: int) -> float:
        """Return the probability that the new level has been reached at `place`."""
        return sum(chance for first, chance in self.chances.items() if first <= place)


@dataclass(frozen=True, kw_only=True)
class RoundEvidence:
    """The figures of one metric in all rounds so far. `able` are the versions that have a figure or may give one."""

    metric: str
    figures: Figures
    found: PiecewiseFit
    steps: tuple[Step, ...]
    able: tuple[int, ...]

    def place_before(self, place: int) -> int:
        return max(p for p in self.able if p < place)


def seen(spots: Sequence[VersionEvidence], metric: str, rules: Rules) -> RoundEvidence | None:
    if metric not in rules.limits:
        return None
    figures = figures_of(spots, metric)
    if figures is None:
        return None
    able = tuple(
        place for place, spot in enumerate(spots) if spot.testable and (not spot.launches or spot.levels.get(metric))
    )
    able = tuple(sorted({*able, *figures.places}))
    found = find_steps(figures, limit=rules.limits[metric])
    steps = tuple(
        Step(number=number, chances=first_of(figures, found, number, testable=able))
        for number in range(len(found.cuts))
    )
    return RoundEvidence(metric=metric, figures=figures, found=found, steps=steps, able=able)


def compare(spots: Sequence[VersionEvidence], rules: Rules) -> Decision | None:
    """Return the next round, or None if levels are not compared or more rounds would show nothing."""
    for metric in LEVEL_METRICS:
        known = seen(spots, metric, rules)
        if known is None:
            continue
        decision = _narrow(spots, known, rules) or _confirm(spots, known, rules) if known.steps else None
        decision = decision or (None if known.steps else _look(spots, known, rules))
        if decision is not None:
            return decision
    return None


def level_boundaries(spots: Sequence[VersionEvidence], rules: Rules) -> tuple[Boundary, ...]:
    """Return the steps that were found, each as an interval that misses the right version with a chance of alpha."""
    known = [each for metric in LEVEL_METRICS if (each := seen(spots, metric, rules)) is not None]
    return tuple(_boundary(spots, each, step, rules) for each in known for step in each.steps)


# ---------------------------------------------------------------- rounds


def _look(spots: Sequence[VersionEvidence], known: RoundEvidence, rules: Rules) -> Decision | None:
    """Decide, while nothing is found, to go on until a step of the limit would have been seen. Once the ends have had
    all their launches, only a hint of a step is followed, with other versions, for as many rounds again.
    """
    limit = rules.limits[known.metric]
    if known.figures.rounds >= ROUNDS and widest_unseen(known.figures) <= limit:
        return None
    launchable = [place for place in known.able if _may(spots, place, rules)]
    ends_are = known.able[0] in launchable and known.able[-1] in launchable
    if not ends_are and (p_of_a_step(known.figures) > HINT or known.figures.rounds >= 2 * rules.most):
        return None
    able = _spread(launchable, SPREAD[known.figures.rounds >= ROUNDS])
    if len(able) < 2:
        return None
    return _round(spots, known, able, f"{known.metric}: is there a step of {math.expm1(limit):.1%} or more?")


def _spread(places: Sequence[int], versions: int) -> list[int]:
    last = len(places) - 1
    return sorted({places[round(last * part / (versions - 1))] for part in range(versions)}) if places else []


def _narrow(spots: Sequence[VersionEvidence], known: RoundEvidence, rules: Rules) -> Decision | None:
    """Decide to launch, side by side, two versions for each step not placed yet, and one surely on each side."""
    chosen: set[int] = set()
    for step in known.steps:
        probes = _probes(spots, known, step, rules)
        chosen |= {*probes, *(_beside(spots, known, step, rules) if probes else ())}
    return _round(spots, known, sorted(chosen), f"{known.metric} changes: where?") if len(chosen) > 1 else None


def _probes(spots: Sequence[VersionEvidence], known: RoundEvidence, step: Step, rules: Rules) -> set[int]:
    """Return the versions that cut the likely range into thirds."""
    reached = {p: step.reached(p) for p in known.able if _may(spots, p, rules)}
    open_ = {p: chance for p, chance in reached.items() if rules.alpha / 2 < chance < 1 - rules.alpha / 2}
    if not open_:
        return set()

    def near(part: float) -> int:
        return min(open_, key=lambda p: (abs(open_[p] - part), not spots[p].at_hand, p))

    return {near(1 / 3), near(2 / 3)}


def _beside(spots: Sequence[VersionEvidence], known: RoundEvidence, step: Step, rules: Rules) -> set[int]:
    """Return versions that are surely on the old level next to a step, and as many surely on the new one. One each if
    the step stands out of the noise; otherwise more, as a round's mean would be as uncertain as what is compared with
    it.
    """
    stands_out = abs(float(known.found.sizes[step.number])) / known.found.spread
    count = 1 if stands_out >= CLEAR else 2 if stands_out >= CLEAR / 2 else 3
    old = [p for p in known.able if step.reached(p) <= rules.alpha / 2 and _sure(known, step, p, side=-1)]
    new = [p for p in known.able if step.reached(p) >= 1 - rules.alpha / 2 and _sure(known, step, p, side=1)]
    chosen: set[int] = set()
    for places in (list(reversed(old)), new):
        may = [p for p in places if _may(spots, p, rules)]
        chosen |= set(sorted(may, key=lambda p: _cost(spots[p]))[:count])
    return chosen


def _cost(spot: VersionEvidence) -> tuple[bool, int]:
    """Rank versions: those launched most are known best, and one never launched may have to be pulled first."""
    return not spot.launches and not spot.at_hand, -spot.launches


def _sure(known: RoundEvidence, step: Step, place: int, *, side: int) -> bool:
    """Return whether a place belongs to the level beside `step`, and not to the one beyond the next step."""
    next_number = step.number + side
    if not 0 <= next_number < len(known.steps):
        return True
    reached = known.steps[next_number].reached(place)
    return reached >= 1 - BEYOND if side < 0 else reached <= BEYOND


def _confirm(spots: Sequence[VersionEvidence], known: RoundEvidence, rules: Rules) -> Decision | None:
    """Decide to launch both sides of every step once more, all side by side, before a version is named."""
    sides = sorted({p for step in known.steps for p in (known.place_before(step.first), step.first)})
    wanted = max(ROUNDS, math.ceil((APART * known.found.spread / float(abs(known.found.sizes).min())) ** 2))
    if _rounds_together(spots, known.metric, sides) >= wanted or not all(_may(spots, p, rules) for p in sides):
        return None
    beside = {p for step in known.steps for p in _beside(spots, known, step, rules)}
    why = f"{known.metric}: both sides of the step once more, before a version is named:"
    return replace(_round(spots, known, sorted({*sides, *beside}), why), kind="confirm")


def _rounds_together(spots: Sequence[VersionEvidence], metric: str, places: Sequence[int]) -> int:
    return len(set.intersection(*(set(spots[place].levels.get(metric, {})) for place in places)))


def _may(spots: Sequence[VersionEvidence], place: int, rules: Rules) -> bool:
    return spots[place].testable and spots[place].launches < rules.most


def _round(spots: Sequence[VersionEvidence], known: RoundEvidence, places: Sequence[int], why: str) -> Decision:
    names = ", ".join(name_of(spots, place) for place in places)
    likely = [each for step in known.steps for each in step.chances.items()]
    posterior = sorted(((p, round(chance, 4)) for p, chance in likely), key=lambda each: -each[1])[:SHOWN]
    return Decision(
        launch=tuple(places),
        kind="compare",
        reason=f"{why} {names} side by side",
        metric=known.metric,
        posterior=tuple(posterior),
    )


# ---------------------------------------------------------------- what was found


def _boundary(spots: Sequence[VersionEvidence], known: RoundEvidence, step: Step, rules: Rules) -> Boundary:
    """Return the measured versions that enclose the step; it is beyond each with a chance of at most alpha / 2."""
    measured = known.figures.places
    before = max(p for p in measured if step.reached(p) <= rules.alpha / 2 or p == measured[0])
    after = min(p for p in measured if step.reached(p) >= 1 - rules.alpha / 2 or p == measured[-1])
    together = _rounds_together(spots, known.metric, (before, after))
    size = float(known.found.sizes[step.number])
    return Boundary(
        metric=known.metric,
        before=before,
        after=after,
        worse=size > 0,
        between=tuple(range(before + 1, after)),
        confirmed=together >= rules.agree,
        size=size,
        interval=known.found.interval(step.number),
        p=known.found.p(step.number, places=len(measured) - 1),
    )
