"""How often a bad version fails: learnt from its launches. A failure comes always, or at a rate that nobody knows."""

from __future__ import annotations

import numpy as np

from harness.model import Floats

ALWAYS = 0.9
"""The prior chance that a failure comes in every launch; else all rates are alike."""
_RATES: Floats = np.array([*np.arange(0.025, 1.0, 0.05), 0.999])


def weights(failed: int, fine: int, *, always: float = ALWAYS) -> Floats:
    """The chance of each rate after so many launches of bad versions, times the chance of those launches.

    `always`: the prior chance that it comes in every launch.
    """
    prior = np.array([*np.full(20, (1 - always) / 20), always])
    return np.asarray(prior * _RATES**failed * (1 - _RATES) ** fine, dtype=np.float64)


def chances(failed: int, fine: int, more: Floats, *, always: float = ALWAYS) -> Floats:
    """For each number of further good launches of versions that may be bad: how well all of it fits together."""
    missed = (1 - _RATES)[:, None] ** np.asarray(more)[None, :]
    return np.asarray(weights(failed, fine, always=always) @ missed, dtype=np.float64)


def luck(failed: int, fine: int, *, more: int, always: float = ALWAYS) -> float:
    """The chance that `more` launches of a bad version are all good, where others failed so often."""
    together = chances(failed, fine, np.array([0, more], dtype=np.float64), always=always)
    return float(together[1] / together[0])


def mean_rate(failed: int, fine: int, *, always: float = ALWAYS) -> float:
    known = weights(failed, fine, always=always)
    return float(known @ _RATES / known.sum())
