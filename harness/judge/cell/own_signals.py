"""Judges the signals that a cell's own launches decide, without another version: outcome, memory and counts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from harness.judge.cell.trial_verdict import JudgedTrial
from harness.judge.intervals import median, t_interval
from harness.judge.trace.gpu_memory import undecided
from harness.model import FAILURES, GOOD, GROWTHS, CellVerdict, Limits, SignalVerdict, Steps

MISSED = 0.05
"""Chance that a failure of rate `visible` stays unseen in all launches. A lower chance makes `visible` larger."""
Agreeing = Callable[[Sequence[JudgedTrial], str], Sequence[JudgedTrial]]
"""(launches, signal) -> the launches that agree that the signal's count grows."""


def signals_of(
    cell: CellVerdict, launches: Sequence[JudgedTrial], *, limits: Limits, steps: Steps, agreeing: Agreeing
) -> Mapping[str, SignalVerdict]:
    """Return the verdict on each signal by name; if exit codes alone decide, only that on `outcome`."""
    signals = {"outcome": _outcome(cell, launches, steps)}
    if all(launch.exit_only for launch in launches):
        return signals
    signals["memory"] = _memory(cell, launches, limits=limits, steps=steps)
    for name in GROWTHS:
        signals[name] = _growth(name, launches, limits=limits, steps=steps, agreed=agreeing(launches, name))
    return signals


def _outcome(cell: CellVerdict, launches: Sequence[JudgedTrial], steps: Steps) -> SignalVerdict:
    failed = sum(launch.failure is not None for launch in launches)
    share, visible = failed / len(launches), 1 - MISSED ** (1 / len(launches))
    if FAILURES & set(cell.verdicts):
        return SignalVerdict(seen="bad", value=share, visible=visible)
    if not failed and not any(launch.whole(steps) for launch in launches):
        return SignalVerdict(seen="blind", value=share, visible=visible, why=cell.why)
    why = f"{failed} of {len(launches)} launches failed; more launches would settle it" if failed else ""
    return SignalVerdict(seen="suspect" if failed else "good", value=share, visible=visible, why=why)


def _memory(cell: CellVerdict, launches: Sequence[JudgedTrial], *, limits: Limits, steps: Steps) -> SignalVerdict:
    limit, known = limits.leak_kib_per_step, [k for k in launches if k.found is not None and k.failure is None]
    told = [k for k in known if k.trial.trace is not None and k.trial.trace.column("rss_kib") is not None]
    if "leak" in cell.verdicts:
        return SignalVerdict(seen="bad", value=cell.rate_kib_per_step, ci=cell.rate_ci, limit=limit)
    if not told:
        return SignalVerdict(seen="none", limit=limit, why="memory was not measured")
    shown = [k.found for k in told if k.found is not None]
    quiet = [k.found for k in told if k.found is not None and k.whole(steps) and GOOD & set(k.found.verdicts)]
    if cell.verdict == "suspect" and any({"leak", "suspect"} & set(found.verdicts) for found in shown):
        return SignalVerdict(seen="suspect", value=cell.rate_kib_per_step, ci=cell.rate_ci, limit=limit, why=cell.why)
    if not quiet:
        return SignalVerdict(seen="blind", value=cell.rate_kib_per_step, ci=cell.rate_ci, limit=limit, why=cell.why)
    on_gpu = [undecided(found) for found in quiet]
    if all(on_gpu):
        return SignalVerdict(seen="blind", value=cell.rate_kib_per_step, ci=cell.rate_ci, limit=limit, why=on_gpu[0])
    visible = min((found.excluded_kib_per_step for found in quiet), key=_size)
    return SignalVerdict(seen="good", value=cell.rate_kib_per_step, limit=limit, visible=visible)


def _size(value: float | None) -> float:
    return float("inf") if value is None else value


def _growth(
    name: str, launches: Sequence[JudgedTrial], *, limits: Limits, steps: Steps, agreed: Sequence[JudgedTrial]
) -> SignalVerdict:
    limit = limits.of(name)
    growths = [launch.growths[name] for launch in launches if name in launch.growths]
    if not growths:
        return SignalVerdict(
            seen="none",
            limit=limit,
            why="its limit is none" if limit is None else "it was not counted in a whole launch",
        )
    if agreed:
        rates = [launch.growths[name].rate for launch in agreed]
        return SignalVerdict(
            seen="bad", value=median(rates), ci=t_interval(rates), limit=limit, why=str(agreed[0].growths[name])
        )
    by_state = {state: [one for one in growths if one.state == state] for state in ("bad", "good", "unknown")}
    if by_state["bad"]:
        one = by_state["bad"][0]
        return SignalVerdict(
            seen="suspect",
            value=one.rate,
            limit=limit,
            why=f"{one}, in {len(by_state['bad'])} of {len(growths)} launches",
        )
    if by_state["good"]:
        best = min(by_state["good"], key=lambda one: one.excluded)
        return SignalVerdict(seen="good", value=best.rate, limit=limit, visible=best.excluded)
    return SignalVerdict(seen="blind", limit=limit, why=str(growths[0]))
