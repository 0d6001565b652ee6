"""Judges flaky failures, which occur in only some of the launches: a good version near a bad one may just be lucky.

One posterior serves a sweep and a bisection: how likely it is that a version is bad although its launches ended well,
given how often, and after how many steps, the launches of bad versions failed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, groupby, pairwise, takewhile

import numpy as np
from scipy.special import gammaln

from harness.amounts import number, plural
from harness.judge.launches import ENOUGH_FAILED, rarest_failure, too_short
from harness.model import CellVerdict, Floats, Trial, Trials
from harness.model.judged import BAD, GOOD, UNSURE, State

MISS = 1.25e-3
"""Highest probability allowed that a version that counts as good also has the failure, but its launches missed it.
According to `benchmarks/accuracy_failures.py`, a wrong version is named in 2 to 3 of 100 histories at 0.01, in 1 of 100
at 0.002, and in up to 6 of 1,000 at 0.001. With this value, 7 of 1,440 histories named a wrong version, and 6 at
0.001; three good launches are enough after three crashes of three."""
MISS_BETWEEN = 3e-4
"""The same for good versions between two bad ones; lower, because two further changes are unlikely a priori."""
ALWAYS = 0.9
"""Prior probability that a bad version fails in every launch; the rest is spread evenly over the lower RATES."""
RATES: Floats = np.array([*np.arange(0.025, 1.0, 0.05), 0.999])
"""Grid of failure rates, as shares of launches; the last stands for a version that always fails."""
SAME_STEP = 1.1
"""Largest ratio of the steps of failures that come in the same step."""
SAME_OWN_STEP = 1.01
"""The same for the failures of one version, if versions differ: few failures are as close by chance."""


# ---------------------------------------------------------------- what launches show


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """Number of launches of one version that were good, bad or unsure, by one metric.

    `failed_at`: the steps in which the bad launches failed; `survived`: how many steps each good launch made. Both are
    empty if steps are not counted or show nothing.
    """

    good: int = 0
    bad: int = 0
    unsure: int = 0
    failed_at: tuple[int, ...] = ()
    survived: tuple[int, ...] = ()

    @property
    def timed(self) -> bool:
        """Return whether the steps of all its launches are known."""
        return len(self.failed_at) == self.bad and len(self.survived) == self.good

    def failed(self, step: int) -> Evidence:
        """Return the evidence with one more launch that failed in this step (counted from 1)."""
        return replace(self, bad=self.bad + 1, failed_at=(*self.failed_at, step))

    def fine(self, steps: int) -> Evidence:
        """Return the evidence with one more launch that made `steps` steps and ended well."""
        return replace(self, good=self.good + 1, survived=(*self.survived, steps))


NOTHING = Evidence()


def chances(bad: Sequence[Evidence], further: Sequence[Evidence], *, always: bool = False) -> Floats:
    """Return how likely it is that `bad` and the first i of `further` are all bad, for i from 0 on (not normalised).

    The prior of the failure rate is a point mass at "always" and uniform on a grid below it. A version that always
    fails has good launches because they ended before the failure was due; one with a lower rate also by luck, and a
    launch of it counts by the share of the failures that came no later. With `always`, only the point mass counts.
    """
    failed = sum(each.bad for each in bad)
    ends = list(accumulate((each.good for each in further), initial=sum(each.good for each in bad)))
    steps, survived, shown = np.zeros(0), np.zeros(0), np.ones(ends[-1])
    is_timed = failed > 0 and all(each.timed for each in (*bad, *further))
    if is_timed:
        steps = np.sort([float(step) for each in bad for step in each.failed_at])
        survived = np.array([float(step) for each in (*bad, *further) for step in each.survived])
        shown = np.searchsorted(steps, survived, side="right") / failed
    is_same = _same_step(bad, steps)
    in_time = (
        _in_time(steps, survived, is_same=is_same) if is_timed else np.cumprod(np.insert(1 - RATES[-1] * shown, 0, 1.0))
    )
    if always:
        return in_time[ends]
    rates = (1 - ALWAYS) / (len(RATES) - 1) * RATES[:-1] ** failed
    spared = np.cumprod(np.insert(1 - RATES[:-1, None] * shown, 0, 1.0, axis=1), axis=1)
    return np.asarray(ALWAYS * RATES[-1] ** failed * in_time[ends] + rates @ spared[:, ends], dtype=np.float64)


def _same_step(bad: Sequence[Evidence], steps: Floats) -> bool:
    """Return whether all failures came in nearly the same step, or each version's in a step of its own."""
    own = [each.failed_at for each in bad if each.bad > 1]
    return len(steps) > 1 and (
        bool(steps[-1] <= SAME_STEP * steps[0] + 1)
        or (bool(own) and all(max(each) <= SAME_OWN_STEP * min(each) + 1 for each in own))
    )


def _in_time(steps: Floats, survived: Floats, *, is_same: bool) -> Floats:
    """Return the probability that the first i of these launches (by the steps that they survived) of versions that
    always fail all ended before the failure was due, for i from 0 on; others failed in `steps`.

    If failures come in the same step (`is_same`), no launch goes beyond it. Otherwise it is the smaller of two
    probabilities. Of n + k failures, the n that were seen are the earliest with a probability of n! k! / (n + k)!. At a
    constant hazard, with the prior 1/hazard, after n failures in steps that add up to T, launches of S steps in total
    all survive with probability (T / (T + S))^n (Bernardo and Smith, Bayesian Theory, 1994, exponential model).
    """
    longer = np.cumsum(np.insert(survived >= steps[-1], 0, 0))  # ties count as beyond: steps are counted from 1
    same = (1 - RATES[-1]) ** longer
    if is_same:
        return np.asarray(same, dtype=np.float64)
    total = np.cumsum(np.insert(survived, 0, steps.sum()))
    by_rank = np.exp(gammaln(len(steps) + 1) + gammaln(longer + 1) - gammaln(len(steps) + longer + 1))
    spread = np.minimum(by_rank, (total[0] / total) ** len(steps))
    return np.asarray(spread if len(steps) > 1 else ALWAYS * same + (1 - ALWAYS) * spread, dtype=np.float64)


def chance_of_luck(bad: Sequence[Evidence], good: Sequence[Evidence]) -> float:
    """Return the probability that all these good launches are luck, given the launches of `bad`."""
    fits = chances(bad, good)
    return float(fits[-1] / fits[0])


# ---------------------------------------------------------------- which versions may be bad


@dataclass(frozen=True, kw_only=True)
class Reach:
    """The extent that a failure may have. `places` go from the bad version next to the good ones outwards;
    `outermost[i]` is the probability that places[i] is the last bad one of them. `seen` is the evidence of bad
    versions.
    """

    places: tuple[int, ...]
    outermost: Floats
    seen: tuple[Evidence, ...]

    def bad(self, index: int) -> float:
        """Return the probability that places[index] is bad."""
        return float(self.outermost[index:].sum())


def reach_of(
    states: Sequence[State], seen: Sequence[Evidence | None], start: int, *, outwards: int, always: bool = False
) -> Reach:
    """Return the posterior of how far a failure reaches from the bad version at `start`: each version outwards (-1 or
    1), up to the next bad one, may be bad and have been lucky so far. Versions whose evidence is None are left out.
    """

    def until(stop: bool, step: int) -> dict[int, Evidence]:
        """Return the evidence by position from `start` on, up to the next version whose state is `stop`."""
        side = range(start + step, len(states) if step > 0 else -1, step)
        near = takewhile(lambda place: states[place] is not stop, side)
        return {place: own for place in near if (own := seen[place]) is not None}

    further, inside = until(True, outwards), until(False, -outwards)
    of_bad = (seen[start] or NOTHING, *inside.values())
    fits = chances(of_bad, list(further.values()), always=always)
    return Reach(places=(start, *further), outermost=fits / fits.sum(), seen=of_bad)


def lucky_runs(states: Sequence[State], seen: Sequence[Evidence | None]) -> list[list[int]]:
    """Return the runs of good versions between two bad ones that have too few good launches to rule out luck."""
    decided = [place for place, bad in enumerate(states) if bad is not None]
    runs = [(bad, list(group)) for bad, group in groupby(decided, key=states.__getitem__)]
    failing = [seen[place] or NOTHING for place in decided if states[place]]
    return [
        places
        for bad, places in runs[1:-1]
        if not bad and chance_of_luck(failing, [seen[place] or NOTHING for place in places]) > MISS_BETWEEN
    ]


def believed(states: Sequence[State], seen: Sequence[Evidence | None]) -> list[State]:
    """Return the states; None for good versions between two bad ones that may only have been lucky."""
    lucky = {place for run in lucky_runs(states, seen) for place in run}
    return [None if place in lucky else state for place, state in enumerate(states)]


def doubtful(states: Sequence[State], seen: Sequence[Evidence | None], *, miss: float = MISS) -> dict[int, list[int]]:
    """Return, by the bad version next to them, the good versions that may be merely lucky with a probability above
    `miss`, nearest first; also those between two bad versions.
    """
    sure = believed(states, seen)
    lucky = {place for place, state in enumerate(sure) if state is not states[place]}
    near: dict[int, list[int]] = {}
    for old, new in pairwise(place for place, state in enumerate(sure) if state is not None):
        if sure[old] == sure[new]:
            continue
        bad, outwards = (new, -1) if sure[new] else (old, 1)
        reach = reach_of(sure, seen, bad, outwards=outwards)
        places = [
            place
            for index, place in enumerate(reach.places)
            if index and states[place] is False and (place in lucky or reach.bad(index) > miss)
        ]
        near[bad] = [*near.get(bad, []), *places]
    for place in sorted(lucky):
        bad = min((each for each, state in enumerate(sure) if state), key=lambda each: abs(each - place))
        near.setdefault(bad, []).append(place)
    return near


# ---------------------------------------------------------------- a sweep of all versions


def proven(states: Sequence[State], seen: Sequence[Evidence | None], *, miss: float = MISS) -> list[State]:
    """Return the states, with None for each good version that may be merely lucky, with a probability above `miss`."""
    unproven = {place for near in doubtful(states, seen, miss=miss).values() for place in near}
    return [None if place in unproven else state for place, state in enumerate(states)]


def wanted_launches(
    states: Sequence[State], cells: Sequence[CellVerdict], trials: Sequence[Sequence[Trial]], *, asked: Trials
) -> Mapping[int, str]:
    """Return the versions, by position, for which another launch could settle where a failure began or ended, with the
    reason: on each side of a bad version, the nearest doubtful version with fewer launches than `asked.most`; and the
    bad version itself, if few launches have failed.
    """
    left = [sum(trial.measured for trial in version) < asked.most for version in trials]
    seen, bad = seen_in(states, cells), [place for place, state in enumerate(states) if state]
    failed = sum(cells[place].failed for place in bad)
    seldom = failed < ENOUGH_FAILED and failed == sum(cells[place].at_risk for place in bad) and False in states
    why = "all its launches failed, but there are too few to show that it always fails"
    reasons = {place: why for place in bad if seldom and left[place]}
    for place, near in doubtful(states, seen).items():
        for side in ([each for each in near if each < place], [each for each in near if each > place]):
            able = next((each for each in side if left[each]), None)
            if able is not None:
                good, own = cells[able].at_risk, cells[place]
                luck = chance_of_luck([seen[each] or NOTHING for each in bad], [seen[able] or NOTHING])
                reasons[able] = (
                    f"there is a chance of {number(100 * luck)} % that {good} good {plural('launch', good)} would miss "
                    f"a failure that occurred in {own.failed} of {own.at_risk} launches of a nearby version"
                )
    return reasons


def seen_in(states: Sequence[State], cells: Sequence[CellVerdict]) -> list[Evidence | None]:
    """Return the evidence for each version that ran: launches of an untested or incompatible version show nothing.
    Failures of a good version are those of the baseline, too.
    """
    seen: list[Evidence | None] = []
    for state, cell in zip(states, cells, strict=True):
        bad = 0 if state is False else cell.failed
        ran = cell.at_risk and cell.verdict in BAD | GOOD | UNSURE
        seen.append(Evidence(good=cell.at_risk - bad, bad=bad) if ran else None)
    return seen


def outliving(
    states: Sequence[State], cells: Sequence[CellVerdict], trials: Sequence[Sequence[Trial]]
) -> list[CellVerdict]:
    """Return the cells; a good one knows which of its launches ended before the latest failure of a bad version."""
    bad = [trial for state, version in zip(states, trials, strict=True) if state for trial in version]
    told = list(cells)
    for at, cell in enumerate(cells):
        if states[at] is False:
            short = too_short(trials[at], of=bad)
            outcome = replace(cell.of("outcome"), visible=rarest_failure(cell.trials - short))
            told[at] = replace(cell, too_short=short, signals={**cell.signals, "outcome": outcome})
    return told
