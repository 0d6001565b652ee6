"""Judges the growth of the counts in a launch: open files, threads, processes, zombies, bytes in /dev/shm and on disk.

Counts are exact, and are read at looks and occasionally between them: too rarely for a trend. A leak adds to a count at
a constant rate; a cache or a pool fills more and more slowly, or stops. The launch is divided into stretches, each as
long as all earlier ones together, and a leak keeps its rate from one stretch to the next.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise

import numpy as np

from harness.amounts import general
from harness.judge.trace.growth import LEAST_ROWS
from harness.judge.trace.samples import even_rows, sampled
from harness.judge.trace.trace_verdict import judge_column
from harness.model import GROWTHS, SIGNALS, Floats, Growth, Limits, Per, Trace, counted, unit_after, unit_per

EDGES = (1 / 8, 1 / 4, 1 / 2, 1.0)
"""Ends of the stretches, as shares of the steps; the first stretch begins at the first count."""
NEAR = 0.2
"""Maximum distance of a count from the edge that it represents, as a share of the edge's step."""
KEEPS = 0.8
"""Minimum ratio of the rates of two successive stretches of a leak. A lower ratio reports filling caches as leaks."""
FEWEST = 4
"""Minimum rise of a leak, in pieces (PIECE): a smaller rise may be chance."""
HALF = 0.5
"""Maximum share of the rise in the last half by which one count may exceed what the rate adds from the count before;
and minimum rise of the lowest counts of saw-teeth that climb, as a share of the rise at the limit."""
PIECE = {"shm": 4.0, "disk": 4.0, "worker_memory": 4.0}
"""Size of a piece in KiB, for signals that are amounts: a page, a disk block. For counted things, a piece is 1."""
_BETTER = ("flat", "inconclusive", "leak")
LEAST_HALF_S = 0.1
"""Least time of the steps in the last half of a launch with several processes: the agent counts twice in it. The other
processes do not wait for the steps, and may have done all their work before quicker ones."""


def judge_counts(trace: Trace, *, limits: Limits, per: Per = "step") -> Mapping[str, Growth]:
    """Return the growth of each count by signal: "leak", "flat" or "inconclusive", at the rate of the last half of the
    launch. Signals without counts, or without a limit, are left out. `per`: what its rates are counted by.
    """
    growths = {}
    for name in GROWTHS:
        limit, step, values = limits.of(name), *_counted(trace, name)
        if limit is None or len(step) < 2:
            continue
        if name == "worker_memory":
            kept, alive = _counted(trace, "worker_memory_kept"), _last_alive(trace)
            parts = [(at[at <= alive], kib[at <= alive]) for at, kib in ((step, values), kept)]
            if min(len(at) for at, _ in parts) > 1:  # an image may send anything
                both = [_judge_workers(*each, limit=limit, per=per) for each in parts]
                growths[name] = min(both, key=lambda each: (_BETTER.index(each.verdict), each.rate or 0.0))
        else:
            growths[name] = _judge(name, trace, step, values, limit=limit, per=per)
        if name in growths and growths[name].verdict == "flat" and _are_at_once(trace, float(step[-1])):
            at_once = f"the {counted(per)}s are so quick that all counts were taken at nearly the same time"
            growths[name] = unjudged(f"{at_once}, and other processes may have done their work before")
    return growths


def _last_alive(trace: Trace) -> float:
    """Return the last step at which as many processes were counted as usual. Workers may end before the last step, and
    what they leaked ends with them."""
    step, processes = _counted(trace, "processes")
    alive = step[processes >= np.median(processes)] if len(step) else step
    return float(alive[-1]) if len(alive) else math.inf


def _are_at_once(trace: Trace, last: float) -> bool:
    """Return whether the counts up to step `last` were all taken within so short a time that processes beside the one
    that makes the steps may have worked only before."""
    durations, processes = trace.column("step_s"), _counted(trace, "processes")[1]
    if durations is None or processes.max(initial=0.0) <= 0:
        return False
    half = sampled(durations[trace.step > last / 2])
    return len(half) > 0 and float(half.mean()) * last / 2 < LEAST_HALF_S


def _judge_workers(step: Floats, values: Floats, *, limit: float, per: Per) -> Growth:
    """Judge the memory of the workers by the rule for memory; as a count if it was read too rarely for that.

    A leak must show in the sum, and in the part of it to which workers that start or end add nothing: a worker that
    is replaced takes with it what it leaked, and one that is added is no leak.
    """
    trace = Trace(step=step, columns={"worker_memory": values})
    if len(even_rows(step, values)[0]) < LEAST_ROWS:
        return _judge("worker_memory", trace, step, values, limit=limit, per=per)
    growth = replace(judge_column(trace, "worker_memory", limit=limit, per=per), interval=None)
    if growth.verdict in ("leak", "flat"):
        return growth
    return replace(growth, verdict="inconclusive", rate=growth.rate or 0.0)


def unjudged(why: str) -> Growth:
    """Return the growth of a count that cannot be judged, with the reason."""
    return Growth(verdict="inconclusive", rate=0.0, excluded=math.inf, why=why)


def count_pace(name: str, growth: Growth, per: Per = "step") -> str:
    """Return the rate of a count with its unit: `4 KiB/step`. `per`: what the rates of the launch are counted by."""
    amount = f"{growth.rate:.3g}"
    return f"{amount} {unit_after(amount, unit_per(SIGNALS[name], per))}"


def _counted(trace: Trace, name: str) -> tuple[Floats, Floats]:
    """Return the steps and counts of a signal, each of shape (n,). If a step has two counts, the later one is kept."""
    step, values = trace.counts.get("step"), trace.counts.get(name)
    if step is None or values is None:
        return np.empty(0), np.empty(0)
    is_known = np.isfinite(values) & np.isfinite(step)
    last = np.append(np.diff(step[is_known]) > 0, True) if is_known.any() else np.empty(0, dtype=bool)
    return step[is_known][last], values[is_known][last]


def _kind(trace: Trace) -> str:
    """Return the kind of open files that accounts for most of their growth."""
    counts = {name: _counted(trace, name)[1] for name in ("open_files", "sockets", "pipes")}
    rises = {name: float(values[-1] - values[0]) for name, values in counts.items() if len(values)}
    return next((kind for kind in ("sockets", "pipes") if rises.get(kind, 0.0) > 0.7 * rises["open_files"]), "files")


def _judge(name: str, trace: Trace, step: Floats, values: Floats, *, limit: float, per: Per) -> Growth:
    """Judge a count; its reason is a clause without the name of the signal."""
    piece = PIECE.get(name, 1.0)
    last = float(step[-1])
    # The first count, and that at the end of each stretch that has a count near its end.
    edges = [(float(step[0]), float(values[0]))]
    for share in EDGES:
        place = int(np.searchsorted(step, share * last + 1, side="right")) - 1  # looks are at whole steps
        near = place >= 0 and step[place] >= share * last * (1 - NEAR)
        if near and step[place] > edges[-1][0]:
            edges.append((float(step[place]), float(values[place])))
    paces = [(b - a) / (end - begin) for (begin, a), (end, b) in pairwise(edges)]
    if not paces:
        return unjudged("it was counted too rarely to judge")
    begin, span = edges[-2], edges[-1][0] - edges[-2][0]
    rate, rise = paces[-1], edges[-1][1] - begin[1]
    lately = (step >= edges[-3][0] if len(edges) > 2 else step >= step[0]) & (step <= begin[0])
    before, late = values[lately], values[step > begin[0]]
    highest_before = float(before.max())
    excluded = max(0.0, edges[-1][1] - max(highest_before, begin[1]) + piece) / span
    # Saw-teeth that climb may end low: then both the highest and the lowest counts rise, the lowest ones by less.
    peaks, floor = float(late.max()) - highest_before, float(late.min() - before.min())
    climbs = peaks + piece >= limit * span and floor >= HALF * limit * span
    if (excluded < limit or edges[-1][1] <= highest_before) and not climbs:
        why = f"growth of more than {general(excluded, 2)} a {counted(per)} is ruled out"
        return Growth(verdict="flat", rate=rate, excluded=excluded, why=why)
    if len(paces) < 2:
        return unjudged("it was counted too rarely to judge")
    # At least two stretches must keep the rate, and a third if there is one.
    keeps = all(b >= KEEPS * a for a, b in pairwise(paces[-3:])) and min(paces[-3:]) > 0
    is_late = step >= step[-1] / 2
    half, jumps = values[is_late], np.diff(values[is_late]) - rate * np.diff(step[is_late])
    at_once = float(jumps.max(initial=0.0)) > HALF * float(half[-1] - half[0])
    # A rate computed from whole pieces is off by up to one piece.
    if rise >= FEWEST * piece and rate >= limit * (1 - piece / rise) and keeps and not at_once:
        found = Growth(verdict="leak", rate=rate, excluded=excluded)
        kind = f"{_kind(trace)}: " if name == "open_files" else ""
        return replace(found, why=f"{kind}{count_pace(name, found, per).replace('/', ' a ')} more, at a constant rate")
    why = "it rises and falls, and both its highest and its lowest counts rise"
    if rise > 0:
        why = f"it rose by {general(rise, 4)} in the last {span:,.0f} {counted(per)}s, but not at a constant rate"
    return Growth(verdict="inconclusive", rate=rate, excluded=excluded, why=why)
