"""Computes how precisely a comparison knows its levels (the minimum detectable effect), and decides whether another
round is needed.

Rounds stop when the difference between two versions is known precisely enough, whatever it is: stopping at a small
p-value would find changes where there are none.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from scipy.special import chdtri

from harness.judge.comparable import set_apart
from harness.judge.comparison.compared_levels import Compared, modes_of
from harness.judge.comparison.level_rules import EXACT
from harness.judge.comparison.noise import floor, spread_of
from harness.judge.comparison.round_tables import (
    FEWEST_ROUNDS,
    WANTED_ROUNDS,
    RoundTable,
    level_columns,
    level_table,
    rounds_in_common,
)
from harness.judge.comparison.which_launches import limits_of_run
from harness.judge.history.changepoints import FEW_VERSIONS, least_found, noise_within
from harness.judge.history.changes import signal_share_of, strictest
from harness.judge.history.returned_values import without_nan
from harness.model import LEVELS, SIGNALS, Limits, Noise, Spread, Steps, Trial, Trials, log_of, ratio_of, share_of

OF_TWO_LAUNCHES = 1.96 * math.sqrt(2)
"""Multiple of the spread of one launch that the difference of two launches exceeds by chance in 5 % of cases (normal
distribution).
"""


def visible(
    compared: Compared, *, limits: Limits, noise: Noise | None = None, rows: int = 1
) -> Mapping[str, float] | None:
    """Return the minimum detectable effect by metric: the smallest relative change of a version that would have shown.

    It is computed from all versions and rounds together, and is never below the lane's A/A noise. Metrics that were not
    compared are left out; None if no metric was compared. For late step times without a table, it follows from the
    variation within single launches.
    """
    seen: dict[str, float] = {}
    for metric in _limited(limits):
        table = compared.tables.get(metric)
        least = None if table is None else _least_detectable(metric, table, noise=noise, rows=rows)
        if table is not None and least is not None:
            seen[metric] = signal_share_of(metric, max(least, floor(noise, metric, rounds=len(table.values))))
        elif metric == "late_step_time" and compared.late_spread is not None:
            seen[metric] = share_of(OF_TWO_LAUNCHES * compared.late_spread)
    return seen or None


def _limited(limits: Limits) -> Mapping[str, float]:
    """Return the limits of all level signals that are compared between versions."""
    return {name: limit for name in LEVELS if (limit := limits.of(name)) is not None}


def _least_detectable(name: str, table: RoundTable, *, noise: Noise | None, rows: int) -> float | None:
    """Return the minimum detectable effect of a table, a log; None if the table shows no noise. If the table has few
    versions, its noise is pooled with the lane's A/A noise.
    """
    if name in EXACT:
        return 0.0
    spread = noise_within(table.values, spread_of(noise, name))
    if spread is None:
        return None
    rounds, versions = table.values.shape
    return least_found(spread, rounds=rounds, versions=versions, alpha=strictest(name, rows=rows))


def visible_after(noise: Noise, name: str, *, rounds: int, versions: int) -> float | None:
    """Return the minimum detectable effect of a level signal after `rounds` of `versions`, if the lane stays as noisy
    as its A/A pairs were; None if they do not show its noise. Few pairs may by chance differ little: the upper 80 %
    bound of their noise counts."""
    spread = spread_of(noise, name)
    if spread is None or rounds < FEWEST_ROUNDS or versions < 2:
        return None
    bound = spread.deviation * math.sqrt(spread.freedom / float(chdtri(spread.freedom, 0.8)))
    own = Spread(deviation=bound, freedom=(rounds - 1) * (versions - 1))
    own = own if versions >= FEW_VERSIONS else replace(own, freedom=own.freedom + rounds)
    return signal_share_of(name, least_found(own, rounds=rounds, versions=versions, alpha=strictest(name, rows=1)))


ALWAYS_ASKING = frozenset({"step_time", "run_time", "peak_memory"})
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

    `trials` are those of one row, oldest version first; `rows` is the number of rows of its scenario. Versions that did
    not run, have no trace or are bad because of NaN do not count. If a compared version has had all its launches, no
    round is wanted: a round without it would add nothing.
    """
    most, alike = trials_asked.most, without_nan(set_apart(trials)[0], limits)
    ends_differ = _seems_to_differ("end_time", alike, limits=limits, steps=steps)
    always = ALWAYS_ASKING | {"end_time"} if ends_differ else ALWAYS_ASKING
    if any(trial.is_one_figure for version in alike for trial in version):
        always |= {"cpu_time"}  # of the run, which the steps of other programs show more exactly
    asking, limits = always | limits.changed, limits_of_run(limits, alike)
    limited = _limited(limits)
    doubtful = {name for name in limited if SIGNALS[name].rounds > FEWEST_ROUNDS}
    tables = {name: level_table(name, alike, steps=steps) for name in limited if name in asking | doubtful}
    full = {place for place, version in enumerate(trials) if len(version) >= most}
    open_ = {name: table for name, table in tables.items() if table is not None and full.isdisjoint(table.positions)}
    rest = (
        _unclear(metric, table, tables, alike, limit=limited[metric], steps=steps)
        for metric, table in open_.items()
        if metric in doubtful and len(table.values) < SIGNALS[metric].rounds
    )
    if (unclear := next(filter(None, rest), None)) is not None:
        return unclear
    for metric, known in tables.items():
        if metric in always and (metric != "run_time" or known is not None):  # few programs end by themselves
            lacking = _too_few(metric, alike, steps=steps, asked=trials_asked)
            if lacking is not None:
                return lacking
        if metric in open_ and metric in asking:
            reason = too_wide(metric, open_[metric], limit=limited[metric], most=most, noise=noise, rows=rows)
            if reason is not None:
                return reason
            spread = spread_of(noise, metric)
            if metric == "step_time" and modes_of(open_[metric], least=log_of(metric, limited[metric]), noise=spread):
                return "some launches take longer as a whole, and more launches show of which versions"
    return None


def _unclear(
    metric: str,
    table: RoundTable,
    tables: Mapping[str, RoundTable | None],
    alike: Sequence[Sequence[Trial]],
    *,
    limit: float,
    steps: Steps,
) -> str | None:
    """Return why a signal that needs many rounds seems to differ. One that changes by the same ratio as the step time
    only reflects the step time, and one that is the same at other step times does not differ.
    """
    step_times = tables.get("step_time") or level_table("step_time", alike, steps=steps)
    if step_times is None or tuple(table.positions) != tuple(step_times.positions):
        return None
    levels = table.values.mean(axis=0)  # of more rounds than the step times, if some launches took turns
    apart = [np.ptp(each) for each in (levels, levels - step_times.values.mean(axis=0))]
    if min(apart) <= log_of(metric, limit):
        return None
    return f"{SIGNALS[metric].title} seems to differ, and {SIGNALS[metric].rounds} rounds are needed to show it"


def _too_few(metric: str, trials: Sequence[Sequence[Trial]], *, steps: Steps, asked: Trials) -> str | None:
    """Return why an incomplete round has to be made up for: it was interrupted, a launch was disturbed, or images were
    pulled at the same time.

    None if no round has every version and no image was pulled: versions were then added on another day, and the user
    decides (--fresh).
    """
    wanted = min(WANTED_ROUNDS, asked.least)
    common = rounds_in_common(trials, metric, steps=steps)
    if common is None or common >= wanted or max(map(len, trials)) >= asked.most:
        return None
    is_pulled = any(trial.conditions.pulled for version in trials for trial in version)
    if not common and not (is_pulled and metric == "step_time" and wanted >= FEWEST_ROUNDS):
        return None
    return f"only {common} of {wanted} rounds have the {SIGNALS[metric].title} of every version"


def differs_late(trials: Sequence[Sequence[Trial]], *, limits: Limits, steps: Steps) -> bool:
    """Return whether some version seems to take longer than others late in a launch, or to end. Only whole launches can
    settle that: launches that stop early do not get as far.
    """
    return any(_seems_to_differ(name, trials, limits=limits, steps=steps) for name in ("late_step_time", "end_time"))


def _seems_to_differ(name: str, trials: Sequence[Sequence[Trial]], *, limits: Limits, steps: Steps) -> bool:
    limit = limits.log_of(name)
    columns = level_columns(name, trials, steps=steps)
    logs = [float(np.log(list(column.values())).mean()) for column in columns.values() if column]
    if limit is None or len(logs) < 2:
        return False
    least, most = min(logs), max(logs)
    return most - least > limit and ratio_of(most) - ratio_of(least) > SIGNALS[name].least


def too_wide(
    metric: str, table: RoundTable, *, limit: float, most: int, noise: Noise | None = None, rows: int = 1
) -> str | None:
    """Return why a comparison needs another round, of at most `most`, or None. Its scenario has `rows` rows."""
    width = _least_detectable(metric, table, noise=noise, rows=rows)
    if width is None or len(table.values) >= most or width <= log_of(metric, limit):
        return None
    slowest = ratio_of(float(table.values.mean(axis=0).max()))
    if slowest * share_of(width) <= SIGNALS[metric].least:
        return None
    shown = signal_share_of(metric, width)
    return f"{SIGNALS[metric].title} is known to ±{shown:.1%}, and the limit is {limit:.1%}"
