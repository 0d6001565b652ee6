"""Chooses the versions to launch side by side, to find where the level of the step time changes.

Rounds of a bisection have only some of the versions, so a piecewise constant is fitted to them by least squares. Each
round has its own effect (heat, clock rate, other load), which is removed by subtracting the round's mean. The noise is
pooled over all launches.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import stdtr, stdtrit

from harness.judge.next.bisect_records import LEVEL, Boundary, Decision, RowVersions, Rules, likeliest, version_name
from harness.model import Floats, Interval

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
    rest = float(figures.values @ figures.values)
    sizes: Floats = np.zeros(0)
    inverse: Floats = np.zeros((0, 0))
    if cuts:
        steps = np.stack([figures.step(cut) for cut in cuts], axis=1)
        inverse = np.asarray(np.linalg.pinv(steps.T @ steps), dtype=np.float64)
        sizes = inverse @ steps.T @ figures.values
        rest = float(((figures.values - steps @ sizes) ** 2).sum())
    freedom = max(1, len(figures.values) - figures.rounds - len(cuts) + 1)
    variance = (rest + USUAL**2) / freedom
    errors = np.sqrt(variance * np.diag(inverse))
    return PiecewiseFit(
        cuts=tuple(cuts),
        sizes=sizes,
        errors=np.where(errors > 0, errors, math.inf),
        rest=rest,
        freedom=freedom,
        spread=math.sqrt(variance),
    )


def find_steps(figures: Figures, *, limit: float) -> PiecewiseFit:
    """Return all significant steps of at least `limit`: each is added where it fits best, one after the other, and the
    cuts are then moved, one at a time, to where they fit best with the others fixed.
    """
    best = fit_steps(figures, ())
    while True:
        more, p = one_more(figures, best)
        if p >= (SURE_OF_MORE if best.cuts else SURE):
            break
        best = more
        for number in range(len(best.cuts)):
            best = min(_moved(figures, best, number).values(), key=lambda each: each.rest)
    while best.cuts and float(np.abs(best.sizes).min()) < limit:
        weakest = int(np.abs(best.sizes).argmin())
        best = fit_steps(figures, best.cuts[:weakest] + best.cuts[weakest + 1 :])
    return best


def one_more(figures: Figures, present: PiecewiseFit) -> tuple[PiecewiseFit, float]:
    """Add the best-fitting step to the present ones; return the fit, and the p-value of that step over all places."""
    free = [cut for cut in range(1, len(figures.places)) if cut not in present.cuts]
    if not free:
        return present, 1.0
    best = min((fit_steps(figures, sorted((*present.cuts, cut))) for cut in free), key=lambda each: each.rest)
    (new,) = set(best.cuts) - set(present.cuts)
    return best, best.p(best.cuts.index(new), places=len(free))


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
    singles = [fit_steps(figures, (cut,)) for cut in range(1, len(figures.places))]
    bounds = [abs(float(one.sizes[0])) + float(stdtrit(one.freedom, 0.995)) * float(one.errors[0]) for one in singles]
    return max(bounds, default=math.inf)


SPREAD = (4, 8)
"""Number of versions in a round while no step is found, both ends included: in the first ROUNDS rounds, and later."""
HINT = 0.05
"""Largest p-value of a step that justifies more rounds."""
CLEAR = 4.0
"""Size of a step, in standard deviations of one launch, from which it stands out of the noise."""
APART = 7.0
"""Wanted size of a step, in standard errors of the rounds in which both its sides ran together."""
BEYOND = 0.01
"""Largest probability that a version used next to a step lies beyond the next step."""
ROUNDS = 3
"""Fewest rounds in which both sides of a step must have run together."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """A step of a level. `chances`: the probability of each place to be the first of the new level."""

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
    """The step times in all rounds so far. `able`: the versions that have a step time or may still give one."""

    figures: Figures
    fit: PiecewiseFit
    steps: tuple[Step, ...]
    able: tuple[int, ...]
    limit: float


def round_evidence(versions: RowVersions, rules: Rules) -> RoundEvidence | None:
    """Return the evidence of all rounds; None if step times are not compared, or no two versions ran side by side."""
    if rules.step_limit is None or (figures := figures_of(versions)) is None:
        return None
    may_give = (
        place
        for place, version in enumerate(versions)
        if version.testable and (not version.launches or version.step_times)
    )
    able = tuple(sorted({*may_give, *figures.places}))
    fit = find_steps(figures, limit=rules.step_limit)
    steps = tuple(
        Step(number=number, chances=first_of(figures, fit, number, testable=able)) for number in range(len(fit.cuts))
    )
    return RoundEvidence(figures=figures, fit=fit, steps=steps, able=able, limit=rules.step_limit)


def compare_levels(versions: RowVersions, rules: Rules) -> Decision | None:
    """Return the next round, or None if levels are not compared or more rounds would show nothing."""
    evidence = round_evidence(versions, rules)
    if evidence is None:
        return None
    if evidence.steps:
        return _narrow(versions, evidence, rules) or _confirm(versions, evidence, rules)
    return _look(versions, evidence, rules)


def level_boundaries(versions: RowVersions, rules: Rules) -> tuple[Boundary, ...]:
    """Return the steps that were found, each as an interval that misses the right version with probability `alpha`."""
    evidence = round_evidence(versions, rules)
    return () if evidence is None else tuple(_boundary(versions, evidence, step, rules) for step in evidence.steps)


# ---------------------------------------------------------------- rounds


def _look(versions: RowVersions, evidence: RoundEvidence, rules: Rules) -> Decision | None:
    """Decide, while nothing is found, to go on until a step of the limit would have been seen. Once the ends have had
    all their launches, only a hint of a step is followed, with other versions, for as many rounds again.
    """
    figures = evidence.figures
    if figures.rounds >= ROUNDS and widest_unseen(figures) <= evidence.limit:
        return None
    able = [place for place in evidence.able if versions[place].launchable(rules)]
    if evidence.able[0] not in able or evidence.able[-1] not in able:
        _, p = one_more(figures, fit_steps(figures, ()))
        if p > HINT or figures.rounds >= 2 * rules.most:
            return None
    if len(able) < 2:
        return None
    # At regular intervals from the first to the last.
    count, last = SPREAD[figures.rounds >= ROUNDS], len(able) - 1
    spread = sorted({able[round(last * part / (count - 1))] for part in range(count)})
    why = f"{LEVEL}: looking for a step of {math.expm1(evidence.limit):.1%} or more"
    return _round(versions, evidence, spread, why)


def _narrow(versions: RowVersions, evidence: RoundEvidence, rules: Rules) -> Decision | None:
    """Decide to launch, side by side, two versions for each step not yet located, which cut the likely range into
    thirds, and some certainly on each side.
    """
    chosen: set[int] = set()
    for step in evidence.steps:
        reached = {p: step.reached(p) for p in evidence.able if versions[p].launchable(rules)}
        open_ = {p: chance for p, chance in reached.items() if rules.alpha / 2 < chance < 1 - rules.alpha / 2}
        for part in (1 / 3, 2 / 3):
            near = [(abs(chance - part), not versions[p].at_hand, p) for p, chance in open_.items()]
            chosen |= {min(near)[2]} if near else set()
        chosen |= _beside(versions, evidence, step, rules) if open_ else set()
    why = f"{LEVEL}: looking for the version at which it changes"
    return _round(versions, evidence, sorted(chosen), why) if len(chosen) > 1 else None


def _beside(versions: RowVersions, evidence: RoundEvidence, step: Step, rules: Rules) -> set[int]:
    """Return versions that are certainly on the old level next to a step, and as many certainly on the new one: one
    each if the step stands out from the noise, otherwise more, because the mean of a round would be as uncertain as the
    figures that are compared with it.
    """
    stands_out = abs(float(evidence.fit.sizes[step.number])) / evidence.fit.spread
    count = 1 if stands_out >= CLEAR else 2 if stands_out >= CLEAR / 2 else 3
    steps, number = evidence.steps, step.number
    able = [place for place in evidence.able if versions[place].launchable(rules)]
    # Not beyond the step before, or after.
    old = [p for p in able if number == 0 or steps[number - 1].reached(p) >= 1 - BEYOND]
    new = [p for p in able if number == len(steps) - 1 or steps[number + 1].reached(p) <= BEYOND]
    old = [p for p in reversed(old) if step.reached(p) <= rules.alpha / 2]
    new = [p for p in new if step.reached(p) >= 1 - rules.alpha / 2]

    def cost(place: int) -> tuple[bool, int]:
        """Rank versions: those with the most launches are known best, and one without any may need a pull first."""
        version = versions[place]
        return not version.launches and not version.at_hand, -version.launches

    return {place for side in (old, new) for place in sorted(side, key=cost)[:count]}


def _confirm(versions: RowVersions, evidence: RoundEvidence, rules: Rules) -> Decision | None:
    """Decide to launch both sides of every step once more, all side by side, before a version is named."""
    before = {max(p for p in evidence.able if p < step.first) for step in evidence.steps}
    sides = sorted(before | {step.first for step in evidence.steps})
    wanted = max(ROUNDS, math.ceil((APART * evidence.fit.spread / float(abs(evidence.fit.sizes).min())) ** 2))
    if _rounds_together(versions, sides) >= wanted or not all(versions[p].launchable(rules) for p in sides):
        return None
    beside = {p for step in evidence.steps for p in _beside(versions, evidence, step, rules)}
    why = f"{LEVEL}: confirming both sides of the step"
    return replace(_round(versions, evidence, sorted({*sides, *beside}), why), kind="confirm")


def _rounds_together(versions: RowVersions, places: Sequence[int]) -> int:
    return len(set.intersection(*(set(versions[place].step_times) for place in places)))


def _round(versions: RowVersions, evidence: RoundEvidence, places: Sequence[int], why: str) -> Decision:
    names = ", ".join(version_name(versions, place) for place in places)
    posterior = likeliest(each for step in evidence.steps for each in step.chances.items())
    reason = f"{why}, with {names} side by side"
    return Decision(launch=tuple(places), kind="compare", reason=reason, metric=LEVEL, posterior=posterior)


# ---------------------------------------------------------------- what was found


def _boundary(versions: RowVersions, evidence: RoundEvidence, step: Step, rules: Rules) -> Boundary:
    """Return the measured versions that enclose the step; it lies beyond each with probability alpha / 2 at most."""
    measured = evidence.figures.places
    before = max(p for p in measured if step.reached(p) <= rules.alpha / 2 or p == measured[0])
    after = min(p for p in measured if step.reached(p) >= 1 - rules.alpha / 2 or p == measured[-1])
    together = _rounds_together(versions, (before, after))
    size = float(evidence.fit.sizes[step.number])
    return Boundary(
        metric=LEVEL,
        before=before,
        after=after,
        worse=size > 0,
        between=tuple(range(before + 1, after)),
        confirmed=together >= rules.agree,
        size=size,
        interval=evidence.fit.interval(step.number),
        p=evidence.fit.p(step.number, places=len(measured) - 1),
    )
