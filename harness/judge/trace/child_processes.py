"""Judges the memory growth of the processes that a scenario started, such as data loaders or a server.

The samples of a script cover only its own process. The memory of its children is read only at the looks: too rarely
for the verdict `leak`, but often enough to make a trace `suspect` if the children keep growing.
"""

from __future__ import annotations

from dataclasses import replace

from harness.judge.trace.growth.window_rates import KEEPS
from harness.judge.trace.look_rates import keep_on, paces_at
from harness.model import GOOD, Trace, TraceVerdict
from harness.reasons import TraceReason

FEWEST, MOST = 3, 4
"""Fewest and most looks that are compared: two or three intervals, which double in length. Fewer give false alarms."""


def with_children(verdict: TraceVerdict, trace: Trace, *, limit: float) -> TraceVerdict:
    """Return the verdict, or `suspect` if it is good and the children grow by `limit` KiB/step or more."""
    paces = paces_at(trace.looks, "children_kib", fewest=FEWEST, most=MOST)
    if not GOOD & set(verdict.verdicts) or not keep_on(paces, limit=limit, keeps=KEEPS):
        return verdict
    low, high = min(paces), max(paces)
    return replace(
        verdict,
        verdicts=(*(name for name in verdict.verdicts if name not in GOOD), "suspect"),
        why=TraceReason.CHILDREN_GROW(rate=paces[-1], low=low, high=high, why=verdict.why),
        rate_kib_per_step=paces[-1],
        rate_ci=(low, high),
        excluded_kib_per_step=max(high, verdict.excluded_kib_per_step or 0.0),
        plateau_mib=None,
    )
