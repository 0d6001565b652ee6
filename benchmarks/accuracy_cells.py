"""How often a cell is wrongly called a leak or a leak is missed, and how many steps its launches make: with the rules
of a sweep, and with whole budgets for all launches that have something to confirm.

A cell has three launches. They are `alike` (the same memory in every launch, as with a cache that fills), or each is
drawn independently.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from benchmarks import generators, held_out
from benchmarks.generators import Floats, Generator
from harness.judge.cell import judge_cell, needs_whole_budget
from harness.judge.trace.samples import prefix
from harness.judge.trace.trace_verdict import clear_leak, decide_at_look, judge_trace
from harness.model import GOOD, Limits, Steps, Trace, Trial

SHARE = 8
"""Divisor of `--count`: one cell per generator for every eight requested traces."""
LIMITS, STEPS, LAUNCHES = Limits(), Steps(), 3
RATES = {"quiet": 0.0, "leak 2x": 1.0, "leak 20x": 10.0, "leak 100x": 50.0}
Make = Callable[[Generator], Floats]


@dataclass(frozen=True)
class CellRow:
    """The share of `count` cells that is called a leak, and the mean number of steps of a cell, with both rules."""

    kind: str
    alike: bool
    count: int
    called: float
    called_whole: float
    steps: float
    steps_whole: float


def rows(*, seed: int, count: int) -> list[CellRow]:
    return [_row(kind, alike, seed=seed, count=count) for kind in RATES for alike in (False, True)]


def table(rows: Sequence[CellRow]) -> str:
    head = f"{'':>12}{'launches':>10}{'cells':>8}{'leak':>8}{'whole':>8}{'steps':>8}{'whole':>8}"
    lines = [
        f"{row.kind:>12}{'alike' if row.alike else 'drawn':>10}{row.count:8}{row.called:8.3f}{row.called_whole:8.3f}"
        f"{row.steps:8.0f}{row.steps_whole:8.0f}"
        for row in rows
    ]
    return "\n".join([head, *lines])


def _row(kind: str, alike: bool, *, seed: int, count: int) -> CellRow:
    found = [
        [_cell(make, np.random.default_rng([seed, place, number]), alike=alike, whole=whole) for whole in (False, True)]
        for place, make in enumerate(_makers(RATES[kind]))
        for number in range(count)
    ]
    both = np.array(found, dtype=np.float64)
    called, steps = both[..., 0].mean(axis=0), both[..., 1].mean(axis=0)
    return CellRow(
        kind=kind, alike=alike, count=len(found), called=float(called[0]), called_whole=float(called[1]),
        steps=float(steps[0]), steps_whole=float(steps[1]),
    )  # fmt: skip


def _makers(rate: float) -> list[Make]:
    quiet = (*generators.QUIET.values(), *held_out.QUIET.values())
    leaks = (*generators.LEAKS.values(), *held_out.LEAKS.values())
    if not rate:
        return [lambda rng, make=make: make(rng, STEPS.budget) for make in quiet]  # type: ignore[misc]
    return [lambda rng, make=make: make(rng, STEPS.budget, rate) for make in leaks]  # type: ignore[misc]


def _cell(make: Make, rng: Generator, *, alike: bool, whole: bool) -> tuple[bool, int]:
    """Return whether a generated cell is called a leak, and the number of steps that it took."""
    first = make(rng)
    trials: list[Trial] = []
    for number in range(LAUNCHES):
        kib = first if alike or not number else make(rng)
        trace = Trace(step=np.arange(1.0, len(kib) + 1), columns={"rss_kib": kib})
        asked = _asks_whole(trials) if whole else needs_whole_budget(
            trials, limits=LIMITS, steps=STEPS, depth="usual" if number else "brief"
        )  # fmt: skip
        trials.append(_launch(trace, number, whole=asked, goes_on=whole))
    verdict = judge_cell(trials, limits=LIMITS, steps=STEPS)
    return "leak" in verdict.verdicts, sum(trial.last_step for trial in trials)


def _asks_whole(trials: Sequence[Trial]) -> bool:
    """Return whether the next launch runs the whole budget: none did yet, or one has something to confirm."""
    traces = [trial.trace for trial in trials if trial.trace is not None]
    is_known = any(trial.end == "completed" for trial in trials)
    return not is_known or any(judge_trace(one, limits=LIMITS, steps=STEPS).verdict not in GOOD for one in traces)


def _launch(trace: Trace, number: int, *, whole: bool, goes_on: bool) -> Trial:
    """Return a launch that may stop at each look. With `goes_on`, early growth never ends it."""
    for look in STEPS.looks()[:-1]:
        part = prefix(trace, look)
        if decide_at_look(part, limits=LIMITS, steps=STEPS, whole_budget=whole) == "stop":
            found = judge_trace(part, limits=LIMITS, steps=STEPS)
            if not (goes_on and found.early and clear_leak(found, limits=LIMITS)):
                return replace(_trial(part, number, look), end="stopped")
    return _trial(trace, number, STEPS.budget)


def _trial(trace: Trace, number: int, last: int) -> Trial:
    return Trial(cell_id="made", number=number, key="made", end="completed", last_step=last, trace=trace)
