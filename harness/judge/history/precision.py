"""Computes how far a version may have risen, within the precision of the comparison, and decides whether another round
is needed.

Rounds stop when the difference between two versions is known precisely enough, whatever it is: stopping at a small
p-value would find changes where there are none.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
from scipy.special import chdtri

from harness.judge.comparable import set_apart
from harness.judge.comparison.compared_levels import Compared, modes_of
from harness.judge.comparison.level_rules import EXACT, late_spread, mixes_turns
from harness.judge.comparison.noise import floor, spread_of
from harness.judge.comparison.round_tables import (
    FEWEST_ROUNDS,
    RoundTable,
    level_columns,
    level_table,
    measured_together,
    rounds_in_common,
)
from harness.judge.comparison.which_launches import limits_of_run
from harness.judge.history.changepoints import FEW_VERSIONS, least_found
from harness.judge.history.changes import KnownLevels, known_levels, signal_share_of, strictest
from harness.judge.history.returned_values import without_nan
from harness.judge.history.rises import SURE, Rise, margins, rises_over
from harness.model import (
    LEVELS,
    SIGNALS,
    STAND_INS,
    Change,
    Limits,
    Noise,
    Spread,
    Steps,
    Trial,
    Trials,
    bad_along,
    log_of,
    ratio_of,
    share_of,
)

OF_TWO_LAUNCHES = 1.96 * math.sqrt(2)
"""Multiple of the spread of one launch that the difference of two launches exceeds by chance in 5 % of cases (normal
distribution).
"""
WANTED_ROUNDS = 3
"""Rounds that all compared versions should share."""


def rises_of_levels(compared: Compared) -> Mapping[str, Mapping[int, Rise]]:
    """Return, for each level signal that was compared, the rise of each version.

    Its margin is never below the lane's A/A noise. For late step times without a table, it follows from the variation
    within single launches."""
    found: dict[str, Mapping[int, Rise]] = {}
    for metric, limit in _limited(compared.limits).items():
        tables = compared.tables.get(metric, ())
        levels = [known_levels(metric, table, limit=limit, noise=compared.noise) for table in tables]
        if levels:
            every = (rises(each, compared.baseline).items() for each in reversed(levels))
            found[metric] = dict(itertools.chain.from_iterable(every))
        elif metric == "late_step_time" and (spread := late_spread(compared.working, steps=compared.steps)) is not None:
            plain = Rise(size=0.0, margin=OF_TWO_LAUNCHES * spread)
            found[metric] = dict.fromkeys(range(len(compared.cells)), plain)
    return found


def of_undecided(changes: Sequence[Change[int]], compared: Compared) -> Sequence[Change[int]]:
    """Return the changes of a row. Those of a level that stands in for another one are left out if that one rules out
    all of them: a program with one shorter step in 20 may only make fewer quick steps."""
    for name in STAND_INS.keys() & {change.metric for change in changes}:
        level, limit = STAND_INS[name], compared.limits.log_of(name)
        if limit is not None and limit == compared.limits.log_of(level):
            rises = rises_of_levels(compared).get(level, {})
            low = {place for place, rise in rises.items() if rise.high <= limit}
            if {change.after for change in changes if change.metric == name} <= low:
                changes = [change for change in changes if change.metric != name]
    return changes


def _limited(limits: Limits) -> Mapping[str, float]:
    """Return the limits of all level signals that are compared between versions."""
    return {name: limit for name in LEVELS if (limit := limits.of(name)) is not None}


def rises(known: KnownLevels, baseline: int | None) -> dict[int, Rise]:
    """Return the rise of each version by position: from the reference or from the level before its own, whichever is
    higher."""
    positions, pieces = known.table.positions, known.levels.pieces(known.laid.versions)
    base = positions.index(baseline) if baseline in positions else 0
    reference = next(at for at, piece in enumerate(pieces) if base in piece)
    over = [(reference, at - 1 if at else reference) for at in range(len(pieces))]
    return dict(zip(positions, rises_over(known.laid, pieces, over, base=base, least=known.alike), strict=True))


def _certainly_bad(known: KnownLevels, baseline: int | None, *, alpha: float) -> set[int]:
    """Return the positions that are bad by changes which are certain at this significance level."""
    positions = known.table.positions
    certain = (change for change in known.changes(baseline) if change.p is None or change.p <= alpha)
    begun = list(itertools.dropwhile(lambda change: change.kind == "first_fixed", certain))
    return {place for place, bad in zip(positions, bad_along(positions, begun), strict=True) if bad}


def _lowest(spread: Spread, ratio: float) -> Spread:
    """Return the noise as low as it may be, as `ratio` times as many degrees of freedom would show it."""
    freedom = spread.freedom
    deviation = spread.deviation * math.sqrt(freedom / float(chdtri(freedom, 1 - SURE)))
    return Spread(deviation=deviation, freedom=max(1, round(freedom * ratio)))


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


ALWAYS_ASKING = frozenset({"step_time", "run_time", "peak_memory", "errors"})
"""Level signals for which rounds are added even if the matrix gives them no limit."""


def wants_round(
    trials: Sequence[Sequence[Trial]],
    *,
    limits: Limits,
    steps: Steps,
    trials_asked: Trials,
    baseline: int | None = None,
    noise: Noise | None = None,
    rows: int = 1,
) -> str | None:
    """Return why one more round of all compared versions should run, or None.

    `trials` are those of one row, oldest version first; `baseline` is the position of its baseline, and `rows` is the
    number of rows of its scenario. Versions that did not run, have no trace or are bad because of NaN do not count. If
    a compared version has had all its launches, no round is wanted: a round without it would add nothing."""
    most, alike = trials_asked.most, measured_together(without_nan(set_apart(trials)[0], limits))[0]
    ends_differ = _seems_to_differ("end_time", alike, limits=limits, steps=steps)
    always = ALWAYS_ASKING | {"end_time"} if ends_differ else ALWAYS_ASKING
    ends = any(trial.is_one_figure for version in alike for trial in version)
    if ends:
        always |= {"cpu_time"}  # of the run, which the steps of other programs show more exactly
    asking = always | limits.changed - STAND_INS.keys()
    limits = limits_of_run(limits, alike)
    limited = _limited(limits)
    doubtful = {name for name in limited if SIGNALS[name].rounds > FEWEST_ROUNDS}
    tables = {name: level_table(name, alike, steps=steps) for name in limited if name in asking | doubtful}
    full = {place for place, version in enumerate(trials) if len(version) >= most}
    open_ = {name: table for name, table in tables.items() if table is not None and full.isdisjoint(table.positions)}
    step_times = tables.get("step_time") or level_table("step_time", alike, steps=steps)
    for metric, table in open_.items():
        few = metric in doubtful and len(table.values) < SIGNALS[metric].rounds
        if few and _differ(table, step_times, least=log_of(metric, limited[metric])):
            return f"{SIGNALS[metric].title} seems to differ, and {SIGNALS[metric].rounds} rounds are needed to show it"
    for metric, known in tables.items():
        if metric in always and (metric != "run_time" or known is not None or ends):  # few others end by themselves
            lacking = _too_few(metric, alike, steps=steps, asked=trials_asked)
            if lacking is not None:
                return lacking
        if metric in open_ and metric in asking:
            reason = too_wide(
                metric, open_[metric], limit=limited[metric], most=most, noise=noise, rows=rows, baseline=baseline,
                is_mixed=mixes_turns(metric, alike, steps=steps),
            )  # fmt: skip
            if reason is not None:
                return reason
            spread = spread_of(noise, metric)
            if metric == "step_time" and modes_of(open_[metric], least=log_of(metric, limited[metric]), noise=spread):
                return "some launches take longer as a whole, and more launches show of which versions"
    for metric in (name for name in limited if name not in asking | EXACT):
        others = level_table(metric, alike, steps=steps)
        if others is not None and full.isdisjoint(others.positions):
            changes = known_levels(metric, others, limit=limited[metric], noise=noise).changes(baseline)
            if any((change.p or 0.0) > strictest(metric, rows=rows) for change in changes):
                return f"{SIGNALS[metric].title} seems to have changed, which may still be due to chance"
    return None


def _differ(table: RoundTable, step_times: RoundTable | None, *, least: float) -> bool:
    """Return whether levels seem to differ by more than `least`, a log. Those that change by the same ratio as the step
    times only reflect these, and those that are the same at other step times do not differ."""
    if step_times is None or tuple(table.positions) != tuple(step_times.positions):
        return False
    levels = table.levels  # of more rounds than the step times, if some launches took turns
    return bool(min(np.ptp(each) for each in (levels, levels - step_times.levels)) > least)


def _too_few(metric: str, trials: Sequence[Sequence[Trial]], *, steps: Steps, asked: Trials) -> str | None:
    """Return why an incomplete round has to be made up for: it was interrupted, a launch was disturbed, or images were
    pulled at the same time.

    None if no round has every version and no image was pulled: `judge/beside.py` then launches some beside others."""
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
    settle that: launches that stop early do not get as far."""
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
    metric: str,
    table: RoundTable,
    *,
    limit: float,
    most: int,
    noise: Noise | None = None,
    rows: int = 1,
    baseline: int | None = None,
    is_mixed: bool = False,
) -> str | None:
    """Return why a comparison needs another round, of at most `most`, or None. Its scenario has `rows` rows.

    A version is decided if a rise beyond the limit is ruled out, or if it is certainly bad. Rounds that could not
    decide it, by their number and the noise so far, are not asked for; but launches that ran alone beside others in
    slices (`is_mixed`) have more noise than those to come."""
    rounds, versions = table.values.shape
    if rounds >= most:
        return None
    levels_of = partial(known_levels, metric, table, limit=limit, noise=noise)
    known, doubted = levels_of(), levels_of(doubted=True)
    alpha, least = strictest(metric, rows=rows), log_of(metric, limit)
    bad = _certainly_bad(doubted, baseline, alpha=alpha)
    levels = dict(zip(table.positions, np.exp(table.levels).tolist(), strict=True))
    unsure = {
        place: rise
        for place, rise in rises(known, baseline).items()
        if place not in bad and rise.high > least and levels[place] * share_of(rise.high) > SIGNALS[metric].least
    }
    # What would be known after `most` rounds if the noise is as low as it may be.
    ratio, of_lane = (most - 1) / max(rounds - 1, 1), spread_of(noise, metric)
    spread, alike = _lowest(known.laid.spread, ratio), None if of_lane is None else _lowest(of_lane, ratio)
    found = least_found(spread, rounds=most, versions=versions, alpha=alpha)
    shares = 1 / most, 1 / most / (versions - 1)
    margin = float(margins(spread, *shares, rounds=most, least=floor(alike, rounds=most)))
    if not any(is_mixed or margin <= least or rise.size >= max(least, found) for rise in unsure.values()):
        return None
    highest = signal_share_of(metric, max(rise.high for rise in unsure.values()))
    return f"{SIGNALS[metric].title} may have risen by up to {highest:.1%}, and the limit is {limit:.1%}"
