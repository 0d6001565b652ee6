"""Computes the posterior of the rate at which launches of a bad version fail, for flaky failures.

The prior of the rate is a point mass at "always" and uniform on a grid below it.
"""

from __future__ import annotations

import numpy as np

from harness.model import Floats

ALWAYS = 0.9
"""Prior probability that a bad version fails in every launch; the rest is spread evenly over the lower RATES."""
RATES: Floats = np.array([*np.arange(0.025, 1.0, 0.05), 0.999])
"""Grid of failure rates, as shares of launches; the last stands for a version that always fails."""


def weights(failed: int, fine: int) -> Floats:
    """Return the unnormalised posterior of RATES, shape (21,), given `failed` and `fine` launches of bad versions."""
    prior = np.array([*np.full(20, (1 - ALWAYS) / 20), ALWAYS])
    return np.asarray(prior * RATES**failed * (1 - RATES) ** fine, dtype=np.float64)


def luck(failed: int, fine: int, *, more: int) -> float:
    """Return the posterior predictive probability that `more` launches of a bad version all end well."""
    posterior = weights(failed, fine)
    return float(posterior @ (1 - RATES) ** more / posterior.sum())
