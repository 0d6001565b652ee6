"""How likely good launches of a bad version are: it may spare some, or they may have ended before its time.

Launches are survival data: one that failed at step t lived for t steps, one that ended well for all of its own, and
might have failed in the next. The time at which a failure comes is Weibull distributed: by a chance that is the same
in each step (shape 1), or rises, up to a failure that always comes in the same step.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate

import numpy as np

from harness.failure_rate import ALWAYS, RATES, weights
from harness.model import Floats
from harness.schedule.bisect.records import Evidence

SHAPES: Floats = np.array([4.0**power for power in range(9)])
"""How much the chance of a failure rises with the steps. At the last one it always comes in the same step."""
SAME_STEP = 0.9
"""The prior chance of the last shape; the others are equally likely."""
OWN = 0.1
"""The prior chance that each version fails at a time of its own. Two launches that fail in one step show it; a larger
one would let two that do so nearly, by chance, hide that failures come anywhere.
"""
RANGE = 8.0
"""The log of the range in which the step of a version may be, if each has one of its own."""


def chances(bad: Sequence[Evidence], further: Sequence[Evidence]) -> Floats:
    """How well it fits together that `bad` and the first i of `further` are all bad, for i from 0 on.

    A failure comes in each launch that runs for long enough (prior chance ALWAYS), or in an unknown share of them.
    """
    return np.asarray(ALWAYS * in_time(bad, further) + _in_part(bad, further), dtype=np.float64)


def luck(bad: Sequence[Evidence], good: Sequence[Evidence]) -> float:
    """The chance that all these good launches are luck, where `bad` failed as it did."""
    fits = chances(bad, good)
    return float(fits[-1] / fits[0])


def in_time(bad: Sequence[Evidence], further: Sequence[Evidence]) -> Floats:
    """The chance that all launches that ended well did so before the time of a failure that comes in every launch:
    those of `bad` and of the first i of `further`, for i from 0 on.

    At a known shape k the k-th powers of the times are exponential. With 1/rate as the prior of their rate, its
    posterior is Gamma(n, T) after n failures at times whose powers add up to T, and launches whose powers add up to S
    all survive with a chance of (T / (T + S))^n (Bernardo and Smith, Bayesian Theory, 1994, appendix A, exponential
    model, reference posterior). That is averaged over the shapes.
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
    """As `in_time`, for a failure that comes in a share of the launches, together with the chance of the failures. A
    launch that ended before others had failed says as little as it could have shown.
    """
    known = weights(sum(each.bad for each in bad), 0)[:-1]
    shown = np.ones(_ends(bad, further)[-1])
    if all(each.timed for each in (*bad, *further)):
        steps = np.sort([step for each in bad for step in each.failed_at])
        shown = np.searchsorted(steps, _survived(bad, further), side="right") / len(steps)
    spared = np.cumprod(np.insert(1 - RATES[:-1, None] * shown, 0, 1.0, axis=1), axis=1)
    return np.asarray(known @ spared[:, _ends(bad, further)], dtype=np.float64)


def _ends(bad: Sequence[Evidence], further: Sequence[Evidence]) -> list[int]:
    """How many launches ended well, of `bad` and of the first i of `further`."""
    return list(accumulate((each.good for each in further), initial=sum(each.good for each in bad)))


def _survived(bad: Sequence[Evidence], further: Sequence[Evidence]) -> Floats:
    return np.array([max(1, steps) for each in (*bad, *further) for steps in each.survived], dtype=np.float64)


@lru_cache(maxsize=64)
def _failures(by_version: tuple[tuple[int, ...], ...]) -> tuple[Floats, Floats]:
    """From the steps of failures: by shape, the log of the sum of the powers of their times, and its chance.

    All versions share a scale, or each has its own.
    """
    times = [np.log(np.array(steps) - 0.5) for steps in by_version]
    together = np.concatenate(times)
    own = np.sum([_evidence(each) for each in times], axis=0)
    logs = _prior() + np.logaddexp(math.log(1 - OWN) + _evidence(together), math.log(OWN) + own)
    return _log_sum(together), np.exp(logs - np.logaddexp.reduce(logs))


def _prior() -> Floats:
    """By shape: the log of its prior chance."""
    others = len(SHAPES) - 1
    return np.log([*np.full(others, (1 - SAME_STEP) / others), SAME_STEP])


def _evidence(logs: Floats) -> Floats:
    """By shape: the log of the likelihood of the times with these logs, over all scales."""
    count = len(logs)
    constant = (count - 1) * np.log(SHAPES) + math.lgamma(count) - math.log(RANGE)
    return np.asarray(constant + SHAPES * logs.sum() - count * _log_sum(logs), dtype=np.float64)


def _log_sum(logs: Floats) -> Floats:
    """By shape: the log of the sum of the powers."""
    return np.asarray(np.logaddexp.reduce(SHAPES[:, None] * logs, axis=1))
