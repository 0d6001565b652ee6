"""Computes the levels of the versions of a row, which findings compare and reports show, and finds launches in two
modes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain

import numpy as np

from harness.judge.comparable import set_apart
from harness.judge.comparison.level_rules import EXACT, PEAKS, RULES, usable
from harness.judge.comparison.noise import log_t_interval
from harness.judge.comparison.round_tables import (
    FEWEST_ROUNDS,
    Columns,
    Round,
    RoundTable,
    level_columns,
    measured_together,
    side_by_side,
    table_of,
)
from harness.judge.comparison.which_launches import ended_as_slow
from harness.judge.trace.samples import sampled
from harness.model import (
    BAD,
    LEVELS,
    SIGNALS,
    CellVerdict,
    Floats,
    Interval,
    Limits,
    Noise,
    Spread,
    Steps,
    Trial,
    ratio_of,
)
from harness.model.measured import NOT_FINITE

LevelEstimate = tuple[float, Interval | None]
BEFORE_STEPS = EXACT | {"start_time", "setup_time", "ready_time"}
"""Level signals that do not depend on what the steps do."""


MUCH_LEAKED = 0.1
"""Share of a peak that a leak makes, beyond which the peak is not compared."""


def leaked_kib(cell: CellVerdict, trials: Sequence[Trial]) -> float:
    """Return the most that the leak of a cell kept in a launch, in KiB; infinite if its rate is not known."""
    memory, steps = cell.of("memory"), max((trial.last_step for trial in trials), default=0)
    rate = memory.value if memory.ci is None else memory.ci[1]
    return math.inf if rate is None else rate * steps


def _least_peak_kib(trials: Sequence[Trial]) -> float:
    """Return the lowest peak of a column of memory: a leak in it might be much of it."""
    rows = [trial.trace.column(name) for trial in trials if trial.trace is not None for name in chain(*PEAKS.values())]
    return min((float(np.nanmax(each)) for each in rows if each is not None and len(sampled(each))), default=0.0)


@dataclass(frozen=True, kw_only=True)
class Compared:
    """The versions of a row, oldest first, with what they are judged by and the figures that can be compared between
    them. Each figure is computed on first use.

    `baseline` is the position of the baseline image, `noise` the A/A noise of the lane. `searched`: a bisection chose
    the launches, so that there are no full rounds. `not_finite` are the positions of the versions that are bad because
    of NaN, with the metric that is NaN. `modes`: if a version was found to have launches in a slow mode, these count as
    if they were in the usual one."""

    cells: Sequence[CellVerdict]
    trials: Sequence[Sequence[Trial]]
    steps: Steps
    limits: Limits
    baseline: int | None = None
    noise: Noise | None = None
    searched: bool = False
    not_finite: Mapping[int, str] = field(default_factory=dict)
    modes: Modes | None = None

    @cached_property
    def alike(self) -> Sequence[Sequence[Trial]]:
        """Return each version's trials whose conditions differ from those of the others only in the image."""
        return set_apart(self.trials)[0]

    @cached_property
    def working(self) -> Sequence[Sequence[Trial]]:
        """Return the trials of the versions whose levels are compared, without A/A replicates. A version that is bad
        because of NaN is left out, because its steps may do other work."""
        return [
            [] if place in self.not_finite else [trial for trial in version if not trial.is_replicate]
            for place, version in enumerate(self.alike)
        ]

    @cached_property
    def steady(self) -> Sequence[Sequence[Trial]]:
        """Return the trials, without leaks that are much of the peak: it then only shows how long a launch ran."""
        kept = (
            "leak" not in cell.verdicts or leaked_kib(cell, version) <= MUCH_LEAKED * _least_peak_kib(version)
            for cell, version in zip(self.cells, self.working, strict=True)
        )
        return [version if is_kept else [] for version, is_kept in zip(self.working, kept, strict=True)]

    @cached_property
    def parts(self) -> tuple[Compared, ...]:
        """Return what was measured side by side: several if versions were added later, beside known ones."""
        parts = measured_together(self.working)
        return tuple(replace(self, trials=part) for part in parts) if len(parts) > 1 else (self,)

    def parts_of(self, name: str) -> tuple[Compared, ...]:
        """Return the parts in which a level signal is compared: one for what does not depend on the machine."""
        return (self,) if name in EXACT or RULES[name].any_round else self.parts

    @cached_property
    def tables(self) -> Mapping[str, Sequence[RoundTable]]:
        """Return the tables of the level signals that can be compared, by name: one for each part that has one. That of
        an exact signal has one row."""
        by_name = {name: [part._table(name) for part in self.parts_of(name)] for name in LEVELS}
        known = {name: [table for table in tables if table is not None] for name, tables in by_name.items()}
        return {name: tables for name, tables in known.items() if tables}

    def _table(self, name: str) -> RoundTable | None:
        if name not in EXACT:
            return table_of(self.columns[name])
        own = self.own_levels(name)
        values = np.log([[level for level, _ in own.values()]])
        return RoundTable(values=values, positions=tuple(own)) if len(own) > 1 else None

    @cached_property
    def columns(self) -> Mapping[str, Columns]:
        """Return the figures of all versions, comparable or not, by the name of the level signal."""
        columns = {name: level_columns(name, self.of(name), steps=self.steps) for name in LEVELS}
        if self.modes is None:
            return columns
        paced = ("step_time", *SIGNALS["step_time"].explains)
        return columns | {name: usual_mode(columns[name], self.modes) for name in paced}

    @cached_property
    def ended_as_slow(self) -> Sequence[bool]:
        """Return, for each version, whether it is so slow that only its step times and throughput are compared."""
        return ended_as_slow(self.working, steps=self.steps)

    def apart(self, name: str) -> tuple[int, ...]:
        """Return the positions that were measured apart from the rest; none if that does not affect the signal."""
        return () if RULES[name].any_round else self._apart

    @cached_property
    def _apart(self) -> tuple[int, ...]:
        compared = {place for table in self.tables.get("step_time", ()) for place in table.positions}
        beside = {place for part in self.parts for place in side_by_side(part.working)}
        measured = [place for place, own in self.columns["step_time"].items() if len(own) >= FEWEST_ROUNDS]
        return tuple(place for place in measured if place not in compared | beside) if len(measured) > 1 else ()

    def of(self, name: str) -> Sequence[Sequence[Trial]]:
        """Return the trials that a level signal compares."""
        if name in BEFORE_STEPS:
            return self.alike
        return self.steady if SIGNALS[name].group == "memory" else self.working

    def badness(self, place: int) -> str:
        """Return what makes a version so bad that some of its levels are not compared; "" if nothing does."""
        if BAD & set(self.cells[place].verdicts):
            return self.cells[place].verdict
        metric = self.not_finite.get(place)
        return "" if metric is None else f"{NOT_FINITE} in {metric}"

    def levels(self, name: str) -> Mapping[int, LevelEstimate]:
        """Return the level of a signal by position, for the versions that are compared: the geometric mean over their
        common rounds. That of a version that was added later is as high above the known ones as it was beside them."""
        found: dict[int, LevelEstimate] = {}
        for table in self.tables.get(name, ()):
            both = zip(table.positions, table.values.T, table.levels, strict=True)
            own = {place: values + (level - np.nanmean(values)) for place, values, level in both}
            shifts = [math.log(found[place][0]) - float(np.nanmean(own[place])) for place in own if place in found]
            shift = sum(shifts) / max(1, len(shifts))
            levels = {place: np.exp(values[np.isfinite(values)] + shift).tolist() for place, values in own.items()}
            found = {place: level_of(figures) for place, figures in levels.items()} | found
        return found

    def own_levels(self, name: str) -> Mapping[int, LevelEstimate]:
        """Return the level of each version's own launches by position, comparable or not."""
        return {place: level_of(list(own.values())) for place, own in self.columns[name].items() if own}

    def little(self, name: str) -> Mapping[int, float]:
        """Return the measured levels, by position, that are so small that the least amount was compared instead: their
        ratios to other levels mean nothing."""
        rule, launches = RULES[name], usable(name, self.of(name), steps=self.steps)
        if not (least := rule.least(launches)):
            return {}
        figure = rule.prepare(launches)
        figures = [[value for trial in own if (value := figure(trial)) is not None] for own in launches]
        return {place: float(np.mean(own)) for place, own in enumerate(figures) if own and max(own) <= least}


def level_of(figures: Sequence[float]) -> LevelEstimate:
    """Return the geometric mean of positive figures, one for each launch, with its 95 % interval."""
    return ratio_of(float(np.mean(np.log(figures)))), log_t_interval(figures)


# ---------------------------------------------------------------- launches in two modes
#
# Some launches of a program are slower than others from the first step to the last. A mean hides them, and they look
# like noise. What distinguishes them is the gap between the modes: nearly all launches of all versions lie near one of
# the two, and the gap is much larger than their distances from it.


FEWEST_OF_MODE = 2
"""Fewest launches in each mode of a version that has two."""
TIGHT = 8.0
"""Least ratio of the gap to the usual distance of a launch from its mode."""
BETWEEN = 0.05
"""Largest share of launches in the middle of the gap: something disturbed them."""
MIDDLE = 0.4
"""The middle of the gap, as a share of it."""
FAR = 4.0
"""Least ratio of the gap to the A/A noise of a launch."""
FEWEST_FOR_MODES = 4
"""With fewer versions, a slow launch of one is not distinguished from a fast round of the others unless rounds differ
by less than a quarter of the gap."""


@dataclass(frozen=True, kw_only=True)
class Modes:
    """The launches in the slow mode, by position of their version: their rounds, and how many launches it has in all.
    `gap`: by how much they are slower, a log."""

    gap: float
    slow: Mapping[int, frozenset[Round]]
    launches: int

    def counts(self, versions: int) -> list[tuple[int, int] | None]:
        """Return how many launches of each version are in the slow mode, and of how many; None: it was not compared."""
        return [(len(self.slow[place]), self.launches) if place in self.slow else None for place in range(versions)]


def modes_of(table: RoundTable, *, least: float, noise: Spread | None) -> Modes | None:
    """Return the two modes of the launches of a table; None if no version has two that differ by `least`, a log."""
    whole = {number: own for number, own in zip(table.rounds, table.values, strict=True) if np.isfinite(own).all()}
    if len(whole) < 2 * FEWEST_OF_MODE or (fit := _fit(np.array([*whole.values()]))) is None:
        return None
    gap, slow, usual = fit
    both = (slow.sum(axis=0) >= FEWEST_OF_MODE) & ((~slow).sum(axis=0) >= FEWEST_OF_MODE)
    if not both.any() or gap < max(least, FAR * (noise.deviation if noise is not None else 0.0)):
        return None
    # A version all of whose launches seem to be in the slow mode has another level, or no usual launch by chance.
    is_known = np.abs(usual - usual.min() - gap) > gap / TIGHT
    return Modes(
        gap=gap,
        slow={
            place: frozenset(number for number, is_slow in zip(whole, own, strict=True) if is_slow)
            for place, own, known in zip(table.positions, slow.T, is_known, strict=True)
            if known
        },
        launches=len(whole),
    )


def usual_mode(columns: Columns, modes: Modes) -> Columns:
    """Return the figures with those of launches in the slow mode divided by the ratio of the version's two modes."""
    moved = dict(columns)
    for place, slow in modes.slow.items():
        own = columns.get(place, {})
        logs = {
            is_slow: [math.log(own[number]) for number in own if (number in slow) is is_slow]
            for is_slow in (False, True)
        }
        if all(logs.values()):
            ratio = math.exp(float(np.mean(logs[True]) - np.mean(logs[False])))
            moved[place] = {number: value / (ratio if number in slow else 1.0) for number, value in own.items()}
    return moved


def _fit(values: Floats) -> tuple[float, np.ndarray[tuple[int, ...], np.dtype[np.bool_]], Floats] | None:
    """Return the gap, which launches are slow, and the usual level of each version; None if launches lie between the
    modes. What all launches of a round share is subtracted."""
    rest = values - np.sort(values, axis=0)[FEWEST_OF_MODE - 1]
    many = values.shape[1] >= FEWEST_FOR_MODES
    of_round = np.quantile(rest, 0.25, axis=1, method="lower") if many else np.zeros(len(values))
    rest = rest - of_round[:, None]
    ordered = np.sort(rest, axis=None)
    sums, counts = np.cumsum(ordered)[:-1], np.arange(1, ordered.size)
    variances = (sums - counts * ordered.mean()) ** 2 / (counts * (ordered.size - counts))  # Otsu's threshold (1979)
    half = ordered.size // 2
    cut = half - 1 + int(np.argmax(variances[half - 1 : 1 - FEWEST_OF_MODE]))
    slow = rest > (ordered[cut] + ordered[cut + 1]) / 2
    for _ in range(4):
        if not slow.any() or slow.all():
            return None
        gap = float(np.median(rest[slow]) - np.median(rest[~slow]))
        usual = np.median(values - of_round[:, None] - gap * slow, axis=0)
        of_round = np.median(values - usual - gap * slow, axis=1)
        rest = values - usual - of_round[:, None]
        slow = rest > gap / 2
    distance = 1.4826 * float(np.median(np.abs(rest - gap * slow)))
    between = np.abs(rest - gap / 2) < MIDDLE / 2 * gap
    is_apart = gap > TIGHT * distance and int(between.sum()) <= BETWEEN * between.size
    is_sure = many or float(np.std(of_round)) < gap / 4
    return (gap, slow & ~between, usual) if is_apart and is_sure else None
