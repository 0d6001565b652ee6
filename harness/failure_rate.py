"""How often a bad version fails: learnt from its launches. A failure comes always, or at a rate that nobody knows."""

from __future__ import annotations

import numpy as np

from harness.model import Floats

ALWAYS = 0.9
"""The prior chance that a failure comes in every launch; else all rates are alike."""
RATES: Floats = np.array([*np.arange(0.025, 1.0, 0.05), 0.999])
"""The share of launches in which a failure comes; the last is that of one that always does."""


def weights(failed: int, fine: int) -> Floats:
    """The prior chance of each rate, times the chance that so many launches of bad versions failed and ended well."""
    prior = np.array([*np.full(20, (1 - ALWAYS) / 20), ALWAYS])
    return np.asarray(prior * RATES**failed * (1 - RATES) ** fine, dtype=np.float64)


def luck(failed: int, fine: int, *, more: int) -> float:
    """The chance that `more` launches of a bad version are all good, where others failed so often."""
    known = weights(failed, fine)
    return float(known @ (1 - RATES) ** more / known.sum())
