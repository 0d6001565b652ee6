"""Removes round effects from a table of rounds and versions, winsorizes outliers, and estimates the noise of a launch.

Values are logs, shape (rounds, versions). What all launches of a round share (heat, a slow hour) says nothing about
versions and is subtracted. A launch that is far from both its round and its version was disturbed and is winsorized.
The A/A noise of a lane is estimated from pairs of launches of one image in one round under two names. The trial is the
sampling unit: the steps of several trials are never pooled.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
from scipy.special import stdtrit

from harness.judge.comparison.level_rules import EXACT
from harness.judge.comparison.round_tables import pair_differences, without_gaps
from harness.model import LEVELS, Floats, Interval, Noise, Spread, Steps, Trial, grouped, ratio_of

Bools = npt.NDArray[np.bool_]
CONFIDENCE = 0.95
"""Confidence level of the intervals in reports."""
TAIL = 4.0
"""Degrees of freedom of the Student errors in the robust fit; with more, outliers would pull the fit further."""
FAR = 3.025
"""Scales of the fitted Student errors beyond which a launch is winsorized: 2.5 standard deviations of normal errors."""
FAR_BY_ROUND = 4.0
"""Robust standard deviations beyond which a launch is winsorized if the versions' levels are unknown."""
ROUNDS_TO_CLEAN = 3
"""Fewest rounds in which outliers are winsorized: if a version has two launches, either may be the outlier."""
FREEDOM_TO_CLEAN = 9
"""Fewest residual degrees of freedom at which outliers are winsorized; with fewer, too many launches seem outliers."""
ITERATIONS = 60
NEGLIGIBLE = 1e-9
"""Difference of logs that counts as rounding error, and the noise assumed for figures that repeat exactly."""


def interval_of(spread: Spread, size: float, error: float) -> Interval:
    """Return the 95 % confidence interval of a size with this standard error."""
    margin = float(stdtrit(spread.freedom, 0.5 + CONFIDENCE / 2)) * error
    return size - margin, size + margin


def cautious(spread: Spread, rounds: int) -> Spread:
    """Return the spread with no more degrees of freedom than the rounds support, as some launches are outliers.

    The limit was found by simulation with Student errors of three degrees of freedom.
    """
    return Spread(deviation=spread.deviation, freedom=min(spread.freedom, 2 * (rounds - 1) ** 2))


def t_interval(values: Sequence[float]) -> Interval | None:
    """Return the 95 % t confidence interval of the mean over trials; None for fewer than two trials."""
    if len(values) < 2:
        return None
    spread = Spread(deviation=float(np.std(values, ddof=1)), freedom=len(values) - 1)
    return interval_of(spread, float(np.mean(values)), spread.deviation / math.sqrt(len(values)))


def log_t_interval(values: Sequence[float]) -> Interval | None:
    """Return the 95 % t interval of the geometric mean; None for fewer than two values, or if one is not positive."""
    if any(value <= 0 for value in values):
        return None
    interval = t_interval([math.log(value) for value in values])
    return None if interval is None else (ratio_of(interval[0]), ratio_of(interval[1]))


def pooled_spread(spreads: Sequence[Spread]) -> Spread:
    """Pool spreads, weighted by their degrees of freedom."""
    freedom = sum(spread.freedom for spread in spreads)
    squares = sum(spread.freedom * spread.deviation**2 for spread in spreads)
    return Spread(deviation=math.sqrt(squares / freedom), freedom=freedom)


def without_rounds(values: Floats) -> tuple[Floats, Floats]:
    """Return the table without gaps and round effects, first with outliers winsorized, then as measured."""
    drawn, known = without_gaps(values), np.isfinite(values)
    if len(values) >= ROUNDS_TO_CLEAN and freedom_of(known) >= FREEDOM_TO_CLEAN:
        drawn = _drawn_in(drawn, known)
    of_round = drawn.mean(axis=1, keepdims=True)
    return np.asarray(drawn - of_round), np.where(known, values, drawn) - of_round


def freedom_of(known: Bools) -> int:
    """Return the residual degrees of freedom, after round and version effects, of a table with these figures. Raises
    ValueError if the table has fewer than 2 x 2 launches, which show no noise."""
    freedom = int(known.sum()) - sum(known.shape) + 1
    if freedom < 1:
        raise ValueError(f"{known.shape[0]} x {known.shape[1]} launches show no noise: at least 2 x 2 are needed")
    return freedom


def spread_within(values: Floats, known: Bools) -> Spread:
    """Return the residual noise of one launch, after round and version effects, of a table without gaps of which only
    the `known` figures count."""
    freedom = freedom_of(known)
    rest = values - values.mean(axis=0) - values.mean(axis=1, keepdims=True) + values.mean()
    return Spread(deviation=max(math.sqrt(float((rest**2).sum()) / freedom), NEGLIGIBLE), freedom=freedom)


def _drawn_in(values: Floats, known: Bools) -> Floats:
    """Winsorize the residuals of a two-way fit with Student errors, by EM from medians (Lange and others, 1989). Only
    the `known` figures count; the others are those of the fit."""
    count = int(known.sum())
    share = freedom_of(known) / count

    def weighted(values: Floats, *, axis: int) -> Floats:
        return np.asarray((values * weights).sum(axis=axis, keepdims=True) / weights.sum(axis=axis, keepdims=True))

    of_round = np.median(values, axis=1, keepdims=True)
    of_version = np.median(values - of_round, axis=0, keepdims=True)
    rest = values - of_round - of_version
    scale2 = float((np.median(np.abs(rest[known])) * 1.4826) ** 2 / share) + NEGLIGIBLE**2
    for _ in range(ITERATIONS):
        weights = known * (TAIL + 1) / (TAIL + rest**2 / scale2)
        of_round = weighted(values - of_version, axis=1)
        of_version = weighted(values - of_round, axis=0)
        rest = values - of_round - of_version
        scale2 = float((weights * rest**2).sum() / count / share) + NEGLIGIBLE**2
    far = FAR * math.sqrt(scale2)
    return np.asarray(of_round + of_version + known * np.clip(rest, -far, far))


Replicates = tuple[Trial, Trial]
"""A launch and its A/A replicate: the same image in the same round, under another name."""


def noise_of(pairs: Sequence[Replicates], *, steps: Steps) -> Noise | None:
    """Return the noise that the pairs show; None if no figure can be compared."""
    spreads = {name: _of_pairs(pair_differences(name, pairs, steps=steps)) for name in LEVELS if name not in EXACT}
    return {name: spread for name, spread in spreads.items() if spread is not None} or None


def pooled(noises: Iterable[Noise | None]) -> Noise | None:
    """Pool the noise of several variants of one lane."""
    spreads = grouped((name, spread) for noise in noises for name, spread in (noise or {}).items())
    return {name: pooled_spread(spreads[name]) for name in sorted(spreads)} or None


def spread_of(noise: Noise | None, metric: str) -> Spread | None:
    """Return the spread of a metric in the noise of a lane; None if it is unknown."""
    return None if noise is None else noise.get(metric)


def floor(spread: Spread | None, *, rounds: int) -> float:
    """Return the 95 % bound of the difference, a log, of two equal images over `rounds`; 0 if the noise is unknown."""
    return 0.0 if spread is None else interval_of(spread, 0.0, spread.deviation * math.sqrt(2 / rounds))[1]


def _of_pairs(differences: Sequence[float]) -> Spread | None:
    """Return the root mean square of the pairs' differences, divided by √2 because each has the noise of two launches.

    Differences are winsorized: one disturbed pair would otherwise hide every change on the lane.
    """
    if not differences:
        return None
    sizes = np.abs(differences)
    far = FAR_BY_ROUND * 1.4826 * float(np.median(sizes))
    if len(sizes) >= ROUNDS_TO_CLEAN and far > NEGLIGIBLE:
        sizes = np.minimum(sizes, far)
    return Spread(deviation=math.sqrt(float((sizes**2).mean()) / 2), freedom=len(sizes))
