"""A bisection whose ends differ without a failure: the version that it names must be the one since which they do."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from harness.judge.beside import propose_beside
from harness.judge.row import judge_row
from harness.model import RowRun, Trials
from harness.report.text.names import seen_in
from tests.players.searching import row
from tests.players.trials import made_trial, row_run


def searched(versions: int, first: int, *, least: int = 2) -> RowRun:
    """Bisect a command that prints an error from version `first` on."""
    asked = Trials(least=least, most=max(6, least))
    history = row_run(row(versions, command=("run",)), propose_beside, searched=True, asked=asked)
    while (proposal := propose_beside(history)).runs:
        for run in proposal.runs:
            place = history.cells.index(run)
            text = "done\n" + ("Error: cache not writable\n" if place >= first else "")
            run.trials.append(
                made_trial(
                    cell_id=run.cell.id, number=len(run.trials) + 1, started=f"{place} {len(run.trials)}",
                    round=proposal.round, output_head=text, output_tail=text, duration_s=1.0,
                )
            )  # fmt: skip
    history.proposal = proposal
    return history


@pytest.mark.parametrize("first", [1, 4, 7, 10])
def test_the_first_version_that_prints_an_error_is_named(first: int) -> None:
    """`lib prints a new error since 1.10` was told of an error since 1.8, and `both ends are good`."""
    history = searched(11, first)
    (seen,) = judge_row(history).observations
    assert (seen.before, seen.after, seen.untestable) == (str(first - 1), str(first), ())
    assert sum(len(run.trials) for run in history.cells) <= 4 + 2 * math.ceil(math.log2(10))
    assert history.proposal is not None
    assert "good" not in history.proposal.reason


def test_a_difference_that_was_not_searched_began_earlier_perhaps() -> None:
    history = searched(11, 7)
    cells = tuple(replace(run, trials=run.trials if at in (0, 10) else []) for at, run in enumerate(history.cells))
    (seen,) = judge_row(replace(history, cells=cells)).observations
    assert seen_in(seen, [run.cell.image.version for run in cells]) == "since 10 or earlier"
