"""Removes refills from a trace: the growth of resident memory after the garbage collection at a look.

A look calls gc.collect. A program with cyclic garbage shrinks for a moment, and fills up with new garbage in the next
steps: the look itself caused this growth. Looks come at an eighth, a quarter and half of the budget, where the judge's
windows begin.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from harness.model import Floats, Look, Trace

BACK = 0.9
"""Share of the collected memory that is in use again when the refill is complete."""
SOON = 0.25
"""Share of the rows up to the next look within which a refill must end: growth that takes longer may be a leak."""
STAYS = 0.5
"""Minimum share of the collected memory that stays in use after a refill: a deeper fall is a saw-tooth."""


def without_refills(trace: Trace) -> Floats | None:
    """Return resident memory (KiB), in which a straight line from the look to twice the refill time replaces each
    refill; None if it was not sampled.
    """
    rss = trace.column("rss_kib")
    if rss is None or not trace.looks:
        return rss
    values = rss.copy()
    places = np.searchsorted(trace.step, [look.step for look in trace.looks], side="right")
    for look, (begin, end) in zip(trace.looks, pairwise([*map(int, places), len(values)]), strict=True):
        _bridge(values[begin:end], look)
    return values


def _bridge(rows: Floats, look: Look) -> None:
    """Replace the refill in place; `rows` are the rows between a look and the next."""
    if look.rss_kib is None or look.rss_before_kib is None or not look.rss_before_kib > look.rss_kib:
        return
    given = look.rss_before_kib - look.rss_kib
    back = np.flatnonzero(rows[: int(SOON * len(rows))] >= look.rss_kib + BACK * given)
    if not len(back) or not np.nanmin(rows[back[0] :]) > look.rss_kib + STAYS * given:
        return
    until = 2 * int(back[0])
    rows[:until] = np.interp(np.arange(until), [-1, until], [look.rss_before_kib, rows[until]])
