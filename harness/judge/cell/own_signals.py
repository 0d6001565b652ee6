"""Judges the signals that a cell's own launches decide, without another version: outcome, memory and counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from harness.judge.cell.agreement import growing
from harness.judge.cell.trial_verdict import JudgedTrial
from harness.judge.intervals import median, t_interval
from harness.judge.trace.gpu_memory import undecided
from harness.model import FAILURES, GOOD, SignalVerdict, Steps, VerdictName
from harness.reasons import CellReason, Remedy, SignalReason

MISSED = 0.05
"""Probability that a failure of rate `visible` occurs in none of the launches. A lower one makes `visible` larger."""


def outcome_of(names: Sequence[VerdictName], why: str, launches: Sequence[JudgedTrial], steps: Steps) -> SignalVerdict:
    """Return the verdict on the ends of a cell's launches; `names` are the cell's verdicts, `why` is their reason."""
    failed = sum(launch.failure is not None for launch in launches)
    share, visible = failed / len(launches), 1 - MISSED ** (1 / len(launches))
    if FAILURES & set(names):
        return SignalVerdict(seen="bad", value=share, visible=visible)
    if not failed and not any(launch.whole(steps) for launch in launches):
        return SignalVerdict(seen="blind", value=share, visible=visible, why=why)
    if not failed:
        return SignalVerdict(seen="good", value=share, visible=visible)
    why = CellReason.SOME_FAILED(failed=failed, launches=len(launches))
    return SignalVerdict(seen="suspect", value=share, visible=visible, why=why, remedy=Remedy.SETTLED())


def memory_of(
    plain: SignalVerdict, names: Sequence[VerdictName], launches: Sequence[JudgedTrial], *, steps: Steps
) -> SignalVerdict:
    """Return the verdict on a cell's memory; `plain` has its figures and is blind, `names` are the cell's verdicts."""
    if "leak" in names:
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
        return replace(plain, seen="none", why=CellReason.MEMORY_NOT_MEASURED())
    if names[0] == "suspect" and any({"leak", "suspect"} & set(verdict.verdicts) for _, verdict in sampled):
        return replace(plain, seen="suspect")
    quiet = [verdict for launch, verdict in sampled if launch.whole(steps) and GOOD & set(verdict.verdicts)]
    if not quiet:
        return plain
    on_gpu = [undecided(verdict) for verdict in quiet]
    if all(on_gpu):
        return replace(plain, why=on_gpu[0])
    return replace(plain, seen="good", why="")


def growth_of(name: str, launches: Sequence[JudgedTrial], *, limit: float | None) -> SignalVerdict:
    """Return the verdict on the growth of a count."""
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
