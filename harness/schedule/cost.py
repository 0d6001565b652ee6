"""Estimates, from the launches of a row so far, how many seconds its next launches will take."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from harness.judge.trace.trace_verdict import settled_median
from harness.model import Trial
from harness.run.run_interfaces import Batch, CellRun, RowRun


def round_limit_s(row: RowRun) -> float:
    """Return how long a round of a row may take, in seconds: the sum of its launches' timeouts. Each step of their
    budgets adds 1 ms, so that of two rows with equal timeouts the one with more steps counts as longer.
    """
    scenario = row.cells[0].cell.variant.scenario
    launched = sum(run.cell.excluded is None for run in row.cells)
    return launched * (scenario.timeout_s + scenario.steps.budget / 1000)


def spent_s(runs: Sequence[CellRun]) -> float:
    """Return the total seconds of all launches of a row, those of earlier runs included."""
    return sum(trial.duration_s for run in runs for trial in run.measured)


def expected_s(batch: Batch, runs: Sequence[CellRun]) -> float | None:
    """Return the seconds that a batch of a row will probably take; None before the row's first launch. A version
    without a launch is expected to take the mean of all launches.
    """
    trials = [trial for run in runs for trial in run.measured]
    if not trials:
        return None
    mean_s = fmean(map(_whole_s if batch.whole else _same_s, trials))
    return sum(_expected_s(run, batch) if run.measured else mean_s for run in batch.runs)


def _expected_s(run: CellRun, batch: Batch) -> float:
    """Return the expected seconds of a version's next launch: those of its shortest launch, extrapolated to the whole
    budget if the next launch is to run it.
    """
    is_whole = batch.whole or (batch.depth != "brief" and all(trial.end == "stopped" for trial in run.measured))
    return min(map(_whole_s if is_whole else _same_s, run.measured))


def _same_s(trial: Trial) -> float:
    return trial.duration_s


def _whole_s(trial: Trial) -> float:
    """Return the seconds that the launch would have taken for all of its requested steps."""
    step_s = settled_median(trial.trace.column("step_s")) if trial.trace is not None else None
    left = max(0, trial.steps_asked - trial.last_step) if trial.end == "stopped" else 0
    return trial.duration_s + left * (step_s or 0.0)
