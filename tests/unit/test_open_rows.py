"""The traces of open rows: bounded in memory, and whole again when they are judged."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path

import numpy as np
import pytest

from harness.errors import UsageError
from harness.flows.running import OpenRows
from harness.model import RowRun, Trace, Trial
from harness.store import RunDirectory
from tests.players.searching import a_row

ROWS = 2000


def measured(name: str, directory: RunDirectory) -> RowRun:
    made = a_row(name, 1)
    step = np.arange(1.0, ROWS + 1)
    trace = Trace(step=step, columns={"rss_kib": 50_000 + step % 7, "step_s": np.full(ROWS, 1e-3)})
    run = made.cells[0]
    run.trials.append(Trial(cell_id=run.cell.id, number=1, key="k", end="completed", last_step=ROWS, trace=trace))
    directory.write_trial(run.trials[0], run.cell)
    return made


def held(row: RowRun) -> int:
    trace = row.cells[0].trials[0].trace
    return 0 if trace is None else len(trace.step)


def test_memory_does_not_grow_with_the_number_of_open_rows(tmp_path: Path) -> None:
    """A matrix of a thousand rows held every trace until its last round."""
    directory = RunDirectory.create(out=tmp_path, matrix="m", now=datetime.now(timezone.utc))
    rows = [measured(f"row{number}", directory) for number in range(10)]
    keeper = OpenRows(read=directory.read_back, held_bytes=3 * ROWS * 3 * 8)
    for row in rows:
        keeper.recall(row)
        keeper.put_down(row)
    assert [held(row) == ROWS for row in rows] == [False] * 7 + [True] * 3
    before = rows[9].cells[0].trials[0].trace
    keeper.recall(rows[0])
    after = rows[0].cells[0].trials[0].trace
    assert before is not None
    assert after is not None
    assert np.array_equal(after.columns["rss_kib"], before.columns["rss_kib"])
    assert np.allclose(after.columns["step_s"], before.columns["step_s"])


def test_a_row_that_is_being_launched_keeps_its_traces(tmp_path: Path) -> None:
    directory = RunDirectory.create(out=tmp_path, matrix="m", now=datetime.now(timezone.utc))
    rows = [measured(f"row{number}", directory) for number in range(4)]
    keeper = OpenRows(read=directory.read_back, held_bytes=ROWS * 3 * 8)
    keeper.put_down(rows[0])
    keeper.recall(rows[0])
    for row in rows[1:]:
        keeper.put_down(row)
    assert held(rows[0]) == ROWS


def test_a_trial_file_that_is_gone_is_an_error_in_one_line(tmp_path: Path) -> None:
    directory = RunDirectory.create(out=tmp_path, matrix="m", now=datetime.now(timezone.utc))
    row = measured("row", directory)
    keeper = OpenRows(read=directory.read_back, held_bytes=0)
    keeper.put_down(row)
    for path in (directory.path / "trials").iterdir():
        path.unlink()
    with pytest.raises(UsageError) as told:
        keeper.recall(row)
    assert "\n" not in str(told.value)
