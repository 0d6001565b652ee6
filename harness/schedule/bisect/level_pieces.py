"""Fits a piecewise constant to step times that were compared side by side, to find where their level changes.

Each round has its own effect (heat, clock rate, other load), which is removed by subtracting the round's mean. Steps at
`cuts` are fitted to the rest by least squares; the noise is pooled over all launches.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import stdtr, stdtrit

from harness.model import Floats, Interval
from harness.schedule.bisect.bisect_records import RowVersions

SURE = 0.002
SURE_OF_MORE = 0.0002
"""Largest p-value of the first step, and of each further one, in one look at the rounds so far."""
USUAL = 0.02
"""Prior standard deviation of a launch's log step time, with the weight of one pair of launches."""


@dataclass(frozen=True, kw_only=True)
class Figures:
    """The figures of all rounds with two or more versions. `places`: the versions with at least one figure, oldest
    first; `index`: for each figure, its index into `places`; `values`: logs minus the mean of their round.
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
    """Steps at `cuts` (indices into places) with their `sizes` in logs and their standard `errors`. `rest`: the
    residual sum of squares; `freedom`: the degrees of freedom; `spread`: the residual standard deviation of a launch.
    """

    cuts: tuple[int, ...]
    sizes: Floats
    errors: Floats
    rest: float
    freedom: int
    spread: float

    def p(self, number: int, *, places: int) -> float:
        """Return the p-value of a step: a t test, Bonferroni-corrected for the `places` places where it may be."""
        score = abs(float(self.sizes[number] / self.errors[number]))
        return min(1.0, 2 * float(stdtr(self.freedom, -score)) * places)

    def interval(self, number: int) -> Interval:
        """Return the 95 % confidence interval of a size."""
        size, margin = float(self.sizes[number]), float(self.errors[number] * stdtrit(self.freedom, 0.975))
        return size - margin, size + margin


def figures_of(versions: RowVersions) -> Figures | None:
    """Return the figures of all versions; None if no two versions ran side by side."""
    measured = [
        (number, place, value)
        for place, version in enumerate(versions)
        for number, value in version.step_times.items()
        if math.isfinite(value)
    ]
    sizes = Counter(number for number, _, _ in measured)
    compared = [each for each in measured if sizes[each[0]] > 1]
    if not compared:
        return None
    numbers, places, values = zip(*compared, strict=True)
    all_places, index = np.unique(places, return_inverse=True)
    rounds, round_index = np.unique(numbers, return_inverse=True)
    figures = Figures(
        places=tuple(int(place) for place in all_places), rounds=len(rounds), index=index, round=round_index,
        values=np.array(values),
    )  # fmt: skip
    return replace(figures, values=figures.centred(figures.values))


def fit_steps(figures: Figures, cuts: Sequence[int]) -> PiecewiseFit:
    """Fit one step at each cut by least squares. A cut that no round spans has size 0 and an infinite error."""
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
    best = fit_steps(figures, ())
    while True:
        more, p = _one_more(figures, best)
        if p >= (SURE_OF_MORE if best.cuts else SURE):
            break
        best = _settled(figures, more)
    while best.cuts and float(np.abs(best.sizes).min()) < limit:
        weakest = int(np.abs(best.sizes).argmin())
        best = fit_steps(figures, best.cuts[:weakest] + best.cuts[weakest + 1 :])
    return best


def p_of_a_step(figures: Figures) -> float:
    """Return the p-value of the clearest single step."""
    return _one_more(figures, fit_steps(figures, ()))[1]


def _one_more(figures: Figures, present: PiecewiseFit) -> tuple[PiecewiseFit, float]:
    """Add the best-fitting step to the present ones; return the fit, and the p-value of that step over all places."""
    free = [cut for cut in range(1, len(figures.places)) if cut not in present.cuts]
    if not free:
        return present, 1.0
    best = min((fit_steps(figures, sorted((*present.cuts, cut))) for cut in free), key=lambda each: each.rest)
    (new,) = set(best.cuts) - set(present.cuts)
    return best, best.p(best.cuts.index(new), places=len(free))


def _settled(figures: Figures, present: PiecewiseFit) -> PiecewiseFit:
    """Move the cuts, one at a time, to where they fit best with the others fixed."""
    for number in range(len(present.cuts)):
        present = min(_moved(figures, present, number).values(), key=lambda each: each.rest)
    return present


def _moved(figures: Figures, present: PiecewiseFit, number: int) -> dict[int, PiecewiseFit]:
    """Return the fits with one cut at each place between its neighbours."""
    bounds = (0, *present.cuts, len(figures.places))
    before, after = present.cuts[:number], present.cuts[number + 1 :]
    return {cut: fit_steps(figures, (*before, cut, *after)) for cut in range(bounds[number] + 1, bounds[number + 2])}


def first_of(figures: Figures, present: PiecewiseFit, number: int, *, testable: Sequence[int]) -> dict[int, float]:
    """Return the probability of each testable place to be the first of the new level at cut `number`, other cuts fixed.

    A step between two places that were measured may be at any testable place between them.
    """
    fits = _moved(figures, present, number)
    logs = np.array([-each.freedom / 2 * math.log(each.rest + USUAL**2) for each in fits.values()])
    weights = np.exp(logs - logs.max())
    chances: dict[int, float] = {}
    for cut, weight in zip(fits, weights, strict=True):
        before, after = figures.places[cut - 1], figures.places[cut]
        chances |= {place: float(weight) for place in testable if before < place <= after}
    total = sum(chances.values())
    return {place: chance / total for place, chance in chances.items()}


def widest_unseen(figures: Figures) -> float:
    """Return the largest step that may have been missed: the maximum over all places of its 99 % confidence bound."""
    bounds = []
    for cut in range(1, len(figures.places)):
        single = fit_steps(figures, (cut,))
        bounds.append(abs(float(single.sizes[0])) + float(stdtrit(single.freedom, 0.995)) * float(single.errors[0]))
    return max(bounds, default=math.inf)
