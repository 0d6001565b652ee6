"""Summarizes a cell: medians over trials with t intervals over trials, and the sentence that explains the verdict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

import numpy as np

from harness.judge.cell.trial_verdict import JudgedTrial, trace_verdicts
from harness.judge.intervals import log_t_interval, median, t_interval, widest
from harness.judge.trace.trace_verdict import settled_median
from harness.model import BAD, GOOD, UNSURE, CellVerdict, Interval, Steps, TraceVerdict, VerdictName
from harness.reasons import CellReason

Number = TypeVar("Number", int, float)
TRACEBACK = "Traceback (most recent call last)"


def summarized(
    names: tuple[VerdictName, ...], *, launches: Sequence[JudgedTrial], support: Sequence[JudgedTrial], steps: Steps
) -> CellVerdict:
    """Return the verdict `names` on a cell with its figures. `support` are the launches on which the verdict rests."""
    judged = trace_verdicts(launches)
    rated = trace_verdicts(_rated(launches, support=support, steps=steps))
    times = _known(verdict.step_ms for verdict in judged)
    signals = _known(launch.trial.signal for launch in support if launch.failure is not None)
    quoted = _telling(names[0], support)
    return CellVerdict(
        verdict=names[0],
        verdicts=names,
        why=_why(names[0], quoted, launches=launches, support=support, steps=steps),
        trials=len(launches),
        agreeing=len(support),
        failed=sum(1 for launch in launches if launch.failure is not None),
        said="" if quoted.failure is None else gist(quoted.trial.message),
        signal=next(iter(signals), None),
        steps=min((launch.steps for launch in support), default=0),
        layer=_layer(names, support),
        plateau_mib=median(_known(verdict.plateau_mib for verdict in rated)) if "plateau" in names else None,
        rate_kib_per_step=median(_known(verdict.rate_kib_per_step for verdict in rated)),
        rate_ci=_rate_interval(rated),
        excluded_kib_per_step=_excluded(quoted, rated),
        step_ms=median(times),
        step_ms_ci=log_t_interval(times),
        step_drift=median(_known(verdict.step_drift for verdict in judged)),
        peak_rss_mib=median(_known(_peak_mib(launch) for launch in launches)),
        metrics=_metrics(launches),
    )


def _known(values: Iterable[Number | None]) -> list[Number]:
    return [value for value in values if value is not None]


def _rated(launches: Sequence[JudgedTrial], *, support: Sequence[JudgedTrial], steps: Steps) -> Sequence[JudgedTrial]:
    """Return the launches whose rates the cell reports: those that leak, else those of the whole budget, else all."""
    leaking = [launch for launch in support if "leak" in launch.verdicts]
    return leaking or [launch for launch in launches if launch.whole(steps)] or launches


def _rate_interval(rated: Sequence[TraceVerdict]) -> Interval | None:
    """Return the interval over trials or the traces' own interval of median width, whichever is wider."""
    over_trials = t_interval(_known(verdict.rate_kib_per_step for verdict in rated))
    own = sorted((verdict.rate_ci for verdict in rated if verdict.rate_ci is not None), key=lambda ci: ci[1] - ci[0])
    return widest([over_trials, own[len(own) // 2] if own else None])


def _peak_mib(launch: JudgedTrial) -> float | None:
    if launch.trial.peak_rss_kib is not None:
        return launch.trial.peak_rss_kib / 1024
    return None if launch.trace_verdict is None else launch.trace_verdict.peak_rss_mib


def _layer(names: Sequence[VerdictName], support: Sequence[JudgedTrial]) -> str | None:
    """Return the most frequent layer of the supporting launches, ignoring launches without one."""
    if "leak" not in names and "plateau" not in names:
        return None
    layers = Counter(verdict.layer for verdict in trace_verdicts(support) if verdict.layer)
    return layers.most_common(1)[0][0] if layers else None


def _metrics(launches: Sequence[JudgedTrial]) -> Mapping[str, float]:
    """Return, for each metric of the scenario, the median over trials of the medians after the warm-up quarter."""
    values: dict[str, list[float]] = {}
    for launch in launches:
        metrics = {} if launch.trial.trace is None else launch.trial.trace.metrics
        for name in sorted(metrics):
            settled = settled_median(metrics[name])
            if settled is not None:
                values.setdefault(name, []).append(settled)
    return {name: float(np.median(medians)) for name, medians in values.items()}


def _telling(name: VerdictName, support: Sequence[JudgedTrial]) -> JudgedTrial:
    """Return the launch that the reason quotes: the longest and, among equally long ones, the one that rules out the
    smallest leak. For an unsure verdict, it is the first bad launch or, if none is bad, the first.
    """
    if name in UNSURE:
        return next((launch for launch in support if BAD & set(launch.verdicts)), support[0])
    return max(support, key=lambda launch: (launch.steps, -(_rules_out(launch) or 0.0)))


def _rules_out(launch: JudgedTrial) -> float | None:
    return None if launch.trace_verdict is None else launch.trace_verdict.excluded_kib_per_step


def _excluded(quoted: JudgedTrial, rated: Sequence[TraceVerdict]) -> float | None:
    """Return the leak rate that the quoted launch rules out, as in the reason; else the lowest of all rated ones."""
    own = None if quoted.failure is not None else _rules_out(quoted)
    return own if own is not None else min(_known(verdict.excluded_kib_per_step for verdict in rated), default=None)


def _why(
    name: VerdictName,
    quoted: JudgedTrial,
    *,
    launches: Sequence[JudgedTrial],
    support: Sequence[JudgedTrial],
    steps: Steps,
) -> str:
    """Return the reason in one sentence: the number of agreeing launches and the evidence of the quoted one."""
    if name in UNSURE:
        return _unsure_words(quoted, launches=launches, support=support, steps=steps)
    if quoted.failure is not None and name == quoted.failure:
        return CellReason.FAILED(failure=name, agreeing=len(support), trials=len(launches), why=_failure_words(quoted))
    if name in GOOD:
        return _good_words(quoted, launches=launches)
    why = "; ".join([*_bad_growths(quoted), quoted.why]) if name == "growth" else quoted.why
    return CellReason.AGREED(agreeing=len(support), trials=len(launches), why=why)


def _bad_growths(launch: JudgedTrial) -> list[str]:
    return [str(growth) for growth in launch.growths.values() if growth.state == "bad"]


def _good_words(longest: JudgedTrial, *, launches: Sequence[JudgedTrial]) -> str:
    """State how many launches are good, and the reason of the longest one."""
    good = [launch for launch in launches if launch.verdicts[0] in GOOD]
    if longest.trace_verdict is None:
        if all(launch.trial.exit_code == 0 for launch in good):
            return CellReason.EXITED_0(good=len(good), launches=len(launches))
        return CellReason.NOTHING_MEASURED(good=len(good), launches=len(launches))
    words = " or ".join(sorted({launch.verdicts[0] for launch in good}))
    return CellReason.GOOD(good=len(good), trials=len(launches), verdicts=words, why=longest.why)


def _unsure_words(
    quoted: JudgedTrial, *, launches: Sequence[JudgedTrial], support: Sequence[JudgedTrial], steps: Steps
) -> str:
    bad = [launch for launch in support if BAD & set(launch.verdicts)]
    words = _failure_words(quoted) if quoted.failure is not None or quoted.trace_verdict is None else quoted.why
    words = "; ".join([*_bad_growths(quoted), words])
    own_end = next((launch.trial.message for launch in support if launch.trial.ended_early), "")
    if own_end and not bad:
        return f"{own_end}: {words}"
    if bad:
        shown = " and ".join(sorted({name for launch in bad for name in launch.verdicts if name in BAD}))
        return CellReason.TOO_FEW_AGREE(verdicts=shown, bad=len(bad), trials=len(launches), why=words)
    if all(GOOD & set(launch.verdicts) for launch in support) and not any(launch.whole(steps) for launch in launches):
        if any(launch.trial.out_of_time for launch in launches):
            return CellReason.OUT_OF_TIME(steps=steps, why=words)
        return CellReason.NO_WHOLE_TRIAL(steps=steps, why=words)
    return CellReason.AGREED(agreeing=len(support), trials=len(launches), why=words)


def gist(message: str) -> str:
    """Return the last line of a message with a traceback, which names the error; other messages unchanged."""
    return message.strip().splitlines()[-1] if TRACEBACK in message else message


def _failure_words(launch: JudgedTrial) -> str:
    signal = f"signal {launch.trial.signal}" if launch.trial.signal is not None else ""
    last_line = gist(launch.trial.message)
    return ", ".join(part for part in (signal, last_line) if part) or launch.trial.end
