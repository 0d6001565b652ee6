"""The processes that a scenario started: workers that load data, a server that it asks.

A script's samples are of its own process. What its children hold is read at the looks: too rarely to call a leak, and
often enough not to call a program flat whose workers grow all the time.
"""

from __future__ import annotations

from dataclasses import replace

from harness.judge.trace.growth.window_rates import KEEPS
from harness.judge.trace.look_rates import keep_on, paces_at
from harness.model import GOOD, Trace, TraceVerdict

FEWEST, MOST = 3, 4
"""Looks that show it: two or three stretches of one pace, each as long as all before it."""


def with_children(found: TraceVerdict, trace: Trace, *, limit: float) -> TraceVerdict:
    """The verdict `found` on a trace; where it is good and the children grow by `limit` KiB a step, it is suspect."""
    paces = paces_at(trace.looks, "children_kib", fewest=FEWEST, most=MOST)
    if not GOOD & set(found.verdicts) or not keep_on(paces, limit=limit, keeps=KEEPS):
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
