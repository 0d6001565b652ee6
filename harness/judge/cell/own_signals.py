"""Judges the signals that a cell's own launches decide, without another version: outcome, memory and counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from harness.judge.cell.agreement import growing
from harness.judge.cell.trial_verdict import JudgedTrial
from harness.judge.intervals import median, t_interval
from harness.judge.trace.gpu_memory import undecided
from harness.model import FAILURES, GOOD, GROWTHS, CellVerdict, Limits, SignalVerdict, Steps
from harness.reasons import CellReason, Remedy, SignalReason

MISSED = 0.05
"""Probability that a failure of rate `visible` occurs in none of the launches. A lower one makes `visible` larger."""


def signals_of(
    cell: CellVerdict, launches: Sequence[JudgedTrial], *, limits: Limits, steps: Steps
) -> Mapping[str, SignalVerdict]:
    """Return the verdict on each signal by name; if exit codes alone decide, only the verdict on `outcome`."""
    signals = {"outcome": _outcome(cell, launches, steps)}
    if all(launch.exit_only for launch in launches):
        return signals
    signals["memory"] = _memory(cell, launches, limits=limits, steps=steps)
    for name in GROWTHS:
        signals[name] = _growth(name, launches, limit=limits.of(name))
    return signals


def _outcome(cell: CellVerdict, launches: Sequence[JudgedTrial], steps: Steps) -> SignalVerdict:
    failed = sum(launch.failure is not None for launch in launches)
    share, visible = failed / len(launches), 1 - MISSED ** (1 / len(launches))
    if FAILURES & set(cell.verdicts):
        return SignalVerdict(seen="bad", value=share, visible=visible)
    if not failed and not any(launch.whole(steps) for launch in launches):
        return SignalVerdict(seen="blind", value=share, visible=visible, why=cell.why)
    if not failed:
        return SignalVerdict(seen="good", value=share, visible=visible)
    why = CellReason.SOME_FAILED(failed=failed, launches=len(launches))
    return SignalVerdict(seen="suspect", value=share, visible=visible, why=why, remedy=Remedy.SETTLED())


def _memory(cell: CellVerdict, launches: Sequence[JudgedTrial], *, limits: Limits, steps: Steps) -> SignalVerdict:
    plain = SignalVerdict(
        seen="blind", value=cell.rate_kib_per_step, ci=cell.rate_ci, limit=limits.leak_kib_per_step, why=cell.why
    )
    if "leak" in cell.verdicts:
        return replace(plain, seen="bad", why="")
    sampled = [
        (launch, launch.trace_verdict)
        for launch in launches
        if launch.trace_verdict is not None
        and launch.failure is None
        and launch.trial.trace is not None
        and launch.trial.trace.column("rss_kib") is not None
    ]
    if not sampled:
        return SignalVerdict(seen="none", limit=plain.limit, why=CellReason.MEMORY_NOT_MEASURED())
    if cell.verdict == "suspect" and any({"leak", "suspect"} & set(verdict.verdicts) for _, verdict in sampled):
        return replace(plain, seen="suspect")
    quiet = [verdict for launch, verdict in sampled if launch.whole(steps) and GOOD & set(verdict.verdicts)]
    if not quiet:
        return plain
    on_gpu = [undecided(verdict) for verdict in quiet]
    if all(on_gpu):
        return replace(plain, why=on_gpu[0])
    excluded = [verdict.excluded_kib_per_step for verdict in quiet if verdict.excluded_kib_per_step is not None]
    return replace(plain, seen="good", ci=None, visible=min(excluded, default=None), why="")


def _growth(name: str, launches: Sequence[JudgedTrial], *, limit: float | None) -> SignalVerdict:
    growths = [launch.growths[name] for launch in launches if name in launch.growths]
    if not growths:
        why = SignalReason.LIMIT_IS_NONE() if limit is None else CellReason.NOT_COUNTED()
        return SignalVerdict(seen="none", limit=limit, why=why)
    agreed = growing(launches, name)
    if agreed:
        rates = [launch.growths[name].rate for launch in agreed]
        return SignalVerdict(
            seen="bad", value=median(rates), ci=t_interval(rates), limit=limit, why=str(agreed[0].growths[name])
        )
    by_state = {state: [growth for growth in growths if growth.state == state] for state in ("bad", "good", "unknown")}
    if by_state["bad"]:
        growth = by_state["bad"][0]
        why = CellReason.SOME_GROW(growth=growth, bad=len(by_state["bad"]), launches=len(launches))
        return SignalVerdict(seen="suspect", value=growth.rate, limit=limit, why=why)
    if by_state["good"]:
        best = min(by_state["good"], key=lambda growth: growth.excluded)
        return SignalVerdict(seen="good", value=best.rate, limit=limit, visible=best.excluded)
    return SignalVerdict(seen="blind", limit=limit, why=str(growths[0]))
