"""What launches that waited for images say of step times: that no version is slower. They acquit, and accuse nobody.

Which versions ran beside a pull, and when, was not left to chance there, so their times are not compared in rounds. But
where the launches of all versions are alike, and a version that also ran in its turn shows that the pull did not change
step times by more than the limit either, none can be slower by much.
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
"""The chance that a version which is slower by the bound would have been seen."""
FEWEST_FREEDOM = 4
"""With fewer degrees of freedom the spread of launches is not known."""
Ways = tuple[Floats, Floats]
"""Logs of a version's step times: of the launches in its turn, and of those while images were waited for."""


def acquitted(launches: Sequence[BothWays], *, limit: float | None) -> float | None:
    """The most by which step times of two versions of a block may differ, a log, if that is within `limit`, a fraction:
    then all are clear of being slower. None if not, or if nothing waited for images or is compared. `launches`: of each
    version (`tables.step_time_launches`).
    """
    most = None if limit is None else bound_of(_logs(launches))
    return most if most is not None and limit is not None and most <= math.log1p(limit) else None


def bound_of(known: Sequence[Ways]) -> float | None:
    """By how much the levels of two versions may differ, of which 5 % would be missed; or the two ways of launching.

    Each launch is its version's level and, where it waited, what waiting adds, by least squares. Of all differences
    the largest, with the one-sided t-quantile of its error. None where no version ran both ways, or where too few
    launches tell their own spread.
    """
    versions = [ways for ways in known if sum(map(len, ways)) >= FEWEST_ROUNDS]
    values = np.concatenate([*(one for ways in versions for one in ways), np.empty(0)])
    freedom = len(values) - len(versions) - 1
    if len(versions) < 2 or freedom < FEWEST_FREEDOM or not any(all(map(len, ways)) for ways in versions):
        return None
    counts = [list(map(len, ways)) for ways in versions]
    design = np.repeat(np.eye(len(versions), len(versions) + 1), [sum(each) for each in counts], axis=0)
    design[:, -1] = np.concatenate([np.repeat((0.0, 1.0), each) for each in counts])
    covariance = np.linalg.inv(design.T @ design)
    levels = covariance @ design.T @ values
    squares = float(((values - design @ levels) ** 2).sum())
    margin = float(stdtrit(freedom, SURE)) * math.sqrt(squares / freedom)
    own = np.diag(covariance)
    variances = own[:-1, None] + own[None, :-1] - 2 * covariance[:-1, :-1]
    apart = np.abs(levels[:-1, None] - levels[None, :-1]) + margin * np.sqrt(np.maximum(variances, 0.0))
    return max(float(apart.max()), abs(float(levels[-1])) + margin * math.sqrt(float(own[-1])))


def may_hold(launches: Sequence[BothWays], *, limit: float, wanted: int) -> bool:
    """Whether the bound may yet come within `limit`, a fraction, with `wanted` launches a version."""
    versions = [each for ways in _logs(launches) if len(each := np.concatenate(ways))]
    means = [float(each.mean()) for each in versions]
    margin, freedom = 0.0, sum(len(each) - 1 for each in versions)
    if freedom >= FEWEST_FREEDOM:
        squares = sum(float(each.var()) * len(each) for each in versions)
        spread = Spread(deviation=math.sqrt(squares / freedom), freedom=freedom)
        margin = spread.half_width(wanted, share=SURE)
    return max(means, default=0.0) - min(means, default=0.0) + margin <= math.log1p(limit)


def _logs(launches: Sequence[BothWays]) -> list[Ways]:
    return [(np.log(turn), np.log(wait)) for turn, wait in launches]
