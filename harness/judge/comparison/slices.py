"""Compares the step times of launches that took turns: live launches of a round, of which one made steps at a time.

Within a cycle, in which each of them had a slice, all had nearly the same pace of the host. A launch's figure is the
median over the cycles of how far its slice was from the cycle's mean, on the level of the round (duet benchmarking:
Bulej and others, 2020).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from harness.model import Trace, Trial

LEAST_CYCLES = 4
"""Fewest common cycles in which launches can be compared."""
LEAST_ROUNDS = 3
"""Launches in slices of each version from which those that ran alone are left out: they would only add their noise."""


def in_slices(trial: Trial) -> bool:
    """Return whether a trial took turns with others."""
    cycles = None if trial.trace is None else trial.trace.column("slice")
    return cycles is not None and bool(np.isfinite(cycles).any())


def preferred(launches: Sequence[list[Trial]]) -> list[list[Trial]]:
    """Return only the launches in slices, if each version that has launches has enough of them; else all."""
    sliced = [[trial for trial in version if in_slices(trial)] for version in launches]
    is_enough = all(len(own) >= LEAST_ROUNDS for own, version in zip(sliced, launches, strict=True) if version)
    return sliced if is_enough else list(launches)


def paired_step_s(trials: Iterable[Trial], *, warm_up: float) -> Mapping[Trial, float]:
    """Return the step time (s) of each launch that can be compared with others by common cycles, without the `warm_up`
    share of its steps. Unlike launches alone, which are compared over the steps that all of them made, those of a round
    are compared over all cycles that they share."""
    together: dict[tuple[str, int, float], list[Trial]] = defaultdict(list)
    for trial in trials:
        if trial.trace is not None and in_slices(trial):
            together[trial.run, trial.round, float(np.nanmin(trial.trace.columns["slice"]))].append(trial)
    figures: dict[Trial, float] = {}
    for launches in together.values():
        after = warm_up * min(trial.last_step for trial in launches)
        medians = [_log_medians(trial.trace, after) for trial in launches if trial.trace is not None]
        shared = sorted(set.intersection(*map(set, medians)))
        if len(launches) < 2 or len(shared) < LEAST_CYCLES:
            continue
        logs = np.array([[own[cycle] for cycle in shared] for own in medians])
        level, apart = float(np.median(logs.mean(axis=0))), np.median(logs - logs.mean(axis=0), axis=1)
        figures.update(zip(launches, np.exp(level + apart).tolist(), strict=True))
    return figures


def _log_medians(trace: Trace, after: float) -> Mapping[float, float]:
    """Return the log of the median step time by cycle."""
    step_s, cycles = trace.columns["step_s"], trace.columns["slice"]
    chosen = np.isfinite(step_s) & np.isfinite(cycles) & (trace.step > after)
    own, begins = np.unique(cycles[chosen], return_index=True)
    return {
        float(cycle): float(np.log(np.median(rows)))
        for cycle, rows in zip(own, np.split(step_s[chosen], begins)[1:], strict=True)
    }
