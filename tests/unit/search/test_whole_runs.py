"""A bisection of programs without steps: only the whole run tells which version is worse."""

from __future__ import annotations

import math

import numpy as np
import pytest

from harness.judge.beside import propose_beside
from harness.judge.row import judge_row
from harness.model import RowRun, Trials
from tests.players.searching import row
from tests.players.trials import facts_of, made_trial, row_run, trace_of

RUN_S, PEAK_KIB = 4.0, 100_000.0


def searched(versions: int, first: int, *, longer: float = 1.0, larger: float = 1.0) -> RowRun:
    """Bisect a command that takes `longer` and has a `larger` peak of memory from version `first` on."""
    history = row_run(row(versions, command=("run",)), propose_beside, searched=True, asked=Trials())
    while (proposal := propose_beside(history)).runs:
        for run in proposal.runs:
            place, number = history.cells.index(run), len(run.trials) + 1
            worse, noise = place >= first, 1 + 0.001 * ((place * 7 + number * 3) % 5)
            run_s, peak_kib = (RUN_S * longer if worse else RUN_S) * noise, (PEAK_KIB * larger if worse else PEAK_KIB)
            trial = made_trial(
                cell_id=run.cell.id, number=number, started=f"{place:02} {number:02}", round=proposal.round,
                duration_s=run_s, peak_rss_kib=peak_kib * noise, facts=facts_of({"run_s": run_s}),
                trace=trace_of(np.full(5, peak_kib * noise), step_s=np.full(5, math.nan)),
            )  # fmt: skip
            run.trials.append(trial)
    return history


@pytest.mark.parametrize(("metric", "worse"), [("run_time", {"longer": 1.5}), ("peak_memory", {"larger": 1.3})])
@pytest.mark.parametrize("first", [1, 7, 11])
def test_the_version_that_takes_more_is_named(metric: str, worse: dict[str, float], first: int) -> None:
    """pymongo leaked in three of ten versions, and the answer was all ten: only step times were searched for."""
    history = searched(12, first, **worse)
    (found,) = judge_row(history).findings
    assert (found.metric, found.kind, found.before, found.after) == (metric, "first_bad", str(first - 1), str(first))
    assert sum(len(run.trials) for run in history.cells) < 3 * 12


def test_equal_versions_are_accused_of_nothing() -> None:
    assert judge_row(searched(12, 12)).findings == ()
