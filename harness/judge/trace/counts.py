"""Growth of what is counted in a launch: open files, threads, processes, zombies, bytes in /dev/shm and on disk.

Counts are exact, and read at looks and now and then between them. A program that piles something up does so at every
step, or once in so many; one that fills a cache or a pool does so more and more slowly, or stops. So the launch is cut
into stretches that are each as long as all before them, and what piles up keeps its pace from one to the next.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np

from harness.model import GROWTHS, SIGNALS, Floats, Limits, Trace

EDGES = (1 / 8, 1 / 4, 1 / 2, 1.0)
"""Where the stretches end, as shares of the steps; the first one begins with the first count."""
NEAR = 0.2
"""A count stands for an edge if it was taken this near to it, as a share of the edge's step."""
FEWEST_STRETCHES, MOST_STRETCHES = 2, 3
"""So many of the last stretches must have one pace, as far as there are."""
KEEPS = 0.8
"""The share of its pace that what piles up keeps from one stretch to the next."""
FEWEST = 4
"""A rise of fewer pieces may be anything."""
LARGEST_JUMP = 0.5
"""The share of the rise in the last half that may come at once, where counts between the edges show it."""
FEWEST_ROWS = 8
"""Counts in the last half that show whether the rise came at once."""
PIECE = {"shm": 4.0, "disk": 4.0}
"""The size of a piece, in the unit of the count, of what is not counted in whole numbers: a page, a block."""
KINDS = ("sockets", "pipes")


@dataclass(frozen=True, kw_only=True)
class CountGrowth:
    """What one count does in a launch. `rate` is the pace over the last half, a step; `excluded` the fastest pace that
    the launch leaves possible; `unmet` why it cannot be told.
    """

    signal: str
    state: Literal["bad", "good", "unknown"]
    rate: float
    excluded: float
    kind: str = ""
    unmet: str = ""

    def __str__(self) -> str:
        signal = SIGNALS[self.signal]
        if self.state == "bad":
            what = f" ({self.kind})" if self.kind else ""
            pace = f"{self.rate:.3g} {signal.unit.replace('/', ' a ')} more"
            return f"{signal.title}{what}: {pace}, at one pace all the time"
        return f"{signal.title}: {self.unmet or f'no more than {self.excluded:.2g} a step pile up'}"


def judge_counts(trace: Trace, *, limits: Limits) -> Mapping[str, CountGrowth]:
    """By signal, what its count does in a launch; none for what was not counted, or has no limit."""
    found = {}
    for name in GROWTHS:
        limit, step, values = limits.of(name), *_counted(trace, name)
        if limit is not None and len(step) > 1:
            found[name] = _judge(name, step, values, limit=limit, trace=trace)
    return found


def _counted(trace: Trace, name: str) -> tuple[Floats, Floats]:
    """The steps at which it was counted, and the counts; of two at one step the later one."""
    step, values = trace.counts.get("step"), trace.counts.get(name)
    if step is None or values is None:
        return np.empty(0), np.empty(0)
    known = np.isfinite(values) & np.isfinite(step)
    last = np.append(np.diff(step[known]) > 0, True) if known.any() else np.empty(0, dtype=bool)
    return step[known][last], values[known][last]


def _judge(name: str, step: Floats, values: Floats, *, limit: float, trace: Trace) -> CountGrowth:
    edges = _edges(step, values)
    paces = [(b - a) / (end - begin) for (begin, a), (end, b) in pairwise(edges)]
    if not paces:
        return _untold(name)
    begin, span = edges[-2], edges[-1][0] - edges[-2][0]
    rate, rise = paces[-1], edges[-1][1] - begin[1]
    lately = (step >= edges[-3][0] if len(edges) > 2 else step >= step[0]) & (step <= begin[0])
    highest_before = float(values[lately].max())
    piece = PIECE.get(name, 1.0)
    excluded = max(0.0, edges[-1][1] - max(highest_before, begin[1]) + piece) / span
    if excluded < limit or edges[-1][1] <= highest_before:
        return CountGrowth(signal=name, state="good", rate=rate, excluded=excluded)
    if len(paces) < FEWEST_STRETCHES:
        return _untold(name)
    keeps = all(b >= KEEPS * a for a, b in pairwise(paces[-MOST_STRETCHES:])) and min(paces[-MOST_STRETCHES:]) > 0
    if rate >= limit * (1 - _rounding(piece, rise)) and keeps and rise >= FEWEST * piece and not _at_once(step, values):
        return CountGrowth(signal=name, state="bad", rate=rate, excluded=excluded, kind=_kind(name, trace))
    unmet = f"it rose by {rise:.4g} in the last half, but not at one pace; more steps would tell"
    return CountGrowth(signal=name, state="unknown", rate=rate, excluded=excluded, unmet=unmet)


def _untold(name: str) -> CountGrowth:
    return CountGrowth(
        signal=name, state="unknown", rate=0.0, excluded=np.inf, unmet="it was counted too rarely to tell"
    )


def _rounding(piece: float, rise: float) -> float:
    """By how much a pace may be wrong because counts are whole."""
    return piece / rise if rise > 0 else 0.0


def _edges(step: Floats, values: Floats) -> list[tuple[float, float]]:
    """(step, count) at the first count and at the end of each stretch, where a count was taken near enough."""
    last = float(step[-1])
    found = [(float(step[0]), float(values[0]))]
    for share in EDGES:
        place = int(np.searchsorted(step, share * last, side="right")) - 1
        near = place >= 0 and step[place] >= share * last * (1 - NEAR)
        if near and step[place] > found[-1][0]:
            found.append((float(step[place]), float(values[place])))
    return found


def _at_once(step: Floats, values: Floats) -> bool:
    """Whether most of the rise in the last half came in one jump."""
    half = values[step >= step[-1] / 2]
    if len(half) < FEWEST_ROWS:
        return False
    return float(np.diff(half).max()) > LARGEST_JUMP * float(half[-1] - half[0])


def _kind(name: str, trace: Trace) -> str:
    """What kind of open files piles up, where one kind makes most of it."""
    if name != "open_files":
        return ""
    rises = {kind: _rise(*_counted(trace, kind)) for kind in KINDS}
    whole = _rise(*_counted(trace, name))
    return next((kind for kind, rise in rises.items() if rise > 0.7 * whole), "files")


def _rise(step: Floats, values: Floats) -> float:
    return float(values[-1] - values[0]) if len(step) else 0.0
