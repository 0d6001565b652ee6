"""Compares the step times of launches that took turns: live launches of a round, of which one made steps at a time.

Within a cycle, in which each of them had a slice, all had nearly the same pace of the host. A launch's figure is the
median over the cycles of how far its slice was from the cycle's mean, on the level of the round (duet benchmarking:
Bulej and others, 2020).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from harness.model import Trace, Trial

LEAST_CYCLES = 4
"""Fewest common cycles in which launches can be compared."""
LEAST_ROUNDS = 3
"""Launches in slices of each version from which those that ran alone are left out: they would only add their noise."""


def preferred(launches: Sequence[list[Trial]]) -> list[list[Trial]]:
    """Return only the launches in slices, if each version that has launches has enough of them; else all but those that
    ran alone in a round in which others took turns: steps in slices take a little longer."""
    sliced = [[trial for trial in version if trial.took_turns] for version in launches]
    is_enough = all(len(own) >= LEAST_ROUNDS for own, version in zip(sliced, launches, strict=True) if version)
    if is_enough:
        return sliced
    rounds = {(trial.run, trial.round) for own in sliced for trial in own}
    return [
        [trial for trial in version if trial.took_turns or (trial.run, trial.round) not in rounds]
        for version in launches
    ]


Rows = npt.NDArray[np.intp]
CycleFigure = Callable[[Trace, Rows], float]
"""Returns the figure (s) of the chosen rows of a trace; NaN if they have none."""


def median_step_s(trace: Trace, rows: Rows) -> float:
    """Return the median step time."""
    return float(np.median(trace.columns["step_s"][rows]))


def seconds_per_item(trace: Trace, rows: Rows) -> float:
    """Return the time of these steps for each item that they returned."""
    items = trace.column("items")
    total = 0.0 if items is None else float(np.nansum(items[rows]))
    return float(trace.columns["step_s"][rows].sum()) / total if total > 0 else math.nan


def paired(trials: Iterable[Trial], figure: CycleFigure, *, warm_up: float) -> Mapping[Trial, float]:
    """Return the figure of each launch that can be compared with others by common cycles, without the `warm_up` share
    of its steps. Unlike launches alone, which are compared over the steps that all of them made, those of a round are
    compared over all cycles that they share."""
    together: dict[tuple[str, int, float], list[tuple[Trial, Trace]]] = defaultdict(list)
    for trial in trials:
        if trial.trace is not None and trial.took_turns:
            begins = float(np.nanmin(trial.trace.columns["slice"]))
            together[trial.run, trial.round, begins].append((trial, trial.trace))
    figures: dict[Trial, float] = {}
    for launches in together.values():
        after = warm_up * min(trial.last_step for trial, _ in launches)
        slices = [_slices(trace, figure, after) for _, trace in launches]
        shared = sorted(set.intersection(*map(set, slices)))
        if len(launches) < 2 or len(shared) < LEAST_CYCLES:
            continue
        logs = np.array([[own[cycle][0] for cycle in shared] for own in slices])
        whole = [
            math.log(figure(trace, np.concatenate([own[cycle][1] for cycle in shared])))
            for (_, trace), own in zip(launches, slices, strict=True)
        ]
        apart = np.median(logs - logs.mean(axis=0), axis=1)
        trials_of_round = [trial for trial, _ in launches]
        figures.update(zip(trials_of_round, np.exp(np.mean(whole) + apart).tolist(), strict=True))
    return figures


def _slices(trace: Trace, figure: CycleFigure, after: float) -> Mapping[float, tuple[float, Rows]]:
    """Return the log of the figure by cycle, and the rows of that slice."""
    step_s, cycles = trace.columns["step_s"], trace.columns["slice"]
    chosen = np.flatnonzero(np.isfinite(step_s) & np.isfinite(cycles) & (trace.step > after))
    own, begins = np.unique(cycles[chosen], return_index=True)
    found = {}
    for cycle, rows in zip(own, np.split(chosen, begins)[1:], strict=True):
        value = figure(trace, rows)
        if value > 0:
            found[float(cycle)] = math.log(value), rows
    return found
