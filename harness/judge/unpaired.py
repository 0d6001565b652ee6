"""Compares one cell in two places (two hosts or two days) whose launches do not form pairs.

The two places share no rounds, so heat or load in one of them is part of the difference. Each launch counts once, by
its median, and launches of two places are never pooled: the test is Welch's unequal-variances t-test (1947) on logs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

from harness.judge import intervals
from harness.judge.comparison.noise import NEGLIGIBLE, floor, spread_of
from harness.judge.comparison.round_tables import level_columns
from harness.judge.intervals import CONFIDENCE, SEPARATED
from harness.judge.launches import judge_launches, trace_verdicts
from harness.model import (
    BAD,
    GOOD,
    GROWTHS,
    LEVELS,
    METRIC_PREFIX,
    SIGNALS,
    CellVerdict,
    Interval,
    Limits,
    Measured,
    Metric,
    Noise,
    SignalState,
    Standing,
    Steps,
    Trial,
    log_of,
)

MAIN = ("step_time", "peak_memory")
"""Levels whose difference counts at any size above the A/A noise."""
REVERSED: Mapping[Standing, Standing] = {"more": "less", "less": "more"}
_BAD_STATES: Mapping[SignalState, bool] = {"bad": True, "good": False}
SAME_LEAK = 0.01
"""Log ratio up to which two leak rates count as equal. A leak's rate varies by up to 0.3 % between launches."""


@dataclass(frozen=True, kw_only=True)
class ComparedCell:
    """A cell in one place: its verdict, its trials and the A/A noise of the place."""

    verdict: CellVerdict
    trials: Sequence[Trial]
    noise: Noise | None = None


def compare_cell(one: ComparedCell, other: ComparedCell, *, steps: Steps, limits: Limits) -> tuple[Measured, ...]:
    """Compare every signal of `one` and `other`, in the units of the table of signals: the outcome, the growth of
    memory, the levels, the other counts that grow, and the scenario's own numbers.

    Step time and peak memory differ if they differ by more than the A/A noise. Any other level must also differ by at
    least its limit, at a significance level divided by the number of levels (Bonferroni).
    """
    both = [one.trials, other.trials]
    outcome = Measured(metric="outcome", one=None, other=None, standing=_standing(one, other))
    levels = [_level(name, one, other, both, steps=steps, limit=limits.of(name)) for name in LEVELS]
    states = [_state(name, one.verdict, other.verdict) for name in (*GROWTHS, *_values(one.verdict, other.verdict))]
    found = (outcome, _growth(one, other, steps=steps, limits=limits), *levels, *states)
    return tuple(measured for measured in found if measured is not None)


def ratio_interval(one: Sequence[float], other: Sequence[float], *, confidence: float = CONFIDENCE) -> Interval | None:
    """Return Welch's confidence interval of the ratio of geometric means, `other` / `one`; None if a side has fewer
    than two values.
    """
    sides = [np.log(np.asarray(values, dtype=np.float64)) for values in (one, other)]
    if any(len(side) < 2 for side in sides):
        return None
    squares = [max(float(side.var(ddof=1)), NEGLIGIBLE**2) / len(side) for side in sides]
    freedom = sum(squares) ** 2 / sum(s**2 / (len(side) - 1) for s, side in zip(squares, sides, strict=True))
    margin = float(stdtrit(freedom, 0.5 + confidence / 2)) * math.sqrt(sum(squares))
    middle = float(sides[1].mean() - sides[0].mean())
    return intervals.ratio_of(middle - margin), intervals.ratio_of(middle + margin)


def _level(
    name: Metric,
    one: ComparedCell,
    other: ComparedCell,
    both: Sequence[Sequence[Trial]],
    *,
    steps: Steps,
    limit: float | None,
) -> Measured | None:
    """Compare a level; None if a side has no figure, or if a level other than the MAIN ones has no limit."""
    columns, is_main = level_columns(name, both, steps=steps), name in MAIN
    first, second = (list(columns[place].values()) for place in (0, 1))
    if not is_main and (limit is None or not first or not second):
        return None
    floor = _floor(name, (one.noise, other.noise), launches=min(len(first), len(second)))
    least, confidence = floor or 0.0, 2 * SEPARATED - 1
    if not is_main and limit is not None:
        least, confidence = max(least, abs(log_of(name, limit))), 1 - (1 - confidence) / len(LEVELS)
    ci = ratio_interval(first, second)
    standing = _level_standing(first, second, floor=least, confidence=confidence)
    if SIGNALS[name].falls:  # the columns have reciprocals
        first, second = ([1 / value for value in side] for side in (first, second))
        ci, standing = None if ci is None else (1 / ci[1], 1 / ci[0]), REVERSED.get(standing, standing)
    old, new = (float(np.median(side)) if side else None for side in (first, second))
    if not is_main and standing in REVERSED and abs((new or 0) - (old or 0)) < SIGNALS[name].least:
        standing = "same"
    return Measured(
        metric=name,
        one=old,
        other=new,
        ratio=math.sqrt(ci[0]) * math.sqrt(ci[1]) if ci else None,
        ci=ci,
        floor=None if floor is None else intervals.share_of(floor),
        standing=standing,
    )


def _floor(metric: Metric, both: tuple[Noise | None, Noise | None], *, launches: int) -> float | None:
    """Return the larger A/A noise floor of the two places, as a log ratio; None if one of them is unknown."""
    if launches < 1 or any(spread_of(noise, metric) is None for noise in both):
        return None
    return max(floor(noise, metric, rounds=launches) for noise in both)


def _level_standing(
    one: Sequence[float], other: Sequence[float], *, floor: float, confidence: float = 2 * SEPARATED - 1
) -> Standing:
    """Return "more" or "less" only if the interval at `confidence` excludes 1 and the log ratio exceeds `floor`."""
    sure = ratio_interval(one, other, confidence=confidence)
    if sure is None:
        return "unknown"
    size = math.log(math.sqrt(sure[0] * sure[1]))
    if sure[0] <= 1 <= sure[1] or abs(size) <= floor:
        return "same"
    return "more" if size > 0 else "less"


def _values(one: CellVerdict, other: CellVerdict) -> list[Metric]:
    """Return the names of the scenario's own numbers that both sides have."""
    return [name for name in one.signals if name.startswith(METRIC_PREFIX) and name in other.signals]


def _state(name: Metric, one: CellVerdict, other: CellVerdict) -> Measured | None:
    """Compare a signal by its state on each side: growth other than leaks, and numbers, have no paired figures."""
    seen = [verdict.signals.get(name) for verdict in (one, other)]
    if None in seen:
        return None
    bad = [_BAD_STATES.get(signal.seen) for signal in seen if signal is not None]
    values = [signal.value for signal in seen if signal is not None]
    return Measured(metric=name, one=values[0], other=values[1], standing=_standing_of(bad[0], bad[1]))


def _growth(one: ComparedCell, other: ComparedCell, *, steps: Steps, limits: Limits) -> Measured:
    """Compare leak rates. Only two leaks have comparable rates: the rate of flat memory is noise."""
    both = all("leak" in side.verdict.verdicts for side in (one, other))
    rates = [_rates(side, steps=steps, limits=limits) for side in (one, other)] if both else [[], []]
    ci = ratio_interval(*rates)
    level = _level_standing(*rates, floor=SAME_LEAK) if both else "unknown"
    return Measured(
        metric="memory",
        one=one.verdict.of("memory").value,
        other=other.verdict.of("memory").value,
        ratio=math.sqrt(ci[0]) * math.sqrt(ci[1]) if ci else None,
        ci=ci,
        standing=level if level in ("more", "less") else _standing(one, other, only="leak"),
    )


def _rates(side: ComparedCell, *, steps: Steps, limits: Limits) -> list[float]:
    launches = judge_launches(side.trials, limits=limits, steps=steps)
    rates = [verdict.rate_kib_per_step for verdict in trace_verdicts(launches)]
    return [rate for rate in rates if rate is not None and rate > 0]


def _standing(one: ComparedCell, other: ComparedCell, *, only: str = "") -> Standing:
    return _standing_of(*(_is_bad(side.verdict, only=only) for side in (one, other)))


def _standing_of(first: bool | None, second: bool | None) -> Standing:
    if first is None or second is None:
        return "unknown"
    words: Mapping[tuple[bool, bool], Standing] = {
        (False, False): "same", (True, True): "both bad", (False, True): "worse", (True, False): "better",
    }  # fmt: skip
    return words[first, second]


def _is_bad(verdict: CellVerdict, *, only: str) -> bool | None:
    if only:
        return only in verdict.verdicts if verdict.verdict in BAD | GOOD else None
    if verdict.state == "bad":
        return True
    return False if verdict.verdict in GOOD else None
