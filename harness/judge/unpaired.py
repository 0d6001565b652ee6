"""Compares one cell in two places, on two hosts or two days, whose launches do not form pairs.

The two places share no rounds, so that heat or load in one of them is part of the difference. Each launch counts once,
by its median, and launches of two places are never pooled: Welch's unequal-variances t test (1947) on the logs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import stdtrit

from harness.judge import logs
from harness.judge.cell.trial_verdict import judge_launches, trace_verdicts
from harness.judge.comparison import aa_noise
from harness.judge.comparison.round_effects import NEGLIGIBLE
from harness.judge.comparison.round_tables import FEWEST_ROUNDS, Columns, level_columns
from harness.judge.intervals import CONFIDENCE, SEPARATED
from harness.model import BAD, GOOD, CellVerdict, Interval, Limits, Measured, Metric, Noise, Standing, Steps, Trial

SAME_LEAK = 0.01
"""Log ratio up to which two leak rates are the same. Rates of one leak repeat within 0.3 % from launch to launch."""


@dataclass(frozen=True, kw_only=True)
class ComparedCell:
    """A cell in one place: its verdict, its trials and the A/A noise of the place."""

    verdict: CellVerdict
    trials: Sequence[Trial]
    noise: Noise | None = None


def compare_cell(one: ComparedCell, other: ComparedCell, *, steps: Steps, limits: Limits) -> tuple[Measured, ...]:
    """Compare step time (s), growth of memory (KiB per step), peak memory (KiB) and outcome of `one` and `other`."""
    both = [_countable(one), _countable(other)]
    step_time, peak = (
        _level(name, level_columns(name, both, steps=steps), noises=(one.noise, other.noise))
        for name in ("step_time", "peak_memory")
    )
    outcome = Measured(
        metric="outcome", one=None, other=None, ratio=None, ci=None, floor=None, standing=_standing(one, other)
    )
    return step_time, _growth(one, other, steps=steps, limits=limits), peak, outcome


def _countable(side: ComparedCell) -> Sequence[Trial]:
    """Return the trials of a side. Trials that waited for an image count as normal ones if the step times of the cell
    were compared with fewer than FEWEST_ROUNDS launches in turn: the equivalence test then rests on them.
    """
    in_turn = sum(trial.pulled != "awaited" for trial in side.trials)
    if side.verdict.compared_step_ms is None or in_turn >= FEWEST_ROUNDS:
        return side.trials
    return [replace(trial, pulled="") for trial in side.trials]


def ratio_interval(one: Sequence[float], other: Sequence[float], *, confidence: float = CONFIDENCE) -> Interval | None:
    """Return Welch's interval of the ratio of geometric means, `other` / `one`; None if a side has one launch."""
    sides = [np.log(np.asarray(values, dtype=np.float64)) for values in (one, other)]
    if any(len(side) < 2 for side in sides):
        return None
    squares = [max(float(side.var(ddof=1)), NEGLIGIBLE**2) / len(side) for side in sides]
    freedom = sum(squares) ** 2 / sum(s**2 / (len(side) - 1) for s, side in zip(squares, sides, strict=True))
    margin = float(stdtrit(freedom, 0.5 + confidence / 2)) * math.sqrt(sum(squares))
    middle = float(sides[1].mean() - sides[0].mean())
    return logs.ratio_of(middle - margin), logs.ratio_of(middle + margin)


def _level(metric: Metric, columns: Columns, *, noises: tuple[Noise | None, Noise | None]) -> Measured:
    one, other = (list(columns[place].values()) for place in (0, 1))
    floor = _floor(metric, noises, launches=min(len(one), len(other)))
    ci = ratio_interval(one, other)
    return Measured(
        metric=metric,
        one=float(np.median(one)) if one else None,
        other=float(np.median(other)) if other else None,
        ratio=math.sqrt(ci[0]) * math.sqrt(ci[1]) if ci else None,
        ci=ci,
        floor=None if floor is None else logs.share_of(floor),
        standing=_level_standing(one, other, floor=floor or 0.0),
    )


def _floor(metric: Metric, both: tuple[Noise | None, Noise | None], *, launches: int) -> float | None:
    """Return the larger A/A noise floor of the two places, as a log ratio; None if one of them is unknown."""
    if launches < 1 or any(aa_noise.spread_of(noise, metric) is None for noise in both):
        return None
    return max(aa_noise.floor(noise, metric, rounds=launches) for noise in both)


def _level_standing(one: Sequence[float], other: Sequence[float], *, floor: float) -> Standing:
    """Return "more" or "less" only if the interval at SEPARATED excludes 1 and the ratio exceeds the A/A noise."""
    sure = ratio_interval(one, other, confidence=2 * SEPARATED - 1)
    if sure is None:
        return "unknown"
    size = math.log(math.sqrt(sure[0] * sure[1]))
    if sure[0] <= 1 <= sure[1] or abs(size) <= floor:
        return "same"
    return "more" if size > 0 else "less"


def _growth(one: ComparedCell, other: ComparedCell, *, steps: Steps, limits: Limits) -> Measured:
    """Compare leak rates. Only two leaks have comparable rates: the rate of flat memory is noise."""
    both = all("leak" in side.verdict.verdicts for side in (one, other))
    rates = [_rates(side, steps=steps, limits=limits) for side in (one, other)] if both else [[], []]
    ci = ratio_interval(*rates)
    level = _level_standing(*rates, floor=SAME_LEAK) if both else "unknown"
    return Measured(
        metric="memory",
        one=one.verdict.rate_kib_per_step,
        other=other.verdict.rate_kib_per_step,
        ratio=math.sqrt(ci[0]) * math.sqrt(ci[1]) if ci else None,
        ci=ci,
        floor=None,
        standing=level if level in ("more", "less") else _standing(one, other, only="leak"),
    )


def _rates(side: ComparedCell, *, steps: Steps, limits: Limits) -> list[float]:
    launches = judge_launches(side.trials, limits=limits, steps=steps)
    rates = [verdict.rate_kib_per_step for verdict in trace_verdicts(launches)]
    return [rate for rate in rates if rate is not None and rate > 0]


def _standing(one: ComparedCell, other: ComparedCell, *, only: str = "") -> Standing:
    first, second = (_is_bad(side.verdict, only=only) for side in (one, other))
    if first is None or second is None:
        return "unknown"
    words: Mapping[tuple[bool, bool], Standing] = {
        (False, False): "same", (True, True): "both bad", (False, True): "worse", (True, False): "better",
    }  # fmt: skip
    return words[first, second]


def _is_bad(verdict: CellVerdict, *, only: str) -> bool | None:
    if verdict.verdict not in BAD | GOOD:
        return None
    return only in verdict.verdicts if only else verdict.verdict in BAD
