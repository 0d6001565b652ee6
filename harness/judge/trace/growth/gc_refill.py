"""What a look's own collection does to resident memory, and how it is taken out again.

A look calls gc.collect. A program with garbage in cycles is smaller for a moment then, and in the next steps its
garbage is back where it was: growth that the look made. Looks come at an eighth, a quarter and half of the budget,
where the judge's windows begin.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from harness.model import Floats, Look, Trace

BACK = 0.9
"""Of what the collection gave back that is in use again where memory has come back."""
SOON = 0.25
"""Of the rows up to the next look within which it must: what takes longer may be growth of its own."""
STAYS = 0.5
"""Of what was given back that memory never gives back by itself: where a program's own collections do, it has teeth."""


def without_refills(trace: Trace) -> Floats | None:
    """Resident memory with a line in place of each refill, from before the look to twice the time that it took."""
    rss = trace.column("rss_kib")
    if rss is None or not trace.looks:
        return rss
    values = rss.copy()
    places = np.searchsorted(trace.step, [look.step for look in trace.looks], side="right")
    for look, (begin, end) in zip(trace.looks, pairwise([*map(int, places), len(values)]), strict=True):
        _bridge(values[begin:end], look)
    return values


def _bridge(rows: Floats, look: Look) -> None:
    """In place; `rows` are those between a look and the next."""
    if look.rss_kib is None or look.rss_before_kib is None or not look.rss_before_kib > look.rss_kib:
        return
    given = look.rss_before_kib - look.rss_kib
    back = np.flatnonzero(rows[: int(SOON * len(rows))] >= look.rss_kib + BACK * given)
    if not len(back) or not np.nanmin(rows[back[0] :]) > look.rss_kib + STAYS * given:
        return
    until = 2 * int(back[0])
    rows[:until] = np.interp(np.arange(until), [-1, until], [look.rss_before_kib, rows[until]])
