"""Chooses the versions to launch side by side, to find where the level of a signal changes.

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

from harness.judge.comparison.noise import interval_of
from harness.judge.history.changes import level_ratio
from harness.judge.next.bisect_records import Decision, RowVersions, Rules, likeliest, version_name
from harness.model import Change, Floats, Spread

SURE = 0.002
SURE_OF_MORE = 0.0002
"""Largest p-value of the first step, and of each further one, in one look at the rounds so far."""
USUAL = 0.02
"""Prior standard deviation of a launch's log step time, with the weight of one pair of launches."""


@dataclass(frozen=True, kw_only=True)
class PiecewiseFit:
    """Steps at `cuts` (indices into places) with their `sizes` in logs and their standard `errors`. `rest`: the
    residual sum of squares; `spread`: the residual spread of a launch.
    """

    cuts: tuple[int, ...]
    sizes: Floats
    errors: Floats
    rest: float
    spread: Spread

    def p(self, number: int, *, places: int) -> float:
        """Return the p-value of a step: a t test, Bonferroni-corrected for the `places` places where it may be."""
        score = abs(float(self.sizes[number] / self.errors[number]))
        return min(1.0, 2 * float(stdtr(self.spread.freedom, -score)) * places)


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

    def fit(self, cuts: Sequence[int]) -> PiecewiseFit:
        """Fit one step at each cut by least squares. A cut that no round spans has size 0 and an infinite error."""
        rest = float(self.values @ self.values)
        sizes: Floats = np.zeros(0)
        inverse: Floats = np.zeros((0, 0))
        if cuts:
            steps = np.stack([self.centred((self.index >= cut).astype(np.float64)) for cut in cuts], axis=1)
            inverse = np.asarray(np.linalg.pinv(steps.T @ steps), dtype=np.float64)
            sizes = inverse @ steps.T @ self.values
            rest = float(((self.values - steps @ sizes) ** 2).sum())
        freedom = max(1, len(self.values) - self.rounds - len(cuts) + 1)
        variance = (rest + USUAL**2) / freedom
        errors = np.sqrt(variance * np.diag(inverse))
        return PiecewiseFit(
            cuts=tuple(cuts),
            sizes=sizes,
            errors=np.where(errors > 0, errors, math.inf),
            rest=rest,
            spread=Spread(deviation=math.sqrt(variance), freedom=freedom),
        )

    def find_steps(self, *, limit: float) -> PiecewiseFit:
        """Return all significant steps of at least `limit`: each is added where it fits best, one after the other, and
        the cuts are then moved, one at a time, to where they fit best with the others fixed.
        """
        best = self.fit(())
        while True:
            more, p = self.one_more(best)
            if p >= (SURE_OF_MORE if best.cuts else SURE):
                break
            best = more
            for number in range(len(best.cuts)):
                best = min(self._moved(best, number).values(), key=lambda each: each.rest)
        while best.cuts and float(np.abs(best.sizes).min()) < limit:
            weakest = int(np.abs(best.sizes).argmin())
            best = self.fit(best.cuts[:weakest] + best.cuts[weakest + 1 :])
        return best

    def one_more(self, present: PiecewiseFit) -> tuple[PiecewiseFit, float]:
        """Add the best-fitting step to the present ones; return the fit, and the step's p-value over all places."""
        free = [cut for cut in range(1, len(self.places)) if cut not in present.cuts]
        if not free:
            return present, 1.0
        best = min((self.fit(sorted((*present.cuts, cut))) for cut in free), key=lambda each: each.rest)
        (new,) = set(best.cuts) - set(present.cuts)
        return best, best.p(best.cuts.index(new), places=len(free))

    def _moved(self, present: PiecewiseFit, number: int) -> dict[int, PiecewiseFit]:
        """Return the fits with one cut at each place between its neighbours."""
        bounds = (0, *present.cuts, len(self.places))
        before, after = present.cuts[:number], present.cuts[number + 1 :]
        return {cut: self.fit((*before, cut, *after)) for cut in range(bounds[number] + 1, bounds[number + 2])}

    def first_of(self, present: PiecewiseFit, number: int, *, testable: Sequence[int]) -> dict[int, float]:
        """Return the probability of each testable place to be the first of the new level at cut `number`, other cuts
        fixed.

        A step between two places that were measured may be at any testable place between them.
        """
        fits = self._moved(present, number)
        logs = np.array([-each.spread.freedom / 2 * math.log(each.rest + USUAL**2) for each in fits.values()])
        weights = np.exp(logs - logs.max())
        chances: dict[int, float] = {}
        for cut, weight in zip(fits, weights, strict=True):
            before, after = self.places[cut - 1], self.places[cut]
            chances |= {place: float(weight) for place in testable if before < place <= after}
        total = sum(chances.values())
        return {place: chance / total for place, chance in chances.items()}

    def widest_unseen(self) -> float:
        """Return the largest step that may have been missed: the highest of the 99 % bounds over all places."""
        singles = [self.fit((cut,)) for cut in range(1, len(self.places))]
        bounds = [
            abs(float(one.sizes[0])) + float(stdtrit(one.spread.freedom, 0.995)) * float(one.errors[0])
            for one in singles
        ]
        return max(bounds, default=math.inf)


def figures_of(versions: RowVersions) -> Figures | None:
    """Return the figures of all versions; None if no two versions ran side by side."""
    measured = [
        (number, place, value)
        for place, version in enumerate(versions)
        for number, value in version.figures.items()
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


# ---------------------------------------------------------------- rounds

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
class LevelHistory:
    """The figures in all rounds so far. `firsts`: for each step of `fit`, the probability of each place to be the
    first of the new level; `able`: the versions that have a figure or may still give one; `limit`: the least step
    that counts.
    """

    versions: RowVersions
    rules: Rules
    limit: float
    figures: Figures
    fit: PiecewiseFit
    firsts: Sequence[Mapping[int, float]]
    able: tuple[int, ...]

    def next(self) -> Decision | None:
        """Return the next round; None if more rounds would show nothing."""
        return (self._narrow() or self._confirm()) if self.firsts else self._look()

    def changes(self) -> tuple[Change[int], ...]:
        """Return the steps that were found, each as an interval that misses the right version with chance `alpha`."""
        return tuple(self._change(number) for number in range(len(self.firsts)))

    def reached(self, number: int, place: int) -> float:
        """Return the probability that the new level of a step has been reached at `place`."""
        return sum(chance for first, chance in self.firsts[number].items() if first <= place)

    @property
    def _launchable(self) -> list[int]:
        return [place for place in self.able if self.versions[place].left(self.rules)]

    def _look(self) -> Decision | None:
        """Decide, while nothing is found, to go on until a step of the limit would have been seen. Once the ends have
        had all their launches, only a hint of a step is followed, with other versions, for as many rounds again.
        """
        figures, able = self.figures, self._launchable
        if figures.rounds >= ROUNDS and figures.widest_unseen() <= self.limit:
            return None
        if self.able[0] not in able or self.able[-1] not in able:
            _, p = figures.one_more(figures.fit(()))
            if p > HINT or figures.rounds >= 2 * self.rules.most:
                return None
        if len(able) < 2:
            return None
        # At regular intervals from the first to the last.
        count, last = SPREAD[figures.rounds >= ROUNDS], len(able) - 1
        spread = sorted({able[round(last * part / (count - 1))] for part in range(count)})
        return self._round(spread, f"{self.rules.level}: looking for a step of {math.expm1(self.limit):.1%} or more")

    def _narrow(self) -> Decision | None:
        """Decide to launch, side by side, two versions for each step not yet located, which cut the likely range into
        thirds, and some certainly on each side.
        """
        chosen: set[int] = set()
        for number in range(len(self.firsts)):
            reached = {place: self.reached(number, place) for place in self._launchable}
            open_ = {
                p: share for p, share in reached.items() if self.rules.alpha / 2 < share < 1 - self.rules.alpha / 2
            }
            for part in (1 / 3, 2 / 3):
                near = [(abs(share - part), not self.versions[p].at_hand, p) for p, share in open_.items()]
                chosen |= {min(near)[2]} if near else set()
            chosen |= self._beside(number) if open_ else set()
        why = f"{self.rules.level}: looking for the version at which it changes"
        return self._round(sorted(chosen), why) if len(chosen) > 1 else None

    def _beside(self, number: int) -> set[int]:
        """Return versions that are certainly on the old level next to a step, and as many certainly on the new one: one
        each if the step stands out from the noise, otherwise more, because the mean of a round would be as uncertain as
        the figures that are compared with it.
        """
        stands_out = abs(float(self.fit.sizes[number])) / self.fit.spread.deviation
        count = 1 if stands_out >= CLEAR else 2 if stands_out >= CLEAR / 2 else 3
        able, sure = self._launchable, self.rules.alpha / 2
        # Not beyond the step before, or after.
        old = [p for p in able if number == 0 or self.reached(number - 1, p) >= 1 - BEYOND]
        new = [p for p in able if number == len(self.firsts) - 1 or self.reached(number + 1, p) <= BEYOND]
        old = [p for p in reversed(old) if self.reached(number, p) <= sure]
        new = [p for p in new if self.reached(number, p) >= 1 - sure]

        def cost(place: int) -> tuple[bool, int]:
            """Rank versions: those with the most launches are known best, and one without any may need a pull first."""
            version = self.versions[place]
            return not version.launches and not version.at_hand, -version.launches

        return {place for side in (old, new) for place in sorted(side, key=cost)[:count]}

    def _confirm(self) -> Decision | None:
        """Decide to launch both sides of every step once more, all side by side, before a version is named."""
        news = {max(chances, key=chances.__getitem__) for chances in self.firsts}
        sides = sorted(news | {max(p for p in self.able if p < new) for new in news})
        weakest = float(abs(self.fit.sizes).min())
        wanted = max(ROUNDS, math.ceil((APART * self.fit.spread.deviation / weakest) ** 2))
        if self._rounds_together(sides) >= wanted or not set(sides) <= set(self._launchable):
            return None
        beside = {place for number in range(len(self.firsts)) for place in self._beside(number)}
        why = f"{self.rules.level}: confirming both sides of the step"
        return replace(self._round(sorted({*sides, *beside}), why), kind="confirm")

    def _rounds_together(self, places: Sequence[int]) -> int:
        return len(set.intersection(*(set(self.versions[place].figures) for place in places)))

    def _round(self, places: Sequence[int], why: str) -> Decision:
        names = ", ".join(version_name(self.versions, place) for place in places)
        posterior = likeliest(each for chances in self.firsts for each in chances.items())
        reason = f"{why}, with {names} side by side"
        return Decision(
            launch=tuple(places), kind="compare", reason=reason, metric=self.rules.level, posterior=posterior
        )

    def _change(self, number: int) -> Change[int]:
        """Return the measured versions that enclose a step; it lies beyond each with probability alpha / 2 at most."""
        measured, sure = self.figures.places, self.rules.alpha / 2
        before = max(p for p in measured if self.reached(number, p) <= sure or p == measured[0])
        after = min(p for p in measured if self.reached(number, p) >= 1 - sure or p == measured[-1])
        size = float(self.fit.sizes[number])
        interval = interval_of(self.fit.spread, size, float(self.fit.errors[number]))
        return Change(
            metric=self.rules.level,
            kind="first_bad" if size > 0 else "first_fixed",
            before=before,
            after=after,
            effect=level_ratio(self.rules.level, size, interval),
            p=self.fit.p(number, places=len(measured) - 1),
            confirmed=self._rounds_together((before, after)) >= self.rules.agree,
        )


def level_history(versions: RowVersions, rules: Rules) -> LevelHistory | None:
    """Return the evidence of all rounds; None if levels are not compared, or no two versions ran side by side."""
    if rules.level_limit is None or (figures := figures_of(versions)) is None:
        return None
    may_give = (
        place
        for place, version in enumerate(versions)
        if version.testable and (not version.launches or version.figures)
    )
    able = tuple(sorted({*may_give, *figures.places}))
    fit = figures.find_steps(limit=rules.level_limit)
    firsts = [figures.first_of(fit, number, testable=able) for number in range(len(fit.cuts))]
    return LevelHistory(
        versions=versions, rules=rules, limit=rules.level_limit, figures=figures, fit=fit, firsts=firsts, able=able
    )
