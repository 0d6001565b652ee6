"""Estimates the A/A noise of a lane, from pairs of launches of one image in one round under two names."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from harness.judge.comparison.level_rules import EXACT
from harness.judge.comparison.round_effects import FAR_BY_ROUND, NEGLIGIBLE, ROUNDS_TO_CLEAN, Spread, pooled_spread
from harness.judge.comparison.round_tables import pair_differences
from harness.judge.intervals import CONFIDENCE
from harness.model import LEVELS, Noise, Steps, Trial

Replicates = tuple[Trial, Trial]
"""A launch and its A/A replicate: the same image in the same round, under another name."""


def noise_of(pairs: Sequence[Replicates], *, steps: Steps) -> Noise | None:
    """Return the noise that the pairs show; None if no figure can be compared."""
    return _noise({name: _of_pairs(pair_differences(name, pairs, steps=steps)) for name in LEVELS if name not in EXACT})


def pooled(noises: Iterable[Noise | None]) -> Noise | None:
    """Pool the noise of several variants of one lane."""
    known = [noise for noise in noises if noise is not None]
    metrics = sorted({metric for noise in known for metric in noise.spread})
    return _noise({metric: pooled_spread(*(spread_of(noise, metric) for noise in known)) for metric in metrics})


def spread_of(noise: Noise | None, metric: str) -> Spread | None:
    """Return the spread of a metric in the noise of a lane; None if it is unknown."""
    if noise is None or metric not in noise.spread:
        return None
    return Spread(deviation=noise.spread[metric], freedom=noise.freedom[metric])


def floor(noise: Noise | None, metric: str, *, rounds: int) -> float:
    """Return the 95 % bound of the difference, a log, of two equal images over `rounds`; 0 if the noise is unknown."""
    spread = spread_of(noise, metric)
    return 0.0 if spread is None else spread.half_width(rounds, share=0.5 + CONFIDENCE / 2)


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


def _noise(spreads: Mapping[str, Spread | None]) -> Noise | None:
    known = {metric: spread for metric, spread in spreads.items() if spread is not None}
    if not known:
        return None
    return Noise(
        spread={metric: spread.deviation for metric, spread in known.items()},
        freedom={metric: spread.freedom for metric, spread in known.items()},
    )
