"""The levels that the findings of a block compare, of each version: no report shows another number beside them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from harness.judge.comparable import set_apart
from harness.judge.comparison.equivalence import acquitted
from harness.judge.comparison.level_figures import EXACT
from harness.judge.comparison.round_tables import (
    WANTED_ROUNDS,
    BothWays,
    Columns,
    RoundTable,
    best_table,
    level_columns,
    often,
    step_time_launches,
    table_of,
)
from harness.judge.intervals import log_t_interval
from harness.model import LEVELS, SIGNALS, CellVerdict, Interval, Limits, Steps, Trial

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
    def best(self) -> RoundTable | None:
        """Of the step times of each launch's best block."""
        return best_table(self.alike, steps=self.steps)

    @cached_property
    def launches(self) -> Sequence[BothWays]:
        """Of each version the step times of its launches, in turn or not."""
        return step_time_launches(self.alike, steps=self.steps)

    @cached_property
    def tables(self) -> Mapping[str, RoundTable]:
        """By the name of a level signal, those that can be compared."""
        found = {name: table_of(often(self.columns[name])) for name in LEVELS if name not in EXACT}
        found |= {name: _exact_table(self.own_levels(name)) for name in EXACT}
        return {name: table for name, table in found.items() if table is not None}

    @cached_property
    def columns(self) -> Mapping[str, Columns]:
        """By the name of a level signal, the figures of all versions, whether they can be compared or not."""
        return {name: level_columns(name, self.of(name), steps=self.steps) for name in LEVELS}

    def of(self, name: str) -> Sequence[Sequence[Trial]]:
        """The trials that a level signal compares."""
        return self.steady if SIGNALS[name].group == "memory" else self.alike

    def levels(self, name: str, *, limit: float | None) -> Mapping[int, Level]:
        """By position the level of a signal, of the versions that are compared: the geometric mean over the rounds that
        all of them have; or over all launches, where those that waited for images acquitted every version.
        """
        table, clear = self.tables.get(name), self._acquitted(limit) if name == "step_time" else {}
        if clear or table is None:
            return clear
        return {
            place: level_of(np.exp(own).tolist()) for place, own in zip(table.positions, table.values.T, strict=True)
        }

    def own_levels(self, name: str) -> Mapping[int, Level]:
        """By position the level of each version's own launches, whether these can be compared or not."""
        return {place: level_of(list(own.values())) for place, own in self.columns[name].items() if own}

    def _acquitted(self, limit: float | None) -> Mapping[int, Level]:
        if acquitted(self.launches, limit=limit) is None:
            return {}
        return {place: level_of([*turn, *wait]) for place, (turn, wait) in enumerate(self.launches) if turn or wait}


def _exact_table(levels: Mapping[int, Level]) -> RoundTable | None:
    """Of figures that are the same in all launches of a version, in whatever rounds these were."""
    if len(levels) < 2:
        return None
    row = [math.log(level) for level, _ in levels.values()]
    return RoundTable(values=np.array([row] * WANTED_ROUNDS), positions=tuple(levels))


def with_compared(compared: Compared, *, limits: Limits, searched: bool = False) -> tuple[CellVerdict, ...]:
    """The cells of one block with what was compared of step times and memory peaks. `searched`: a search chose the
    launches, which have no full rounds.
    """
    step_s, peak_kib = (_compared(compared, name, limits, searched) for name in ("step_time", "peak_memory"))
    return tuple(_with(cell, step_s.get(place), peak_kib.get(place)) for place, cell in enumerate(compared.cells))


def _compared(compared: Compared, name: str, limits: Limits, searched: bool) -> Mapping[int, Level]:
    levels = compared.own_levels(name) if searched else compared.levels(name, limit=limits.of(name))
    return levels if len(levels) > 1 else {}


def level_of(figures: Sequence[float]) -> Level:
    """The level of positive figures, one a launch, with its 95 % interval."""
    return math.exp(float(np.mean(np.log(figures)))), log_t_interval(figures)


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
