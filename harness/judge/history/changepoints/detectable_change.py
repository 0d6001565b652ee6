"""Computes the minimum detectable effect of the search for changepoints from the tests that the search makes."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import stdtrit

from harness.judge.comparison.round_effects import Spread
from harness.judge.history.changepoints.boundary_test import Test, places_tried
from harness.judge.history.changepoints.segment_search import DISTINCT_SHARE, FEWEST_VERSIONS
from harness.model import Floats


def least_found(table: Floats, *, spread: Spread, alpha: float) -> float:
    """Return the minimum detectable effect, a log, of a single version that differs from the others at any position.

    The power is 50 %, and 95 % for twice this effect. A level of more versions is detected at a smaller difference.
    `table` has shape (rounds, versions), at least two of each; `spread` is the noise of a launch, `alpha` as for
    `find_levels`.
    """
    rounds, versions = table.shape
    if versions < FEWEST_VERSIONS:
        return _of_few(table, spread=spread, alpha=alpha)
    return least_of(spread, rounds=rounds, versions=versions, alpha=alpha)


def least_of(spread: Spread, *, rounds: int, versions: int, alpha: float, lasting: int = 1) -> float:
    """Return the minimum detectable effect for at least FEWEST_VERSIONS versions and a level that `lasting` of them
    have. It does not fall as versions are added, because more of them are searched.
    """
    tried = places_tried(versions, lasting)
    distinct = Test(spread=spread, rounds=rounds, smaller=lasting, tried=tried, alpha=alpha * DISTINCT_SHARE).least
    beside_all = _by_t(spread, rounds=rounds, tried=versions * (versions - 1), alpha=alpha)
    shared = 1 if rounds == 1 else lasting  # with a single round each version counts as one
    return spread.deviation * min(distinct, beside_all) * math.sqrt(versions / (versions - lasting) / shared)


def _by_t(spread: Spread, *, rounds: int, tried: float, alpha: float) -> float:
    freedom = spread.cautious(rounds).freedom
    if not freedom:
        return math.inf
    return -float(stdtrit(freedom, min(0.5, alpha / (2 * tried)))) / math.sqrt(rounds)


def _of_few(table: Floats, *, spread: Spread, alpha: float) -> float:
    """Return the smaller effect of the paired t-test and of Welch's, each at half of `alpha`."""
    rounds, versions = table.shape
    tried = 2 * (2 * (versions - 1))
    paired = _by_t(spread, rounds=rounds, tried=tried, alpha=alpha) * spread.deviation
    variances = table.var(axis=0, ddof=1)
    freedom = 2.0 * (rounds - 1)
    if rounds == versions == 2 and variances.any():  # one version's launches are often far closer together
        freedom = float(variances.sum() ** 2 / (variances**2).sum())
    within = math.sqrt(float(variances.mean()))
    apart = -float(stdtrit(freedom, alpha / (2 * tried))) * within / math.sqrt(rounds)
    return float(np.minimum(paired, apart)) * math.sqrt(versions / (versions - 1))
