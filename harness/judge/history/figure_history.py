"""Judgement of a table of figures from any source, as step times are judged: changes, and what would have shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.judge.comparison.round_effects import laid_out, spread_within
from harness.judge.comparison.round_tables import RoundTable
from harness.judge.history.changepoints.detectable_change import least_found, least_of
from harness.judge.history.changepoints.segmentation import Changepoint, Levels, find_levels, levels_of_laid
from harness.judge.history.level_changes import ALPHA, LevelRule, level_changes
from harness.judge.history.neighbours import FEWEST_ALONE, far_out, laid_by_neighbours
from harness.model import Change

LASTING = 4
"""Versions of a level for which the minimum detectable effect is reported if each version has one figure."""


@dataclass(frozen=True, kw_only=True)
class SeriesFound:
    """The changes that a table shows. `better` are improvements that end nothing bad; they are no findings.

    `noise` is the standard deviation of a log, `visible` the minimum detectable effect (a log) of a level that
    `lasting` versions have; both are None if the noise cannot be estimated. `alone`: each version has one figure, and
    the noise is that between neighbours; `odd` are then versions far from both neighbours, which may be outliers.
    """

    changes: tuple[Change, ...]
    better: tuple[Changepoint, ...] = ()
    noise: float | None = None
    visible: float | None = None
    lasting: int = 1
    alone: bool = False
    odd: tuple[int, ...] = ()


def judge_series(table: RoundTable, *, least: float, seed: int = 0) -> SeriesFound:
    """Judge a table of logs, of which more is worse; a change counts from `least` on, also a log."""
    rounds, versions = table.values.shape
    if versions < 2 or (rounds == 1 and versions < FEWEST_ALONE):
        return SeriesFound(changes=(), alone=rounds == 1)
    if rounds == 1:
        laid = laid_by_neighbours(table.values)
        levels = levels_of_laid(table.values, laid, least=least, alpha=ALPHA, seed=seed)
        spread = laid.spread
        visible = least_of(spread, rounds=1, versions=versions, alpha=ALPHA, lasting=LASTING)
        odd = _outside(far_out(laid, least=least), levels)
    else:
        levels = find_levels(table.values, least=least, alpha=ALPHA, seed=seed)
        residual = spread_within(laid_out(table.values)[0])
        assert residual is not None, "two rounds of two versions show noise"
        spread, odd = residual, []
        visible = least_found(table.values, spread=spread, alpha=ALPHA)
    found = level_changes("value", table, levels, rule=LevelRule(least=least, seed=seed))
    reported = {id(shift) for shift, _ in found}
    return SeriesFound(
        changes=tuple(change for _, change in found),
        better=tuple(shift for shift in levels.shifts if id(shift) not in reported and shift.size < 0),
        noise=spread.deviation,
        visible=visible,
        lasting=LASTING if rounds == 1 else 1,
        alone=rounds == 1,
        odd=tuple(odd),
    )


def _outside(places: Sequence[int], levels: Levels) -> list[int]:
    """Return the positions where no level changes."""
    return [place for place in places if not any(shift.before <= place <= shift.after for shift in levels.shifts)]
