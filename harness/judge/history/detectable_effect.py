"""Computes the minimum detectable effect of a comparison: the smallest change of a version that would have shown."""

from __future__ import annotations

import math
from collections.abc import Mapping

from harness.judge import logs
from harness.judge.comparison import aa_noise
from harness.judge.comparison.compared_levels import Compared
from harness.judge.comparison.equivalence import acquitted
from harness.judge.comparison.round_tables import RoundTable
from harness.judge.history.changepoints import least_found, noise_within
from harness.judge.history.level_changes import signal_share_of, strictest
from harness.model import LEVELS, Limits, Noise

OF_TWO_LAUNCHES = 1.96 * math.sqrt(2)
"""Multiple of the spread of one launch that the difference of two launches exceeds by chance in 5 % of cases (normal
distribution).
"""


def visible(
    compared: Compared, *, limits: Limits, noise: Noise | None = None, rows: int = 1
) -> Mapping[str, float] | None:
    """Return the minimum detectable effect by metric: the smallest relative change of a version that would have shown.

    It is computed from all versions and rounds together, and is never below the lane's A/A noise. Metrics that were not
    compared are left out; None if no metric was compared. For step times that the equivalence test cleared, it is the
    bound of that test; for late step times without a table, it follows from the variation within single launches.
    """
    seen: dict[str, float] = {}
    for metric in compared_limits(limits):
        table = compared.tables.get(metric)
        least = None if table is None else least_detectable(metric, table, noise=noise, rows=rows)
        if table is not None and least is not None:
            seen[metric] = signal_share_of(metric, max(least, aa_noise.floor(noise, metric, rounds=len(table.values))))
    most = acquitted(compared.launches, limit=limits.of("step_time"))
    if most is not None:
        seen["step_time"] = logs.share_of(most)
    is_late_compared = "late_step_time" in compared_limits(limits)
    if is_late_compared and "late_step_time" not in seen and compared.late_spread is not None:
        seen["late_step_time"] = logs.share_of(OF_TWO_LAUNCHES * compared.late_spread)
    return seen or None


def compared_limits(limits: Limits) -> Mapping[str, float]:
    """Return the limits of all level signals that are compared between versions."""
    return {name: limit for name in LEVELS if (limit := limits.of(name)) is not None}


def least_detectable(name: str, table: RoundTable, *, noise: Noise | None, rows: int) -> float | None:
    """Return the minimum detectable effect of a table, a log; None if the table shows no noise. If the table has few
    versions, its noise is pooled with the lane's A/A noise.
    """
    spread = noise_within(table.values, aa_noise.spread_of(noise, name))
    if spread is None:
        return None
    rounds, versions = table.values.shape
    return least_found(spread, rounds=rounds, versions=versions, alpha=strictest(name, rows=rows))
