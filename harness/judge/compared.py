"""The levels that the findings of a block compare, of each version: no report shows another number beside them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from harness.judge.comparable import set_apart
from harness.judge.numbers import log_t_interval
from harness.judge.tables import Columns, Table, level_figures, median_step_s, peak_table, step_time_table
from harness.model import CellVerdict, Interval, Steps, Trial

Level = tuple[float, Interval | None]


def with_compared(
    cells: Sequence[CellVerdict], trials: Sequence[Sequence[Trial]], *, steps: Steps, searched: bool = False
) -> tuple[CellVerdict, ...]:
    """The cells of one block, oldest version first, with what was compared: geometric means over the rounds, of whose
    logs a finding's size is the difference. `searched`: a search chose the launches, which have no full rounds.
    """
    alike, _ = set_apart(trials)
    # The peak of a leak is only a matter of how long it ran: it is compared with nothing.
    steady = [[] if "leak" in cell.verdicts else each for cell, each in zip(cells, alike, strict=True)]
    if searched:
        step_s = _of_columns(level_figures(alike, steps=steps)["step_time"])
        peak_kib = _of_columns(level_figures(steady, steps=steps)["peak_memory"])
    else:
        step_s = _of_table(step_time_table(alike, median_step_s, least_steps=steps.first))
        peak_kib = _of_table(peak_table(steady, least_steps=steps.first))
    return tuple(_with(cell, step_s.get(place), peak_kib.get(place)) for place, cell in enumerate(cells))


def _of_table(table: Table | None) -> Mapping[int, Level]:
    if table is None:
        return {}
    return {
        place: _level(np.exp(column).tolist()) for place, column in zip(table.positions, table.values.T, strict=True)
    }


def _of_columns(columns: Columns) -> Mapping[int, Level]:
    known = {place: list(column.values()) for place, column in columns.items() if column}
    return {place: _level(values) for place, values in known.items()} if len(known) > 1 else {}


def _level(values: Sequence[float]) -> Level:
    """Of positive figures, one a round."""
    return math.exp(float(np.mean(np.log(values)))), log_t_interval(values)


def _with(cell: CellVerdict, step_s: Level | None, peak_kib: Level | None) -> CellVerdict:
    step, step_ci = _scaled(step_s, 1000.0)
    peak, peak_ci = _scaled(peak_kib, 1 / 1024)
    return replace(
        cell,
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
