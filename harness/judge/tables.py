"""What is compared between the versions of one block: a figure of each trial, as a table of rounds and versions."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from harness.judge.fit import BLOCKS, block_levels
from harness.judge.summary import comparable
from harness.model import Floats, Steps, Trace, Trial

Figure = Callable[[Trace, int], float | None]
"""(trace, steps that all have) -> a positive figure, or None."""
Round = tuple[str, int]
"""(run, round): trials that ran side by side. Those of two days never did, whatever their number."""
Columns = Mapping[int, Mapping[Round, float]]
"""Position -> round -> figure."""
BothWays = tuple[list[float], list[float]]
"""Figures of a version's launches: of those in their turn, and of those while images were awaited."""
FEWEST_ROUNDS = 2
WANTED_ROUNDS = 3


@dataclass(frozen=True, kw_only=True)
class Table:
    """Logs of a figure, shape (rounds, len(positions)); `positions` are the versions' places in the series."""

    values: Floats
    positions: tuple[int, ...]


def step_time_table(trials: Sequence[Sequence[Trial]], figure: Figure, *, least_steps: int) -> Table | None:
    """Of the trials of `least_steps` or more whose steps are long enough, in total, to be compared."""
    return _table(_columns(_timed(trials, least_steps), figure))


def peak_table(trials: Sequence[Sequence[Trial]], *, least_steps: int) -> Table | None:
    clean = [_clean(each, least_steps) for each in trials]
    return _table(_columns(clean, _peak_figure(clean)))


def step_time_differences(pairs: Sequence[tuple[Trial, Trial]], *, least_steps: int) -> list[float]:
    """By how much the logs of the step times of each pair differ; without the pairs that cannot be compared."""
    return _differences([_timed([pair], least_steps)[0] for pair in pairs], median_step_s)


def peak_differences(pairs: Sequence[tuple[Trial, Trial]], *, least_steps: int) -> list[float]:
    """The same for memory peaks."""
    clean = [_clean(pair, least_steps) for pair in pairs]
    return _differences(clean, _peak_figure(clean))


def _differences(pairs: Sequence[Sequence[Trial]], figure: Figure) -> list[float]:
    both = [pair for pair in pairs if len(pair) == 2]
    figures = [[figure(trial.trace, _common([pair])) for trial in pair if trial.trace is not None] for pair in both]
    return [math.log(one / twin) for one, twin in figures if one and twin]


def level_figures(trials: Sequence[Sequence[Trial]], *, steps: Steps) -> Mapping[str, Columns]:
    """By metric: what can be compared, of each version and round. For a search, which has no full rounds."""
    found: dict[str, Columns] = {}
    clean = [_clean(each, steps.first) for each in trials]
    for metric, usable, figure in (
        ("step_time", _timed(trials, steps.first), median_step_s),
        ("peak_memory", clean, _peak_figure(clean)),
    ):
        common = _common(usable)
        found[metric] = {place: _by_round(cell, figure, common) for place, cell in enumerate(usable)}
    return found


def step_time_launches(trials: Sequence[Sequence[Trial]], *, least_steps: int) -> list[BothWays]:
    """Of each version the median step times, in seconds: of launches in their turn, and while images were awaited."""
    long = [_long_enough(cell, least_steps) for cell in trials]
    common = _common(long)

    def figures(cell: Sequence[Trial], *, awaited: bool) -> list[float]:
        chosen = [trial.trace for trial in cell if (trial.pulled == "awaited") == awaited]
        return [value for trace in chosen if trace is not None and (value := median_step_s(trace, common))]

    return [(figures(cell, awaited=False), figures(cell, awaited=True)) for cell in long]


def never_side_by_side(trials: Sequence[Sequence[Trial]], *, least_steps: int) -> tuple[int, ...]:
    """The positions that step_time_table leaves out though they were measured often enough: not in the others' rounds.

    All of them where no two versions have rounds in common. One that did run in the others' rounds, and is left out as
    some of its launches were too short, is not among them.
    """
    columns = _columns(_timed(trials, least_steps), median_step_s)
    wanted = _wanted(columns)
    kept = _with_enough_rounds(columns)
    compared = kept if len(kept) > 1 else {}
    often = [place for place, column in columns.items() if len(column) >= wanted]
    ran = [{(trial.run, trial.round) for trial in each} for each in trials]

    def is_apart(place: int) -> bool:
        others = [other for other in compared or often if other != place]
        return place not in compared and all(len(ran[place] & ran[other]) < wanted for other in others)

    return tuple(place for place in often if is_apart(place)) if len(often) > 1 else ()


def rounds_in_common(trials: Sequence[Sequence[Trial]], metric: str, *, least_steps: int) -> int | None:
    """How many rounds have a figure of every version that has any, be it of a launch that waited for images; None if
    those are not two. Versions that failed do not count: their rounds stay incomplete.
    """
    sound = [each if all(trial.ended_well for trial in each) else [] for each in trials]
    known = _long_enough if metric == "step_time" else _clean
    usable = _timed(sound, least_steps) if metric == "step_time" else [_clean(each, least_steps) for each in sound]
    both = zip(sound, usable, strict=True)
    rounds = [{(trial.run, trial.round) for trial in each} for all_, each in both if known(all_, least_steps)]
    return len(set.intersection(*rounds)) if len(rounds) > 1 else None


def median_step_s(trace: Trace, common: int) -> float | None:
    settled = _settled(trace, "step_s", common)
    return float(np.median(settled)) if len(settled) else None


def best_step_s(trace: Trace, common: int) -> float | None:
    """The least of the block medians: a neighbour that takes the machine for a while does not move it."""
    settled = _settled(trace, "step_s", common)
    return float(block_levels(settled, share=0.5).min()) if len(settled) >= BLOCKS else median_step_s(trace, common)


def _peak_figure(trials: Sequence[Sequence[Trial]]) -> Figure:
    """The most that was resident: after steps, and also inside them up to the last look that all these trials have."""
    told = [_peaks(trial.trace) for cell in trials for trial in cell if trial.trace is not None]
    looked = max(set.intersection(*map(set, told)), default=0) if told else 0

    def peak_kib(trace: Trace, common: int) -> float | None:
        values = trace.column("rss_kib")
        rows = np.empty(0) if values is None else values[: int(np.searchsorted(trace.step, common, side="right"))]
        seen = rows[np.isfinite(rows)]
        known = [float(seen.max())] if len(seen) else []
        return max([*known, *(peak for step, peak in _peaks(trace).items() if step <= looked)], default=None)

    return peak_kib


def _peaks(trace: Trace) -> Mapping[int, float]:
    """By the step of a look, the most that was resident until then."""
    return {look.step: look.rss_peak_kib for look in trace.looks if look.rss_peak_kib is not None}


def _settled(trace: Trace, name: str, common: int) -> Floats:
    """The rows after the warm-up quarter of the steps that all trials have."""
    values = trace.column(name)
    if values is None:
        return np.empty(0)
    first, last = np.searchsorted(trace.step, (common / 4, common), side="right")
    rows = values[int(first) : int(last)]
    return np.asarray(rows[np.isfinite(rows)], dtype=np.float64)


def _clean(cell: Sequence[Trial], least_steps: int) -> list[Trial]:
    """The trials that ended well. One that its time limit cut short would shorten the comparison for all."""
    ended = [trial for trial in cell if trial.ended_well]
    return [trial for trial in ended if trial.trace is not None and _last(trial.trace) >= least_steps]


def _last(trace: Trace) -> float:
    return float(trace.step[-1]) if len(trace.step) else 0.0


def _timed(trials: Sequence[Sequence[Trial]], least_steps: int) -> list[list[Trial]]:
    """Those whose step times can be compared by rounds: launched in their turn."""
    return [[trial for trial in _long_enough(cell, least_steps) if trial.pulled != "awaited"] for cell in trials]


def _long_enough(cell: Sequence[Trial], least_steps: int) -> list[Trial]:
    """The trials whose step times say something: long enough in total, and the machine did not hold them down."""
    return [trial for trial in _clean(cell, least_steps) if not trial.disturbed and comparable(trial.trace)]


def _columns(trials: Sequence[Sequence[Trial]], figure: Figure) -> Columns:
    """The figures of the versions with two or more, over the steps that all trials have."""
    common = _common(trials)
    columns = {place: _by_round(cell, figure, common) for place, cell in enumerate(trials)}
    return {place: column for place, column in columns.items() if len(column) >= FEWEST_ROUNDS}


def _common(trials: Sequence[Sequence[Trial]]) -> int:
    """The steps that all have."""
    return int(min((_last(trial.trace) for cell in trials for trial in cell if trial.trace is not None), default=0))


def _by_round(cell: Sequence[Trial], figure: Figure, common: int) -> dict[Round, float]:
    figures = {(trial.run, trial.round): figure(trial.trace, common) for trial in cell if trial.trace is not None}
    return {number: value for number, value in figures.items() if value is not None and value > 0}


def _table(columns: Columns) -> Table | None:
    """Only rounds that all versions have; None if there are not two versions with such rounds."""
    known = _with_enough_rounds(columns)
    if len(known) < 2:
        return None
    rounds = sorted(_shared(known))
    values = [[math.log(column[number]) for column in known.values()] for number in rounds]
    return Table(values=np.array(values), positions=tuple(known))


def _with_enough_rounds(columns: Columns) -> Columns:
    """Without the versions that ran beside the others least often, as long as too few rounds have all versions; unless
    the table of those before, with a round less, is the larger one.

    Of those that are alike the newest goes: it may have been measured on a later day than the rest of the history.
    """
    known, larger = dict(columns), dict[int, Mapping[Round, float]]()
    while known and len(_shared(known)) < _wanted(known):
        if len(_shared(known)) >= FEWEST_ROUNDS and _size(known) > _size(larger):
            larger = dict(known)
        beside = Counter(number for column in known.values() for number in column)
        del known[min(known, key=lambda place: (sum(beside[number] - 1 for number in known[place]), -place))]
    return larger if _size(larger) > _size(known) else known


def _size(columns: Columns) -> int:
    """How many figures a table of these has; one version is no table."""
    return len(columns) * len(_shared(columns)) if len(columns) > 1 else 0


def _wanted(columns: Columns) -> int:
    """How many rounds all versions should have: as many as were run, up to WANTED_ROUNDS."""
    return min(WANTED_ROUNDS, max(map(len, columns.values()), default=0))


def _shared(columns: Columns) -> set[Round]:
    return set.intersection(*(set(column) for column in columns.values()))
