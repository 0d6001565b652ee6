"""Compares the step times of launches that took turns: live launches of a round, of which one made steps at a time.

Within a cycle, in which each of them had a slice, all had nearly the same pace of the host. A launch's figure is the
median over the cycles of how far its slice was from the cycle's mean, on the level of the round (duet benchmarking:
Bulej and others, 2020).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

import numpy as np

from harness.model import Floats, Trace, Trial

LEAST_CYCLES = 4
"""Fewest common cycles in which launches can be compared."""


def paired_step_s(trials: Iterable[Trial], common: int, *, warm_up: float) -> Mapping[Trial, float]:
    """Return the step time (s) of each launch that can be compared with others by common cycles, from the steps after
    the `warm_up` share of the first `common` ones."""
    together: dict[tuple[str, int, float], dict[Trial, Mapping[float, float]]] = defaultdict(dict)
    for trial in trials:
        cycles = None if trial.trace is None else trial.trace.column("slice")
        if trial.trace is not None and cycles is not None and np.isfinite(cycles).any():
            medians = _log_medians(trial.trace, cycles, common * warm_up, common)
            together[trial.run, trial.round, float(np.nanmin(cycles))][trial] = medians
    figures: dict[Trial, float] = {}
    for launches in together.values():
        shared = sorted(set.intersection(*(set(medians) for medians in launches.values())))
        if len(launches) < 2 or len(shared) < LEAST_CYCLES:
            continue
        logs = np.array([[medians[cycle] for cycle in shared] for medians in launches.values()])
        level, apart = float(np.median(logs.mean(axis=0))), np.median(logs - logs.mean(axis=0), axis=1)
        figures.update(zip(launches, np.exp(level + apart).tolist(), strict=True))
    return figures


def _log_medians(trace: Trace, cycles: Floats, after: float, last: float) -> Mapping[float, float]:
    """Return the log of the median step time by cycle."""
    step_s = trace.column("step_s")
    if step_s is None:
        return {}
    chosen = np.isfinite(step_s) & np.isfinite(cycles) & (trace.step > after) & (trace.step <= last)
    own, begins = np.unique(cycles[chosen], return_index=True)
    return {
        float(cycle): float(np.log(np.median(rows)))
        for cycle, rows in zip(own, np.split(step_s[chosen], begins[1:]), strict=True)
    }
