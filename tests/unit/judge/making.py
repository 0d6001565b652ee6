"""Traces and trials with a known truth, for the tests of the judge."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from harness.judge.cell import judge_cell
from harness.judge.comparison.compared_levels import Compared
from harness.judge.history.precision import visible
from harness.judge.signal_verdicts import with_signals
from harness.judge.trace.trace_verdict import judge_trace
from harness.model import CellVerdict, Floats, Limits, Steps, Trace, TraceVerdict, Trial
from tests.unit.trials import made_trial

LIMITS = Limits()
STEPS = Steps()
BUDGET = STEPS.budget


def trace_of(rss_kib: Floats | None = None, *, step_s: Floats | None = None, **more: Any) -> Trace:
    columns = {name: values for name, values in (("rss_kib", rss_kib), ("step_s", step_s)) if values is not None}
    rows = len(next(iter(columns.values())))
    return Trace(step=np.arange(1, rows + 1, dtype=np.float64), columns=columns, **more)


def memory(rate: float = 0.0, *, steps: int = BUDGET, seed: int = 0, noise_kib: float = 16.0) -> Floats:
    """Return memory in whole pages: a base, a leak of `rate` KiB/step, and white noise."""
    noise = np.random.default_rng(seed).normal(0, noise_kib, steps)
    return np.asarray(np.round((80_000 + rate * np.arange(steps) + noise) / 4) * 4, dtype=np.float64)


def times(ms: float = 1.0, *, steps: int = BUDGET, seed: int = 0, drift: float = 0.0, launch: float = 0.01) -> Floats:
    """Return step times about `ms`; `drift` is the relative rise over the whole trial, `launch` the factor of this
    launch.
    """
    rng = np.random.default_rng(seed)
    level = ms / 1000 * np.exp(rng.normal(0, launch)) * (1 + drift * np.arange(steps) / steps)
    return np.asarray(level * rng.lognormal(0, 0.02, steps), dtype=np.float64)


def trial_of(
    number: int = 0,
    *,
    rate: float = 0.0,
    ms: float = 1.0,
    drift: float = 0.0,
    steps: int = BUDGET,
    seed: int = 0,
    **more: Any,
) -> Trial:
    """Return a trial that ran `steps`; its noise depends on seed and number."""
    noise = seed * 1000 + number
    trace = trace_of(memory(rate, steps=steps, seed=noise), step_s=times(ms, steps=steps, seed=noise, drift=drift))
    fields: dict[str, Any] = {
        "end": "completed" if steps >= BUDGET else "stopped", "last_step": steps, "round": number, "trace": trace,
    }  # fmt: skip
    return made_trial(cell_id="cell", number=number, key="key", **{**fields, **more})


def failed(number: int = 0, *, end: str = "crash", signal: int | None = 11, message: str = "SIGSEGV") -> Trial:
    return trial_of(number, steps=100, end=end, signal=signal, message=message)


def cell_of(trials: list[Trial]) -> CellVerdict:
    return judge_cell(trials, limits=LIMITS, steps=STEPS)


def row_of(ms: Sequence[float], *, rounds: int = 3, seed: int = 0, **more: Any) -> list[list[Trial]]:
    """Return versions with these step times, all measured in the same rounds."""
    return [
        [
            trial_of(number, **{"ms": each, "seed": seed * 100 + place, "steps": 1000, **more})
            for number in range(rounds)
        ]
        for place, each in enumerate(ms)
    ]


def of_row(trials: list[list[Trial]], *, steps: Steps = STEPS) -> Compared:
    """Return the comparable figures of the versions of a row, oldest first."""
    return Compared(cells=[cell_of(each) for each in trials], trials=trials, steps=steps)


def shown(trials: list[list[Trial]], limits: Limits = LIMITS, *, searched: bool = False) -> tuple[CellVerdict, ...]:
    """Return the cells of a row with the verdicts on its levels."""
    compared = of_row(trials)
    smallest = visible(compared, limits=limits) or {}
    return with_signals(compared, {}, limits=limits, visible=smallest, searched=searched)


def judged(trace: Trace) -> TraceVerdict:
    return judge_trace(trace, limits=LIMITS, steps=STEPS)
