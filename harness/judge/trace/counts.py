"""Judges the growth of the counts in a launch: open files, threads, processes, zombies, bytes in /dev/shm and on disk.

Counts are exact, and are read at looks and occasionally between them. A leak adds to a count at a constant rate; a
cache or a pool fills more and more slowly, or stops. The launch is divided into stretches, each as long as all earlier
ones together, and a leak keeps its rate from one stretch to the next.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np

from harness.model import GROWTHS, SIGNALS, Floats, Limits, Trace, unit_after
from harness.reasons import CountReason

EDGES = (1 / 8, 1 / 4, 1 / 2, 1.0)
"""Ends of the stretches, as shares of the steps; the first stretch begins at the first count."""
NEAR = 0.2
"""Maximum distance of a count from the edge that it represents, as a share of the edge's step."""
FEWEST_STRETCHES, MOST_STRETCHES = 2, 3
"""Number of stretches, counted from the last, that must keep the rate: at least two, and a third if there is one."""
KEEPS = 0.8
"""Minimum ratio of the rates of two successive stretches of a leak. A lower ratio reports filling caches as leaks."""
FEWEST = 4
"""Minimum rise of a leak, in pieces (PIECE): a smaller rise may be chance."""
CLIMBS = 0.5
"""Minimum rise of the lowest counts of saw-teeth that climb, as a share of the rise at the limit. Their lowest counts
are closer to each other than their highest."""
LARGEST_JUMP = 0.5
"""Maximum share of the rise in the last half that one jump may make, if there are FEWEST_ROWS counts."""
FEWEST_ROWS = 8
"""Fewest counts in the last half for which LARGEST_JUMP applies."""
PIECE = {"shm": 4.0, "disk": 4.0}
"""Size of a piece in KiB, for signals that are amounts: a page, a disk block. For counted things, a piece is 1."""
KINDS = ("sockets", "pipes")
"""Kinds of open files that are counted separately."""


@dataclass(frozen=True, kw_only=True)
class CountGrowth:
    """The growth of one count in a launch. `rate` is the growth per step in the last half, `excluded` the rate above
    which growth is ruled out, `kind` the kind of open files that grows, and `unmet` the reason for an unknown state.
    """

    signal: str
    state: Literal["bad", "good", "unknown"]
    rate: float
    excluded: float
    kind: str = ""
    unmet: str = ""

    @property
    def pace(self) -> str:
        """Return the rate with its unit: `4 KiB/step`."""
        amount = f"{self.rate:.3g}"
        return f"{amount} {unit_after(amount, SIGNALS[self.signal].unit)}"

    def __str__(self) -> str:
        signal = SIGNALS[self.signal]
        if self.state == "bad":
            count = f"{signal.title} ({self.kind})" if self.kind else signal.title
            return CountReason.GROWS(count=count, pace=self.pace.replace("/", " a "))
        return f"{signal.title}: {self.unmet or CountReason.RULED_OUT(excluded=self.excluded)}"


def judge_counts(trace: Trace, *, limits: Limits) -> Mapping[str, CountGrowth]:
    """Return the growth of each count by signal. Signals without counts, or without a limit, are left out."""
    growths = {}
    for name in GROWTHS:
        limit, step, values = limits.of(name), *_counted(trace, name)
        if limit is not None and len(step) > 1:
            growths[name] = _judge(name, step, values, limit=limit, trace=trace)
    return growths


def _counted(trace: Trace, name: str) -> tuple[Floats, Floats]:
    """Return the steps and counts of a signal, each of shape (n,). If a step has two counts, the later one is kept."""
    step, values = trace.counts.get("step"), trace.counts.get(name)
    if step is None or values is None:
        return np.empty(0), np.empty(0)
    is_known = np.isfinite(values) & np.isfinite(step)
    last = np.append(np.diff(step[is_known]) > 0, True) if is_known.any() else np.empty(0, dtype=bool)
    return step[is_known][last], values[is_known][last]


def _judge(name: str, step: Floats, values: Floats, *, limit: float, trace: Trace) -> CountGrowth:
    edges = _edges(step, values)
    paces = [(b - a) / (end - begin) for (begin, a), (end, b) in pairwise(edges)]
    if not paces:
        return unjudged(name, CountReason.COUNTED_TOO_RARELY())
    begin, span = edges[-2], edges[-1][0] - edges[-2][0]
    rate, rise = paces[-1], edges[-1][1] - begin[1]
    lately = (step >= edges[-3][0] if len(edges) > 2 else step >= step[0]) & (step <= begin[0])
    before, late = values[lately], values[step > begin[0]]
    highest_before = float(before.max())
    piece = PIECE.get(name, 1.0)
    excluded = max(0.0, edges[-1][1] - max(highest_before, begin[1]) + piece) / span
    # Saw-teeth that climb may end low: then both the highest and the lowest counts rise.
    peaks, floor = float(late.max()) - highest_before, float(late.min() - before.min())
    climbs = peaks + piece >= limit * span and floor >= CLIMBS * limit * span
    if (excluded < limit or edges[-1][1] <= highest_before) and not climbs:
        return CountGrowth(signal=name, state="good", rate=rate, excluded=excluded)
    if len(paces) < FEWEST_STRETCHES:
        return unjudged(name, CountReason.COUNTED_TOO_RARELY())
    keeps = all(b >= KEEPS * a for a, b in pairwise(paces[-MOST_STRETCHES:])) and min(paces[-MOST_STRETCHES:]) > 0
    # A rate computed from whole pieces is off by up to one piece.
    if rise >= FEWEST * piece and rate >= limit * (1 - piece / rise) and keeps and not _at_once(step, values):
        return CountGrowth(signal=name, state="bad", rate=rate, excluded=excluded, kind=_kind(name, trace))
    unmet = CountReason.NOT_AT_ONE_RATE(rise=rise, steps=span) if rise > 0 else CountReason.RISES_AND_FALLS()
    return CountGrowth(signal=name, state="unknown", rate=rate, excluded=excluded, unmet=unmet)


def unjudged(name: str, why: str) -> CountGrowth:
    """Return the growth of a count that cannot be judged, with the reason."""
    return CountGrowth(signal=name, state="unknown", rate=0.0, excluded=np.inf, unmet=why)


def _edges(step: Floats, values: Floats) -> list[tuple[float, float]]:
    """Return (step, count) at the first count and at the end of each stretch that has a count near its end."""
    last = float(step[-1])
    edges = [(float(step[0]), float(values[0]))]
    for share in EDGES:
        place = int(np.searchsorted(step, share * last, side="right")) - 1
        near = place >= 0 and step[place] >= share * last * (1 - NEAR)
        if near and step[place] > edges[-1][0]:
            edges.append((float(step[place]), float(values[place])))
    return edges


def _at_once(step: Floats, values: Floats) -> bool:
    """Return whether one jump accounts for most of the rise in the last half."""
    half = values[step >= step[-1] / 2]
    if len(half) < FEWEST_ROWS:
        return False
    return float(np.diff(half).max()) > LARGEST_JUMP * float(half[-1] - half[0])


def _kind(name: str, trace: Trace) -> str:
    """Return the kind of open files that accounts for most of the growth; "" for other signals."""
    if name != "open_files":
        return ""
    rises = {kind: _rise(*_counted(trace, kind)) for kind in KINDS}
    whole = _rise(*_counted(trace, name))
    return next((kind for kind, rise in rises.items() if rise > 0.7 * whole), "files")


def _rise(step: Floats, values: Floats) -> float:
    return float(values[-1] - values[0]) if len(step) else 0.0
