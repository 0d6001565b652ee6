"""How many rounds of all versions a comparison takes, and the smallest change that it could have seen.

It stops when the difference of two versions is known well enough, whatever that difference is: to stop because a
p-value came out small would find changes where there are none.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from harness.judge.comparable import set_apart
from harness.judge.comparison import aa_noise as noises
from harness.judge.comparison.compared import Compared
from harness.judge.comparison.equivalence import acquitted
from harness.judge.comparison.round_effects import spread_within, without_rounds
from harness.judge.comparison.round_tables import (
    FEWEST_ROUNDS,
    WANTED_ROUNDS,
    RoundTable,
    level_columns,
    level_table,
    rounds_in_common,
    step_time_launches,
)
from harness.judge.history.changepoints.detectable_change import least_found
from harness.judge.history.changepoints.segmentation import spread_beside
from harness.judge.history.level_changes import log_of, share_of, strictest
from harness.model import LEVELS, SIGNALS, Limits, Noise, Steps, Trial, Trials

ALWAYS_ASKING = frozenset({"step_time", "peak_memory"})
"""The level signals for which rounds are added also where nobody gave them a limit."""


def wants_round(
    trials: Sequence[Sequence[Trial]],
    *,
    limits: Limits,
    steps: Steps,
    trials_asked: Trials,
    noise: Noise | None = None,
    blocks: int = 1,
) -> str | None:
    """Why one more round of all the versions that are compared should run, or None.

    `trials` are those of one block, oldest version first; its scenario has so many `blocks`. Versions that did not run
    or have no trace do not count. None also where a version that is compared has had all its launches: rounds without
    it would tell nothing more.
    """
    alike, _ = set_apart(trials)
    for metric, limit in _asking(limits).items():
        if metric == "step_time" and acquitted(step_time_launches(alike, steps=steps), limit=limit) is not None:
            continue
        lacking = _too_few(metric, alike, steps=steps, asked=trials_asked) if metric in ALWAYS_ASKING else None
        if lacking is not None:
            return lacking
        table = level_table(metric, alike, steps=steps)
        if table is None or any(len(trials[place]) >= trials_asked.most for place in table.positions):
            continue
        reason = too_wide(metric, table, limit=limit, most=trials_asked.most, noise=noise, blocks=blocks)
        if reason is not None:
            return reason
    return None


def _too_few(metric: str, trials: Sequence[Sequence[Trial]], *, steps: Steps, asked: Trials) -> str | None:
    """Why a round is to be made up for: one lacks a version, because it was interrupted, its launch was disturbed, or
    images were waited for.

    Else, where no round at all has every version, some were added on another day: that is for the user to decide
    (--fresh).
    """
    wanted = min(WANTED_ROUNDS, asked.least)
    common = rounds_in_common(trials, metric, steps=steps)
    if common is None or common >= wanted or max(map(len, trials)) >= asked.most:
        return None
    waited = metric == "step_time" and wanted >= FEWEST_ROUNDS and _waited(trials)
    if not common and not waited:
        return None
    return f"only {common} of {wanted} rounds have the {SIGNALS[metric].title} of every version"


def differs_late(trials: Sequence[Sequence[Trial]], *, limits: Limits, steps: Steps) -> bool:
    """Whether some version's steps seem slower late in a launch than those of others: further launches must be whole
    ones to tell. Launches that stop early do not come to it.
    """
    limit = limits.of("late_step_time")
    columns = level_columns("late_step_time", trials, steps=steps)
    means = [float(np.log(list(column.values())).mean()) for column in columns.values() if column]
    return limit is not None and len(means) > 1 and max(means) - min(means) > math.log1p(limit)


def _waited(trials: Sequence[Sequence[Trial]]) -> bool:
    return any(trial.pulled == "awaited" for each in trials for trial in each)


def too_wide(
    metric: str, table: RoundTable, *, limit: float, most: int, noise: Noise | None = None, blocks: int = 1
) -> str | None:
    """Why the comparison of a table's versions takes another round, of which there may be `most`, or None. `blocks`:
    how many the scenario has.
    """
    width = _least_found(metric, table, noise=noise, blocks=blocks)
    if width is None or len(table.values) >= most or width <= log_of(metric, limit):
        return None
    if math.exp(float(table.values.mean())) * math.expm1(width) <= SIGNALS[metric].least:
        return None
    return f"{SIGNALS[metric].title} is known to ±{share_of(metric, width):.1%}, and the limit is {limit:.1%}"


def visible(
    compared: Compared, *, limits: Limits, noise: Noise | None = None, blocks: int = 1
) -> Mapping[str, float] | None:
    """By metric, the smallest relative change between two versions of a block that would have shown.

    From all versions and rounds together, and never below the lane's own A/A noise. A metric that was not compared is
    left out; None if none was. Of step times that launches acquitted, what those leave possible.
    """
    seen: dict[str, float] = {}
    for metric in _compared(limits):
        table = compared.tables.get(metric)
        least = None if table is None else _least_found(metric, table, noise=noise, blocks=blocks)
        if table is not None and least is not None:
            seen[metric] = share_of(metric, max(least, noises.floor(noise, metric, rounds=len(table.values))))
    most = acquitted(compared.launches, limit=limits.step_time)
    if most is not None:
        seen["step_time"] = math.expm1(most)
    return seen or None


def _asking(limits: Limits) -> Mapping[str, float]:
    """By level signal: the limit of those for which rounds are added. What nobody gave a limit is told as it is."""
    given = ALWAYS_ASKING | {name for name, _ in limits.others}
    return {name: limit for name, limit in _compared(limits).items() if name in given}


def _compared(limits: Limits) -> Mapping[str, float]:
    """By level signal: the limit of what is compared between versions at all."""
    known = {name: limits.of(name) for name in LEVELS}
    return {name: limit for name, limit in known.items() if limit is not None}


def _least_found(name: str, table: RoundTable, *, noise: Noise | None, blocks: int) -> float | None:
    """The smallest change, a log, that the search of a table would have found, with what the lane's noise is known to
    be: two versions in three rounds say little about it.
    """
    own = spread_within(without_rounds(table.values))
    if own is None:
        return None
    spread = spread_beside(own, noises.spread_of(noise, name), versions=len(table.positions))
    return least_found(table.values, spread=spread, alpha=strictest(name, blocks=blocks))
