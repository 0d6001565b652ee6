"""Piecewise constant fit of a figure, from launches that were compared side by side: where its level changes.

Each round has an effect of its own (heat, clock, a neighbour), which is removed with the round's mean. Least squares
fits steps at `cuts` to the rest; the noise is pooled over all launches.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtr, stdtrit

from harness.model import Floats, Interval
from harness.schedule.bisect.records import VersionEvidence

SURE = 0.002
SURE_OF_MORE = 0.0002
"""Chance of a false first step, and of each further one, in one look at the rounds so far."""
USUAL = 0.02
"""Prior spread of launches, a log, until it is measured; it counts as one pair of launches."""


@dataclass(frozen=True, kw_only=True)
class Figures:
    """The figures of all rounds with two or more versions. `places` are the versions with any, oldest first; `index`
    gives the place of each figure, and `values` are logs without their round's mean.
    """

    places: tuple[int, ...]
    rounds: int
    index: np.ndarray
    round: np.ndarray
    values: Floats

    def centred(self, column: Floats) -> Floats:
        sums = np.bincount(self.round, weights=column, minlength=self.rounds)
        return np.asarray(column - (sums / np.bincount(self.round, minlength=self.rounds))[self.round])

    def step(self, cut: int) -> Floats:
        """Return the shape of a step up at `places[cut]`."""
        return self.centred((self.index >= cut).astype(np.float64))


@dataclass(frozen=True, kw_only=True)
class PiecewiseFit:
    """Steps at `cuts` (indices into places) with their `sizes` in logs; `rest` is the residual sum of squares, `spread`
    the residual standard deviation of a launch.
    """

    cuts: tuple[int, ...]
    sizes: Floats
    errors: Floats
    rest: float
    freedom: int
    spread: float

    @property
    def margins(self) -> Floats:
        """Return the half-width of the 95 % interval of each size."""
        return np.asarray(self.errors * float(stdtrit(self.freedom, 0.975)))

    def p(self, number: int, *, places: int) -> float:
        """Return the chance of a step as clear as this at any of `places` places, if there is none."""
        score = abs(float(self.sizes[number] / self.errors[number]))
        return min(1.0, 2 * float(stdtr(self.freedom, -score)) * places)

    def interval(self, number: int) -> Interval:
        size, margin = float(self.sizes[number]), float(self.margins[number])
        return size - margin, size + margin


def figures_of(spots: Sequence[VersionEvidence], metric: str) -> Figures | None:
    """Return the figures of a metric; None if no two versions were measured side by side."""
    measured = [(number, place, value) for place, spot in enumerate(spots) for number, value in _told(spot, metric)]
    together = {number for number, place, _ in measured if any(n == number and p != place for n, p, _ in measured)}
    kept = [each for each in measured if each[0] in together]
    if not kept:
        return None
    numbers, places, values = zip(*kept, strict=True)
    known, index = np.unique(places, return_inverse=True)
    rounds, round_index = np.unique(numbers, return_inverse=True)
    figures = Figures(
        places=tuple(int(place) for place in known), rounds=len(rounds), index=index, round=round_index,
        values=np.array(values),
    )  # fmt: skip
    return Figures(**{**vars(figures), "values": figures.centred(figures.values)})


def _told(spot: VersionEvidence, metric: str) -> list[tuple[int, float]]:
    return [(number, value) for number, value in spot.levels.get(metric, {}).items() if math.isfinite(value)]


def fit(figures: Figures, cuts: Sequence[int]) -> PiecewiseFit:
    """Fit one step at each cut by least squares. Cuts that no round separates have size 0 and an infinite error."""
    freedom = len(figures.values) - figures.rounds - len(cuts)
    rest = float(figures.values @ figures.values)
    sizes: Floats = np.zeros(0)
    inverse: Floats = np.zeros((0, 0))
    if cuts:
        steps = np.stack([figures.step(cut) for cut in cuts], axis=1)
        inverse = np.asarray(np.linalg.pinv(steps.T @ steps), dtype=np.float64)
        sizes = inverse @ steps.T @ figures.values
        rest = float(((figures.values - steps @ sizes) ** 2).sum())
    total = max(1, freedom + 1)
    variance = (rest + USUAL**2) / total
    errors = np.sqrt(variance * np.diag(inverse))
    return PiecewiseFit(
        cuts=tuple(cuts), sizes=sizes, errors=np.where(errors > 0, errors, math.inf), rest=rest, freedom=total,
        spread=math.sqrt(variance),
    )  # fmt: skip


def find_steps(figures: Figures, *, limit: float) -> PiecewiseFit:
    """Return all significant steps of at least `limit`: each is added where it fits best, one after the other."""
    found = fit(figures, ())
    while True:
        more, p = _one_more(figures, found)
        if p >= (SURE_OF_MORE if found.cuts else SURE):
            break
        found = _settled(figures, more)
    while found.cuts and float(np.abs(found.sizes).min()) < limit:
        weakest = int(np.abs(found.sizes).argmin())
        found = fit(figures, found.cuts[:weakest] + found.cuts[weakest + 1 :])
    return found


def p_of_a_step(figures: Figures) -> float:
    """Return the chance of a step as clear as the clearest one, if there is none."""
    return _one_more(figures, fit(figures, ()))[1]


def _one_more(figures: Figures, found: PiecewiseFit) -> tuple[PiecewiseFit, float]:
    """Return the step that fits best beside those found, with its p-value over all places where it may be."""
    free = [cut for cut in range(1, len(figures.places)) if cut not in found.cuts]
    if not free:
        return found, 1.0
    best = min((fit(figures, sorted((*found.cuts, cut))) for cut in free), key=lambda each: each.rest)
    (new,) = set(best.cuts) - set(found.cuts)
    return best, best.p(best.cuts.index(new), places=len(free))


def _settled(figures: Figures, found: PiecewiseFit) -> PiecewiseFit:
    """Move the cuts, one at a time, to where they fit best beside the others."""
    for number in range(len(found.cuts)):
        found = min(
            (fit(figures, _moved(found, number, cut)) for cut in _between(figures, found, number)),
            key=lambda each: each.rest,
        )
    return found


def _between(figures: Figures, found: PiecewiseFit, number: int) -> range:
    """Return the places of a cut between its neighbours."""
    bounds = (0, *found.cuts, len(figures.places))
    return range(bounds[number] + 1, bounds[number + 2])


def _moved(found: PiecewiseFit, number: int, cut: int) -> tuple[int, ...]:
    return (*found.cuts[:number], cut, *found.cuts[number + 1 :])


def first_of(figures: Figures, found: PiecewiseFit, number: int, *, testable: Sequence[int]) -> dict[int, float]:
    """Return the probability of each testable place to be the first of the new level at cut `number`, other cuts fixed.

    A step between two places that were measured may be at any testable place between them.
    """
    cuts = _between(figures, found, number)
    fits = [fit(figures, _moved(found, number, cut)) for cut in cuts]
    logs = np.array([-each.freedom / 2 * math.log(each.rest + USUAL**2) for each in fits])
    weights = np.exp(logs - logs.max())
    chances: dict[int, float] = {}
    for cut, weight in zip(cuts, weights, strict=True):
        before, after = figures.places[cut - 1], figures.places[cut]
        chances |= {place: float(weight) for place in testable if before < place <= after}
    total = sum(chances.values())
    return {place: chance / total for place, chance in chances.items()}


def widest_unseen(figures: Figures) -> float:
    """Return the largest step that may have been missed (its 99 % bound, at any place), while none is found."""
    bounds = []
    for cut in range(1, len(figures.places)):
        one = fit(figures, (cut,))
        bounds.append(abs(float(one.sizes[0])) + float(stdtrit(one.freedom, 0.995)) * float(one.errors[0]))
    return max(bounds, default=math.inf)
