"""Tests the equivalence (TOST) of step times where launches waited for images. It can only clear versions.

The versions that ran during a pull were not chosen at random, so these launches are not compared in rounds and cannot
prove a version slower. However, no version can be slower by more than the limit if the launches of all versions are
alike, and a version that also ran in turn shows that the pull did not change step times by more than the limit either.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.special import stdtrit

from harness.judge.comparison.round_effects import Spread
from harness.judge.comparison.round_tables import FEWEST_ROUNDS, BothWays
from harness.model import Floats

SURE = 0.95
"""Confidence of each one-sided t-test: the probability of noticing a version that is slower by the bound."""
FEWEST_FREEDOM = 4
"""Fewest degrees of freedom with which the spread of launches can be estimated."""
LogTimes = tuple[Floats, Floats]
"""Logs of a version's step times: of launches in turn, and of launches that waited for images."""


def acquitted(launches: Sequence[BothWays], *, limit: float | None) -> float | None:
    """Return the bound, a log, of the difference in step time between any two versions if it is within `limit`, a
    fraction: then no version is slower. None if it is not, if no launch waited for images, or if nothing can be
    compared. `launches` has an entry for each version (`round_tables.step_time_launches`).
    """
    bound = None if limit is None else bound_of(_logs(launches))
    return bound if bound is not None and limit is not None and bound <= math.log1p(limit) else None


def bound_of(known: Sequence[LogTimes]) -> float | None:
    """Return the upper 95 % bound, a log, of the differences between versions and of the effect of waiting for images.

    Least squares fits each launch as the level of its version plus, if it waited, the effect of waiting. The bound is
    the largest absolute difference plus the one-sided t-quantile times its standard error. None if no version ran both
    ways, or if there are too few launches to estimate the spread.
    """
    versions = [ways for ways in known if sum(map(len, ways)) >= FEWEST_ROUNDS]
    values = np.concatenate([*(logs for ways in versions for logs in ways), np.empty(0)])
    freedom = len(values) - len(versions) - 1
    if len(versions) < 2 or freedom < FEWEST_FREEDOM or not any(all(map(len, ways)) for ways in versions):
        return None
    counts = [list(map(len, ways)) for ways in versions]
    design = np.repeat(np.eye(len(versions), len(versions) + 1), [sum(version) for version in counts], axis=0)
    design[:, -1] = np.concatenate([np.repeat((0.0, 1.0), version) for version in counts])
    covariance = np.linalg.inv(design.T @ design)
    levels = covariance @ design.T @ values
    squares = float(((values - design @ levels) ** 2).sum())
    margin = float(stdtrit(freedom, SURE)) * math.sqrt(squares / freedom)
    own = np.diag(covariance)
    variances = own[:-1, None] + own[None, :-1] - 2 * covariance[:-1, :-1]
    apart = np.abs(levels[:-1, None] - levels[None, :-1]) + margin * np.sqrt(np.maximum(variances, 0.0))
    return max(float(apart.max()), abs(float(levels[-1])) + margin * math.sqrt(float(own[-1])))


def may_hold(launches: Sequence[BothWays], *, limit: float, wanted: int) -> bool:
    """Return whether the bound may still come within `limit`, a fraction, once each version has `wanted` launches."""
    versions = [version for ways in _logs(launches) if len(version := np.concatenate(ways))]
    means = [float(version.mean()) for version in versions]
    margin, freedom = 0.0, sum(len(version) - 1 for version in versions)
    if freedom >= FEWEST_FREEDOM:
        squares = sum(float(version.var()) * len(version) for version in versions)
        spread = Spread(deviation=math.sqrt(squares / freedom), freedom=freedom)
        margin = spread.half_width(wanted, share=SURE)
    return max(means, default=0.0) - min(means, default=0.0) + margin <= math.log1p(limit)


def _logs(launches: Sequence[BothWays]) -> list[LogTimes]:
    return [(np.log(turn), np.log(wait)) for turn, wait in launches]
