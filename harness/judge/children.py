"""The processes that a scenario started: workers that load data, a server that it asks.

A script's samples are of its own process. What its children hold is read at the looks: too rarely to call a leak, and
often enough not to call a program flat whose workers grow all the time.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from harness.judge.pace import KEEPS
from harness.model import GOOD, Trace, TraceVerdict

FEWEST, MOST = 3, 4
"""Looks that show it: two or three stretches of one pace, each as long as all before it."""


def with_children(found: TraceVerdict, trace: Trace, *, limit: float) -> TraceVerdict:
    """The verdict `found` on a trace; where it is good and the children grow by `limit` KiB a step, it is suspect."""
    paces = _paces(trace)
    if not GOOD & set(found.verdicts) or not _steady(paces, limit=limit):
        return found
    low, high = min(paces), max(paces)
    words = f"the processes that it started grow {paces[-1]:.4g} KiB a step ({low:.4g} to {high:.4g} between the looks)"
    verdicts = (*(name for name in found.verdicts if name not in GOOD), "suspect")
    return replace(
        found,
        verdict=verdicts[0],
        verdicts=verdicts,
        why=f"{words}, which its own rows do not hold: measure it as a `command`; {found.why}",
        rate_kib_per_step=paces[-1],
        rate_ci=(low, high),
        excluded_kib_per_step=max(high, found.excluded_kib_per_step or 0.0),
        plateau_mib=None,
    )


def _paces(trace: Trace) -> list[float]:
    """KiB a step between the last looks, oldest first; none if there are too few."""
    told = {look.step: look.children_kib for look in trace.looks if look.children_kib is not None}
    last = sorted(told.items())[-MOST:]
    return [(b - a) / (after - before) for (before, a), (after, b) in pairwise(last)] if len(last) >= FEWEST else []


def _steady(paces: list[float], *, limit: float) -> bool:
    """Whether they grow, and do not slow down or stop: workers that warm up do."""
    return bool(paces) and min(paces) >= limit and all(b >= KEEPS * a for a, b in pairwise(paces))
