"""Sweeps that end early: what is named by then, what is said about the rest, and that nothing is claimed to be good."""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

import numpy as np
import pytest

from benchmarks.replayed.histories import History, Version
from benchmarks.replayed.worker import replayed
from harness.errors import UsageError
from harness.flows.running import Ending, OpenRows
from harness.model import RowRun, RowStanding, RunResult, Stop, Trace, Trial
from harness.report.text import headline, not_decided
from harness.store import RunDirectory
from tests.nightly import many
from tests.players.engines import swept
from tests.players.searching import a_row


def test_quick_launches_every_version_once_and_calls_nothing_good(tmp_path: Path) -> None:
    """A report that says "all good" after one launch of each version would pass a failure of every second launch."""
    result, launched = swept(tmp_path, Stop(quick=True))
    assert sorted({*launched}) == sorted((f"v{version}", part) for version in range(1, 5) for part in range(3))
    assert len(launched) <= 12 + 1  # and the A/A replicate
    assert (result.verdict, result.exit_code) == ("inconclusive", 4)
    assert all(cell.verdict.provisional for cell in result.cells)
    assert headline.sentence(result).startswith("Stopped by --quick. Nothing bad found, but 12 of 12 cells had too few")
    assert any("stopped by --quick" in line for line in not_decided.lines(result))


def test_quick_confirms_what_looked_bad(tmp_path: Path) -> None:
    result, launched = swept(tmp_path, Stop(quick=True), bad=frozenset({("v3", 1), ("v4", 1)}))
    (finding,) = result.findings
    assert (finding.before, finding.after, finding.confirmed) == ("v2", "v3", True)
    assert (launched.count(("v3", 1)), launched.count(("v4", 1)), launched.count(("v3", 0))) == (2, 1, 1)
    assert result.exit_code == 1


def test_until_first_bad_ends_with_the_first_confirmed_finding(tmp_path: Path) -> None:
    result, launched = swept(tmp_path, Stop(first_bad=True), bad=frozenset({("v3", 0), ("v2", 2)}))
    (finding,) = result.findings
    assert (finding.after, finding.confirmed) in {("v3", True), ("v2", True)}  # the row that took the fewest seconds
    assert len(launched) <= 12 + 1 + 3
    assert {cell.skipped.why for cell in result.cells if cell.skipped} == {"stopped by --until first-bad"}


def test_a_version_that_was_bad_in_one_launch_is_told_although_it_is_not_confirmed(tmp_path: Path) -> None:
    """After Ctrl-C in the first round, no sentence of the report had the name of the bad version."""
    stopped = threading.Event()

    def after(launched: list[tuple[str, int]]) -> None:
        if {version for version, part in launched if part == 0} == {"v1", "v2", "v3", "v4"}:
            stopped.set()

    result, launched = swept(tmp_path, Stop(), bad=frozenset({("v3", 0), ("v4", 0)}), stopped=stopped, after=after)
    assert launched.count(("v3", 0)) == 1
    assert result.verdict == "interrupted"
    assert not result.findings
    assert "s v3 seems bad first (provisional; " in headline.sentence(result)


def _remedies(result: RunResult) -> set[str]:
    return {
        signal.remedy
        for cell in result.cells
        for signal in cell.verdict.signals.values()
        if signal.seen in ("blind", "suspect")
    }


def test_what_an_interrupted_sweep_does_not_show_is_measured_by_the_same_sweep(tmp_path: Path) -> None:
    """The report asked for more launches than planned, although the planned ones had not been made."""
    stopped = threading.Event()

    def after(launched: list[tuple[str, int]]) -> None:
        if len(launched) == 20:
            stopped.set()

    result, _ = swept(tmp_path, Stop(), stopped=stopped, after=after)
    assert result.verdict == "interrupted"
    assert _remedies(result) == {"run the same command again to continue"}
    quick, _ = swept(tmp_path / "quick", Stop(quick=True))
    assert _remedies(quick) == {"stopped by --quick; run the same command without it to continue"}


def test_time_ends_a_sweep_before_its_first_launch_if_there_is_none_and_says_so(tmp_path: Path) -> None:
    result, launched = swept(tmp_path, Stop(time_s=1e-9))
    assert not launched
    assert {cell.verdict.why for cell in result.cells} == {"stopped by --time"}
    assert (result.verdict, result.exit_code) == ("inconclusive", 4)
    assert "12 of 12 cells had no launch" in headline.sentence(result)


def test_a_sweep_that_was_ended_early_goes_on_where_it_ended(tmp_path: Path) -> None:
    swept(tmp_path, Stop(quick=True))
    result, launched = swept(tmp_path, Stop())
    assert result.verdict in ("ok", "inconclusive")
    assert not any(cell.skipped or cell.verdict.provisional for cell in result.cells)
    assert len(launched) >= 24


GOOD, BAD = RowStanding(), RowStanding(suspect=True)


@pytest.mark.parametrize(
    ("asked", "state", "why"),
    [
        (Stop(), GOOD, ""),
        (Stop(quick=True), GOOD, "stopped by --quick"),
        (Stop(quick=True), BAD, ""),
        (Stop(quick=True), RowStanding(first=True), ""),
        (Stop(quick=True), None, ""),  # a round that was begun is not cut off
        (Stop(time_s=10.0), GOOD, ""),
    ],
)
def test_what_looks_bad_is_confirmed_before_a_quick_sweep_ends(
    asked: Stop, state: RowStanding | None, why: str
) -> None:
    assert Ending(asked=asked, clock=lambda: 0.0).why(state) == why


def test_a_time_that_is_over_stays_over() -> None:
    now = iter([60.0, 60.0, 62.0, 65.0, 70.0])
    ending = Ending(asked=Stop(time_s=10.0), clock=lambda: next(now))
    assert ending.why(None) == "", "a minute of waiting for another sweep on the host was taken from `--time 10`"
    ending.begin()
    ending.begin()  # the second host
    assert ending.why(None) == ""
    assert ending.why(None) == "stopped by --time"
    assert replace(ending.asked, time_s=None) == Stop()
    assert ending.reason == "stopped by --time"


# ---------------------------------------------------------------- traces of open rows are whole when judged


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


# ---------------------------------------------------------------- how soon a slow version is named


VERSIONS = {"39.0.2": 120e-6, "40.0.2": 120e-6, "41.0.0": 0.036, "41.0.1": 0.036, "41.0.2": 0.036, "41.0.3": 120e-6,
            "42.0.8": 120e-6}  # fmt: skip


def test_a_step_300_times_slower_is_named_within_a_minute_of_steps() -> None:
    """It took ten minutes: each launch of a slow version ran for its 4,000 steps, or for at least 500."""
    history = History(
        name="dh", kind="slowdown", signal="step_time", first_bad="41.0.0", leak="0.5KiB", budget=4000,
        versions=tuple(
            Version(name=name, overhead_s=0.0, setup_s=0.0, first_step_s=0.0, step_s=step_s, noise=0.04,
                    rss=((1.0, 50_000.0), (4000.0, 50_016.0)))
            for name, step_s in VERSIONS.items()
        ),
    )  # fmt: skip
    for seed in range(many(1, 10)):
        told = replayed([history], search="full", seed=seed)
        named = told["rows"]["dh"]["named"]
        assert named is not None
        assert sum(each["seconds"] for each in told["launches"][:named]) <= 60
        assert sum(each["seconds"] for each in told["launches"]) <= 180
