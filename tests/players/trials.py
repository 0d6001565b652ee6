"""Launches, rows and traces with a known truth. A part of a trial is given by the name of its field: `signal=11`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from pydantic import TypeAdapter

from harness.judge.cell import judge_cell
from harness.judge.comparison.compared_levels import Compared
from harness.judge.history.changes import find_changes
from harness.judge.history.precision import rises_of_levels
from harness.judge.history.transitions import wants_launches
from harness.judge.next import propose
from harness.judge.signal_verdicts import with_signals
from harness.judge.trace.trace_verdict import judge_trace
from harness.model import (
    CellRun,
    CellVerdict,
    Change,
    Floats,
    Limits,
    Proposal,
    RowRun,
    Series,
    SignalVerdict,
    Steps,
    Trace,
    TraceVerdict,
    Trial,
    Trials,
    VerdictName,
    VersionRow,
)
from harness.model.measured import Facts

FLAT = {
    "output_head": ("output", "head"),
    "output_tail": ("output", "tail"),
    "output_bytes": ("output", "bytes"),
    "buffered": ("output", "buffered"),
    "steps_asked": ("asked", "steps"),
    "time_asked_s": ("asked", "time_s"),
    "image_bytes": ("image", "bytes"),
    **{name: ("conditions", name) for name in ("cold", "disturbed", "pulled", "beside")},
    **{
        name: ("failure", name)
        for name in ("signal", "exit_code", "stacks", "shortfall", "remedy", "at_exit", "oom_in_setup")
    },
}
"""A name that tests use, the part of a trial, and the field of that part."""
PLAIN = Trial(cell_id="c", number=1, key="k", end="completed")


def changed(trial: Trial, **given: Any) -> Trial:
    """Return a trial with these fields changed; names in FLAT are fields of its parts."""
    for name in FLAT.keys() & given.keys():
        part, field = FLAT[name]
        given[part] = replace(given.get(part, getattr(trial, part)), **{field: given.pop(name)})
    if isinstance(facts := given.get("facts"), Mapping):
        given["facts"] = facts_of(facts)
    return replace(trial, **given)


def made_trial(**given: Any) -> Trial:
    """Return a completed trial of one cell with these fields."""
    return changed(PLAIN, **given)


_FACTS = TypeAdapter(Facts)


def facts_of(fields: Mapping[str, Any]) -> Facts:
    """Return the facts that an agent reports with these fields of its messages."""
    return _FACTS.validate_python({**fields, "told_steps": "step_shape" in fields or fields.get("told_steps", False)})


def row_run(cells: Sequence[CellRun], propose: Callable[[RowRun], Proposal] = propose, **given: Any) -> RowRun:
    """Return a row of these cells, oldest first, that a sweep runs."""
    first, images = cells[0].cell, tuple(run.cell.image for run in cells)
    series = Series(name=first.image.series, images=images, where=first.image.where)
    planned = VersionRow(
        series=series, lane=first.lane, variant=first.variant, cells=tuple(run.cell for run in cells)
    )  # fmt: skip
    return RowRun(planned=planned, cells=tuple(cells), propose=propose, **given)


# ---------------------------------------------------------------- traces


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


def of_row(trials: list[list[Trial]], *, steps: Steps = STEPS, limits: Limits = LIMITS, **more: Any) -> Compared:
    """Return the comparable figures of the versions of a row, oldest first."""
    return Compared(cells=[cell_of(each) for each in trials], trials=trials, steps=steps, limits=limits, **more)


def shown(trials: list[list[Trial]], limits: Limits = LIMITS, *, searched: bool = False) -> tuple[CellVerdict, ...]:
    """Return the cells of a row with the verdicts on its levels."""
    compared = of_row(trials, limits=limits, searched=searched)
    return with_signals(compared, {}, rises=rises_of_levels(compared))


def judged(trace: Trace) -> TraceVerdict:
    return judge_trace(trace, limits=LIMITS, steps=STEPS)


def grown(rate: float, spread: float = 0.0) -> dict[str, SignalVerdict]:
    """Return the verdict on memory that grows at this rate."""
    ci = (rate - spread, rate + spread) if spread else None
    return {"memory": SignalVerdict(seen="bad" if rate else "good", value=rate, ci=ci)}


def cell(verdict: VerdictName, *more: VerdictName, trials: int = 3, failed: int = 0, rate: float = 0.0) -> CellVerdict:
    return CellVerdict(verdicts=(verdict, *more), why="", trials=trials, failed=failed, signals=grown(rate))


def changes(cells: list[CellVerdict], **more) -> tuple[Change[int], ...]:
    return find_changes(Compared(cells=cells, trials=[[] for _ in cells], steps=STEPS, limits=LIMITS, **more))


def named(found: tuple[Change[int], ...]) -> list[tuple]:
    return [(one.metric, one.kind, one.before, one.after) for one in found]


def more_launches(*cells: CellVerdict, most: int = 8) -> dict[int, str]:
    trials = [[trial_of(number, steps=64) for number in range(one.trials)] for one in cells]
    return dict(wants_launches(cells, trials, trials_asked=Trials(least=3, most=most)))
