"""Chooses the row of a host that is launched next, from the proposals and standings of all rows. Pure.

A round that was begun is finished first, because its launches are compared with each other. The first round of every
row comes before the second of any. What looks bad is confirmed next, then comes what is near a limit, and last what is
plainly good, unless it takes less than a quarter of the seconds. Among rows that are equally urgent, the one that takes
the fewest seconds comes first, so that no cheap row waits for a costly one, and no cheap confirmation for a costly
first round. For rows to be confirmed, the seconds already spent on them count as well. A costly first round that was
begun gives way to cheap ones: the order of its versions is random, so the pause favours none of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from harness.judge.trace.samples import settled_median
from harness.model import CellRun, Proposal, RowRun, RowStanding, Trial, Urgency


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


def expected_s(proposal: Proposal, runs: Sequence[CellRun]) -> float | None:
    """Return the seconds that the proposed launches of a row will probably take; None before the row's first launch.

    A version is expected to take as long as its shortest launch, extrapolated to the whole budget if the next launch is
    to run it, and one without a launch as long as the mean of all launches.
    """
    trials = [trial for run in runs for trial in run.measured]
    if not trials:
        return None
    whole = proposal.depth == "whole"
    mean_s = fmean(_took_s(trial, whole=whole) for trial in trials)
    total_s = 0.0
    for run in proposal.runs:
        stopped = proposal.depth != "brief" and all(trial.end == "stopped" for trial in run.measured)
        own_s = (_took_s(trial, whole=whole or stopped) for trial in run.measured)
        total_s += min(own_s, default=mean_s)
    return total_s


def _took_s(trial: Trial, *, whole: bool) -> float:
    """Return the seconds that a launch took, or would have taken for the whole of its requested steps."""
    step_s = settled_median(trial.trace.column("step_s")) if whole and trial.trace is not None else None
    left = max(0, trial.asked.steps - trial.last_step) if trial.end == "stopped" else 0
    return trial.duration_s + left * (step_s or 0.0)


REASONS: Mapping[Urgency, str] = {
    "finish": "a round that was begun is finished first",
    "first": "the first round of every row comes before the second round of any row",
    "confirm": "what looks bad is confirmed before what looks good is launched again",
    "near": "this row takes the fewest seconds of those near a limit",
    "good": "no row has anything to confirm; this one takes the fewest seconds",
}
"""Why a row comes before the others, the most urgent first."""
ORDER: tuple[Urgency, ...] = tuple(REASONS)
COSTLY = 4.0
"""A first round gives way if the rest of it takes at least this many times the seconds of the turn that comes next."""


def choose(rows: Sequence[RowStanding], *, launch_s: float = 0.0) -> int | None:
    """Return the position of the row to launch next, the first one if several are equal; None if there is no row.
    `launch_s`: the expected seconds of a launch of a row without any so far.
    """
    return min(range(len(rows)), key=lambda place: _rank(rows[place], launch_s), default=None)


def gives_way(row: RowStanding, others: Sequence[RowStanding], *, launch_s: float) -> bool:
    """Return whether the rest of a first round, which `row` proposes, waits for a much cheaper first round or
    confirmation of another row.
    """
    place = choose(others, launch_s=launch_s)
    if place is None or others[place].urgency not in ("first", "confirm") or others[place].group > row.group:
        return False
    return COSTLY * others[place].takes_s(launch_s) <= row.takes_s(launch_s)


def by_urgency(rows: Sequence[RowStanding], *, launch_s: float = 0.0) -> list[int]:
    """Return the positions of all rows, the most urgent first."""
    return sorted(range(len(rows)), key=lambda place: _rank(rows[place], launch_s))


def _rank(row: RowStanding, launch_s: float) -> tuple[int, int, float, int, float]:
    """Return the sort key of a row: its group, its urgency, the seconds of its next launches, its nearness to a limit.

    First rounds and confirmations compete by seconds, so that a cheap confirmation does not wait for a costly first
    round. For rows that look bad, the seconds already spent count as well, unless they propose launches that only
    confirm: these are few, and the bad version is then named.
    """
    next_s, urgency = row.takes_s(launch_s), row.urgency
    had_s = row.spent_s if urgency == "confirm" and not row.confirms else 0.0
    shared = ORDER.index({"confirm": "first", "good": "near"}.get(urgency, urgency))
    weight = COSTLY if urgency == "good" else 1.0
    return (row.group, shared, weight * (had_s + next_s), ORDER.index(urgency), -row.nearness)
