"""Decides, at a look, whether a launch goes on or stops early."""

from __future__ import annotations

from typing import Literal

from harness.judge.trace.samples import prefix, sampled
from harness.judge.trace.trace_verdict import judge_column, judge_trace, undecided
from harness.model import GOOD, Limits, Steps, Trace, TraceVerdict

STOP_LEAK_KIB = 1024 * 1024.0
"""Growth from which a leak may end its trial, in KiB. Caches of up to this size fill up and then stop growing."""
CLEAR = 10.0
"""Ratio to the limit from which growth counts as clear."""
LONG_ENOUGH_S = 0.3
"""Minimum total step time, in seconds, of a trial that stops early: a shorter trial costs little to continue, and its
step times become more precise.
"""
LONG_ENOUGH_IN_SLICES_S = 4.0
"""The same for a launch in slices: pairs of it are as precise as they have cycles, which saves whole rounds."""


def decide_at_look(trace: Trace, *, limits: Limits, steps: Steps, whole_budget: bool) -> Literal["go", "stop"]:
    """Return the decision at a look, which is the trace's last step.

    A flat trial stops, unless it must run the whole budget, its steps took hardly any time, or its GPU memory is
    undecided. A leaking trial stops if it also leaked at the previous look and has grown by STOP_LEAK_KIB: less may be
    a buffer that fills. A trial with early growth of CLEAR times the limit stops, too, as `suspect`, unless it is brief
    or must run the whole budget: another launch that runs it will show whether the growth continues.
    """
    verdict = judge_trace(trace, limits=limits, steps=steps)
    if verdict.verdict in GOOD:
        return "go" if whole_budget or is_brief(trace) or undecided(verdict) else "stop"
    if verdict.early and not (whole_budget or is_brief(trace)) and clear_leak(verdict, limits=limits):
        return "stop"
    if "leak" in verdict.verdicts and _grown_kib(trace) >= STOP_LEAK_KIB:
        before = [look for look in steps.looks() if look < verdict.steps]
        past = prefix(trace, before[-1]) if before else trace
        memory = judge_column(past, "rss_kib", limit=limits.leak_kib_per_step, steps=steps)
        if before and memory.verdict == "leak":
            return "stop"
    return "go"


def looks_bad(trace: Trace, *, limits: Limits, steps: Steps) -> bool:
    """Return whether memory grows or may grow, so that a launch has to be followed further."""
    verdict = judge_trace(trace, limits=limits, steps=steps)
    return bool({"leak", "suspect"} & set(verdict.verdicts))


def clear_leak(verdict: TraceVerdict, *, limits: Limits) -> bool:
    """Return whether memory certainly grows by CLEAR times the limit: then even a shorter launch counts as agreeing."""
    interval = verdict.growth.interval
    return interval is not None and interval[0] >= CLEAR * limits.leak_kib_per_step


def is_brief(trace: Trace) -> bool:
    """Return whether the steps were timed and took less than LONG_ENOUGH_S in total."""
    least_s = LONG_ENOUGH_S if trace.column("slice") is None else LONG_ENOUGH_IN_SLICES_S
    return 0 < float(sampled(trace.column("step_s")).sum()) < least_s


def _grown_kib(trace: Trace) -> float:
    rss = sampled(trace.column("rss_kib"))
    return float(rss[-1] - rss[: max(1, len(rss) // 50)].min()) if len(rss) else 0.0
