"""Compares one cell in two places (two hosts or two days) whose launches do not form pairs.

The two places share no rounds, so heat or load in one of them is part of the difference. Each launch counts once, by
its median, and launches of two places are never pooled: the test is Welch's unequal-variances t-test (1947) on logs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

from harness.judge.attribution.group_faults import with_consequences
from harness.judge.comparison.noise import CONFIDENCE, NEGLIGIBLE, floor, spread_of
from harness.judge.comparison.round_tables import level_columns
from harness.judge.launches import judge_launches
from harness.model import (
    BAD,
    FAILURES,
    GOOD,
    GROWTHS,
    LEVELS,
    METRIC_PREFIX,
    SIGNALS,
    CellVerdict,
    Effect,
    Finding,
    Interval,
    Limits,
    MachineChange,
    Measured,
    Metric,
    Noise,
    Pair,
    Standing,
    Steps,
    Trial,
    log_of,
    ratio_of,
    share_of,
    signal_of,
    unit_per,
)

SEPARATED = 0.995
"""One-sided confidence level at which two versions are called different."""
MAIN = ("step_time", "peak_memory")
"""Levels whose difference counts at any size above the A/A noise."""
REVERSED: Mapping[Standing, Standing] = {"more": "less", "less": "more"}
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
    least its limit, at a significance level divided by the number of levels (Bonferroni). Growth other than leaks, and
    numbers, have no figures that pair: they are compared by their state.
    """
    sides = (one.verdict, other.verdict)
    levels = [_level(name, one, other, steps=steps, limit=limits.of(name)) for name in LEVELS]
    bad = [True if cell.state == "bad" else False if cell.verdict in GOOD else None for cell in sides]
    numbers = [name for name in one.verdict.signals if name.startswith(METRIC_PREFIX)]
    states = []
    for name in (*GROWTHS, *numbers):
        if all(name in cell.signals for cell in sides):
            seen = [cell.signals[name] for cell in sides]
            standing = _standing(*({"bad": True, "good": False}.get(signal.seen) for signal in seen))
            states.append(Measured(metric=name, one=seen[0].value, other=seen[1].value, standing=standing))
    return (
        Measured(metric="outcome", one=None, other=None, standing=_standing(*bad)),
        _memory(one, other, steps=steps, limits=limits),
        *(level for level in levels if level is not None),
        *states,
    )


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
    return ratio_of(middle - margin), ratio_of(middle + margin)


def _level(
    name: Metric, one: ComparedCell, other: ComparedCell, *, steps: Steps, limit: float | None
) -> Measured | None:
    """Compare a level; None if a side has no figure, or if a level other than the MAIN ones has no limit."""
    columns, is_main = level_columns(name, [one.trials, other.trials], steps=steps), name in MAIN
    first, second = (list(columns[place].values()) for place in (0, 1))
    if not is_main and (limit is None or not first or not second):
        return None
    spreads, launches = [spread_of(side.noise, name) for side in (one, other)], min(len(first), len(second))
    is_known = launches > 0 and None not in spreads
    of_noise = max(floor(spread, rounds=launches) for spread in spreads) if is_known else None
    least, confidence = of_noise or 0.0, 2 * SEPARATED - 1
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
        ci=ci,
        floor=None if of_noise is None else share_of(of_noise),
        standing=standing,
    )


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


def _memory(one: ComparedCell, other: ComparedCell, *, steps: Steps, limits: Limits) -> Measured:
    """Compare leak rates. Only two leaks have comparable rates: the rate of flat memory is noise."""
    sides = (one, other)
    leaks = ["leak" in side.verdict.verdicts if side.verdict.verdict in BAD | GOOD else None for side in sides]
    rates: list[list[float]] = [[], []]
    if all("leak" in side.verdict.verdicts for side in sides):
        judged = [judge_launches(side.trials, limits=limits, steps=steps) for side in sides]
        rates = [[rate for each in own if (rate := each.memory.rate or 0.0) > 0] for own in judged]
    ci, standing = ratio_interval(*rates), _level_standing(*rates, floor=SAME_LEAK)
    return Measured(
        metric="memory",
        one=one.verdict.of("memory").value,
        other=other.verdict.of("memory").value,
        ci=ci,
        standing=standing if standing in REVERSED else _standing(*leaks),
    )


def _standing(first: bool | None, second: bool | None) -> Standing:
    """Return how two sides compare, each of which is bad, or not, or unknown."""
    if first is None or second is None:
        return "unknown"
    words: Mapping[tuple[bool, bool], Standing] = {
        (False, False): "same", (True, True): "both bad", (False, True): "worse", (True, False): "better",
    }  # fmt: skip
    return words[first, second]


# ---------------------------------------------------------------- one machine whose software changed


def machine_changes(pairs: Sequence[Pair], before: Sequence[str], after: Sequence[str]) -> Iterator[MachineChange]:
    """Yield each signal that is worse in some cells since the software of their machine changed from `before` to
    `after`, unless it is the consequence of another one there. A level is worse if it is certainly higher, and by more
    than its limit; it is alike if a rise by the limit is ruled out. All `pairs` are of one machine.
    """
    told = [(pair, {one.metric: _became_worse(pair, one) for one in pair.measured}, _faults(pair)) for pair in pairs]
    for metric in dict.fromkeys(name for *_, own in told for name in own):
        yield MachineChange(
            before=tuple(before),
            after=tuple(after),
            metric=metric,
            worse=tuple(pair for pair, _, own in told if metric in own),
            alike=tuple(pair for pair, worse, _ in told if worse.get(metric) is False),
            effects=tuple(effect for *_, own in told if (effect := own.get(metric)) is not None),
        )


def _faults(pair: Pair) -> dict[Metric, Effect | None]:
    """Return the sizes of the signals that are worse in the second column, without the consequences of others."""
    worse = [one for one in pair.measured if _became_worse(pair, one)]
    findings = [
        Finding(
            series=pair.series, lane=pair.other.lane, variant=pair.variant, metric=one.metric, kind="first_bad",
            before="one", after="other", effect=_effect(pair, one),
        )
        for one in worse
    ]  # fmt: skip
    known = dict(zip(("one", "other"), pair.verdicts, strict=True))
    told = with_consequences(findings, tuple(known), known)
    return {each.metric: each.effect for each in told if not each.consequence_of}


def _effect(pair: Pair, measured: Measured) -> Effect | None:
    if measured.metric in LEVELS and measured.ratio is not None:
        return Effect(value=measured.ratio, unit="ratio", ci=measured.ci)
    signal, own = signal_of(measured.metric), pair.verdicts[1]
    if signal.kind != "growth" or measured.other is None:
        return None
    return Effect(value=measured.other, unit=unit_per(signal, own.per), ci=own.of(measured.metric).ci)


def _became_worse(pair: Pair, measured: Measured) -> bool | None:
    """Return whether a signal is worse in the second column; None if that is not certain, or if it failed before."""
    if measured.metric == "outcome":
        before, after = (bool(FAILURES & set(verdict.verdicts)) for verdict in pair.verdicts)
        return None if before or measured.standing == "unknown" else after
    if measured.standing in ("worse", "better", "same") and measured.ci is None:
        return measured.standing == "worse"
    limit = pair.variant.scenario.limits.log_of(measured.metric) if measured.metric in LEVELS else None
    if measured.ci is None or measured.ratio is None or limit is None:
        return None
    falls = SIGNALS[measured.metric].falls
    _, size, high = sorted((-1 if falls else 1) * math.log(each) for each in (*measured.ci, measured.ratio))
    if measured.standing == ("less" if falls else "more") and size > limit:
        return True
    return False if high < limit else None
