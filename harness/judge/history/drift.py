"""Finds drift over many runs: a figure that worsens from version to version by too little to show in any single run.

Figures of different runs cannot be compared, because load, heat and hardware differ. Versions that ran side by side can
be compared, and a version that is in every run (the baseline of a watch) connects the runs. With y the log of a figure,

    y[run, version] = a[run] + b[version] + error,

which least squares solve for the effects b of the versions. A drift is a straight line through the effects of the
newest versions. Two tests must both find it: one uses the noise of the launches (exact if versions do not differ
otherwise), the other the scatter of the versions about the line (valid even if they do). The line must also fit better
than a single step, which `find_levels` locates.

The error probability covers all looks together: with n versions, a look spends the share (F - 1) / (n (n - 1)) of it,
and the shares add up to 1 over all n from F = FEWEST on (alpha spending; Lan and DeMets, Biometrika 70, 1983).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr, stdtrit

from harness.judge.comparison.noise import CONFIDENCE
from harness.judge.history.changepoints import MARGIN
from harness.judge.history.changes import FAMILY_ALPHA, TOTAL_WEIGHT, level_ratio
from harness.model import Drift, Floats, Interval, grouped, signal_of

FEWEST = 6
"""Fewest versions through which a line counts as a drift: fewer may line up by chance."""
MOST = 40
"""Most versions, counted from the newest, that are tested for a drift; older ones only connect the runs."""
SINGULAR = 1e-10
"""Share of the largest eigenvalue below which an eigenvalue counts as zero."""


@dataclass(frozen=True, kw_only=True)
class LevelPoint:
    """A figure of one version in one run: its `log` (more is worse), from `launches` launches. `version` is the
    version's position in the series; `run` is any number that identifies the run.
    """

    run: int
    version: int
    log: float
    launches: int


def drift_of(points: Sequence[LevelPoint], versions: Sequence[str], *, signal: str, least: float) -> Drift | None:
    """Return the drift that lasts up to the newest of the `versions`, the longest one if there are several; None if
    there is none.

    It must rise by at least `least`, a log. The probability of a false drift is FAMILY_ALPHA for all signals of a
    history and all looks together.
    """
    joined = _joined(points)
    every = sorted({point.version for point in joined})
    count = len(every)
    if count < FEWEST:
        return None
    table = _Table.of(joined, every)
    starts = range(max(0, count - MOST), count - FEWEST + 1)
    tried = len(starts) * count * (count - 1) / (FEWEST - 1)
    alpha = FAMILY_ALPHA * signal_of(signal).weight / TOTAL_WEIGHT
    effects = table.effects()
    for start in starts:
        if effects[start:].max() - effects[start:].min() < least / 2:
            return None
        line = table.line(start, effects[start:])
        if line is None:
            continue
        size, interval, p = line
        if size >= least and p * tried < alpha:
            return Drift(
                signal=signal,
                first=versions[every[start]],
                last=versions[every[-1]],
                effect=level_ratio(signal, size, interval),
                p=p * tried,
                versions=count - start,
                runs=len({point.run for point in joined if point.version >= every[start]}),
            )
    return None


def _joined(points: Sequence[LevelPoint]) -> list[LevelPoint]:
    """Return the points that are connected with the newest version through runs of at least two versions."""
    by_run = grouped((point.run, point) for point in points)
    runs = [group for group in by_run.values() if len({point.version for point in group}) > 1]
    reached = {max((point.version for group in runs for point in group), default=-1)}
    kept: list[LevelPoint] = []
    while near := [group for group in runs if any(point.version in reached for point in group)]:
        runs = [group for group in runs if not any(point.version in reached for point in group)]
        reached |= {point.version for group in near for point in group}
        kept += [point for group in near for point in group]
    return kept


@dataclass(frozen=True, kw_only=True)
class _Table:
    """Figures as rows: `logs`, `weights` (launches) and `runs` (positions), each of shape (points,), and the indicator
    columns `versions` of shape (points, versions).
    """

    logs: Floats
    weights: Floats
    runs: NDArray[np.intp]
    versions: Floats

    @classmethod
    def of(cls, points: Sequence[LevelPoint], every: Sequence[int]) -> _Table:
        return cls(
            logs=np.array([point.log for point in points]),
            weights=np.array([float(point.launches) for point in points]),
            runs=np.unique([point.run for point in points], return_inverse=True)[1],
            versions=np.array([[float(point.version == version) for version in every] for point in points]),
        )

    def _solved(self, columns: Floats) -> tuple[Floats, Floats, float, int]:
        """Return the least-squares solution, its variances for errors of unit variance, the residual sum of squares,
        and the residual degrees of freedom.

        The mean of each run is subtracted from every column, which removes the effects of the runs from the equations
        (Frisch and Waugh, Econometrica 1, 1933): one equation per version is left, however many runs there are.
        """
        logs, columns = self._within_runs(self.logs[:, None])[:, 0], self._within_runs(columns)
        weighted = columns * self.weights[:, None]
        values, vectors = np.linalg.eigh(columns.T @ weighted)
        kept = values > SINGULAR * max(float(values.max()), 1e-300)
        inverse = (vectors[:, kept] / values[kept]) @ vectors[:, kept].T
        solution = inverse @ (weighted.T @ logs)
        rest = float((self.weights * (logs - columns @ solution) ** 2).sum())
        freedom = len(logs) - int(self.runs.max()) - 1 - int(kept.sum())
        return solution, np.diag(inverse), rest, freedom

    def _within_runs(self, columns: Floats) -> Floats:
        """Return columns of shape (points, …) minus their weighted means in each run."""
        totals = np.zeros((int(self.runs.max()) + 1, columns.shape[1]))
        np.add.at(totals, self.runs, columns * self.weights[:, None])
        means: Floats = totals / np.bincount(self.runs, weights=self.weights)[:, None]
        return columns - means[self.runs]

    def effects(self) -> Floats:
        """Return the effects of the versions, relative to the oldest one."""
        return np.concatenate([[0.0], self._solved(self.versions[:, 1:])[0]])

    def line(self, start: int, effects: Floats) -> tuple[float, Interval, float] | None:
        """Return by how much the line through the versions from `start` on rises, with its interval and p-value; None
        if it falls, or fits little better than a step. Earlier versions may have any effects.
        """
        count = len(effects)
        turns = np.arange(count, dtype=float)
        line = np.polyfit(turns, effects, 1)
        slope, rest = float(line[0]), float(((effects - np.polyval(line, turns)) ** 2).sum())
        halves = ((effects[:place], effects[place:]) for place in range(1, count))
        of_step = min(float(((old - old.mean()) ** 2).sum() + ((new - new.mean()) ** 2).sum()) for old, new in halves)
        if slope <= 0 or count * math.log((of_step + 1e-18) / max(rest, 1e-18)) < MARGIN:
            return None
        by_versions = math.sqrt(max(rest, 1e-18) / (count - 2) / float(((turns - turns.mean()) ** 2).sum()))
        tests = [(slope, by_versions, count - 2)]
        # By the noise of the launches, if any degrees of freedom are left to estimate it.
        along = self.versions[:, start:] @ turns
        solution, variances, rest, freedom = self._solved(np.column_stack([self.versions[:, :start], along]))
        if freedom > 0 and rest > 1e-18:
            tests.append((float(solution[-1]), math.sqrt(rest / freedom * float(variances[-1])), freedom))
        p = max(float(stdtr(freedom, -size / error)) for size, error, freedom in tests)
        margin = max(float(stdtrit(freedom, 0.5 + CONFIDENCE / 2)) * error for _, error, freedom in tests)
        length = count - 1
        slope = tests[-1][0]  # by the launches, if they show noise: each version is weighted by its precision
        return slope * length, ((slope - margin) * length, (slope + margin) * length), p
