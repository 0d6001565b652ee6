"""Models failures as survival times: how likely the good launches of a bad version are, by luck or by an early end.

A launch that failed at step t is a survival time; one that ended well is censored after its last step. Survival times
are Weibull-distributed: the hazard is the same in each step (shape 1), or rises, up to a failure that always comes in
the same step.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate

import numpy as np

from harness.failure_rate import ALWAYS, RATES, weights
from harness.model import Floats
from harness.schedule.bisect.bisect_records import Evidence

SHAPES: Floats = np.array([4.0**power for power in range(9)])
"""Weibull shapes: how fast the hazard rises. With the last one, failures always come in the same step."""
SAME_STEP = 0.9
"""Prior probability of the last shape; the others are equally likely."""
OWN = 0.1
"""Prior probability that each version has its own time of failure, which two launches that fail in the same step
suggest. With a larger value, two launches that fail in nearly the same step by chance would hide that failures may come
at any step."""
RANGE = 8.0
"""Log of the range in which a version's time of failure may lie, if each version has its own."""


def chances(bad: Sequence[Evidence], further: Sequence[Evidence]) -> Floats:
    """Return how likely it is that `bad` and the first i of `further` are all bad, for i from 0 on (not normalised).

    A failure comes in each launch that runs for long enough (prior probability ALWAYS), or in an unknown share of them.
    """
    return _chances(tuple(bad), tuple(further))


@lru_cache(maxsize=64)
def _chances(bad: tuple[Evidence, ...], further: tuple[Evidence, ...]) -> Floats:
    """Compute `chances`; cached, because several steps of a decision need it."""
    fits = np.asarray(ALWAYS * chances_in_time(bad, further) + _in_part(bad, further), dtype=np.float64)
    fits.flags.writeable = False
    return fits


def chance_of_luck(bad: Sequence[Evidence], good: Sequence[Evidence]) -> float:
    """Return the probability that all these good launches are luck, given the failures of `bad`."""
    fits = chances(bad, good)
    return float(fits[-1] / fits[0])


def chances_in_time(bad: Sequence[Evidence], further: Sequence[Evidence]) -> Floats:
    """Return the probability that every launch that ended well did so before a failure that comes in every launch. The
    launches are those of `bad` and of the first i of `further`, for i from 0 on.

    At a known shape k, the k-th powers of the times are exponential. With the prior 1/rate, the posterior of their rate
    is Gamma(n, T) after n failures whose powered times add up to T; launches whose powers add up to S all survive with
    probability (T / (T + S))^n (Bernardo and Smith, Bayesian Theory, 1994, appendix A, exponential model, reference
    posterior). The result is averaged over the shapes.
    """
    least = (1 - RATES[-1]) ** np.array(_ends(bad, further))
    if not all(each.timed for each in (*bad, *further)):
        return np.asarray(least, dtype=np.float64)
    failed, shapes = _failures(tuple(each.failed_at for each in bad if each.failed_at))
    powers = SHAPES[:, None] * np.log(_survived(bad, further))
    together = np.logaddexp.accumulate(np.insert(powers, 0, -np.inf, axis=1), axis=1)[:, _ends(bad, further)]
    count = sum(each.bad for each in bad)
    spared = np.exp(count * (failed[:, None] - np.logaddexp(failed[:, None], together)))
    return np.asarray(np.maximum(shapes @ spared, least), dtype=np.float64)


def _in_part(bad: Sequence[Evidence], further: Sequence[Evidence]) -> Floats:
    """Return the probability for a failure that comes in a share of the launches, times the probability of the
    failures. A launch that ended earlier than others failed counts only by the share of the failures that it could have
    shown.
    """
    rates = weights(sum(each.bad for each in bad), 0)[:-1]
    shown = np.ones(_ends(bad, further)[-1])
    if all(each.timed for each in (*bad, *further)):
        steps = np.sort([step for each in bad for step in each.failed_at])
        shown = np.searchsorted(steps, _survived(bad, further), side="right") / len(steps)
    spared = np.cumprod(np.insert(1 - RATES[:-1, None] * shown, 0, 1.0, axis=1), axis=1)
    return np.asarray(rates @ spared[:, _ends(bad, further)], dtype=np.float64)


def _ends(bad: Sequence[Evidence], further: Sequence[Evidence]) -> list[int]:
    """Return how many launches ended well, of `bad` and of the first i of `further`."""
    return list(accumulate((each.good for each in further), initial=sum(each.good for each in bad)))


def _survived(bad: Sequence[Evidence], further: Sequence[Evidence]) -> Floats:
    return np.array([max(1, steps) for each in (*bad, *further) for steps in each.survived], dtype=np.float64)


@lru_cache(maxsize=64)
def _failures(by_version: tuple[tuple[int, ...], ...]) -> tuple[Floats, Floats]:
    """Return, by shape, the log of the sum of the powered times of failure, and the shape's posterior probability.

    The posterior averages over two cases: all versions share a scale, or each version has its own.
    """
    times = [np.log(np.array(steps) - 0.5) for steps in by_version]
    together = np.concatenate(times)
    own = np.sum([_evidence(each) for each in times], axis=0)
    logs = _prior() + np.logaddexp(math.log(1 - OWN) + _evidence(together), math.log(OWN) + own)
    return _log_sum(together), np.exp(logs - np.logaddexp.reduce(logs))


def _prior() -> Floats:
    """Return the log of the prior probability by shape."""
    others = len(SHAPES) - 1
    return np.log([*np.full(others, (1 - SAME_STEP) / others), SAME_STEP])


def _evidence(logs: Floats) -> Floats:
    """Return, by shape, the log likelihood of times with these logs, integrated over all scales."""
    count = len(logs)
    constant = (count - 1) * np.log(SHAPES) + math.lgamma(count) - math.log(RANGE)
    return np.asarray(constant + SHAPES * logs.sum() - count * _log_sum(logs), dtype=np.float64)


def _log_sum(logs: Floats) -> Floats:
    """Return the log of the sum of the powers, by shape."""
    return np.asarray(np.logaddexp.reduce(SHAPES[:, None] * logs, axis=1))
