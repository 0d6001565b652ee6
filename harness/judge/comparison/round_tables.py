"""Arranges one figure of each launch of a row as a table of rounds and versions."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from harness.judge.comparison import level_rules
from harness.judge.comparison.level_rules import LEAST_ROUNDS, PAIRED, RULES
from harness.judge.comparison.which_launches import Launches, had_step_times
from harness.model import Floats, Steps, Trial

Round = tuple[str, int]
"""(run, round): identifies trials that ran side by side. Rounds of two runs differ, even with the same number. For a
signal with `any_round`, it is ("", number of the launch)."""
Columns = Mapping[int, Mapping[Round, float]]
"""Figures by position and round."""
FEWEST_ROUNDS = 2
"""Fewest figures that a version needs to be compared."""
WANTED_ROUNDS = 3
"""Rounds that all compared versions should share; with fewer, versions are left out of the table."""


@dataclass(frozen=True, kw_only=True)
class RoundTable:
    """Logs of a figure, shape (rounds, len(positions)); `positions` are the versions' positions in the series. A larger
    figure is worse: for a signal that is worse if it falls, the figure is the reciprocal. `rounds` are those of real
    launches.
    """

    values: Floats
    positions: tuple[int, ...]
    rounds: tuple[Round, ...] = ()


def level_table(name: str, launches: Launches, *, steps: Steps) -> RoundTable | None:
    """Return the table of a level signal; None unless two versions have rounds in common."""
    return table_of(often(level_columns(name, launches, steps=steps)))


def level_columns(name: str, launches: Launches, *, steps: Steps) -> Columns:
    """Return the figures of a level signal by version and round, without A/A replicates. A bisection, which has no full
    rounds, uses these."""
    launches = [[trial for trial in version if not trial.is_replicate] for version in launches]
    chosen, any_round = level_rules.usable(name, launches, steps=steps), RULES[name].any_round
    figure = level_rules.launch_figure_of(name, chosen)
    columns = {}
    for place, version in enumerate(chosen):
        figures = zip(_rounds_of(version, any_round=any_round), map(figure, version), strict=True)
        columns[place] = {number: value for number, value in figures if value is not None and value > 0}
    return columns


def pair_differences(name: str, pairs: Sequence[tuple[Trial, Trial]], *, steps: Steps) -> list[float]:
    """Return, for each pair that can be compared, the difference between the logs of its figures of a level signal."""
    both = [pair for pair in level_rules.usable(name, pairs, steps=steps) if len(pair) == 2]
    sliced = [pair for pair in both if all(trial.took_turns for trial in pair)]
    both = sliced if name in PAIRED and len(sliced) >= LEAST_ROUNDS else both
    figures = [[level_rules.launch_figure_of(name, [pair])(trial) for trial in pair] for pair in both]
    return [math.log(figure / other) for figure, other in figures if figure and other]


def never_side_by_side(launches: Launches, *, steps: Steps) -> tuple[int, ...]:
    """Return the positions that `level_table` leaves out because, although measured often enough, they were measured in
    other rounds.

    If no two versions have rounds in common, these are all positions. A version that ran in the others' rounds, but is
    left out because some of its launches were too short, is not among them.
    """
    columns = often(level_columns("step_time", launches, steps=steps))
    wanted = _wanted(columns)
    kept = _with_enough_rounds(columns)
    compared = kept if len(kept) > 1 else {}
    measured = [place for place, column in columns.items() if len(column) >= wanted]
    ran = [{(trial.run, trial.round) for trial in version} for version in launches]

    def is_apart(place: int) -> bool:
        others = [other for other in compared or measured if other != place]
        return place not in compared and all(len(ran[place] & ran[other]) < wanted for other in others)

    return tuple(place for place in measured if is_apart(place)) if len(measured) > 1 else ()


def measured_together(launches: Launches) -> list[Launches]:
    """Return the launches in parts that are compared apart: those of the versions of the oldest runs, from all runs
    that have each of these, and then those of the runs in which other versions were added beside some of them.
    """
    ran = [Counter(trial.run for trial in own if trial.measured) for own in launches]
    every, first = set[str]().union(*ran), set[str]()
    for run in sorted(every):
        known = [[trial for trial in own if trial.measured and trial.run in first] for own in launches]
        rounds = {place: {(trial.run, trial.round): 1.0 for trial in own} for place, own in enumerate(known)}
        is_added = any(own[run] and first.isdisjoint(own) for own in ran)
        if not is_added or len(_with_enough_rounds(often(rounds))) < 2:
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
    usable = level_rules.usable(name, sound, steps=steps)
    timed = [
        [trial for trial in version if had_step_times(trial, steps)] if name == "step_time" else chosen
        for version, chosen in zip(sound, usable, strict=True)
    ]
    both = zip(timed, usable, strict=True)
    any_round = RULES[name].any_round
    rounds = [set(_rounds_of(chosen, any_round=any_round)) for any_way, chosen in both if any_way]
    return len(set.intersection(*rounds)) if len(rounds) > 1 else None


# ---------------------------------------------------------------- columns and tables


def often(columns: Columns) -> Columns:
    """Return the versions with at least FEWEST_ROUNDS figures."""
    return {place: column for place, column in columns.items() if len(column) >= FEWEST_ROUNDS}


def _rounds_of(version: Sequence[Trial], *, any_round: bool) -> list[Round]:
    return [("", number) if any_round else (trial.run, trial.round) for number, trial in enumerate(version)]


def table_of(columns: Columns, *, scale: Callable[[float], float] = math.log) -> RoundTable | None:
    """Return the table of the rounds that all versions have; None unless two versions share rounds. `scale` is applied
    to every figure: levels are compared by their logs.
    """
    complete = _with_enough_rounds(_complete_so_far(columns))
    if len(complete) < 2:
        return None
    rounds = sorted(_shared(complete))
    values = [[scale(column[number]) for column in complete.values()] for number in rounds]
    return RoundTable(values=np.array(values), positions=tuple(complete), rounds=tuple(rounds))


def _complete_so_far(columns: Columns) -> Columns:
    """Return the columns without the newest round if some versions lack only that round: it is still running, and if
    those versions were left out, a change would meanwhile be placed at another version.
    """
    newest = max((number for column in columns.values() for number in column), default=None)
    before = {
        place: {number: value for number, value in column.items() if number != newest}
        for place, column in columns.items()
    }
    shared = _shared(before) if before else set()
    return before if len(shared) >= FEWEST_ROUNDS and len(_shared(columns)) == len(shared) else columns


def _with_enough_rounds(columns: Columns) -> Columns:
    """Drop the versions that share the fewest launches with the others, until enough rounds have all versions. An
    earlier table with fewer rounds is kept if it has more figures.

    Among equal versions, the newest is dropped: it may have been measured on a later day than the rest of the history.
    """

    def size(table: Columns) -> int:
        """Count the figures of a table; a single version makes none."""
        return len(table) * len(_shared(table)) if len(table) > 1 else 0

    known, larger = dict(columns), dict[int, Mapping[Round, float]]()
    while known and len(_shared(known)) < _wanted(known):
        if len(_shared(known)) >= FEWEST_ROUNDS and size(known) > size(larger):
            larger = dict(known)
        beside = Counter(number for column in known.values() for number in column)
        del known[min(known, key=lambda place: (sum(beside[number] - 1 for number in known[place]), -place))]
    return larger if size(larger) > size(known) else known


def _wanted(columns: Columns) -> int:
    """Return how many rounds all versions should share: as many as were run, but at most WANTED_ROUNDS."""
    return min(WANTED_ROUNDS, max(map(len, columns.values()), default=0))


def _shared(columns: Columns) -> set[Round]:
    return set.intersection(*(set(column) for column in columns.values()))
