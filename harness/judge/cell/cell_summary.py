"""Summarizes a cell: medians over trials with t intervals over trials, and the sentence that explains the verdict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TypeVar

from harness.judge.cell.own_signals import growth_of, memory_of, outcome_of
from harness.judge.cell.trial_verdict import JudgedTrial, trace_verdicts
from harness.judge.intervals import log_t_interval, median, t_interval, widest
from harness.model import (
    BAD,
    GOOD,
    GROWTHS,
    UNSURE,
    CellVerdict,
    Interval,
    Limits,
    SignalVerdict,
    Steps,
    TraceVerdict,
    VerdictName,
    gist,
)
from harness.reasons import CellReason

Number = TypeVar("Number", int, float)


def summarized(
    names: tuple[VerdictName, ...],
    *,
    launches: Sequence[JudgedTrial],
    support: Sequence[JudgedTrial],
    limits: Limits,
    steps: Steps,
) -> CellVerdict:
    """Return the verdict `names` on a cell, with the verdicts on its own signals: outcome, memory and counts, and the
    levels of its own launches, before they are compared. `support` are the launches on which the verdict rests.
    """
    quoted = _telling(names[0], support)
    why = _why(names[0], quoted, launches=launches, support=support, steps=steps)
    signals = {"outcome": outcome_of(names, why, launches, steps)}
    if not all(launch.exit_only for launch in launches):
        rated = trace_verdicts(_rated(launches, support=support, steps=steps))
        plain = SignalVerdict(
            seen="blind",
            value=median(_known(verdict.rate_kib_per_step for verdict in rated)),
            ci=_rate_interval(rated),
            limit=limits.of("memory"),
            visible=_excluded(quoted, rated),
            why=why,
        )
        signals["memory"] = memory_of(plain, names, launches, steps=steps)
        signals |= {name: growth_of(name, launches, limit=limits.of(name)) for name in GROWTHS}
        signals |= {"step_time": _own_level(_step_s(launches)), "peak_memory": _own_level(_peaks_kib(launches))}
    failures = [launch for launch in support if launch.failure is not None]
    return CellVerdict(
        verdicts=names,
        why=why,
        trials=len(launches),
        agreeing=len(support),
        failed=sum(1 for launch in launches if launch.failure is not None),
        signal=next(iter(_known(launch.trial.failure.signal for launch in failures)), None),
        steps=min((launch.steps for launch in support), default=0),
        layer=_layer(names, support),
        drift=median(_known(verdict.step_drift for verdict in trace_verdicts(launches))),
        signals=signals,
    )


def _own_level(values: Sequence[float]) -> SignalVerdict:
    """Return the median of a version's own launches: its level unless it is compared with the other versions'."""
    return SignalVerdict(seen="none", value=median(values), ci=log_t_interval(values), apart=True)


def _step_s(launches: Sequence[JudgedTrial]) -> list[float]:
    return [verdict.step_ms / 1000 for verdict in trace_verdicts(launches) if verdict.step_ms is not None]


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


def _peaks_kib(launches: Sequence[JudgedTrial]) -> list[float]:
    sampled = [
        None if launch.trace_verdict is None or launch.trace_verdict.peak_rss_mib is None
        else launch.trace_verdict.peak_rss_mib * 1024
        for launch in launches
    ]  # fmt: skip
    return _known(launch.trial.peak_rss_kib or peak for launch, peak in zip(launches, sampled, strict=True))


def _layer(names: Sequence[VerdictName], support: Sequence[JudgedTrial]) -> str | None:
    """Return the most frequent layer of the supporting launches, ignoring launches without one."""
    if "leak" not in names and "plateau" not in names:
        return None
    layers = Counter(verdict.layer for verdict in trace_verdicts(support) if verdict.layer)
    return layers.most_common(1)[0][0] if layers else None


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
        if all(launch.trial.failure.exit_code == 0 for launch in good):
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


def _failure_words(launch: JudgedTrial) -> str:
    signal = f"signal {launch.trial.failure.signal}" if launch.trial.failure.signal is not None else ""
    last_line = gist(launch.trial.message)
    return ", ".join(part for part in (signal, last_line) if part) or launch.trial.end
