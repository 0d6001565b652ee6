"""Arranges one figure of each launch of a row as a table of rounds and versions."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from harness.judge.comparison import level_rules
from harness.judge.comparison.level_rules import LEAST_ROUNDS, PAIRED, RULES
from harness.judge.comparison.which_launches import Launches, had_step_times
from harness.model import Floats, Steps, Trial, grouped

Round = tuple[str, int]
"""(run, round): identifies trials that ran side by side. Rounds of two runs differ, even with the same number. For a
signal with `any_round`, it is ("", number of the launch)."""
Columns = Mapping[int, Mapping[Round, float]]
"""Figures by position and round."""
FEWEST_ROUNDS = 2
"""Fewest figures that a version needs to be compared."""


@dataclass(frozen=True, kw_only=True)
class RoundTable:
    """Logs of a figure, shape (rounds, len(positions)); `positions` are the versions' positions in the series. A larger
    figure is worse: for a signal that is worse if it falls, the figure is the reciprocal. `rounds` are those of real
    launches. A version that has no figure in a round has NaN there.
    """

    values: Floats
    positions: tuple[int, ...]
    rounds: tuple[Round, ...] = ()

    @cached_property
    def levels(self) -> Floats:
        """Return the level of each version over all rounds."""
        return np.asarray(without_gaps(self.values).mean(axis=0))


def level_table(name: str, launches: Launches, *, steps: Steps) -> RoundTable | None:
    """Return the table of a level signal; None unless two versions have rounds in common."""
    return table_of(level_columns(name, launches, steps=steps))


def level_columns(name: str, launches: Launches, *, steps: Steps) -> Columns:
    """Return the figures of a level signal by version and round, without A/A replicates. A bisection, which has no full
    rounds, uses these."""
    launches = [[trial for trial in version if not trial.is_replicate] for version in launches]
    chosen, any_round = level_rules.usable(name, launches, steps=steps), RULES[name].any_round
    figure = level_rules.launch_figure_of(name, chosen)
    columns = {}
    for place, version in enumerate(chosen):
        rounds = [("", number) if any_round else (trial.run, trial.round) for number, trial in enumerate(version)]
        figures = zip(rounds, map(figure, version), strict=True)
        columns[place] = {number: value for number, value in figures if value is not None and value > 0}
    return columns


def without_gaps(values: Floats) -> Floats:
    """Return a table, shape (rounds, versions), with the likeliest figure for its round and its version in place of
    each NaN, by least squares: a figure is the sum of the effects of both, and of noise (Yates, 1933)."""
    known = np.isfinite(values)
    if known.all():
        return values
    within, share = np.where(known, values - np.nanmean(values, axis=0), 0.0), known / known.sum(axis=0)
    equations = np.diag(known.sum(axis=1)) - share @ known.T
    of_round = np.linalg.lstsq(equations, within.sum(axis=1), rcond=None)[0][:, None]
    return np.where(known, values, of_round + np.nanmean(values - of_round, axis=0))


def pair_differences(name: str, pairs: Sequence[tuple[Trial, Trial]], *, steps: Steps) -> list[float]:
    """Return, for each pair that can be compared, the difference between the logs of its figures of a level signal."""
    both = [pair for pair in level_rules.usable(name, pairs, steps=steps) if len(pair) == 2]
    sliced = [pair for pair in both if all(trial.took_turns for trial in pair)]
    both = sliced if name in PAIRED and len(sliced) >= LEAST_ROUNDS else both
    figures = [[level_rules.launch_figure_of(name, [pair])(trial) for trial in pair] for pair in both]
    return [math.log(figure / other) for figure, other in figures if figure and other]


def side_by_side(launches: Launches) -> tuple[int, ...]:
    """Return the positions of the versions that ran in the same rounds, whatever their launches show."""
    rounds = ({(trial.run, trial.round): 1.0 for trial in own if trial.measured} for own in launches)
    table = table_of(dict(enumerate(rounds)))
    return () if table is None else table.positions


def measured_together(launches: Launches) -> list[Launches]:
    """Return the launches in parts that are compared apart: those of the versions of the oldest runs, from all runs
    that have each of these, and then those of the runs in which other versions were added beside some of them.
    """
    ran = [Counter(trial.run for trial in own if trial.measured) for own in launches]
    every, first = set[str]().union(*ran), set[str]()
    for run in sorted(every):
        known = [[trial for trial in own if trial.run in first] for own in launches]
        is_added = any(own[run] and first.isdisjoint(own) for own in ran)
        if not is_added or not side_by_side(known):
            first.add(run)
    old = [not first.isdisjoint(own) for own in ran]
    beside = [
        max((own[run] for run in every - first), default=0) for own, is_old in zip(ran, old, strict=True) if is_old
    ]
    if max(beside, default=0) < FEWEST_ROUNDS:
        return [launches]
    whole = first.union(run for run in every if all(own[run] for own, is_old in zip(ran, old, strict=True) if is_old))
    kept = [
        [trial for trial in own if trial.run in whole] if is_old else []
        for own, is_old in zip(launches, old, strict=True)
    ]
    rest = [[trial for trial in own if trial.run not in first] for own in launches]
    return [kept, *measured_together(rest)]


def rounds_in_common(launches: Launches, name: str, *, steps: Steps) -> int | None:
    """Count the rounds in which every version has a figure; None if fewer than two versions have any figure. Versions
    whose only step times are of launches during pulls are included. Versions that failed are not: their rounds
    stay incomplete.
    """
    sound = [version if all(trial.made_its_steps for trial in version) else [] for version in launches]
    columns, is_timed = level_columns(name, sound, steps=steps), name == "step_time"
    rounds = [
        columns[place].keys()
        for place, version in enumerate(sound)
        if columns[place] or (is_timed and any(had_step_times(trial, steps) for trial in version))
    ]
    return len(set.intersection(*map(set, rounds))) if len(rounds) > 1 else None


def table_of(columns: Columns, *, scale: Callable[[float], float] = math.log) -> RoundTable | None:
    """Return the table of the rounds with at least half of the versions of the fullest one, and two, which connects
    them all; None unless two versions have FEWEST_ROUNDS figures there. `scale` is applied to every figure: levels are
    compared by their logs.
    """
    columns = {place: column for place, column in columns.items() if len(column) >= FEWEST_ROUNDS}
    beside = grouped((number, place) for place, column in columns.items() for number in column)
    fullest = {*max((beside[number] for number in sorted(beside)), key=len, default=())}
    least = max(2, len(fullest) / 2)
    rounds = sorted(number for number, own in beside.items() if len(fullest.intersection(own)) >= least)
    kept = [place for place, column in columns.items() if len(column.keys() & {*rounds}) >= FEWEST_ROUNDS]
    values = [[scale(columns[place].get(number, math.nan)) for place in kept] for number in rounds]
    return RoundTable(values=np.array(values), positions=tuple(kept), rounds=tuple(rounds)) if len(kept) > 1 else None
