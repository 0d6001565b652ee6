"""Decides whether a comparison needs another round.

Rounds stop when the difference between two versions is known precisely enough, whatever it is: stopping at a small
p-value would find changes where there are none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from harness.judge import logs
from harness.judge.comparable import set_apart
from harness.judge.comparison.equivalence import acquitted
from harness.judge.comparison.round_tables import (
    FEWEST_ROUNDS,
    WANTED_ROUNDS,
    RoundTable,
    level_columns,
    level_table,
    rounds_in_common,
    step_time_launches,
)
from harness.judge.history.detectable_effect import compared_limits, least_detectable
from harness.judge.history.level_changes import signal_share_of
from harness.model import SIGNALS, Limits, Noise, Steps, Trial, Trials, log_of
from harness.reasons import RoundReason

ALWAYS_ASKING = frozenset({"step_time", "peak_memory"})
"""Level signals for which rounds are added even if the matrix gives them no limit."""


def wants_round(
    trials: Sequence[Sequence[Trial]],
    *,
    limits: Limits,
    steps: Steps,
    trials_asked: Trials,
    noise: Noise | None = None,
    rows: int = 1,
) -> str | None:
    """Return why one more round of all compared versions should run, or None.

    `trials` are those of one row, oldest version first; `rows` is the number of rows of its scenario. Versions
    that did not run or have no trace do not count. If a compared version has had all its launches, no round is wanted:
    a round without it would add nothing.
    """
    alike, _ = set_apart(trials)
    unsure = _to_confirm(alike, limits=limits, steps=steps, most=trials_asked.most)
    if unsure is not None:
        return unsure
    for metric, limit in _asking(limits).items():
        if metric == "step_time" and acquitted(step_time_launches(alike, steps=steps), limit=limit) is not None:
            continue
        lacking = _too_few(metric, alike, steps=steps, asked=trials_asked) if metric in ALWAYS_ASKING else None
        if lacking is not None:
            return lacking
        table = level_table(metric, alike, steps=steps)
        if table is None or any(len(trials[place]) >= trials_asked.most for place in table.positions):
            continue
        reason = too_wide(metric, table, limit=limit, most=trials_asked.most, noise=noise, rows=rows)
        if reason is not None:
            return reason
    return None


def _to_confirm(trials: Sequence[Sequence[Trial]], *, limits: Limits, steps: Steps, most: int) -> str | None:
    """Return why an apparent change needs another round, in signals that take more than FEWEST_ROUNDS rounds; or None.

    A signal that changes by the same ratio as the step time only reflects the step time, and needs no further round.
    """
    for metric, limit in compared_limits(limits).items():
        if SIGNALS[metric].rounds <= FEWEST_ROUNDS:
            continue
        table, step_times = (level_table(name, trials, steps=steps) for name in (metric, "step_time"))
        if table is None or step_times is None or table.values.shape != step_times.values.shape:
            continue
        if len(table.values) >= SIGNALS[metric].rounds or any(len(trials[place]) >= most for place in table.positions):
            continue
        if np.ptp((table.values - step_times.values).mean(axis=0)) > log_of(metric, limit):
            return RoundReason.SEEMS_TO_DIFFER(signal=SIGNALS[metric].title, rounds=SIGNALS[metric].rounds)
    return None


def _too_few(metric: str, trials: Sequence[Sequence[Trial]], *, steps: Steps, asked: Trials) -> str | None:
    """Return why an incomplete round has to be made up for: it was interrupted, a launch was disturbed, or launches
    waited for images.

    None if no round has every version and no launch waited: versions were then added on another day, and the user
    decides (--fresh).
    """
    wanted = min(WANTED_ROUNDS, asked.least)
    common = rounds_in_common(trials, metric, steps=steps)
    if common is None or common >= wanted or max(map(len, trials)) >= asked.most:
        return None
    is_awaited = any(trial.pulled == "awaited" for version in trials for trial in version)
    if not common and not (is_awaited and metric == "step_time" and wanted >= FEWEST_ROUNDS):
        return None
    return RoundReason.INCOMPLETE_ROUNDS(signal=SIGNALS[metric].title, common=common, wanted=wanted)


def differs_late(trials: Sequence[Sequence[Trial]], *, limits: Limits, steps: Steps) -> bool:
    """Return whether the steps of some version seem slower late in a launch than those of others. Only whole launches
    can settle that: launches that stop early do not reach those steps.
    """
    limit = limits.log_of("late_step_time")
    columns = level_columns("late_step_time", trials, steps=steps)
    means = [float(np.log(list(column.values())).mean()) for column in columns.values() if column]
    return limit is not None and len(means) > 1 and max(means) - min(means) > limit


def too_wide(
    metric: str, table: RoundTable, *, limit: float, most: int, noise: Noise | None = None, rows: int = 1
) -> str | None:
    """Return why a comparison needs another round, of at most `most`, or None. Its scenario has `rows` rows."""
    width = least_detectable(metric, table, noise=noise, rows=rows)
    if width is None or len(table.values) >= most or width <= log_of(metric, limit):
        return None
    if logs.ratio_of(float(table.values.mean())) * logs.share_of(width) <= SIGNALS[metric].least:
        return None
    shown = signal_share_of(metric, width)
    return RoundReason.TOO_IMPRECISE(signal=SIGNALS[metric].title, visible=shown, limit=limit)


def _asking(limits: Limits) -> Mapping[str, float]:
    """Return the limits of signals for which rounds are added: those whose limit the matrix changes, and
    ALWAYS_ASKING."""
    asking = ALWAYS_ASKING | limits.changed
    return {name: limit for name, limit in compared_limits(limits).items() if name in asking}
