"""The levels that the findings of a block compare, of each version: no report shows another number beside them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from harness.judge.acquittal import acquitted
from harness.judge.comparable import set_apart
from harness.judge.numbers import log_t_interval
from harness.judge.tables import (
    BothWays,
    Columns,
    Table,
    best_step_s,
    level_figures,
    median_step_s,
    peak_table,
    step_time_launches,
    step_time_table,
)
from harness.model import CellVerdict, Interval, Limits, Steps, Trial

Level = tuple[float, Interval | None]


@dataclass(frozen=True, kw_only=True)
class Compared:
    """What can be compared between the versions of one block, oldest first: each figure is worked out once, when it is
    first asked for, however many ask.
    """

    cells: Sequence[CellVerdict]
    trials: Sequence[Sequence[Trial]]
    steps: Steps

    @cached_property
    def alike(self) -> Sequence[Sequence[Trial]]:
        """The trials that differ in nothing but their image."""
        return set_apart(self.trials)[0]

    @cached_property
    def steady(self) -> Sequence[Sequence[Trial]]:
        """Those without leaks: the peak of a leak is only a matter of how long it ran, and compared with nothing."""
        return [[] if "leak" in cell.verdicts else each for cell, each in zip(self.cells, self.alike, strict=True)]

    @cached_property
    def medians(self) -> Table | None:
        """Of the step times of each launch."""
        return step_time_table(self.alike, median_step_s, least_steps=self.steps.first)

    @cached_property
    def best(self) -> Table | None:
        """Of the step times of each launch's best block."""
        return step_time_table(self.alike, best_step_s, least_steps=self.steps.first)

    @cached_property
    def launches(self) -> Sequence[BothWays]:
        """Of each version the step times of its launches, in turn or not."""
        return step_time_launches(self.alike, least_steps=self.steps.first)

    @cached_property
    def peaks(self) -> Table | None:
        return peak_table(self.steady, least_steps=self.steps.first)


def with_compared(compared: Compared, *, limits: Limits, searched: bool = False) -> tuple[CellVerdict, ...]:
    """The cells of one block with what was compared: geometric means over the rounds, of whose logs a finding's size is
    the difference; or over all launches, where those that waited for images acquitted every version. `searched`: a
    search chose the launches, which have no full rounds.
    """
    if searched:
        step_s = _of_columns(level_figures(compared.alike, steps=compared.steps)["step_time"])
        peak_kib = _of_columns(level_figures(compared.steady, steps=compared.steps)["peak_memory"])
    else:
        step_s = _of_acquitted(compared, limits) or _of_table(compared.medians)
        peak_kib = _of_table(compared.peaks)
    cells = compared.cells
    return tuple(_with(cell, step_s.get(place), peak_kib.get(place)) for place, cell in enumerate(cells))


def _of_table(table: Table | None) -> Mapping[int, Level]:
    if table is None:
        return {}
    return {
        place: _level(np.exp(column).tolist()) for place, column in zip(table.positions, table.values.T, strict=True)
    }


def _of_acquitted(compared: Compared, limits: Limits) -> Mapping[int, Level]:
    if acquitted(compared.launches, limit=limits.step_time) is None:
        return {}
    return {place: _level([*turn, *wait]) for place, (turn, wait) in enumerate(compared.launches) if turn or wait}


def _of_columns(columns: Columns) -> Mapping[int, Level]:
    known = {place: list(column.values()) for place, column in columns.items() if column}
    return {place: _level(values) for place, values in known.items()} if len(known) > 1 else {}


def _level(values: Sequence[float]) -> Level:
    """Of positive figures, one a round."""
    return math.exp(float(np.mean(np.log(values)))), log_t_interval(values)


def _with(cell: CellVerdict, step_s: Level | None, peak_kib: Level | None) -> CellVerdict:
    step, step_ci = _scaled(step_s, 1000.0)
    peak, peak_ci = _scaled(peak_kib, 1 / 1024)
    own = (cell.step_ms, cell.step_ms_ci) if cell.step_ms is not None else (step, step_ci)
    return replace(
        cell,
        step_ms=own[0],  # launches beside pulls tell none by themselves
        step_ms_ci=own[1],
        compared_step_ms=step,
        compared_step_ms_ci=step_ci,
        compared_peak_mib=peak,
        compared_peak_mib_ci=peak_ci,
    )


def _scaled(level: Level | None, factor: float) -> tuple[float | None, Interval | None]:
    if level is None:
        return None, None
    value, interval = level
    return value * factor, None if interval is None else (interval[0] * factor, interval[1] * factor)
