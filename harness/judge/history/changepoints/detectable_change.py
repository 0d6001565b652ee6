"""The smallest change that a search of a table would have found, by the very tests that it makes."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import stdtrit

from harness.judge.comparison.round_effects import Spread
from harness.judge.history.changepoints.boundary_test import Test, places_tried
from harness.judge.history.changepoints.segment_search import DISTINCT_SHARE, FEWEST_VERSIONS
from harness.model import Floats


def least_found(table: Floats, *, spread: Spread, alpha: float) -> float:
    """The difference, a log, of a single version from the others, wherever it is: found in half of all cases, and in 95
    % where it is twice as large. A level that more versions have is found when it differs by less.

    `table` has shape (rounds, versions), two of each at least; `spread` is the noise of a launch, `alpha` as for
    `find_levels`.
    """
    rounds, versions = table.shape
    if versions < FEWEST_VERSIONS:
        return _of_few(table, spread=spread, alpha=alpha)
    return least_of(spread, rounds=rounds, versions=versions, alpha=alpha)


def least_of(spread: Spread, *, rounds: int, versions: int, alpha: float, lasting: int = 1) -> float:
    """The same of FEWEST_VERSIONS or more, for a level that so many of them have: never less for more versions, as more
    are searched.
    """
    tried = places_tried(versions, lasting)
    distinct = Test(spread=spread, rounds=rounds, smaller=lasting, tried=tried, alpha=alpha * DISTINCT_SHARE).least
    beside_all = _by_t(spread, rounds=rounds, tried=versions * (versions - 1), alpha=alpha)
    shared = 1 if rounds == 1 else lasting  # of a single round each version counts as one
    return spread.deviation * min(distinct, beside_all) * math.sqrt(versions / (versions - lasting) / shared)


def _by_t(spread: Spread, *, rounds: int, tried: float, alpha: float) -> float:
    freedom = spread.cautious(rounds).freedom
    if not freedom:
        return math.inf
    return -float(stdtrit(freedom, min(0.5, alpha / (2 * tried)))) / math.sqrt(rounds)


def _of_few(table: Floats, *, spread: Spread, alpha: float) -> float:
    """By the paired test or by Welch's, whichever finds less: each at half of `alpha`."""
    rounds, versions = table.shape
    tried = 2 * (2 * (versions - 1))
    paired = _by_t(spread, rounds=rounds, tried=tried, alpha=alpha) * spread.deviation
    within = math.sqrt(float(table.var(axis=0, ddof=1).mean()))
    apart = -float(stdtrit(2 * (rounds - 1), alpha / (2 * tried))) * within / math.sqrt(rounds)
    return float(np.minimum(paired, apart)) * math.sqrt(versions / (versions - 1))
