"""Precision of a comparison: how many rounds it takes, and its minimum detectable effect.

Rounds stop when the difference of two versions is known precisely enough, whatever it is: stopping at a small p-value
would find changes where there are none.
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
"""Level signals for which rounds are added even if the matrix gives them no limit."""


def wants_round(
    trials: Sequence[Sequence[Trial]],
    *,
    limits: Limits,
    steps: Steps,
    trials_asked: Trials,
    noise: Noise | None = None,
    blocks: int = 1,
) -> str | None:
    """Return why one more round of all compared versions should run, or None.

    `trials` are those of one block, oldest version first; its scenario has so many `blocks`. Versions that did not run
    or have no trace do not count. None also if a compared version has had all its launches: rounds without it would add
    nothing.
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
    """Return why a round has to be made up for: a version is missing from one, because it was interrupted, its launch
    was disturbed, or images were waited for.

    None if no round has every version and nothing waited: some were added on another day, and the user decides
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
    """Whether the steps of some version seem slower late in a launch than those of others. Only whole launches can
    settle that, as launches that stop early do not get there.
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
    """Return why a comparison takes another round, of `most` in all, or None. Its scenario has `blocks` blocks."""
    width = _least_found(metric, table, noise=noise, blocks=blocks)
    if width is None or len(table.values) >= most or width <= log_of(metric, limit):
        return None
    if math.exp(float(table.values.mean())) * math.expm1(width) <= SIGNALS[metric].least:
        return None
    return f"{SIGNALS[metric].title} is known to ±{share_of(metric, width):.1%}, and the limit is {limit:.1%}"


def visible(
    compared: Compared, *, limits: Limits, noise: Noise | None = None, blocks: int = 1
) -> Mapping[str, float] | None:
    """Return, by metric, the minimum detectable effect: the smallest relative change of a version that would have
    shown.

    It uses all versions and rounds together, and is never below the lane's own A/A noise. A metric that was not
    compared is left out; None if none was. For step times that the equivalence test cleared, it is the test's bound.
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
    """Return the limits of signals for which rounds are added: those that the matrix limits, and ALWAYS_ASKING."""
    given = ALWAYS_ASKING | {name for name, _ in limits.others}
    return {name: limit for name, limit in _compared(limits).items() if name in given}


def _compared(limits: Limits) -> Mapping[str, float]:
    """Return the limits of all level signals that are compared between versions."""
    known = {name: limits.of(name) for name in LEVELS}
    return {name: limit for name, limit in known.items() if limit is not None}


def _least_found(name: str, table: RoundTable, *, noise: Noise | None, blocks: int) -> float | None:
    """Return the minimum detectable effect of a table, a log. A small table is helped by the lane's known noise."""
    own = spread_within(without_rounds(table.values))
    if own is None:
        return None
    spread = spread_beside(own, noises.spread_of(noise, name), versions=len(table.positions))
    return least_found(table.values, spread=spread, alpha=strictest(name, blocks=blocks))
