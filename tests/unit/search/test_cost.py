"""What launches will cost: with a wrong estimate, a cheap row waits for a costly one."""

from __future__ import annotations

import numpy as np
import pytest

from harness.model import Asked, Proposal, RowRun, Trace, Trial
from harness.schedule import expected_s, spent_s
from tests.players.searching import a_row


def trial(steps: int, *, step_s: float, end: str = "stopped") -> Trial:
    trace = Trace(step=np.arange(1.0, steps + 1), columns={"step_s": np.full(steps, step_s)}, looks=())
    return Trial(
        cell_id="c", number=1, key="k", end=end, asked=Asked(steps=4000), last_step=steps, trace=trace,
        duration_s=2 + steps * step_s,
    )  # fmt: skip


def launched(*trials: Trial) -> RowRun:
    made = a_row("a", 3)
    made.cells[0].trials.extend(trials)
    return made


def test_nothing_is_known_of_a_row_before_its_first_launch() -> None:
    made = launched()
    assert expected_s(Proposal(kind="round", runs=made.cells), made.cells) is None
    assert spent_s(made.cells) == 0


@pytest.mark.parametrize(
    ("trials", "depth", "expected"),
    [
        ((trial(500, step_s=0.01),), "brief", 7),
        ((trial(500, step_s=0.01),), "usual", 42),  # the second launch runs the whole budget
        ((trial(500, step_s=0.01), trial(4000, step_s=0.01, end="completed")), "usual", 7),
        ((trial(10, step_s=0.01, end="crash"),), "usual", 2.1),  # a version that crashes does so again
    ],
)
def test_a_launch_takes_what_it_took_before_and_the_whole_budget_if_it_has_to(trials, depth, expected) -> None:
    made = launched(*trials)
    assert expected_s(Proposal(kind="round", runs=made.cells, depth=depth), made.cells) == pytest.approx(expected)
    assert spent_s(made.cells) == pytest.approx(sum(each.duration_s for each in trials))


def test_a_version_that_had_no_launch_takes_as_long_as_the_others() -> None:
    made, other = launched(trial(500, step_s=0.01)), launched()
    assert expected_s(Proposal(kind="round", runs=other.cells), [*made.cells, *other.cells]) == pytest.approx(7)
